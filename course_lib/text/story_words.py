"""Who and what the stories are about: names used in Bangladesh, elders, things, places, times, games.

Each entry carries both languages, so that one plot with one cast is told in either. An entry knows its own grammar:
a person's gender, whether she is spoken of as সে or তিনি; a thing's classifier; a place's English preposition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal


@dataclass(frozen=True)
class Person:
    """`bn` and `en` as they stand in a sentence; `kin` is the word after a possessive (his grandmother).

    `stranger_bn` is how a story speaks of her before she is known: একজন বৃদ্ধ মহিলা.
    """

    bn: str
    en: str
    gender: Literal["m", "f"]
    community: str = ""
    honoured: bool = False
    kin: str = ""
    stranger_bn: str = ""


@dataclass(frozen=True)
class Noun:
    """A thing or animal. `bn` and `en` are whole phrases (নীল ছাতা), `noun` their last part alone (ছাতা)."""

    bn: str
    en: str
    noun_bn: str
    noun_en: str
    classifier: str = "টি"


@dataclass(frozen=True)
class Place:
    """`where` and `to` are the English phrases: on the playground, to the playground."""

    bn: str
    en: str
    at: str


@dataclass(frozen=True)
class Time:
    """An adverbial that opens a story. `tags` say what it is compatible with."""

    bn: str
    en: str
    tags: frozenset[str]


@dataclass(frozen=True)
class Activity:
    """A verb with its object: সাঁতার কাটা, swim. `verb_bn` is a verbal noun of `story_bangla_verbs`."""

    object_bn: str
    verb_bn: str
    en: str


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Riddle:
    """A question and its answer, a whole sentence and a noun."""

    question_bn: str
    question_en: str
    answer_bn: str
    answer_en: str
    hint_bn: str
    hint_en: str


@dataclass(frozen=True)
class Festival:
    """A feast with what people eat on it, and a sentence about what they do."""

    bn: str
    en: str
    food_bn: str
    food_en: str
    custom_bn: str
    custom_en: str


Entity = Person | Noun | Place | Time | Activity | Number | Riddle | Festival
Cast = dict[str, Entity]
# A role is filled from a pool, or by a rule that may look at who plays already (the hero's own grandmother).
Role = tuple[Entity, ...] | Callable[[Cast, Random], Entity]


def _people(gender: Literal["m", "f"], community: str, names: str) -> list[Person]:
    return [Person(*pair.split("="), gender, community) for pair in names.split()]  # type: ignore[arg-type]


CHILDREN: tuple[Person, ...] = (
    *_people("f", "muslim", "আয়েশা=Ayesha ফাতেমা=Fatema সুমাইয়া=Sumaiya নুসরাত=Nusrat তাসনিম=Tasnim রুমানা=Rumana"),
    *_people("f", "muslim", "লামিয়া=Lamia সাদিয়া=Sadia মরিয়ম=Mariam শিরিন=Shirin তানহা=Tanha রিমা=Rima"),
    *_people("f", "muslim", "জেরিন=Zerin মুন্নি=Munni নাদিয়া=Nadia"),
    *_people("m", "muslim", "রহিম=Rahim করিম=Karim রাফি=Rafi তানভীর=Tanvir সাকিব=Sakib আরিফ=Arif ইমরান=Imran"),
    *_people("m", "muslim", "হাসান=Hasan নাঈম=Nayeem ফাহিম=Fahim জুবায়ের=Zubair রাকিব=Rakib শাহেদ=Shahed"),
    *_people("m", "muslim", "মাহিন=Mahin ইউসুফ=Yusuf"),
    *_people("f", "hindu", "মিতা=Mita পূজা=Puja অনন্যা=Ananya শ্রেয়া=Shreya দীপা=Dipa কাকলি=Kakoli তৃষা=Trisha"),
    *_people("f", "hindu", "সুস্মিতা=Susmita মালতী=Malati"),
    *_people("m", "hindu", "অর্ণব=Arnab শুভ=Shubho সৌরভ=Sourav দীপক=Dipak অমিত=Amit নির্মল=Nirmal তপন=Tapan"),
    *_people("m", "hindu", "অভি=Avi পলাশ=Polash"),
    *_people("f", "buddhist", "উমেচিং=Umeching প্রজ্ঞা=Progga মিনুচিং=Minuching সুপ্রিয়া=Supriya"),
    *_people("m", "buddhist", "মংসাই=Mongsai থোয়াই=Thowai সুজয়=Sujoy হিরণ=Hiran"),
    *_people("f", "christian", "জেনি=Jenny মেরি=Mary"),
    *_people("m", "christian", "ডেভিড=David রবিন=Robin"),
)

_KIN: dict[str, dict[str, tuple[str, str, Literal["m", "f"]]]] = {
    "mother": {"": ("মা", "Mother", "f")},
    "father": {"": ("বাবা", "Father", "m")},
    "grandmother": {"muslim": ("নানি", "Grandmother", "f"), "": ("দিদিমা", "Grandmother", "f")},
    "grandfather": {"muslim": ("নানা", "Grandfather", "m"), "": ("দাদু", "Grandfather", "m")},
    "uncle": {"muslim": ("চাচা", "Uncle", "m"), "": ("কাকা", "Uncle", "m")},
    "aunt": {"muslim": ("খালা", "Aunt", "f"), "": ("মাসি", "Aunt", "f")},
}


def kin(*relations: str, of: str = "hero") -> Callable[[Cast, Random], Person]:
    """A rule that casts an elder of `of`'s family, called what her community calls her."""

    def choose(cast: Cast, rng: Random) -> Person:
        child = cast[of]
        assert isinstance(child, Person)
        relation = rng.choice(relations)
        words = _KIN[relation]
        bn, en, gender = words.get(child.community, words[""] if "" in words else ("", "", "f"))
        return Person(bn, en, gender, child.community, honoured=True, kin=relation)

    return choose


