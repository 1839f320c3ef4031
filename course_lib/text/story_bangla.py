"""How Bangla nouns take case endings, numbers take classifiers and words become plural.

The rules look at the final *sound* of a word, as a speaker does: নদী → নদীর, নদীতে; গ্রাম → গ্রামের, গ্রামে;
ঢাকা → ঢাকার, ঢাকায়; বই → বইয়ের, বইয়ে; মা → মায়ের. What spelling does not show (the spoken vowel at the end of
শুভ, the ঙ inside রং) stands in `EXCEPTIONS`. Verbs live in `story_bangla_verbs`.
All text is NFC, in which য়, ড় and ঢ় are two code points each.
"""

import re

VOWEL_SIGNS = "ািীুূৃেৈোৌ"
CLOSING_VOWELS = "ইঈউঊ"

# A single consonant (or conjunct) with a vowel sign: মা, পা, চা, ঘি, গাঁ. These keep a glide before the ending.
ONE_SYLLABLE = re.compile(r"^[ক-হ]়?(?:্[ক-হ]়?)*[ািীুূেো]ঁ?$")

# word: (genitive, locative), where the last letter does not tell the last sound.
EXCEPTIONS = {
    "রং": ("রঙের", "রঙে"),
    "শুভ": ("শুভর", "শুভতে"),
    "ধ্রুব": ("ধ্রুবর", "ধ্রুবতে"),
    "বড়": ("বড়র", "বড়তে"),
    "ছোট": ("ছোটর", "ছোটতে"),
}

NUMBER_WORDS = (
    "শূন্য", "এক", "দুই", "তিন", "চার", "পাঁচ", "ছয়", "সাত", "আট", "নয়", "দশ",
    "এগারো", "বারো", "তেরো", "চৌদ্দ", "পনেরো", "ষোলো", "সতেরো", "আঠারো", "উনিশ", "বিশ",
)  # fmt: skip
ROUND_NUMBERS = {
    30: "ত্রিশ", 40: "চল্লিশ", 50: "পঞ্চাশ", 60: "ষাট", 70: "সত্তর", 80: "আশি", 90: "নব্বই", 100: "একশ",
}  # fmt: skip
DIGITS = str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯")


def split_last_word(phrase: str) -> tuple[str, str]:
    """`("স্কুলের ", "মাঠ")` for "স্কুলের মাঠ": only the last word of a phrase takes an ending."""
    head, space, last = phrase.rpartition(" ")
    return head + space, last


def genitive(phrase: str) -> str:
    """The possessive: রহিম → রহিমের, নদী → নদীর, বই → বইয়ের, মা → মায়ের, বিদ্যুৎ → বিদ্যুতের."""
    head, word = split_last_word(phrase)
    if word in EXCEPTIONS:
        return head + EXCEPTIONS[word][0]
    last = word[-1]
    if last == "ৎ":
        return f"{head}{word[:-1]}তের"
    if last in CLOSING_VOWELS or last == "ং" or ONE_SYLLABLE.match(word):
        return f"{head}{word}য়ের"
    if last in VOWEL_SIGNS or last == "ও":
        return f"{head}{word}র"
    return f"{head}{word}ের"


def locative(phrase: str) -> str:
    """The place or goal: গ্রাম → গ্রামে, ঢাকা → ঢাকায়, নদী → নদীতে, বই → বইয়ে, পা → পায়ে."""
    head, word = split_last_word(phrase)
    if word in EXCEPTIONS:
        return head + EXCEPTIONS[word][1]
    last = word[-1]
    if last == "ৎ":
        return f"{head}{word[:-1]}তে"
    if last in CLOSING_VOWELS or last == "ং" or ONE_SYLLABLE.match(word):
        return f"{head}{word}য়ে"
    if last == "া":
        return f"{head}{word}য়"
    if last in VOWEL_SIGNS or last == "ও":
        return f"{head}{word}তে"
    return f"{head}{word}ে"


def objective(phrase: str) -> str:
    """The person or definite thing acted on: রহিম → রহিমকে, মা → মাকে, ভাই → ভাইকে."""
    return f"{phrase}কে"


def things(phrase: str, case: str = "nominative") -> str:
    """A plural of things and animals: বইগুলো, বইগুলোর, বইগুলোতে, বইগুলোকে. Never after a numeral."""
    return decline(f"{phrase}গুলো", case)


def decline(phrase: str, case: str) -> str:
    """`phrase` in the case named "nominative", "genitive", "objective" or "locative"."""
    match case:
        case "nominative":
            return phrase
        case "genitive":
            return genitive(phrase)
        case "objective":
            return objective(phrase)
        case "locative":
            return locative(phrase)
    raise ValueError(f"case must be nominative, genitive, objective or locative, got {case!r}")


def number_word(number: int) -> str:
    """The numeral as a word, for 0–20 and the round numbers to 100."""
    if 0 <= number < len(NUMBER_WORDS):
        return NUMBER_WORDS[number]
    if number in ROUND_NUMBERS:
        return ROUND_NUMBERS[number]
    raise ValueError(f"number must be 0–20 or a round number to 100 to be written as a word, got {number}")


def digits(number: int) -> str:
    """The numeral in Bangla digits: 25 → ২৫."""
    return str(number).translate(DIGITS)


def counted(number: int, classifier: str = "টি") -> str:
    """A number with its classifier: একটি, দুটি, তিনজন, একখানা. দুই is shortened to দু before any of them."""
    stem = "দু" if number == 2 else number_word(number)
    return f"{stem}{classifier}"
