"""The causal mask of sequences that have come differently far."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from course_lib.attention import AttentionBias, Grid


class CausalAt(AttentionBias):
    """Causal for queries whose places are given: ``positions`` [batch, q_len], where key j is visible to a query at
    position p if ``j <= p``. At -1 (padding) a query sees nothing.
    """

    adds_scores = False

    def __init__(self, positions: Int64[Tensor, "batch q_len"]) -> None:
        self.positions = positions
        self.batch_size = positions.shape[0]
        # Kept on the host, so that asking about a tile never waits for a GPU.
        columns = positions.cpu().T.tolist()
        self._lowest = [min(column, default=0) for column in columns]
        self._highest = [max(column, default=-1) for column in columns]
        self._made: tuple[Any, Tensor] | None = None
        """The last tile of a single query: in a decode step every layer asks for the same one."""

    def __repr__(self) -> str:
        return f"CausalAt(positions {list(self.positions.shape)})"

    def check(self, grid: Grid) -> None:
        if self.positions.shape != (grid.batch, grid.q_len):
            batch, q_len = self.positions.shape
            raise ValueError(
                f"bias: this CausalAt was made for {batch} sequences of {q_len} queries, got {grid.batch} sequences of "
                f"{grid.q_len} queries."
            )

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        asked = (queries, keys, grid.dtype, grid.device)
        if self._made is not None and self._made[0] == asked:
            return self._made[1].clone()
        at = self.positions[:, None, queries.start : queries.stop, None].to(grid.device)
        columns = torch.arange(keys.start, keys.stop, device=grid.device)
        tile = torch.zeros(*at.shape[:3], len(keys), dtype=grid.dtype, device=grid.device)
        tile.masked_fill_(columns > at, float("-inf"))
        if len(queries) == 1:
            self._made = asked, tile.clone()
        return tile

    def visible_keys(self, queries: range, grid: Grid) -> range:
        last = max(self._highest[queries.start : queries.stop], default=-1)
        return range(min(last + 1, grid.k_len))

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        return not queries or not keys or keys.stop - 1 <= min(self._lowest[queries.start : queries.stop])