def _elders(bn_form: str, names: tuple[tuple[str, str], ...], gender: Literal["m", "f"], en_form: str) -> list[Person]:
    return [
        Person(bn_form.format(bn), en_form.format(en), gender, honoured=True, kin="teacher") for bn, en in names
    ]


TEACHERS: tuple[Person, ...] = (
    *_elders("{} স্যার", (("রফিক", "Rafiq"), ("জামাল", "Jamal"), ("বিমল", "Bimal"), ("আনিস", "Anis")), "m", "Mr {}"),
    *_elders("{} আপা", (("নাসরিন", "Nasrin"), ("সেলিনা", "Selina"), ("রোকেয়া", "Rokeya")), "f", "Ms {}"),
    *_elders("{} দিদি", (("মল্লিকা", "Mallika"),), "f", "Ms {}"),
)
DOCTORS: tuple[Person, ...] = (
    *_elders("ডাক্তার {}", (("ফারহানা", "Farhana"), ("শাহানা", "Shahana"), ("মাধবী", "Madhabi")), "f", "Doctor {}"),
    *_elders("ডাক্তার {}", (("কামাল", "Kamal"), ("হাবিব", "Habib"), ("অসীম", "Ashim")), "m", "Doctor {}"),
)
BOATMEN: tuple[Person, ...] = tuple(
    Person(f"মাঝি {bn}", f"the boatman {en}", "m", honoured=True)
    for bn, en in (("কাশেম", "Kashem"), ("হরিপদ", "Haripada"), ("জব্বার", "Jabbar"), ("সোনা মিয়া", "Sona Mia"))
)
SHOPKEEPER = (Person("দোকানদার", "the shopkeeper", "m", honoured=True),)
OLD_PEOPLE = (
    Person("বৃদ্ধ লোকটি", "the old man", "m", honoured=True, kin="old man", stranger_bn="বৃদ্ধ লোক"),
    Person("বৃদ্ধ মহিলাটি", "the old woman", "f", honoured=True, kin="old woman", stranger_bn="বৃদ্ধ মহিলা"),
)

COLOURS = (("নীল", "blue"), ("লাল", "red"), ("সবুজ", "green"), ("হলুদ", "yellow"), ("সাদা", "white"), ("কালো", "black"))
SIZES = (("ছোট", "small"), ("নতুন", "new"), ("পুরোনো", "old"))


def _described(adjectives: tuple[tuple[str, str], ...], nouns: str, classifier: str = "টি") -> tuple[Noun, ...]:
    pairs = [pair.split("=") for pair in nouns.split("; ")]
    return tuple(
        Noun(f"{adjective_bn} {bn}", f"{adjective_en} {en}", bn, en, classifier)
        for bn, en in pairs
        for adjective_bn, adjective_en in adjectives
    )


