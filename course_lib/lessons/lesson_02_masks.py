"""Every mask class of xFormers 0.0.35, one small example each, for the gallery of lesson 02.

Each example is written down twice: as xFormers makes it and as ours that means the same. Pictures are drawn from
ours, so that they are there without xFormers; the lesson's cell asks the object itself where it is installed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.attention import AttentionBias, Band, Causal, Segments
from course_lib.attention.xformers_bridge import xformers_ops

TENSOR = torch.tensor(
    [[0.0, -1.0, -2.0, -3.0, -4.0], [-1.0, 0.0, -1.0, -2.0, -3.0], [-2.0, -1.0, 0.0, -1.0, -2.0]]
)
PAGES = [[3, 0], [1, 2]]


@dataclass(frozen=True)
class MaskExample:
    """One class: its name, how xFormers makes it (`m` is `xformers.ops.fmha.attn_bias`), what it is for."""

    name: str
    use: str
    q_len: int
    k_len: int
    ours: Callable[[], AttentionBias]
    theirs: Callable[[Any], Any]

    def mask(self) -> Any:
        """xFormers' own object, or ours where xFormers is not installed."""
        ops = xformers_ops()
        return self.ours() if ops is None else self.theirs(ops.fmha.attn_bias)

    def dense(self) -> torch.Tensor:
        """[1, 1, q_len, k_len] of 0, -inf and scores: the whole matrix, drawn from ours."""
        return self.ours().materialize(self.q_len, self.k_len)


def _pages() -> torch.Tensor:
    return torch.tensor(PAGES, dtype=torch.int32)


