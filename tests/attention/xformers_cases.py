"""Every class of mask that xFormers 0.0.35 has, beside the predicate that says what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .oracle import Predicate, blocks, bottom_right, causal, local, segments, top_left


def xf() -> Any:
    from xformers.ops.fmha import attn_bias

    return attn_bias


def block_diagonal(q: list[int], kv: list[int] | None = None) -> Any:
    return xf().BlockDiagonalMask.from_seqlens(q, kv)


def _pages(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32)


def paged(
    q_lengths: list[int],
    k_starts: list[int],
    k_lengths: list[int],
    tables: list[list[int]],
    page: int,
    inner: Callable[[int, int], Predicate] | None = None,
) -> Predicate:
    """Segment s reads the cache through its row of the table: its key p lies on page tables[s][p // page]."""
    owner = [(s, i) for s, length in enumerate(q_lengths) for i in range(length)]

    def can_see(i: int, j: int) -> bool:
        s, within = owner[i]
        for order, physical in enumerate(tables[s]):
            if physical != j // page:
                continue
            k = order * page + j % page - k_starts[s]
            if 0 <= k < k_lengths[s] and (inner is None or inner(q_lengths[s], k_lengths[s])(within, k)):
                return True
        return False

    return can_see


@dataclass(frozen=True)
class Mask:
    name: str
    q_len: int
    k_len: int
    make: Callable[[], Any]
    can_see: Predicate
    looks: str | None = None  # where it is worth pinning down
    materializes: bool = True

    def __str__(self) -> str:
        return self.name


TABLES = [[3, 0], [1, 2]]
PAGED_LENGTHS = ([1, 2], [3, 4])

MASKS = [
    Mask("LowerTriangular", 3, 5, lambda: xf().LowerTriangularMask(), causal(), "1..../11.../111.."),
    Mask("LowerTriangular, more queries", 5, 3, lambda: xf().LowerTriangularMask(), causal()),
    Mask(
        "LowerTriangularFromBottomRight",
        3,
        5,
        lambda: xf().LowerTriangularFromBottomRightMask(),
        causal(2),
        "111../1111./11111",
    ),
    Mask(
        "LowerTriangularFromBottomRight, more queries",
        5,
        3,
        lambda: xf().LowerTriangularFromBottomRightMask(),
        causal(-2),
        ".../.../1../11./111",
    ),
    Mask(
        "LowerTriangularFromBottomRight.make_local_attention",
        3,
        5,
        lambda: xf().LowerTriangularFromBottomRightMask().make_local_attention(2),
        causal(2, 2),
        ".11../..11./...11",
    ),
    Mask(
        "LocalAttentionFromBottomRight",
        3,
        5,
        lambda: xf().LocalAttentionFromBottomRightMask(1, 1),
        local(1, 1, 2),
        ".111./..111/...11",
    ),
    Mask(
        "LocalAttentionFromBottomRight(0, 3)",
        6,
        4,
        lambda: xf().LocalAttentionFromBottomRightMask(0, 3),
        local(0, 3, -2),
    ),
    Mask(
        "LocalAttentionFromBottomRight(2, 0)",
        6,
        6,
        lambda: xf().LocalAttentionFromBottomRightMask(2, 0),
        local(2, 0),
    ),
    Mask(
        "BlockDiagonal",
        5,
        5,
        lambda: block_diagonal([2, 3]),
        segments([2, 3]),
        "11.../11.../..111/..111/..111",
    ),
    Mask("BlockDiagonal, other keys", 3, 5, lambda: block_diagonal([2, 1], [1, 4]), segments([2, 1], [1, 4])),
    Mask(
        "BlockDiagonal, empty segments",
        5,
        6,
        lambda: block_diagonal([2, 0, 3], [3, 3, 0]),
        segments([2, 0, 3], [3, 3, 0]),
    ),
    Mask(
        "BlockDiagonalCausal",
        3,
        5,
        lambda: block_diagonal([2, 1], [3, 2]).make_causal(),
        segments([2, 1], [3, 2], top_left()),
        "1..../11.../...1.",
    ),
    Mask(
        "BlockDiagonalCausalFromBottomRight",
        3,
        5,
        lambda: block_diagonal([2, 1], [3, 2]).make_causal_from_bottomright(),
        segments([2, 1], [3, 2], bottom_right()),
        "11.../111../...11",
    ),
    Mask(
        "BlockDiagonalCausalLocalAttention",
        7,
        7,
        lambda: block_diagonal([4, 3]).make_local_attention(2),
        segments([4, 3], inner=top_left(2)),
        "1....../11...../.11..../..11.../....1../....11./.....11",
    ),
    Mask(
        "BlockDiagonalCausalLocalAttentionFromBottomRight",
        3,
        7,
        lambda: block_diagonal([2, 1], [4, 3]).make_local_attention_from_bottomright(2),
        segments([2, 1], [4, 3], bottom_right(2)),
        ".11..../..11.../.....11",
    ),
    Mask(
        "BlockDiagonalPaddedKeys",
        3,
        8,
        lambda: xf().BlockDiagonalPaddedKeysMask.from_seqlens([1, 2], 4, [3, 2]),
        blocks([1, 2], [0, 4], [3, 2]),
        "111...../....11../....11..",
    ),
    Mask(
        "BlockDiagonalCausalWithOffsetPaddedKeys",
        3,
        8,
        lambda: xf().BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([1, 2], 4, [3, 2]),
        blocks([1, 2], [0, 4], [3, 2], bottom_right()),
        "111...../....1.../....11..",
    ),
    Mask(
        "BlockDiagonalLocalAttentionPaddedKeys",
        5,
        12,
        lambda: xf().BlockDiagonalLocalAttentionPaddedKeysMask.from_seqlens_local([2, 3], 6, [5, 4], 1, 1),
        blocks([2, 3], [0, 6], [5, 4], lambda q, k: local(1, 1, k - q)),
    ),
    Mask(
        "BlockDiagonalPaddedKeys.make_local_attention",
        5,
        12,
        lambda: xf().BlockDiagonalPaddedKeysMask.from_seqlens([2, 3], 6, [5, 4]).make_local_attention(2, 0),
        blocks([2, 3], [0, 6], [5, 4], lambda q, k: local(2, 0, k - q)),
    ),
    Mask(
        "BlockDiagonalCausalLocalAttentionPaddedKeys",
        5,
        12,
        lambda: xf().BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local([2, 3], 6, [5, 4], 2),
        blocks([2, 3], [0, 6], [5, 4], bottom_right(2)),
    ),
    Mask(
        "BlockDiagonalGappyKeys",
        3,
        8,
        lambda: xf().BlockDiagonalGappyKeysMask.from_seqlens([1, 2], [1, 5, 8], [2, 3]),
        blocks([1, 2], [1, 5], [2, 3]),
        ".11...../.....111/.....111",
    ),
    Mask(
        "BlockDiagonalGappyKeys, overlapping",
        3,
        8,
        lambda: xf().BlockDiagonalGappyKeysMask.from_seqlens([1, 2], [2, 0, 8], [5, 4]),
        blocks([1, 2], [2, 0], [5, 4]),
    ),
    Mask(
        "BlockDiagonalCausalWithOffsetGappyKeys",
        4,
        9,
        lambda: xf().BlockDiagonalCausalWithOffsetGappyKeysMask(
            **vars(xf().BlockDiagonalGappyKeysMask.from_seqlens([1, 3], [1, 5, 9], [2, 4]))
        ),
        blocks([1, 3], [1, 5], [2, 4], bottom_right()),
    ),
    Mask(
        "PagedBlockDiagonalPaddedKeys",
        3,
        8,
        lambda: xf().PagedBlockDiagonalPaddedKeysMask.from_seqlens(*PAGED_LENGTHS, _pages(*TABLES), 2),
        paged(PAGED_LENGTHS[0], [0, 0], PAGED_LENGTHS[1], TABLES, 2),
    ),
    Mask(
        "PagedBlockDiagonalCausalWithOffsetPaddedKeys",
        3,
        8,
        lambda: xf().PagedBlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
            *PAGED_LENGTHS, _pages(*TABLES), 2
        ),
        paged(PAGED_LENGTHS[0], [0, 0], PAGED_LENGTHS[1], TABLES, 2, bottom_right()),
    ),
    Mask(
        "PagedBlockDiagonalPaddedKeys by make_paged",
        3,
        8,
        lambda: (
            xf()
            .BlockDiagonalPaddedKeysMask.from_seqlens([1, 2], 4, [3, 4])
            .make_paged(_pages(*TABLES), 2, xf().PagedBlockDiagonalPaddedKeysMask)
        ),
        paged([1, 2], [0, 0], [3, 4], TABLES, 2),
    ),
    Mask(
        "PagedBlockDiagonalGappyKeys by make_paged",
        3,
        8,
        lambda: (
            xf()
            .BlockDiagonalGappyKeysMask.from_seqlens([1, 2], [1, 5, 8], [2, 3])
            .make_paged(_pages(*TABLES), 2, 4, xf().PagedBlockDiagonalGappyKeysMask)
        ),
        paged([1, 2], [1, 1], [2, 3], TABLES, 2),
    ),
    Mask(
        "PagedBlockDiagonalCausalWithOffsetGappyKeys by make_paged",
        3,
        8,
        lambda: (
            xf()
            .BlockDiagonalGappyKeysMask.from_seqlens([1, 2], [1, 4, 8], [2, 4])
            .make_paged(_pages(*TABLES), 2, 4, xf().PagedBlockDiagonalCausalWithOffsetGappyKeysMask)
        ),
        paged([1, 2], [1, 0], [2, 4], TABLES, 2, bottom_right()),
    ),
]
