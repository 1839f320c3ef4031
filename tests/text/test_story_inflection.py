"""Tables written by hand: how Bangla nouns decline and verbs conjugate, and what English does."""

import unicodedata

import pytest

from course_lib.text import story_bangla as bangla
from course_lib.text import story_english as english
from course_lib.text.story_bangla_verbs import PERSONS, TENSES, VERBS, conjugate, non_finite


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


# nominative, genitive, locative
NOUNS = """
নদী নদীর নদীতে
ঢাকা ঢাকার ঢাকায়
গ্রাম গ্রামের গ্রামে
বই বইয়ের বইয়ে
ভাই ভাইয়ের ভাইয়ে
বউ বউয়ের বউয়ে
লাউ লাউয়ের লাউয়ে
মা মায়ের মায়ে
পা পায়ের পায়ে
চা চায়ের চায়ে
ঘি ঘিয়ের ঘিয়ে
গাঁ গাঁয়ের গাঁয়ে
রেডিও রেডিওর রেডিওতে
মেয়ে মেয়ের মেয়েতে
আলো আলোর আলোতে
দাদু দাদুর দাদুতে
বাড়ি বাড়ির বাড়িতে
সময় সময়ের সময়ে
বিদ্যালয় বিদ্যালয়ের বিদ্যালয়ে
পাহাড় পাহাড়ের পাহাড়ে
বিদ্যুৎ বিদ্যুতের বিদ্যুতে
রং রঙের রঙে
শুভ শুভর শুভতে
চাঁদ চাঁদের চাঁদে
গল্প গল্পের গল্পে
বসন্ত বসন্তের বসন্তে
সিলেট সিলেটের সিলেটে
রাজশাহী রাজশাহীর রাজশাহীতে
কুমিল্লা কুমিল্লার কুমিল্লায়
ময়মনসিংহ ময়মনসিংহের ময়মনসিংহে
উমেচিং উমেচিংয়ের উমেচিংয়ে
থোয়াই থোয়াইয়ের থোয়াইয়ে
মেলা মেলার মেলায়
"""


@pytest.mark.parametrize("row", NOUNS.split("\n")[1:-1])
def test_a_noun_declines_by_its_last_sound(row: str) -> None:
    noun, genitive, locative = nfc(row).split()
    assert (bangla.genitive(noun), bangla.locative(noun)) == (genitive, locative)
    assert bangla.objective(noun) == f"{noun}কে"


@pytest.mark.parametrize(
    ("phrase", "case", "form"),
    [
        ("স্কুলের মাঠ", "locative", "স্কুলের মাঠে"),
        ("নীল ছাতাটি", "genitive", "নীল ছাতাটির"),
        ("বৃদ্ধ লোকটি", "objective", "বৃদ্ধ লোকটিকে"),
        ("ছাতাটা", "locative", "ছাতাটায়"),
        ("তিনজন", "genitive", "তিনজনের"),
        ("নদীর ধার", "nominative", "নদীর ধার"),
    ],
)
def test_a_phrase_declines_in_its_last_word(phrase: str, case: str, form: str) -> None:
    assert bangla.decline(nfc(phrase), case) == nfc(form)


def test_things_in_the_plural() -> None:
    assert [bangla.things("বই", case) for case in ("nominative", "genitive", "locative", "objective")] == [
        "বইগুলো", "বইগুলোর", "বইগুলোতে", "বইগুলোকে",
    ]  # fmt: skip


def test_numbers_take_their_classifier() -> None:
    assert [bangla.counted(n) for n in (1, 2, 3, 5)] == ["একটি", "দুটি", "তিনটি", "পাঁচটি"]
    assert [bangla.counted(n, "জন") for n in (1, 2, 3)] == ["একজন", "দুজন", "তিনজন"]
    assert bangla.counted(1, "খানা") == "একখানা"
    assert bangla.digits(250) == "২৫০"


def test_a_number_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="0–20 or a round number to 100"):
        bangla.number_word(37)
    with pytest.raises(ValueError, match="0–20 or a round number to 100"):
        english.number_word(37)


