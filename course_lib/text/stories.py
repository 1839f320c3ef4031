"""Short stories in Bangla and English, written by a grammar: `stories(count, seed=..., language=...)`.

Each story is one of the plots of `story_plots_*`, told of a cast of children and elders with names used in
Bangladesh. The words are few and come back often, as a small language model needs; the grammar is right. The same
seed gives the same stories on every machine, and `story_pair` tells one plot in both languages, sentence by sentence.

Story number `index` of a seed is made from `seed` and `index` alone, so nothing is remembered and nothing repeats:
the plot and the two children are read from a permutation of all the numbers there are, one number a story.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from . import (
    story_plots_home,
    story_plots_journeys,
    story_plots_kindness,
    story_plots_outdoors,
    story_plots_school,
)
from .documents import Document
from .story_cast import Cast
from .story_people import CHILDREN
from .story_plot import Plot
from .story_template import Clause, Telling

PLOTS: tuple[Plot, ...] = (
    *story_plots_kindness.PLOTS,
    *story_plots_outdoors.PLOTS,
    *story_plots_home.PLOTS,
    *story_plots_school.PLOTS,
    *story_plots_journeys.PLOTS,
)
LANGUAGES = ("bn", "en")

# How many stories have 2, 3, 4 … beats, out of 100: many short ones and a long tail, near a log-normal. Whole
# numbers, because the last digit of an exponential may differ between machines.
BEATS_PER_HUNDRED = {2: 16, 3: 18, 4: 16, 5: 13, 6: 10, 7: 8, 8: 6, 9: 5, 10: 4, 11: 2, 12: 2}

PAIRS = len(CHILDREN) * (len(CHILDREN) - 1)
CASTINGS = len(PLOTS) * PAIRS  # how many stories of one seed differ in plot or children


@dataclass(frozen=True)
class Sketch:
    """What a story tells, before a language is chosen: the plot, the cast, and the wording of every beat told."""

    plot: Plot
    cast: Cast
    wordings: tuple[int | None, ...]


def stories(count: int, *, seed: int = 0, language: str = "both") -> Iterator[Document]:
    """`count` short stories, one at a time.

    `language` is "bn", "en" or "both", which alternates: Bangla first. The texts of the first `CASTINGS` stories of a
    seed all differ; another seed gives other stories. A story has 2 to about 15 sentences, short ones mostly.

    Raises ValueError for a negative count or an unknown language, TypeError for a count or seed that is no integer.
    """
    for name, value in (("count", count), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(
                f"{name} must be an int, got {type(value).__name__}: write {name}=1000, for example"
            )
    if count < 0:
        raise ValueError(f"count must be 0 or more, got {count}: ask for how many stories you want")
    if language not in (*LANGUAGES, "both"):
        raise ValueError(f'language must be "bn", "en" or "both", got {language!r}: choose one of the three')
    return _stories(count, seed, LANGUAGES if language == "both" else (language,))


def _stories(count: int, seed: int, languages: tuple[str, ...]) -> Iterator[Document]:
    for index in range(count):
        yield tell(sketch(seed, index), languages[index % len(languages)], f"{seed}-{index}")[0]


def story_pair(seed: int, index: int) -> tuple[Document, Document]:
    """Story `index` of `seed` in Bangla and in English: the same plot, cast and wording, sentence by sentence."""
    drawn = sketch(seed, index)
    return tell(drawn, "bn", f"{seed}-{index}")[0], tell(drawn, "en", f"{seed}-{index}")[0]


def sketch(seed: int, index: int) -> Sketch:
    """Draw the plot, the cast and the beats of story `index`, from `seed` and `index` alone."""
    casting = permuted(index % CASTINGS, CASTINGS, seed)
    plot = PLOTS[casting % len(PLOTS)]
    hero, friend = divmod(casting // len(PLOTS), len(CHILDREN) - 1)
    friend += friend >= hero
    cast: Cast = {"hero": CHILDREN[hero], "friend": CHILDREN[friend]}
    # A seed of text is hashed with SHA-512: the same on every Python and platform.
    rng = Random(f"story {seed} {index}")
    for role, source in plot.roles.items():
        cast[role] = source(cast, rng) if callable(source) else rng.choice(source)
    beats = max(plot.shortest, rng.choices(tuple(BEATS_PER_HUNDRED), tuple(BEATS_PER_HUNDRED.values()))[0])
    wordings = tuple(rng.randrange(len(beat.wordings)) if beat.told(beats) else None for beat in plot.beats)
    return Sketch(plot, cast, wordings)


def tell(drawn: Sketch, language: str, name: str) -> tuple[Document, tuple[Clause, ...]]:
    """The story as a document of `language`, and the agreement of each Bangla verb in it (none in English)."""
    telling = Telling(drawn.cast, language)
    column = LANGUAGES.index(language)
    sentences = [
        telling.render(beat.wordings[choice][column])
        for beat, choice in zip(drawn.plot.beats, drawn.wordings, strict=True)
        if choice is not None
    ]
    title = telling.render(drawn.plot.title[column])
    document = Document(f"story-{language}-{name}", language, drawn.plot.topic, title, " ".join(sentences))
    return document, tuple(telling.clauses)


def permuted(value: int, size: int, seed: int) -> int:
    """Where a seeded permutation of `range(size)` sends `value`.

    A Feistel network permutes the next power of four; a value that lands outside `range(size)` goes round again.
    """
    half = max(1, (size.bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = value >> half, value & mask
        for turn in range(4):
            left, right = right, left ^ (Random(f"turn {seed} {turn} {right}").getrandbits(half) & mask)
        value = left << half | right
        if value < size:
            return value
