"""Bangla verbs of the standard spoken language (চলিত): person, tense and what agrees with whom.

A verb is four principal parts. From them come all forms, by two patterns:

* a stem that ends in a consonant: করা → করি, করো, করে, করেন; লেখা → লেখে but লিখল (the stem vowel rises);
* a stem that ends in a vowel: খাওয়া → খাই, খায়, খেল, খাচ্ছে; দাঁড়ানো → দাঁড়ায়, দাঁড়াল, দাঁড়াচ্ছে.

যাওয়া, আসা, দেওয়া, নেওয়া, হওয়া and আছ do not follow them everywhere; `IRREGULAR` says where.
তিনি and আপনি share their endings.
"""

from dataclasses import dataclass

PERSONS = ("আমি", "তুমি", "সে", "তিনি")
# Pronouns that take the endings of another one, so that a template may name the one that it uses.
SAME_ENDINGS = {"আপনি": "তিনি", "আমরা": "আমি", "তোমরা": "তুমি", "তারা": "সে", "তাঁরা": "তিনি", "আপনারা": "তিনি"}

# Endings in the order of PERSONS.
CONTINUOUS = ("ছি", "ছ", "ছে", "ছেন")
PAST = ("লাম", "লে", "ল", "লেন")
FUTURE = ("ব", "বে", "বে", "বেন")
HABITUAL = ("তাম", "তে", "ত", "তেন")
BEEN = ("ছিলাম", "ছিলে", "ছিল", "ছিলেন")

TENSES = (
    "present", "continuous", "perfect", "past", "past-continuous", "past-perfect", "habitual", "future",
    "imperative",
)  # fmt: skip
NON_FINITE = ("infinitive", "participle", "conditional")


@dataclass(frozen=True)
class Verb:
    """Principal parts: `low` stem (লেখ-ে), `high` stem (লিখ-ল), participle (লিখে), and `vowel` for a vowel stem.

    `future` and `habitual` are stems where they differ: পাওয়া → পাব, পেত (habitual follows the high stem).
    """

    low: str
    high: str
    participle: str
    vowel: bool = False
    rising: bool = False

    @property
    def open_stem(self) -> str:
        """The stem of the future and, in verbs such as চাওয়া, of past and habitual: চাই-ব."""
        return self.high if not self.vowel or self.rising else self.low

    def finite(self, tense: str, person: str) -> str:
        place = PERSONS.index(person)
        low, high = self.low, self.high
        match tense:
            case "present":
                if self.vowel:
                    return low + ("ই", "ও", "য়", "ন")[place]
                return high + "ি" if place == 0 else low + ("ো", "ে", "েন")[place - 1]
            case "imperative":
                if place in (0, 2):
                    raise ValueError(f"imperative needs তুমি or আপনি, got {person}")
                if self.vowel:
                    return low + ("ও" if place == 1 else "ন")
                return low + "ো" if place == 1 else high + "ুন"
            case "continuous":
                return self._continuous_stem() + CONTINUOUS[place]
            case "past-continuous":
                return self._continuous_stem() + BEEN[place]
            case "perfect":
                return self.participle + CONTINUOUS[place]
            case "past-perfect":
                return self.participle + BEEN[place]
            case "past":
                return high + PAST[place]
            case "habitual":
                return high + HABITUAL[place]
            case "future":
                return self.open_stem + FUTURE[place]
        raise ValueError(f"tense must be one of {', '.join(TENSES)}, got {tense!r}")

    def _continuous_stem(self) -> str:
        # খা + চ্ + ছে = খাচ্ছে: a vowel stem doubles the ছ; the rising ones (চাইছে) do not.
        return self.low + "চ্" if self.vowel and not self.rising else self.high

    def non_finite(self, form: str) -> str:
        match form:
            case "infinitive":
                return self.high + "তে"
            case "conditional":
                return self.high + "লে"
            case "participle":
                return self.participle
        raise ValueError(f"form must be one of {', '.join(NON_FINITE)}, got {form!r}")