# verb tense: আমি, তুমি, সে, তিনি
FINITE = """
করা present করি করো করে করেন
করা continuous করছি করছ করছে করছেন
করা perfect করেছি করেছ করেছে করেছেন
করা past করলাম করলে করল করলেন
করা past-continuous করছিলাম করছিলে করছিল করছিলেন
করা past-perfect করেছিলাম করেছিলে করেছিল করেছিলেন
করা habitual করতাম করতে করত করতেন
করা future করব করবে করবে করবেন
রাখা present রাখি রাখো রাখে রাখেন
রাখা perfect রেখেছি রেখেছ রেখেছে রেখেছেন
আঁকা perfect এঁকেছি এঁকেছ এঁকেছে এঁকেছেন
কাঁদা past-perfect কেঁদেছিলাম কেঁদেছিলে কেঁদেছিল কেঁদেছিলেন
লেখা present লিখি লেখো লেখে লেখেন
লেখা past লিখলাম লিখলে লিখল লিখলেন
শোনা present শুনি শোনো শোনে শোনেন
শোনা past-continuous শুনছিলাম শুনছিলে শুনছিল শুনছিলেন
ওঠা past উঠলাম উঠলে উঠল উঠলেন
খোঁজা past খুঁজলাম খুঁজলে খুঁজল খুঁজলেন
কেনা future কিনব কিনবে কিনবে কিনবেন
খাওয়া present খাই খাও খায় খান
খাওয়া continuous খাচ্ছি খাচ্ছ খাচ্ছে খাচ্ছেন
খাওয়া past খেলাম খেলে খেল খেলেন
খাওয়া future খাব খাবে খাবে খাবেন
খাওয়া habitual খেতাম খেতে খেত খেতেন
পাওয়া perfect পেয়েছি পেয়েছ পেয়েছে পেয়েছেন
যাওয়া present যাই যাও যায় যান
যাওয়া past গেলাম গেলে গেল গেলেন
যাওয়া perfect গেছি গেছ গেছে গেছেন
যাওয়া past-perfect গিয়েছিলাম গিয়েছিলে গিয়েছিল গিয়েছিলেন
যাওয়া past-continuous যাচ্ছিলাম যাচ্ছিলে যাচ্ছিল যাচ্ছিলেন
যাওয়া habitual যেতাম যেতে যেত যেতেন
যাওয়া future যাব যাবে যাবে যাবেন
আসা present আসি আসো আসে আসেন
আসা past এলাম এলে এল এলেন
আসা past-perfect এসেছিলাম এসেছিলে এসেছিল এসেছিলেন
দেওয়া present দিই দাও দেয় দেন
দেওয়া past দিলাম দিলে দিল দিলেন
দেওয়া future দেব দেবে দেবে দেবেন
নেওয়া continuous নিচ্ছি নিচ্ছ নিচ্ছে নিচ্ছেন
নেওয়া habitual নিতাম নিতে নিত নিতেন
হওয়া present হই হও হয় হন
হওয়া past হলাম হলে হলো হলেন
হওয়া continuous হচ্ছি হচ্ছ হচ্ছে হচ্ছেন
চাওয়া past চাইলাম চাইলে চাইল চাইলেন
চাওয়া future চাইব চাইবে চাইবে চাইবেন
গাওয়া present গাই গাও গায় গান
দাঁড়ানো present দাঁড়াই দাঁড়াও দাঁড়ায় দাঁড়ান
দাঁড়ানো past দাঁড়ালাম দাঁড়ালে দাঁড়াল দাঁড়ালেন
দাঁড়ানো continuous দাঁড়াচ্ছি দাঁড়াচ্ছ দাঁড়াচ্ছে দাঁড়াচ্ছেন
দাঁড়ানো perfect দাঁড়িয়েছি দাঁড়িয়েছ দাঁড়িয়েছে দাঁড়িয়েছেন
শেখানো perfect শিখিয়েছি শিখিয়েছ শিখিয়েছে শিখিয়েছেন
খাওয়ানো past খাওয়ালাম খাওয়ালে খাওয়াল খাওয়ালেন
খাওয়ানো perfect খাইয়েছি খাইয়েছ খাইয়েছে খাইয়েছেন
পৌঁছানো past পৌঁছালাম পৌঁছালে পৌঁছাল পৌঁছালেন
পৌঁছানো perfect পৌঁছেছি পৌঁছেছ পৌঁছেছে পৌঁছেছেন
আছ present আছি আছ আছে আছেন
আছ past ছিলাম ছিলে ছিল ছিলেন
"""


@pytest.mark.parametrize("row", FINITE.split("\n")[1:-1])
def test_a_verb_agrees_in_person_and_tense(row: str) -> None:
    verb, tense, *forms = nfc(row).split()
    assert [conjugate(verb, tense, person) for person in PERSONS] == forms


