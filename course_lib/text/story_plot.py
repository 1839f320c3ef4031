"""What a plot is: a cast to draw, and beats to tell in order, each in both languages.

Every beat has a rank, 1 for the first that a story cannot do without. A short story keeps the beats of rank 1 and 2,
a longer one those up to 5, or 12: so one plot gives two sentences or fifteen, and each of them is whole. A beat may
rely only on beats of a lower rank; it never says "it" of something that a higher rank brings in.
"""

from dataclasses import dataclass

from .story_cast import Role

Pair = tuple[str, str]
LONGEST = 12


@dataclass(frozen=True)
class Beat:
    """One or two sentences, as (Bangla, English) templates; one of the `wordings` is told."""

    rank: int
    wordings: tuple[Pair, ...]
    until: int

    def told(self, beats: int) -> bool:
        """Whether a story of `beats` beats tells this one."""
        return self.rank <= beats <= self.until


@dataclass(frozen=True)
class Plot:
    """`roles` are drawn in order, after the two children `hero` and `friend`, who are in every plot.

    `shortest` is how many beats a story with a beginning and an end needs.
    """

    name: str
    topic: str
    title: Pair
    roles: dict[str, Role]
    beats: tuple[Beat, ...]
    shortest: int = 2


def beat(rank: int, *wordings: Pair, until: int = LONGEST) -> Beat:
    """A beat with its wordings; after `until`, longer stories leave it out, because they tell the same at length."""
    return Beat(rank, wordings, until)
