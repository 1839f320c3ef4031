"""The things, places, times, games, riddles and festivals of the stories."""

from collections.abc import Callable
from random import Random

from .story_cast import Activity, Cast, Festival, Noun, Number, Person, Place, Riddle, Time

COLOURS = (
    ("নীল", "blue"),
    ("লাল", "red"),
    ("সবুজ", "green"),
    ("হলুদ", "yellow"),
    ("সাদা", "white"),
    ("কালো", "black"),
)
SIZES = (("ছোট", "small"), ("নতুন", "new"), ("পুরোনো", "old"))


def _described(
    adjectives: tuple[tuple[str, str], ...], nouns: str, classifier: str = "টি"
) -> tuple[Noun, ...]:
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
    *_described(
        SIZES, "ঘড়ি=watch; বাঁশি=flute; গল্পের বই=storybook; টিফিন বাক্স=lunch box; পুতুল=doll; লাটিম=spinning top"
    ),
)
GIFTS: tuple[Noun, ...] = (
    *_described(COLOURS, "ঘুড়ি=kite; কলম=pen; টুপি=cap; চাদর=shawl"),
    *_described(
        (("ছোট", "small"), ("নতুন", "new"), ("সুন্দর", "beautiful")), "বাঁশি=flute; ছবির বই=picture book; পুতুল=doll"
    ),
)
SHARED_TOYS: tuple[Noun, ...] = (
    *_described((*COLOURS, ("নতুন", "new")), "ঘুড়ি=kite; বল=ball; খেলনা গাড়ি=toy car"),
    *_described(
        (("ছোট", "small"), ("নতুন", "new")), "লাটিম=spinning top; পুতুল=doll; ব্যাট=bat; রঙের বাক্স=paint box"
    ),
)
BREAKABLES = _described(
    (*COLOURS[:5], ("পুরোনো", "old")), "কাপ=cup; ফুলদানি=vase; প্লেট=plate; বাটি=bowl; মাটির ব্যাংক=clay bank"
)
WARM_CLOTHES = _described((*COLOURS, ("মোটা", "thick")), "চাদর=shawl; কম্বল=blanket; সোয়েটার=sweater")
RACING_BOATS = _described(COLOURS, "নৌকা=boat")
COLOURED_PENS = _described(COLOURS, "কলম=pen")
KITES = _described((*COLOURS, ("ছোট", "small"), ("বড়", "big")), "ঘুড়ি=kite")
YOUNG_ANIMALS: tuple[Noun, ...] = _described(
    (("সাদা", "white"), ("কালো", "black"), ("বাদামি", "brown"), ("ছোট", "tiny")),
    "বিড়ালছানা=kitten; কুকুরছানা=puppy; ছাগলছানা=baby goat; খরগোশছানা=baby rabbit",
)
FRUITS = _plain(
    "আম=mango; পেয়ারা=guava; কলা=banana; পেঁপে=papaya; কমলা=orange; ডাব=green coconut; "
    "আনারস=pineapple; জাম্বুরা=pomelo; আপেল=apple"
)
SAPLINGS = _plain(
    "আম=mango; কাঁঠাল=jackfruit; নিম=neem; পেয়ারা=guava; লিচু=litchi; জাম=black plum; বকুল=bakul; কদম=kadam"
)
DISHES = _plain(
    "খিচুড়ি=khichuri; মুরগির ঝোল=chicken curry; মাছের ঝোল=fish curry; ডিমের তরকারি=egg curry; "
    "সবজি=vegetable curry; ডাল=lentil soup"
)
FISH = _plain("রুই=rui; কাতলা=katla; শোল=shol; মৃগেল=mrigel; বোয়াল=boal")
CROPS = _plain("টমেটো=tomato; লাউ=bottle gourd; কুমড়া=pumpkin; শসা=cucumber; শিম=bean; বেগুন=eggplant")
LETTERS = _plain("চিঠি=letter", "খানা")
TALE_ANIMALS = _plain("শিয়াল=fox; বাঘ=tiger; কুমির=crocodile; বানর=monkey; কাক=crow; খরগোশ=rabbit; কচ্ছপ=tortoise")
SICKNESSES = _plain("জ্বর=fever; সর্দি=cold; কাশি=cough")
RIVERS = _plain(
    "পদ্মা=Padma; মেঘনা=Meghna; যমুনা=Jamuna; সুরমা=Surma; কর্ণফুলী=Karnaphuli; তিস্তা=Teesta; "
    "রূপসা=Rupsa; ধলেশ্বরী=Dhaleshwari; শীতলক্ষ্যা=Shitalakshya; সাঙ্গু=Sangu"
)

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
CROWDED_PLACES: tuple[Place, ...] = tuple(
    place for place in PUBLIC_PLACES if place.bn in ("বাজার", "মেলা", "বইমেলা", "রেলস্টেশন", "বাসস্ট্যান্ড", "পার্ক")
)
FIELDS: tuple[Place, ...] = (
    Place("স্কুলের মাঠ", "the school field", "on the school field"),
    Place("খেলার মাঠ", "the playground", "on the playground"),
    Place("কলেজের মাঠ", "the college field", "on the college field"),
    Place("নদীর চর", "the sandbank", "on the sandbank"),
)
PLANTING_SPOTS: tuple[Place, ...] = (
    Place("স্কুলের মাঠ", "the school field", "on the school field"),
    Place("বাড়ির উঠান", "the yard", "in the yard"),
    Place("পুকুরের ধার", "the pond", "beside the pond"),
    Place("রাস্তার পাশ", "the road", "beside the road"),
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
    ("এক ছুটির দিনে", "On a holiday", "any holiday"),
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
    Riddle("যত মোছে, তত ভেজে। জিনিসটা কী?",
           "The more it dries, the wetter it gets. What is it?",
           "গামছা", "a towel", "গোসলের পর লাগে", "you need it after a bath"),
    Riddle("কোন জিনিসের দাঁত আছে, কিন্তু কামড়ায় না?",
           "What has teeth but does not bite?",
           "চিরুনি", "a comb", "চুলে লাগে", "you use it on your hair"),
    Riddle("কার পা নেই, তবু সাগরে যায়?",
           "What has no feet but goes to the sea?",
           "নদী", "a river", "সেখানে মাছ থাকে", "fish live in it"),
    Riddle("দিনে ঘুমায়, রাতে জ্বলে। সেটা কী?",
           "It sleeps in the day and shines at night. What is it?",
           "তারা", "a star", "আকাশে থাকে", "it is in the sky"),
    Riddle("কোন ঘরের দরজা নেই?",
           "Which house has no door?",
           "ডিম", "an egg", "মুরগি সেটা পাড়ে", "a hen lays it"),
    Riddle("মুখ নেই, তবু কথা বলে। সেটা কী?",
           "It has no mouth, yet it talks. What is it?",
           "রেডিও", "a radio", "তাতে গান শোনা যায়", "you can hear songs on it"),
    Riddle("সারা দিন চলে, তবু এক জায়গায় থাকে। সেটা কী?",
           "It runs all day but stays in one place. What is it?",
           "ঘড়ি", "a clock", "সময় বলে দেয়", "it tells the time"),
    Riddle("সবুজ ঘর, লাল মেঝে, ভেতরে কালো কালো পুঁতি। সেটা কী?",
           "A green house, a red floor and little black beads inside. What is it?",
           "তরমুজ", "a watermelon", "গরমের দিনে খেতে ভালো লাগে", "it is good to eat on a hot day"),
    Riddle("রোদে পাশে পাশে হাঁটে, অন্ধকারে হারিয়ে যায়। সেটা কী?",
           "It walks with me in the sun and is lost in the dark. What is it?",
           "ছায়া", "a shadow", "মাটিতে দেখা যায়", "you can see it on the ground"),
    Riddle("পাতা আছে, কিন্তু গাছ নয়। সেটা কী?",
           "It has leaves, but it is not a tree. What is it?",
           "বই", "a book", "সেটা পড়া যায়", "you can read it"),
)  # fmt: skip