def _verbs() -> dict[str, Verb]:
    verbs: dict[str, Verb] = {}
    # Consonant stems whose spelling never changes: করে, করল, করে.
    for noun in (
        "করা", "ধরা", "বলা", "চলা", "পড়া", "বসা", "ভরা", "সরা", "দেখা", "খেলা", "ফেলা", "নড়া", "গড়া",
        "ঠেলা", "চড়া",
    ):  # fmt: skip
        stem = noun.removesuffix("া")
        verbs[noun] = Verb(stem, stem, stem + "ে")
    # Consonant stems with আ, which becomes এ in the participle: রাখল, রেখে.
    for noun in (
        "থাকা", "রাখা", "ডাকা", "জানা", "মারা", "কাটা", "আঁকা", "বাঁধা", "নামা", "হাসা", "কাঁদা", "ভাঙা",
        "ঢাকা", "মাখা", "ভাসা", "ভাবা", "নাচা", "পারা", "ছাড়া", "হারা", "আনা", "লাগা",
    ):  # fmt: skip
        stem = noun.removesuffix("া")
        verbs[noun] = Verb(stem, stem, stem.replace("আ", "এ").replace("া", "ে") + "ে")
    # Consonant stems whose vowel rises before a high ending: লেখে but লিখল, শোনে but শুনল.
    for noun, high in (
        ("লেখা", "লিখ"), ("কেনা", "কিন"), ("শোনা", "শুন"), ("খোঁজা", "খুঁজ"), ("ওঠা", "উঠ"), ("বোঝা", "বুঝ"),
        ("খোলা", "খুল"), ("ভোলা", "ভুল"), ("তোলা", "তুল"), ("ঘোরা", "ঘুর"), ("জেতা", "জিত"), ("ফেরা", "ফির"),
        ("শেখা", "শিখ"), ("ভেজা", "ভিজ"), ("চেনা", "চিন"), ("ছোটা", "ছুট"), ("বোনা", "বুন"), ("গোনা", "গুন"), ("খোঁড়া", "খুঁড়"),
    ):  # fmt: skip
        verbs[noun] = Verb(noun.removesuffix("া"), high, high + "ে")
    # Vowel stems: খায়, খেল, খেয়ে.
    for noun, low, high, participle in (
        ("খাওয়া", "খা", "খে", "খেয়ে"), ("পাওয়া", "পা", "পে", "পেয়ে"), ("যাওয়া", "যা", "গে", "গিয়ে"),
        ("হওয়া", "হ", "হ", "হয়ে"), ("দেওয়া", "দে", "দি", "দিয়ে"), ("নেওয়া", "নে", "নি", "নিয়ে"),
    ):  # fmt: skip
        verbs[noun] = Verb(low, high, participle, vowel=True)
    for noun, low, high, participle in (
        ("চাওয়া", "চা", "চাই", "চেয়ে"), ("গাওয়া", "গা", "গাই", "গেয়ে"),
    ):  # fmt: skip
        verbs[noun] = Verb(low, high, participle, vowel=True, rising=True)
    # Long vowel stems in -আ: দাঁড়ায়, দাঁড়াল, দাঁড়িয়ে.
    for noun, participle in (
        ("দাঁড়ানো", "দাঁড়িয়ে"), ("ঘুমানো", "ঘুমিয়ে"), ("তাকানো", "তাকিয়ে"), ("পাঠানো", "পাঠিয়ে"),
        ("দেখানো", "দেখিয়ে"), ("হারানো", "হারিয়ে"), ("বানানো", "বানিয়ে"), ("সাজানো", "সাজিয়ে"),
        ("জানানো", "জানিয়ে"), ("লাগানো", "লাগিয়ে"), ("থামানো", "থামিয়ে"), ("জ্বালানো", "জ্বালিয়ে"),
        ("শেখানো", "শিখিয়ে"), ("পৌঁছানো", "পৌঁছে"), ("ওড়ানো", "উড়িয়ে"), ("চালানো", "চালিয়ে"),
        ("খাওয়ানো", "খাইয়ে"), ("শোনানো", "শুনিয়ে"), ("বাজানো", "বাজিয়ে"), ("বোঝানো", "বুঝিয়ে"),
        ("নামানো", "নামিয়ে"), ("বাড়ানো", "বাড়িয়ে"), ("কাটানো", "কাটিয়ে"), ("শুকানো", "শুকিয়ে"),
        ("এগোনো", "এগিয়ে"), ("দৌড়ানো", "দৌড়ে"), ("মেলানো", "মিলিয়ে"), ("বসানো", "বসিয়ে"),
        ("জমানো", "জমিয়ে"),
    ):  # fmt: skip
        stem = noun.removesuffix("নো")
        verbs[noun] = Verb(stem, stem, participle, vowel=True)
    verbs["আসা"] = Verb("আস", "আস", "এসে")
    return verbs