@pytest.mark.parametrize(
    ("verb", "familiar", "polite"),
    [
        ("করা", "করো", "করুন"),
        ("লেখা", "লেখো", "লিখুন"),
        ("শোনা", "শোনো", "শুনুন"),
        ("খাওয়া", "খাও", "খান"),
        ("দেওয়া", "দাও", "দিন"),
        ("আসা", "এসো", "আসুন"),
        ("হওয়া", "হও", "হোন"),
        ("দাঁড়ানো", "দাঁড়াও", "দাঁড়ান"),
    ],
)
def test_a_request_is_familiar_or_polite(verb: str, familiar: str, polite: str) -> None:
    assert conjugate(nfc(verb), "imperative", "তুমি") == nfc(familiar)
    assert conjugate(nfc(verb), "imperative", "আপনি") == nfc(polite)


# verb: infinitive, participle, conditional
NON_FINITE = """
করা করতে করে করলে
রাখা রাখতে রেখে রাখলে
লেখা লিখতে লিখে লিখলে
খাওয়া খেতে খেয়ে খেলে
যাওয়া যেতে গিয়ে গেলে
আসা আসতে এসে এলে
দেওয়া দিতে দিয়ে দিলে
হওয়া হতে হয়ে হলে
চাওয়া চাইতে চেয়ে চাইলে
দাঁড়ানো দাঁড়াতে দাঁড়িয়ে দাঁড়ালে
ওড়ানো ওড়াতে উড়িয়ে ওড়ালে
"""


@pytest.mark.parametrize("row", NON_FINITE.split("\n")[1:-1])
def test_a_verb_has_three_forms_without_a_person(row: str) -> None:
    verb, *forms = nfc(row).split()
    assert [non_finite(verb, form) for form in ("infinitive", "participle", "conditional")] == forms


def test_apni_takes_the_endings_of_tini() -> None:
    for verb in VERBS:
        for tense in TENSES:
            if tense != "imperative":
                assert conjugate(verb, tense, "আপনি") == conjugate(verb, tense, "তিনি")


def test_every_honorific_form_differs_from_the_plain_one() -> None:
    for verb in VERBS:
        for tense in TENSES:
            if tense != "imperative":
                assert conjugate(verb, tense, "তিনি") != conjugate(verb, tense, "সে")
                assert conjugate(verb, tense, "তিনি").endswith("ন")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("উড়া", "past", "সে"), "verb must be a verbal noun"),
        (("করা", "pluperfect", "সে"), "tense must be one of present"),
        (("করা", "past", "she"), "person must be one of আমি"),
        (("করা", "imperative", "সে"), "imperative needs তুমি or আপনি"),
        (("দেওয়া", "imperative", "আমি"), "imperative needs তুমি or আপনি"),
    ],
)
def test_an_unknown_verb_tense_or_person_is_named(arguments: tuple[str, str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        conjugate(nfc(arguments[0]), arguments[1], nfc(arguments[2]))


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="case must be nominative, genitive"):
        bangla.decline("বই", "dative")


# English


@pytest.mark.parametrize(
    ("noun", "article", "plural"),
    [
        ("umbrella", "an umbrella", "umbrellas"),
        ("old pen", "an old pen", "old pens"),
        ("uniform", "a uniform", "uniforms"),
        ("hour", "an hour", "hours"),
        ("mango", "a mango", "mangoes"),
        ("puppy", "a puppy", "puppies"),
        ("toy", "a toy", "toys"),
        ("leaf", "a leaf", "leaves"),
        ("lunch box", "a lunch box", "lunch boxes"),
        ("green coconut", "a green coconut", "green coconuts"),
        ("orange", "an orange", "oranges"),
        ("child", "a child", "children"),
    ],
)
def test_english_nouns(noun: str, article: str, plural: str) -> None:
    assert (english.with_article(noun), english.plural(noun)) == (article, plural)


@pytest.mark.parametrize(
    ("verb", "past", "ing"),
    [
        ("swim", "swam", "swimming"),
        ("ride a bicycle", "rode a bicycle", "riding a bicycle"),
        ("draw pictures", "drew pictures", "drawing pictures"),
        ("play chess", "played chess", "playing chess"),
        ("make paper boats", "made paper boats", "making paper boats"),
        ("read storybooks", "read storybooks", "reading storybooks"),
        ("carry", "carried", "carrying"),
        ("stop", "stopped", "stopping"),
        ("dance", "danced", "dancing"),
    ],
)
def test_english_verbs(verb: str, past: str, ing: str) -> None:
    assert (english.past(verb), english.ing(verb)) == (past, ing)
