"""Where each byte lies: tensors cut into runs of rows, so that every tier gets the share that was asked for.

Whole tensors would not do: of an OPT's layer the two matrices of the feed-forward are two thirds. So the rows of a
layer's tensors stand in one line, and the line is cut at the shares; what was rounded in one layer is made up for in
the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

TIERS = ("device", "host", "disk")


@dataclass(frozen=True)
class Rows:
    """A tensor as placement sees it: ``count`` rows of ``nbytes`` each. A vector's rows are its numbers."""

    name: str
    count: int
    nbytes: int


@dataclass(frozen=True)
class Piece:
    """Rows ``begin`` to ``end`` of the tensor ``name`` lie on ``tier``."""

    name: str
    begin: int
    end: int
    tier: str
    nbytes: int


class Placement:
    """Cuts groups of tensors, one layer after another, so that the tiers' shares of all bytes so far are ``fractions``.

    Device rows come first in a group, those on disk last. ``shares()`` tells what has been placed: it differs from what
    was asked for by less than one row a tier.
    """

    def __init__(self, fractions: Sequence[float]) -> None:
        """``fractions`` (device, host, disk): of the bytes; they sum to 1 (``OffloadPolicy`` has checked them)."""
        self.fractions = tuple(fractions)
        self.nbytes = dict.fromkeys(TIERS, 0)

    def place(self, group: Iterable[Rows]) -> list[Piece]:
        """The pieces of one group, such as a layer's tensors."""
        tensors = [rows for rows in group if rows.count and rows.nbytes]
        total = sum(rows.count * rows.nbytes for rows in tensors)
        before = sum(self.nbytes.values())
        pieces: list[Piece] = []
        left = [(rows, 0) for rows in tensors]
        for tier, fraction in zip(TIERS, self.fractions, strict=True):
            last = tier == _last(self.fractions)
            wanted = fraction * (before + total) - self.nbytes[tier]
            while left and (last or wanted > 0):
                rows, begin = left[0]
                free = rows.count - begin
                count = free if last else min(free, round(wanted / rows.nbytes))
                if not count:
                    break
                nbytes = count * rows.nbytes
                pieces.append(Piece(rows.name, begin, begin + count, tier, nbytes))
                self.nbytes[tier] += nbytes
                wanted -= nbytes
                left[0] = (rows, begin + count)
                if begin + count == rows.count:
                    del left[0]
        return pieces

    def shares(self) -> tuple[float, ...]:
        """The part of all bytes on each tier; ``fractions`` where there are none."""
        total = sum(self.nbytes.values())
        return tuple(self.nbytes[tier] / total for tier in TIERS) if total else self.fractions


def _last(fractions: Sequence[float]) -> str:
    """The last tier that gets anything: it takes what rounding leaves."""
    return [tier for tier, fraction in zip(TIERS, fractions, strict=True) if fraction > 0][-1]


def by_tensor(pieces: Iterable[Piece]) -> Mapping[str, list[Piece]]:
    """The pieces of each tensor, in the order of its rows."""
    found: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        found[piece.name].append(piece)
    return {name: sorted(own, key=lambda piece: piece.begin) for name, own in found.items()}