VERBS = _verbs()

# (verb, tense or non-finite form): the four persons in order, or the single form.
IRREGULAR: dict[tuple[str, str], tuple[str, ...]] = {
    ("যাওয়া", "perfect"): ("গেছি", "গেছ", "গেছে", "গেছেন"),
    ("যাওয়া", "habitual"): ("যেতাম", "যেতে", "যেত", "যেতেন"),
    ("যাওয়া", "infinitive"): ("যেতে",),
    ("আসা", "past"): ("এলাম", "এলে", "এল", "এলেন"),
    ("আসা", "conditional"): ("এলে",),
    ("আসা", "imperative"): ("", "এসো", "", "আসুন"),
    ("দেওয়া", "present"): ("দিই", "দাও", "দেয়", "দেন"),
    ("নেওয়া", "present"): ("নিই", "নাও", "নেয়", "নেন"),
    ("দেওয়া", "continuous"): ("দিচ্ছি", "দিচ্ছ", "দিচ্ছে", "দিচ্ছেন"),
    ("নেওয়া", "continuous"): ("নিচ্ছি", "নিচ্ছ", "নিচ্ছে", "নিচ্ছেন"),
    ("দেওয়া", "past-continuous"): ("দিচ্ছিলাম", "দিচ্ছিলে", "দিচ্ছিল", "দিচ্ছিলেন"),
    ("নেওয়া", "past-continuous"): ("নিচ্ছিলাম", "নিচ্ছিলে", "নিচ্ছিল", "নিচ্ছিলেন"),
    ("দেওয়া", "imperative"): ("", "দাও", "", "দিন"),
    ("নেওয়া", "imperative"): ("", "নাও", "", "নিন"),
    ("হওয়া", "past"): ("হলাম", "হলে", "হলো", "হলেন"),
    ("হওয়া", "habitual"): ("হতাম", "হতে", "হতো", "হতেন"),
    ("হওয়া", "imperative"): ("", "হও", "", "হোন"),
    ("এগোনো", "present"): ("এগোই", "এগোও", "এগোয়", "এগোন"),
    ("আছ", "present"): ("আছি", "আছ", "আছে", "আছেন"),
    ("আছ", "past"): ("ছিলাম", "ছিলে", "ছিল", "ছিলেন"),
}


def conjugate(verb: str, tense: str, person: str) -> str:
    """The finite form of `verb` (named by its verbal noun, করা) that agrees with the pronoun `person`.

    Raises ValueError for a verb, tense or person that is not known, naming it.
    """
    person = SAME_ENDINGS.get(person, person)
    if person not in PERSONS:
        raise ValueError(f"person must be one of {', '.join((*PERSONS, *SAME_ENDINGS))}, got {person!r}")
    if (verb, tense) in IRREGULAR:
        form = IRREGULAR[verb, tense][PERSONS.index(person)]
        if not form:
            raise ValueError(f"{tense} needs তুমি or আপনি, got {person}")
        return form
    return _known(verb).finite(tense, person)


def non_finite(verb: str, form: str) -> str:
    """করতে (infinitive), করে (participle) or করলে (conditional)."""
    if (verb, form) in IRREGULAR:
        return IRREGULAR[verb, form][0]
    return _known(verb).non_finite(form)


def _known(verb: str) -> Verb:
    if verb not in VERBS:
        raise ValueError(f"verb must be a verbal noun in VERBS, such as করা, got {verb!r}")
    return VERBS[verb]
