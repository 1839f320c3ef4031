"""A small template language in which a plot names its cast, and the grammar chooses the forms.

`{hero}` is the cast member as it stands in a sentence; `{hero:র}` inflects it. After the colon:

=========  ==========================================================================================
Bangla     persons  `র` `কে` (রহিমের, রহিমকে); `সে` `তার` `তাকে` become তিনি, তাঁর, তাঁকে for an elder
           things   `র` `কে` `তে`; `একটি` (একটি ছাতা); `টি` `টির` `টিকে` `টিতে` (চিঠিখানা where the classifier is খানা); `গুলো`
           numbers  `টি` `জন` (দুটি, দুজন); `digits` (২); nothing (দুই)
           activity `infinitive` `participle` `conditional`, or a subject and a tense: `{skill:hero past}`
English    persons  `'s`; `he` `him` `his`, also `He` `His`; `kin` (grandmother)
           things   `a` `plural` `title`;  places `in` `to`;  activity `past` `ing`
=========  ==========================================================================================

`{thing.noun}` is the noun without its adjective. `[verb subject tense]` is a Bangla verb that agrees with its
subject, who may be two people: `[যাওয়া hero+friend past]`. Each such verb is kept as a `Clause`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import story_bangla as bangla
from . import story_english as english
from .story_bangla_verbs import NON_FINITE, conjugate, non_finite
from .story_cast import Activity, Cast, Entity, Festival, Noun, Number, Person, Place, Riddle, Time

SLOT = re.compile(
    r"\{(?P<role>[a-z]+)(?P<noun>\.noun)?(?::(?P<form>[^}]+))?\}"
    r"|\[(?P<verb>\S+) (?P<subject>\S+) (?P<tense>\S+)\]"
)

# "…home. the boatman" opens a sentence; "“Are you ill?” the boatman asked" does not.
AFTER_STOP = re.compile(r"(?<=\. )“?[a-z]")

CASES = {"": "nominative", "র": "genitive", "কে": "objective", "তে": "locative"}
PRONOUNS = {"সে": "তিনি", "তার": "তাঁর", "তাকে": "তাঁকে"}


@dataclass(frozen=True)
class Clause:
    """One finite verb of a Bangla story: whose it is, and the form that was chosen."""

    subject: str
    honoured: bool
    verb: str
    tense: str
    form: str


@dataclass
class Telling:
    """Renders templates for one cast in one language, and keeps the Bangla clauses that it wrote."""

    cast: Cast
    language: str
    clauses: list[Clause] = field(default_factory=list)

    def render(self, template: str) -> str:
        """The template with every slot filled; its first letter is a capital in English."""
        text = SLOT.sub(self._fill, template)
        if self.language == "en":
            opening = re.match(r"[“‘]?", text)
            start = opening.end() if opening else 0
            text = text[:start] + text[start].upper() + text[start + 1 :]
            text = AFTER_STOP.sub(lambda match: match[0].upper(), text)
        return text

    def _fill(self, match: re.Match[str]) -> str:
        if match["verb"]:
            return self._verb(match["verb"], match["subject"], match["tense"])
        entity, form = self.cast[match["role"]], match["form"] or ""
        if self.language == "bn":
            if isinstance(entity, Activity) and " " in form:
                subject, tense = form.split()
                return f"{entity.object_bn} {self._verb(entity.verb_bn, subject, tense)}"
            return bangla_form(entity, form, bare=bool(match["noun"]))
        return english_form(entity, form, bare=bool(match["noun"]))

    def _verb(self, verb: str, subject: str, tense: str) -> str:
        roles = subject.split("+")
        if all(role in self.cast for role in roles):
            players = [self.cast[role] for role in roles]
            honoured = any(isinstance(player, Person) and player.honoured for player in players)
            person = "তিনি" if honoured else "সে"
        else:
            person, honoured = subject, subject in ("আপনি", "তিনি")
        form = conjugate(verb, tense, person)
        self.clauses.append(Clause(subject, honoured, verb, tense, form))
        return form


def bangla_form(entity: Entity, form: str, *, bare: bool = False) -> str:
    """`entity` in the form that a Bangla slot asks for; ValueError names a form that it does not have."""
    match entity:
        case Person():
            if form in PRONOUNS:
                return PRONOUNS[form] if entity.honoured else form
            if form in CASES:
                return bangla.decline(entity.bn, CASES[form])
            if form == "ও":
                return f"{entity.bn}ও"
            if form == "pupil":
                return "ছাত্র" if entity.gender == "m" else "ছাত্রী"
            if form == "stranger":
                return entity.stranger_bn
        case Number():
            if form in ("টি", "জন"):
                return bangla.counted(entity.value, form)
            if form == "digits":
                return bangla.digits(entity.value)
            if form == "":
                return bangla.number_word(entity.value)
        case Activity():
            if form in NON_FINITE:
                return f"{entity.object_bn} {non_finite(entity.verb_bn, form)}"
        case Noun():
            phrase = entity.noun_bn if bare else entity.bn
            if form == "একটি":
                return f"{bangla.counted(1, entity.classifier)} {phrase}"
            if form.startswith("টি") and form[2:] in CASES:
                return bangla.decline(phrase + entity.classifier, CASES[form[2:]])
            if form.startswith("গুলো") and form[4:] in CASES:
                return bangla.things(phrase, CASES[form[4:]])
            if form in CASES:
                return bangla.decline(phrase, CASES[form])
        case Place() | Time():
            if form in CASES:
                return bangla.decline(entity.bn, CASES[form])
        case Riddle() | Festival():
            if hasattr(entity, f"{form}_bn"):
                return getattr(entity, f"{form}_bn")
    raise ValueError(f"{type(entity).__name__} has no Bangla form {form!r}")


ENGLISH_FORMS: dict[type, dict[str, Callable[[str], str]]] = {
    Person: {"": str, "'s": english.possessive},
    Noun: {
        "": str,
        "a": english.with_article,
        "plural": english.plural,
        "title": str.title,
    },
    Place: {"": str, "to": "to {}".format},
    Time: {"": str},
    Activity: {"": str, "past": english.past, "ing": english.ing},
}


def english_form(entity: Entity, form: str, *, bare: bool = False) -> str:
    """`entity` in the form that an English slot asks for; ValueError names a form that it does not have."""
    match entity:
        case Number():
            if form == "":
                return english.number_word(entity.value)
            if form == "digits":
                return str(entity.value)
        case Person() if form.lower() in english.PRONOUNS["m"]:
            pronoun = english.PRONOUNS[entity.gender][form.lower()]
            return pronoun.capitalize() if form[0].isupper() else pronoun
        case Person() if form == "kin":
            return entity.kin
        case Place() if form == "in":
            return entity.at
        case Riddle() | Festival():
            if hasattr(entity, f"{form}_en"):
                return getattr(entity, f"{form}_en")
        case _:
            forms = ENGLISH_FORMS[type(entity)]
            if form in forms:
                return forms[form](entity.noun_en if bare and isinstance(entity, Noun) else entity.en)
    raise ValueError(f"{type(entity).__name__} has no English form {form!r}")