NEW_YEAR = Festival(
    "পহেলা বৈশাখ", "Pahela Baishakh", "পিঠা", "rice cakes",
    "সবাই রঙিন পোশাক পরে শোভাযাত্রায় গেল।", "Everyone put on bright clothes and walked in the parade.",
    "পহেলা বৈশাখে", "On Pahela Baishakh",
)  # fmt: skip
FESTIVALS: dict[str, tuple[Festival, ...]] = {
    "muslim": (
        NEW_YEAR,
        Festival("ঈদ", "Eid", "সেমাই", "sweet vermicelli",
                 "সকালে সবাই একে অন্যকে বলল, “ঈদ মোবারক!”", "In the morning, everyone said to one another, “Eid Mubarak!”",
                 "ঈদের দিন", "On Eid day"),
    ),
    "hindu": (
        NEW_YEAR,
        Festival("দুর্গাপূজা", "Durga Puja", "নারকেলের নাড়ু", "coconut sweets",
                 "মণ্ডপে ঢাক বাজছিল।", "Drums were playing at the puja hall.",
                 "দুর্গাপূজার সময়", "During Durga Puja"),
    ),
    "buddhist": (
        NEW_YEAR,
        Festival("বুদ্ধপূর্ণিমা", "Buddha Purnima", "পায়েস", "rice pudding",
                 "বিহারে অনেক প্রদীপ জ্বলছিল।", "Many lamps were burning in the monastery.",
                 "বুদ্ধপূর্ণিমার দিন", "On Buddha Purnima"),
    ),
    "christian": (
        NEW_YEAR,
        Festival("বড়দিন", "Christmas", "কেক", "cake",
                 "গির্জায় সবাই গান গাইছিল।", "Everyone was singing in the church.",
                 "বড়দিনে", "On Christmas Day"),
    ),
}  # fmt: skip


def number(low: int, high: int, step: int = 1) -> tuple[Number, ...]:
    """A pool of whole numbers from `low` to `high`."""
    return tuple(Number(value) for value in range(low, high + 1, step))


def festival_of(role: str) -> Callable[[Cast, Random], Festival]:
    """A rule that casts a feast which `role`'s family keeps."""

    def choose(cast: Cast, rng: Random) -> Festival:
        child = cast[role]
        assert isinstance(child, Person)
        return rng.choice(FESTIVALS[child.community])

    return choose


def price_of(count: str) -> Callable[[Cast, Random], Number]:
    """A rule that sets the price in taka of as many things as the role `count` says."""

    def choose(cast: Cast, rng: Random) -> Number:
        things = cast[count]
        assert isinstance(things, Number)
        return Number(things.value * rng.choice((10, 15, 20, 25, 30)))

    return choose
