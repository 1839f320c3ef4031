"""The people of the stories: children with names used in Bangladesh, their families, and elders they meet."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from .story_cast import Cast, Person


def _people(gender: Literal["m", "f"], community: str, names: str) -> list[Person]:
    pairs = [pair.split("=") for pair in names.split()]
    return [Person(bn, en, gender, community) for bn, en in pairs]


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


@dataclass(frozen=True)
class Kin:
    """A rule that casts an elder of the family of the role `of`, called what her community calls her."""

    relations: tuple[str, ...]
    of: str

    def __call__(self, cast: Cast, rng: Random) -> Person:
        child = cast[self.of]
        assert isinstance(child, Person)
        relation = rng.choice(self.relations)
        words = _KIN[relation]
        bn, en, gender = words.get(child.community) or words[""]
        return Person(bn, en, gender, child.community, honoured=True, kin=relation)


def kin(*relations: str, of: str = "hero") -> Kin:
    """One of the `relations` of the role `of`: `kin("mother", "aunt")`."""
    return Kin(relations, of)


def _elders(
    bn_form: str, names: tuple[tuple[str, str], ...], gender: Literal["m", "f"], en_form: str
) -> list[Person]:
    return [
        Person(bn_form.format(bn), en_form.format(en), gender, honoured=True, kin="teacher")
        for bn, en in names
    ]


TEACHERS: tuple[Person, ...] = (
    *_elders(
        "{} স্যার", (("রফিক", "Rafiq"), ("জামাল", "Jamal"), ("বিমল", "Bimal"), ("আনিস", "Anis")), "m", "Mr {}"
    ),
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
THE_MOTHER = (Person("মা", "the mother", "f", honoured=True),)
ROWERS = (Person("মাল্লারা", "the rowers", "m", honoured=True),)
SMALL_CHILDREN = (
    Person("ছোট ছেলেটি", "the little boy", "m", kin="little boy", stranger_bn="ছোট ছেলে"),
    Person("ছোট মেয়েটি", "the little girl", "f", kin="little girl", stranger_bn="ছোট মেয়ে"),
)
SHOPKEEPER = (Person("দোকানদার", "the shopkeeper", "m", honoured=True),)
OLD_PEOPLE = (
    Person("বৃদ্ধ লোকটি", "the old man", "m", honoured=True, kin="old man", stranger_bn="বৃদ্ধ লোক"),
    Person("বৃদ্ধ মহিলাটি", "the old woman", "f", honoured=True, kin="old woman", stranger_bn="বৃদ্ধ মহিলা"),
)