def _plain(nouns: str, classifier: str = "টি") -> tuple[Noun, ...]:
    pairs = [pair.split("=") for pair in nouns.split("; ")]
    return tuple(Noun(bn, en, bn, en, classifier) for bn, en in pairs)


CARRIED: tuple[Noun, ...] = (
    *_described((*COLOURS, *SIZES), "ছাতা=umbrella; কলম=pen; টুপি=cap; ব্যাগ=bag; খাতা=notebook; রুমাল=handkerchief"),
    *_described(SIZES, "ঘড়ি=watch; বাঁশি=flute; গল্পের বই=storybook; টিফিন বাক্স=lunch box; পুতুল=doll; লাটিম=spinning top"),
)
GIFTS: tuple[Noun, ...] = (
    *_described(COLOURS, "ঘুড়ি=kite; কলম=pen; ফুলদানি=vase; চাদর=shawl"),
    *_described((("ছোট", "small"), ("নতুন", "new"), ("সুন্দর", "beautiful")), "বাঁশি=flute; ছবির বই=picture book; পুতুল=doll"),
)
SHARED_TOYS: tuple[Noun, ...] = (
    *_described((*COLOURS, ("নতুন", "new")), "ঘুড়ি=kite; বল=ball; গাড়ি=toy car; রঙের বাক্স=paint box"),
    *_described((("ছোট", "small"), ("নতুন", "new")), "লাটিম=spinning top; পুতুল=doll; ব্যাট=bat; গল্পের বই=storybook"),
)
COLOURED_PENS = _described(COLOURS, "কলম=pen")
KITES = _described((*COLOURS, ("ছোট", "small"), ("বড়", "big")), "ঘুড়ি=kite")
YOUNG_ANIMALS: tuple[Noun, ...] = _described(
    (("সাদা", "white"), ("কালো", "black"), ("বাদামি", "brown"), ("ছোট", "tiny")),
    "বিড়ালছানা=kitten; কুকুরছানা=puppy; ছাগলছানা=baby goat; খরগোশছানা=baby rabbit",
)
FRUITS = _plain("আম=mango; পেয়ারা=guava; কলা=banana; পেঁপে=papaya; কমলা=orange; ডাব=green coconut; আনারস=pineapple; লেবু=lemon")
SAPLINGS = _plain("আম=mango; কাঁঠাল=jackfruit; নিম=neem; পেয়ারা=guava; লিচু=litchi; জাম=black plum; বকুল=bakul; কৃষ্ণচূড়া=flame")
DISHES = _plain("খিচুড়ি=khichuri; মুরগির ঝোল=chicken curry; মাছের ঝোল=fish curry; ডিমের তরকারি=egg curry; সবজি=vegetable curry; ডাল=lentil soup")
FISH = _plain("রুই=rui; কাতলা=katla; শোল=shol; মৃগেল=mrigel; বোয়াল=boal")
SICKNESSES = _plain("জ্বর=fever; সর্দি=cold; কাশি=cough")
RIVERS = _plain("পদ্মা=Padma; মেঘনা=Meghna; যমুনা=Jamuna; সুরমা=Surma; কর্ণফুলী=Karnaphuli; তিস্তা=Teesta; রূপসা=Rupsa; ধলেশ্বরী=Dhaleshwari; শীতলক্ষ্যা=Shitalakshya; সাঙ্গু=Sangu")

