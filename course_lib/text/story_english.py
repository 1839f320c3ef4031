"""How English nouns take articles and plurals, and verbs their past and -ing forms, for the stories."""

VOWELS = "aeiou"
# Words whose first letter misleads about the first sound.
SAYS_VOWEL = ("hour", "honest")
SAYS_CONSONANT = ("uni", "use", "euro", "one")

IRREGULAR_PLURALS = {
    "child": "children", "man": "men", "woman": "women", "fish": "fish", "loaf": "loaves", "leaf": "leaves",
    "tooth": "teeth", "foot": "feet", "knife": "knives", "sheep": "sheep",
}  # fmt: skip
IRREGULAR_PASTS = {
    "swim": "swam", "ride": "rode", "fly": "flew", "draw": "drew", "make": "made", "go": "went", "see": "saw",
    "sing": "sang", "write": "wrote", "catch": "caught", "buy": "bought", "give": "gave", "lose": "lost",
    "find": "found", "tell": "told", "read": "read", "run": "ran", "come": "came", "eat": "ate", "take": "took",
    "bring": "brought", "say": "said", "think": "thought", "feel": "felt", "fall": "fell", "keep": "kept",
}  # fmt: skip
DOUBLED = ("swim", "run", "plan", "chat", "stop", "sit")

NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
ROUND_NUMBERS = {
    30: "thirty", 40: "forty", 50: "fifty", 60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety",
    100: "a hundred",
}  # fmt: skip

PRONOUNS = {
    "m": {"he": "he", "him": "him", "his": "his"},
    "f": {"he": "she", "him": "her", "his": "her"},
}


def with_article(phrase: str) -> str:
    """`phrase` after "a" or "an", by its first sound: an umbrella, a uniform, an hour."""
    vowel = (phrase[0] in VOWELS and not phrase.startswith(SAYS_CONSONANT)) or phrase.startswith(SAYS_VOWEL)
    return f"an {phrase}" if vowel else f"a {phrase}"


def plural(phrase: str) -> str:
    """The plural of the last word: mangoes, leaves, puppies, children."""
    head, space, word = phrase.rpartition(" ")
    return head + space + _plural_word(word)


def _plural_word(word: str) -> str:
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "ch", "sh", "mango", "potato", "tomato")):
        return word + "es"
    return word + "s"


def past(phrase: str) -> str:
    """The simple past of a verb phrase's first word: swim → swam, ride a bicycle → rode a bicycle."""
    word, space, rest = phrase.partition(" ")
    return _past_word(word) + space + rest


def _past_word(word: str) -> str:
    if word in IRREGULAR_PASTS:
        return IRREGULAR_PASTS[word]
    if word in DOUBLED:
        return word + word[-1] + "ed"
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ied"
    return word + "ed"


def ing(phrase: str) -> str:
    """The -ing form of a verb phrase's first word: swim → swimming, ride a bicycle → riding a bicycle."""
    word, space, rest = phrase.partition(" ")
    if word in DOUBLED:
        word += word[-1]
    elif word.endswith("e") and not word.endswith("ee"):
        word = word[:-1]
    return f"{word}ing{space}{rest}"


def possessive(name: str) -> str:
    """Rahim's; Grandmother's."""
    return f"{name}'s"


def number_word(number: int) -> str:
    """The numeral as a word, for 0–20 and the round numbers to 100."""
    if 0 <= number < len(NUMBER_WORDS):
        return NUMBER_WORDS[number]
    if number in ROUND_NUMBERS:
        return ROUND_NUMBERS[number]
    raise ValueError(f"number must be 0–20 or a round number to 100 to be written as a word, got {number}")