def _in_pages(runs: list[range], inner: AttentionBias | None = None) -> Segments:
    """Segments of 1 and 2 queries whose keys lie on pages of two, in the order of PAGES."""
    keys = [
        torch.tensor([pages[position // 2] * 2 + position % 2 for position in run])
        for pages, run in zip(PAGES, runs, strict=True)
    ]
    return Segments.with_keys_at([1, 2], keys, inner, 8)


def _gappy(m: Any, starts: list[int], lengths: list[int]) -> Any:
    return m.BlockDiagonalGappyKeysMask.from_seqlens([1, 2], starts, lengths)


_EXAMPLES = (
    MaskExample(
        "LowerTriangularMask",
        "causal, top-left: training",
        3,
        5,
        lambda: Causal("top-left"),
        lambda m: m.LowerTriangularMask(),
    ),
    MaskExample(
        "LowerTriangularFromBottomRightMask",
        "causal, bottom-right: a cache",
        3,
        5,
        lambda: Causal("bottom-right"),
        lambda m: m.LowerTriangularFromBottomRightMask(),
    ),
    MaskExample(
        "LowerTriangularFromBottomRightLocalAttentionMask",
        "the same with a window of 2 keys",
        3,
        5,
        lambda: Causal("bottom-right", window=2),
        lambda m: m.LowerTriangularFromBottomRightLocalAttentionMask(2),
    ),
    MaskExample(
        "LocalAttentionFromBottomRightMask",
        "one key to the left, one to the right",
        3,
        5,
        lambda: Band(1, 1, "bottom-right"),
        lambda m: m.LocalAttentionFromBottomRightMask(1, 1),
    ),
    MaskExample(
        "LowerTriangularMaskWithTensorBias",
        "causal plus scores of your own",
        3,
        5,
        lambda: Causal("top-left") + TENSOR,
        lambda m: m.LowerTriangularMask().add_bias(TENSOR[None, None]),
    ),
    MaskExample(
        "BlockDiagonalMask",
        "packed sequences of 2 and 3",
        5,
        5,
        lambda: Segments([2, 3]),
        lambda m: m.BlockDiagonalMask.from_seqlens([2, 3]),
    ),
    MaskExample(
        "BlockDiagonalCausalMask",
        "packed and causal, top-left",
        3,
        5,
        lambda: Segments([2, 1], [3, 2], Causal("top-left")),
        lambda m: m.BlockDiagonalMask.from_seqlens([2, 1], [3, 2]).make_causal(),
    ),
    MaskExample(
        "BlockDiagonalCausalFromBottomRightMask",
        "packed and causal, bottom-right",
        3,
        5,
        lambda: Segments([2, 1], [3, 2], Causal("bottom-right")),
        lambda m: m.BlockDiagonalMask.from_seqlens([2, 1], [3, 2]).make_causal_from_bottomright(),
    ),
    MaskExample(
        "BlockDiagonalCausalLocalAttentionMask",
        "packed, causal, a window of 2",
        7,
        7,
        lambda: Segments([4, 3], inner=Causal("top-left", window=2)),
        lambda m: m.BlockDiagonalMask.from_seqlens([4, 3]).make_local_attention(2),
    ),
    MaskExample(
        "BlockDiagonalCausalLocalAttentionFromBottomRightMask",
        "the same, bottom-right",
        3,
        7,
        lambda: Segments([2, 1], [4, 3], Causal("bottom-right", window=2)),
        lambda m: m.BlockDiagonalMask.from_seqlens([2, 1], [4, 3]).make_local_attention_from_bottomright(2),
    ),
    MaskExample(
        "BlockDiagonalPaddedKeysMask",
        "caches of fixed size, not yet full",
        3,
        8,
        lambda: Segments.with_keys_at([1, 2], [range(0, 3), range(4, 6)], None, 8),
        lambda m: m.BlockDiagonalPaddedKeysMask.from_seqlens([1, 2], 4, [3, 2]),
    ),
    MaskExample(
        "BlockDiagonalCausalWithOffsetPaddedKeysMask",
        "the same, causal",
        3,
        8,
        lambda: Segments.with_keys_at([1, 2], [range(0, 3), range(4, 6)], Causal("bottom-right"), 8),
        lambda m: m.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([1, 2], 4, [3, 2]),
    ),
    MaskExample(
        "BlockDiagonalLocalAttentionPaddedKeysMask",
        "the same, one key to either side",
        3,
        8,
        lambda: Segments.with_keys_at([1, 2], [range(0, 3), range(4, 8)], Band(1, 1, "bottom-right"), 8),
        lambda m: m.BlockDiagonalLocalAttentionPaddedKeysMask.from_seqlens_local([1, 2], 4, [3, 4], 1, 1),
    ),
    MaskExample(
        "BlockDiagonalCausalLocalAttentionPaddedKeysMask",
        "the same, causal, a window of 2",
        3,
        8,
        lambda: Segments.with_keys_at(
            [1, 2], [range(0, 3), range(4, 8)], Causal("bottom-right", window=2), 8
        ),
        lambda m: m.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local([1, 2], 4, [3, 4], 2),
    ),
    MaskExample(
        "BlockDiagonalGappyKeysMask",
        "runs of keys that start anywhere",
        3,
        8,
        lambda: Segments.with_keys_at([1, 2], [range(1, 3), range(5, 8)], None, 8),
        lambda m: _gappy(m, [1, 5, 8], [2, 3]),
    ),
    MaskExample(
        "BlockDiagonalCausalWithOffsetGappyKeysMask",
        "the same, causal",
        3,
        8,
        lambda: Segments.with_keys_at([1, 2], [range(1, 3), range(5, 8)], Causal("bottom-right"), 8),
        lambda m: m.BlockDiagonalCausalWithOffsetGappyKeysMask(**vars(_gappy(m, [1, 5, 8], [2, 3]))),
    ),
    MaskExample(
        "PagedBlockDiagonalPaddedKeysMask",
        "a cache cut into pages of 2 keys",
        3,
        8,
        lambda: _in_pages([range(3), range(4)]),
        lambda m: m.PagedBlockDiagonalPaddedKeysMask.from_seqlens([1, 2], [3, 4], _pages(), 2),
    ),
    MaskExample(
        "PagedBlockDiagonalCausalWithOffsetPaddedKeysMask",
        "the same, causal",
        3,
        8,
        lambda: _in_pages([range(3), range(4)], Causal("bottom-right")),
        lambda m: m.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
            [1, 2], [3, 4], _pages(), 2
        ),
    ),
    MaskExample(
        "PagedBlockDiagonalGappyKeysMask",
        "pages, and runs that start anywhere",
        3,
        8,
        lambda: _in_pages([range(1, 3), range(1, 4)]),
        lambda m: _gappy(m, [1, 5, 8], [2, 3]).make_paged(_pages(), 2, 4, m.PagedBlockDiagonalGappyKeysMask),
    ),
    MaskExample(
        "PagedBlockDiagonalCausalWithOffsetGappyKeysMask",
        "the same, causal",
        3,
        8,
        lambda: _in_pages([range(1, 3), range(0, 4)], Causal("bottom-right")),
        lambda m: _gappy(m, [1, 4, 8], [2, 4]).make_paged(
            _pages(), 2, 4, m.PagedBlockDiagonalCausalWithOffsetGappyKeysMask
        ),
    ),
)


def mask_examples() -> tuple[MaskExample, ...]:
    """One example of each class, in the order of the gallery."""
    return _EXAMPLES