TOWNS: tuple[Place, ...] = tuple(
    Place(bn, en, f"in {en}")
    for bn, en in (
        ("ঢাকা", "Dhaka"), ("খুলনা", "Khulna"), ("সিলেট", "Sylhet"), ("রাজশাহী", "Rajshahi"), ("বরিশাল", "Barishal"),
        ("রংপুর", "Rangpur"), ("কুমিল্লা", "Cumilla"), ("বগুড়া", "Bogura"), ("যশোর", "Jashore"),
        ("রাঙামাটি", "Rangamati"), ("বান্দরবান", "Bandarban"), ("ময়মনসিংহ", "Mymensingh"), ("দিনাজপুর", "Dinajpur"),
    )
)  # fmt: skip
PUBLIC_PLACES: tuple[Place, ...] = tuple(
    Place(bn, f"the {en}", f"{at} the {en}")
    for bn, en, at in (
        ("স্কুলের মাঠ", "school field", "on"), ("বাজার", "market", "at"), ("নদীর ঘাট", "river landing", "at"),
        ("পার্ক", "park", "in"), ("মেলা", "fair", "at"), ("বাসস্ট্যান্ড", "bus stand", "at"),
        ("লাইব্রেরি", "library", "in"), ("রেলস্টেশন", "railway station", "at"), ("আমবাগান", "mango orchard", "in"),
        ("খেলার মাঠ", "playground", "on"), ("বইমেলা", "book fair", "at"),
    )
)  # fmt: skip
FIELDS: tuple[Place, ...] = tuple(place for place in PUBLIC_PLACES if "মাঠ" in place.bn) + (
    Place("বাড়ির উঠান", "the yard", "in the yard"),
)
ANIMAL_SPOTS: tuple[Place, ...] = tuple(
    Place(bn, en, at)
    for bn, en, at in (
        ("রাস্তার ধার", "the roadside", "by the road"), ("পুকুরপাড়", "the pond", "by the pond"),
        ("স্কুলের গেট", "the school gate", "at the school gate"), ("বাঁশঝাড়", "the bamboo grove", "in the bamboo grove"),
        ("বটতলা", "the banyan tree", "under the banyan tree"),
    )
)  # fmt: skip

_TIMES: tuple[tuple[str, str, str], ...] = (
    ("একদিন সকালে", "One morning", "morning any"),
    ("একদিন বিকেলে", "One afternoon", "afternoon any"),
    ("স্কুল ছুটির পর", "After school", "afternoon any school"),
    ("শুক্রবার সকালে", "On Friday morning", "morning any holiday"),
    ("শুক্রবার বিকেলে", "On Friday afternoon", "afternoon any holiday"),
    ("ছুটির দিনে", "On a holiday", "any holiday"),
    ("শীতের এক সকালে", "One winter morning", "morning winter"),
    ("শীতের এক বিকেলে", "One winter afternoon", "afternoon winter"),
    ("বসন্তের এক বিকেলে", "One spring afternoon", "afternoon spring"),
    ("শরতের এক বিকেলে", "One autumn afternoon", "afternoon autumn"),
    ("শরতের এক সকালে", "One autumn morning", "morning autumn"),
    ("গরমের ছুটিতে একদিন", "One day in the summer holidays", "holiday summer"),
    ("বর্ষার এক সকালে", "One monsoon morning", "morning monsoon"),
    ("বর্ষার এক বিকেলে", "One monsoon afternoon", "afternoon monsoon"),
    ("বৈশাখের এক সন্ধ্যায়", "One evening in Baishakh", "evening summer"),
    ("গরমের এক সন্ধ্যায়", "One hot evening", "evening summer"),
    ("একদিন সন্ধ্যায়", "One evening", "evening any"),
    ("শনিবার রাতে", "On Saturday night", "evening"),
    ("পরীক্ষার আগের রাতে", "The night before the exam", "evening exam"),
)


def times(*tags: str, without: tuple[str, ...] = ()) -> tuple[Time, ...]:
    """The openings that carry every one of `tags` and none of `without`."""
    rows = (Time(bn, en, frozenset(words.split())) for bn, en, words in _TIMES)
    return tuple(row for row in rows if row.tags.issuperset(tags) and row.tags.isdisjoint(without))


SKILLS: tuple[Activity, ...] = (
    Activity("সাঁতার", "কাটা", "swim"),
    Activity("সাইকেল", "চালানো", "ride a bicycle"),
    Activity("ঘুড়ি", "ওড়ানো", "fly a kite"),
    Activity("ছবি", "আঁকা", "draw pictures"),
    Activity("বাঁশি", "বাজানো", "play the flute"),
    Activity("তবলা", "বাজানো", "play the tabla"),
    Activity("দাবা", "খেলা", "play chess"),
    Activity("গান", "গাওয়া", "sing"),
    Activity("কাগজের নৌকা", "বানানো", "make paper boats"),
)
INDOOR_GAMES: tuple[Activity, ...] = (
    Activity("লুডু", "খেলা", "play ludo"),
    Activity("দাবা", "খেলা", "play chess"),
    Activity("ক্যারম", "খেলা", "play carrom"),
    Activity("ছবি", "আঁকা", "draw pictures"),
    Activity("গল্পের বই", "পড়া", "read storybooks"),
)
EVENING_FUN: tuple[Activity, ...] = (
    Activity("গান", "গাওয়া", "sing songs"),
    Activity("ধাঁধা", "বলা", "tell riddles"),
    Activity("ছায়ার খেলা", "খেলা", "play with shadows"),
)

