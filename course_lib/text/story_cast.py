"""What can play a part in a story, in both languages: people, things, places, times, activities, numbers.

Each entry carries both languages, so that one plot with one cast is told in either, and knows its own grammar: a
person's gender, and whether she is spoken of as সে or তিনি; a thing's classifier; a place's English preposition.
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
    day_bn: str
    day_en: str


Entity = Person | Noun | Place | Time | Activity | Number | Riddle | Festival
Cast = dict[str, Entity]
# A role is filled from a pool, or by a rule that may look at who plays already (the hero's own grandmother).
Role = tuple[Entity, ...] | Callable[[Cast, Random], Entity]
