"""ALiBi where padding lies between the tokens of a sequence, which columns would count."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.attention import AttentionBias, Grid


class ALiBiAt(AttentionBias):
    """Lowers the score of two tokens by ``slope * distance``, the distance counted in real tokens.

    ``slopes`` [heads]; ``real`` [batch, length] marks the tokens of sequences that attend to themselves. Hides
    nothing, padding neither.
    """

    finite = True

    def __init__(self, slopes: Tensor, real: Bool[Tensor, "batch length"]) -> None:
        self.slopes = slopes
        self.per_head = len(slopes) > 1
        self.positions = real.cumsum(1)
        self.batch_size = len(real)

    def __repr__(self) -> str:
        return f"ALiBiAt(positions {list(self.positions.shape)})"

    def check(self, grid: Grid) -> None:
        batch, length = self.positions.shape
        if (grid.batch, grid.num_heads, grid.q_len, grid.k_len) != (batch, len(self.slopes), length, length):
            raise ValueError(
                f"bias: this ALiBiAt was made for {batch} sequences of {length} queries and keys with "
                f"{len(self.slopes)} heads, got {grid.batch} of {grid.q_len} queries and {grid.k_len} keys with "
                f"{grid.num_heads}."
            )

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        # Half numbers cannot count: rounded at the end, by whoever asked for half a grid.
        positions = self.positions.to(grid.device, torch.promote_types(grid.dtype, torch.float32))
        own, others = positions[:, queries.start : queries.stop], positions[:, keys.start : keys.stop]
        lowered = (own[:, :, None] - others[:, None, :]).abs_().neg_()
        return lowered[:, None] * self.slopes.to(lowered)[:, None, None]


def has_holes(real: Bool[Tensor, "batch length"]) -> bool:
    """Whether padding lies between the tokens of some sequence, and not on its sides only."""
    begins = real[:, 1:] & ~real[:, :-1]
    return bool((begins.sum(1) + real[:, :1].sum(1) > 1).any())