RIDDLES: tuple[Riddle, ...] = (
    Riddle("যত মোছে, তত ভেজে। জিনিসটা কী?", "The more it dries, the wetter it gets. What is it?",
           "গামছা", "a towel", "গোসলের পর লাগে", "you need it after a bath"),
    Riddle("কোন জিনিসের দাঁত আছে, কিন্তু কামড়ায় না?", "What has teeth but does not bite?",
           "চিরুনি", "a comb", "চুলে লাগে", "you use it on your hair"),
    Riddle("কার পা নেই, তবু সাগরে যায়?", "What has no feet but goes to the sea?",
           "নদী", "a river", "সেখানে মাছ থাকে", "fish live in it"),
    Riddle("দিনে ঘুমায়, রাতে জ্বলে। কী সেটা?", "It sleeps in the day and shines at night. What is it?",
           "তারা", "a star", "আকাশে থাকে", "it is in the sky"),
    Riddle("কোন ঘরের দরজা নেই?", "Which house has no door?",
           "ডিম", "an egg", "মুরগি সেটা পাড়ে", "a hen lays it"),
    Riddle("মুখ নেই, তবু কথা বলে। কী সেটা?", "It has no mouth, yet it talks. What is it?",
           "রেডিও", "a radio", "তাতে গান শোনা যায়", "you can hear songs on it"),
    Riddle("সারা দিন চলে, তবু এক জায়গায় থাকে। কী সেটা?", "It runs all day but stays in one place. What is it?",
           "ঘড়ি", "a clock", "সময় বলে দেয়", "it tells the time"),
)  # fmt: skip


NEW_YEAR = Festival(
    "পহেলা বৈশাখ", "Pahela Baishakh", "পিঠা", "rice cakes",
    "সবাই রঙিন পোশাক পরে শোভাযাত্রায় গেল।", "Everyone put on bright clothes and walked in the parade.",
)  # fmt: skip
FESTIVALS: dict[str, tuple[Festival, ...]] = {
    "muslim": (
        NEW_YEAR,
        Festival("ঈদ", "Eid", "সেমাই", "sweet vermicelli",
                 "সকালে সবাই একে অন্যকে বলল, “ঈদ মোবারক!”", "In the morning, everyone said to one another, “Eid Mubarak!”"),
    ),
    "hindu": (
        NEW_YEAR,
        Festival("দুর্গাপূজা", "Durga Puja", "নারকেলের নাড়ু", "coconut sweets",
                 "মণ্ডপে ঢাক বাজছিল।", "Drums were playing at the puja hall."),
    ),
    "buddhist": (
        NEW_YEAR,
        Festival("বুদ্ধপূর্ণিমা", "Buddha Purnima", "পায়েস", "rice pudding",
                 "বিহারে অনেক প্রদীপ জ্বলছিল।", "Many lamps were burning in the monastery."),
    ),
    "christian": (
        NEW_YEAR,
        Festival("বড়দিন", "Christmas", "কেক", "cake",
                 "গির্জায় সবাই গান গাইছিল।", "Everyone was singing in the church."),
    ),
}  # fmt: skip


def festival_of(role: str) -> Callable[[Cast, Random], Festival]:
    """A rule that casts a feast which `role`'s family keeps."""

    def choose(cast: Cast, rng: Random) -> Festival:
        child = cast[role]
        assert isinstance(child, Person)
        return rng.choice(FESTIVALS[child.community])

    return choose


def number(low: int, high: int, step: int = 1) -> tuple[Number, ...]:
    """A pool of whole numbers from `low` to `high`."""
    return tuple(Number(value) for value in range(low, high + 1, step))
