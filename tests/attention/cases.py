"""The biases every backend is asked for, each beside the predicate that says what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from course_lib.attention import Causal, KeyPadding, Segments

from .oracle import Predicate, both, bottom_right, causal, everything, matrix, segments, top_left
from .running import randn


@dataclass(frozen=True)
class Case:
    name: str
    q_len: int
    k_len: int
    make: Callable[[], Any]  # the bias as a user writes it
    can_see: Predicate = everything
    batch: int = 2
    heads: int = 3
    per_batch: Callable[[], Tensor] | None = None  # bool [batch, 1, 1 or q_len, k_len], on top of can_see
    scores: Callable[[], Tensor] | None = None  # what is added where visible
    symbolic: bool = field(default=True)  # made of AttentionBias only: no tensor of n² entries is given

    def visible(self) -> Tensor:
        """bool [1 or batch, 1, q_len, k_len]"""
        seen = matrix(self.can_see, self.q_len, self.k_len)[None, None]
        return seen if self.per_batch is None else seen & self.per_batch().bool()

    def __str__(self) -> str:
        return self.name


LEFT_PADDED = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
RIGHT_PADDED = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
HOLES = torch.tensor([[0, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 1, 0, 1]])
ALL_PADDED_ROW = torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1]])


def _rows(mask: Tensor) -> Callable[[], Tensor]:
    return lambda: mask[:, None, None, :]


def _score(*shape: int) -> Tensor:
    return randn(*shape, seed=55)


CAUSAL_CASES = [
    Case("causal square", 7, 7, lambda: Causal(), causal()),
    Case("causal top-left, fewer queries", 3, 7, lambda: Causal("top-left"), causal()),
    Case("causal top-left, more queries", 7, 3, lambda: Causal("top-left"), causal()),
    Case("causal bottom-right, fewer queries", 3, 7, lambda: Causal("bottom-right"), causal(4)),
    Case("causal bottom-right, more queries", 7, 3, lambda: Causal("bottom-right"), causal(-4)),
    Case("causal bottom-right, one query", 1, 7, lambda: Causal("bottom-right"), causal(6)),
    Case("window 1 sees only itself", 7, 7, lambda: Causal(window=1), causal(0, 1)),
    Case("window 3 square", 7, 7, lambda: Causal(window=3), causal(0, 3)),
    Case("window wider than the sequence", 7, 7, lambda: Causal(window=100), causal(0, 100)),
    Case("window 2 top-left, more queries", 8, 4, lambda: Causal("top-left", window=2), causal(0, 2)),
    Case(
        "window 2 bottom-right, fewer queries", 3, 8, lambda: Causal("bottom-right", window=2), causal(5, 2)
    ),
    Case(
        "window 3 bottom-right, more queries", 8, 4, lambda: Causal("bottom-right", window=3), causal(-4, 3)
    ),
]

SEGMENT_CASES = [
    Case("segments", 7, 7, lambda: Segments([2, 4, 1]), segments([2, 4, 1])),
    Case("one segment", 7, 7, lambda: Segments([7]), segments([7])),
    Case("segments of one", 4, 4, lambda: Segments([1, 1, 1, 1]), segments([1, 1, 1, 1])),
    Case(
        "segments, other key lengths",
        6,
        9,
        lambda: Segments([2, 3, 1], [4, 1, 4]),
        segments([2, 3, 1], [4, 1, 4]),
    ),
    Case("segments of zero length", 6, 6, lambda: Segments([0, 2, 0, 0, 4, 0]), segments([0, 2, 0, 0, 4, 0])),
    Case(
        "a segment without keys", 6, 5, lambda: Segments([2, 3, 1], [3, 0, 2]), segments([2, 3, 1], [3, 0, 2])
    ),
    Case(
        "a segment without queries",
        3,
        6,
        lambda: Segments([2, 0, 1], [1, 3, 2]),
        segments([2, 0, 1], [1, 3, 2]),
    ),
    Case("segments in one row", 7, 7, lambda: Segments([3, 4]), segments([3, 4]), batch=1),
    Case("segments given as a tuple", 7, 7, lambda: Segments((3, 4)), segments([3, 4]), batch=1),
    Case(
        "causal segments",
        9,
        9,
        lambda: Segments([2, 4, 0, 3], inner=Causal()),
        segments([2, 4, 0, 3], inner=top_left()),
    ),
    Case(
        "top-left segments, other key lengths",
        6,
        9,
        lambda: Segments([2, 3, 1], [4, 1, 4], inner=Causal("top-left")),
        segments([2, 3, 1], [4, 1, 4], top_left()),
    ),
    Case(
        "bottom-right segments, other key lengths",
        6,
        9,
        lambda: Segments([2, 3, 1], [4, 1, 4], inner=Causal("bottom-right")),
        segments([2, 3, 1], [4, 1, 4], bottom_right()),
    ),
    Case(
        "windowed segments",
        11,
        11,
        lambda: Segments([5, 1, 5], inner=Causal(window=2)),
        segments([5, 1, 5], inner=top_left(2)),
    ),
    Case(
        "bottom-right windowed segments",
        5,
        12,
        lambda: Segments([2, 3], [7, 5], inner=Causal("bottom-right", window=3)),
        segments([2, 3], [7, 5], bottom_right(3)),
    ),
    Case(
        "segments within segments",
        8,
        8,
        lambda: Segments([8], inner=Segments([3, 5], inner=Causal())),
        segments([3, 5], inner=top_left()),
    ),
]

PADDING_CASES = [
    Case("left padding", 7, 7, lambda: KeyPadding(LEFT_PADDED), per_batch=_rows(LEFT_PADDED)),
    Case("right padding", 5, 7, lambda: KeyPadding(RIGHT_PADDED), per_batch=_rows(RIGHT_PADDED)),
    Case("padding with holes", 9, 7, lambda: KeyPadding(HOLES), per_batch=_rows(HOLES)),
    Case("padding as bool", 7, 7, lambda: KeyPadding(HOLES.bool()), per_batch=_rows(HOLES)),
    Case("nothing padded", 7, 7, lambda: KeyPadding(torch.ones(2, 7)), per_batch=_rows(torch.ones(2, 7))),
    Case("a row all padding", 7, 7, lambda: KeyPadding(ALL_PADDED_ROW), per_batch=_rows(ALL_PADDED_ROW)),
]

SUM_CASES = [
    Case(
        "causal + left padding",
        7,
        7,
        lambda: Causal() + KeyPadding(LEFT_PADDED),
        causal(),
        per_batch=_rows(LEFT_PADDED),
    ),
    Case(
        "left padding + causal",
        7,
        7,
        lambda: KeyPadding(LEFT_PADDED) + Causal(),
        causal(),
        per_batch=_rows(LEFT_PADDED),
    ),
    Case(
        "decoding step with padding",
        1,
        7,
        lambda: Causal("bottom-right") + KeyPadding(LEFT_PADDED),
        causal(6),
        per_batch=_rows(LEFT_PADDED),
    ),
    Case(
        "window + padding",
        7,
        7,
        lambda: Causal(window=2) + KeyPadding(HOLES),
        causal(0, 2),
        per_batch=_rows(HOLES),
    ),
    Case(
        "segments + causal of the whole",
        7,
        7,
        lambda: Segments([3, 4]) + Causal(),
        both(segments([3, 4]), causal()),
    ),
    Case(
        "segments + padding",
        7,
        7,
        lambda: Segments([3, 4]) + KeyPadding(HOLES),
        segments([3, 4]),
        per_batch=_rows(HOLES),
    ),
    Case(
        "two segmentations",
        7,
        7,
        lambda: Segments([3, 4]) + Segments([5, 2]),
        both(segments([3, 4]), segments([5, 2])),
    ),
    Case(
        "three biases",
        7,
        7,
        lambda: Segments([3, 4]) + Causal() + KeyPadding(HOLES),
        both(segments([3, 4]), causal()),
        per_batch=_rows(HOLES),
    ),
    Case(
        "a sum inside segments",
        8,
        8,
        lambda: Segments([3, 5], inner=Causal() + Causal(window=2)),
        segments([3, 5], inner=top_left(2)),
    ),
]

DENSE_CASES = [
    Case("bool", 5, 7, lambda: matrix(causal(1), 5, 7), causal(1), symbolic=False),
    Case(
        "bool + causal",
        7,
        7,
        lambda: matrix(segments([3, 4]), 7, 7) + Causal(),
        both(segments([3, 4]), causal()),
        symbolic=False,
    ),
    Case(
        "causal + bool",
        7,
        7,
        lambda: Causal() + matrix(segments([3, 4]), 7, 7),
        both(segments([3, 4]), causal()),
        symbolic=False,
    ),
    Case(
        "dense + causal",
        7,
        7,
        lambda: _score(2, 3, 7, 7) + Causal(),
        causal(),
        scores=lambda: _score(2, 3, 7, 7),
        symbolic=False,
    ),
    Case(
        "causal + dense",
        7,
        7,
        lambda: Causal() + _score(7, 7),
        causal(),
        scores=lambda: _score(7, 7),
        symbolic=False,
    ),
    Case(
        "dense + padding + dense",
        7,
        7,
        lambda: _score(7, 7) + KeyPadding(HOLES) + _score(1, 3, 7, 7),
        per_batch=_rows(HOLES),
        scores=lambda: _score(7, 7) + _score(1, 3, 7, 7),
        symbolic=False,
    ),
    Case(
        "segments + dense",
        7,
        7,
        lambda: Segments([3, 4], inner=Causal()) + _score(1, 3, 1, 7),
        segments([3, 4], inner=top_left()),
        scores=lambda: _score(1, 3, 1, 7),
        symbolic=False,
    ),
    Case(
        "window + dense, bottom-right",
        3,
        7,
        lambda: Causal("bottom-right", window=2) + _score(2, 1, 3, 7),
        causal(4, 2),
        scores=lambda: _score(2, 1, 3, 7),
        symbolic=False,
    ),
]

SYMBOLIC_CASES = CAUSAL_CASES + SEGMENT_CASES + PADDING_CASES + SUM_CASES
ALL_CASES = SYMBOLIC_CASES + DENSE_CASES
