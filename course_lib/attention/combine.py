"""Biases put together: sums, crops, and whatever a caller may pass as a bias made one of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Band, Block, Grid, four_dims
from .stored import Dense


def as_bias(bias: Any) -> AttentionBias | None:
    """Ours as they are, a tensor as a dense bias, an xFormers object as the bias of ours that means the same."""
    if bias is None or isinstance(bias, AttentionBias):
        return bias
    # xFormers' module name tells its objects without importing it. Some of them are tensors too.
    if any(cls.__module__.startswith("xformers.") for cls in type(bias).__mro__):
        from .xformers_bridge import from_xformers

        return from_xformers(bias)
    if isinstance(bias, Tensor):
        return Dense(bias)
    raise TypeError(
        f"bias: expected an AttentionBias, a tensor, an xFormers bias object or None, got {type(bias).__name__}. "
        "For a causal mask pass Causal(); a NumPy array or a list goes through torch.as_tensor first."
    )


class Sum(AttentionBias):
    """Several biases added up: visible is what all of them let through."""

    def __init__(self, terms: Sequence[AttentionBias]) -> None:
        self.terms = tuple(terms)
        self.adds_scores = any(term.adds_scores for term in self.terms)
        self.per_head = any(term.per_head for term in self.terms)
        self.batch_size = next((t.batch_size for t in self.terms if t.batch_size is not None), None)

    @classmethod
    def of(cls, *biases: AttentionBias | None) -> AttentionBias:
        """The sum; sums are flattened, None adds nothing."""
        terms = [t for b in biases if b is not None for t in (b.terms if isinstance(b, Sum) else (b,))]
        return terms[0] if len(terms) == 1 else cls(terms)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))

    def check(self, grid: Grid) -> None:
        for term in self.terms:
            term.check(grid)
        for i, term in enumerate(self.terms):
            parts = term.blocks(grid)
            if parts is not None:
                for other in (*self.terms[:i], *self.terms[i + 1 :]):
                    other.check_parts(parts, grid)

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        needed = [t for t in self.terms if not t.is_zero(queries, keys, grid)]
        if len(needed) == 1:
            return needed[0].tile(queries, keys, grid)
        total = torch.zeros(1, 1, len(queries), len(keys), dtype=grid.dtype, device=grid.device)
        # -inf of one term hides, whatever another holds there: NaN and inf would survive an addition.
        hidden: list[Tensor] = []
        scoring = sum(term.adds_scores for term in needed)
        for term in needed:
            tile = term.tile(queries, keys, grid)
            if term.adds_scores:
                total = total + tile
            if scoring > 1 or not term.adds_scores:
                hidden.append(tile.detach() == NEG_INF)
        for mask in hidden:
            total = total.masked_fill(mask, NEG_INF)
        return total

    def add_to(self, scores: Tensor, sequences: range, queries: range, keys: range, grid: Grid) -> None:
        scoring = [term for term in self.terms if term.adds_scores]
        if len(scoring) != 1:
            super().add_to(scores, sequences, queries, keys, grid)
            return
        scoring[0].add_to(scores, sequences, queries, keys, grid)
        masks = Sum([term for term in self.terms if not term.adds_scores])
        if masks.is_zero(queries, keys, grid):
            return
        if scoring[0].finite:
            masks.add_to(scores, sequences, queries, keys, grid)
        else:
            tile = four_dims(masks.tile(queries, keys, grid))
            tile = tile[sequences.start : sequences.stop] if tile.shape[0] > 1 else tile
            scores.masked_fill_(tile == NEG_INF, NEG_INF)

    def visible_keys(self, queries: range, grid: Grid) -> range:
        runs = [term.visible_keys(queries, grid) for term in self.terms]
        start = max(run.start for run in runs)
        return range(start, max(start, min(run.stop for run in runs)))

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        return all(term.is_zero(queries, keys, grid) for term in self.terms)

    def is_corner(self, small: Grid, large: Grid) -> bool:
        return all(term.is_corner(small, large) for term in self.terms)

    def as_band(self, grid: Grid) -> Band | None:
        whole = range(grid.q_len), range(grid.k_len)
        needed = [t for t in self.terms if not t.is_zero(*whole, grid)]
        return needed[0].as_band(grid) if len(needed) == 1 else None

    def stored(self, grid: Grid) -> Tensor | None:
        whole = range(grid.q_len), range(grid.k_len)
        needed = [t for t in self.terms if not t.is_zero(*whole, grid)]
        return needed[0].stored(grid) if len(needed) == 1 else None

    def blocks(self, grid: Grid) -> list[Block] | None:
        for i, term in enumerate(self.terms):
            blocks = term.blocks(grid)
            if blocks is not None:
                others = Sum.of(*self.terms[:i], *self.terms[i + 1 :])
                return [
                    replace(b, bias=Sum.of(b.bias, Crop(others, grid, b.queries, b.keys))) for b in blocks
                ]
        return None

    def learnable(self) -> tuple[Tensor, ...]:
        return tuple(tensor for term in self.terms for tensor in term.learnable())

    def sources(self) -> tuple[Tensor, ...]:
        return tuple(tensor for term in self.terms for tensor in term.sources())

    def add_gradient(
        self, into: Sequence[Tensor], grad_tile: Tensor, queries: range, keys: range, grid: Grid
    ) -> None:
        first = 0
        for term in self.terms:
            count = len(term.learnable())
            if count:
                term.add_gradient(into[first : first + count], grad_tile, queries, keys, grid)
            first += count


class Crop(AttentionBias):
    """The part of another bias that falls on some queries and keys of its grid."""

    def __init__(self, whole: AttentionBias, grid: Grid, queries: range, keys: range | Tensor) -> None:
        self.whole, self.queries, self.keys = whole, queries, keys
        self._grid = grid
        self.adds_scores, self.finite = whole.adds_scores, whole.finite
        self.per_head, self.batch_size = whole.per_head, whole.batch_size

    def __repr__(self) -> str:
        return f"{self.whole!r}, cropped"

    def _outer(self, grid: Grid) -> Grid:
        return replace(self._grid, dtype=grid.dtype, device=grid.device)

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        rows = self.queries[queries.start : queries.stop]
        if isinstance(self.keys, range):
            return self.whole.tile(rows, self.keys[keys.start : keys.stop], self._outer(grid))
        # Scattered keys: all columns of these rows, then those asked for. O(rows * k_len), still no n².
        columns = self.whole.tile(rows, range(self._grid.k_len), self._outer(grid))
        if columns.shape[-1] == 1:
            return columns
        return columns[..., self.keys[keys.start : keys.stop].to(columns.device)]

    def add_to(self, scores: Tensor, sequences: range, queries: range, keys: range, grid: Grid) -> None:
        if isinstance(self.keys, range):
            rows, columns = self.queries[queries.start : queries.stop], self.keys[keys.start : keys.stop]
            self.whole.add_to(scores, sequences, rows, columns, self._outer(grid))
        else:
            super().add_to(scores, sequences, queries, keys, grid)

    def visible_keys(self, queries: range, grid: Grid) -> range:
        if not isinstance(self.keys, range):
            return range(grid.k_len)
        rows = self.queries[queries.start : queries.stop]
        run = self.whole.visible_keys(rows, self._outer(grid))
        start = min(max(run.start - self.keys.start, 0), grid.k_len)
        return range(start, max(start, min(run.stop - self.keys.start, grid.k_len)))

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        if not isinstance(self.keys, range):
            return False
        rows = self.queries[queries.start : queries.stop]
        return self.whole.is_zero(rows, self.keys[keys.start : keys.stop], self._outer(grid))

    def learnable(self) -> tuple[Tensor, ...]:
        return self.whole.learnable()

    def sources(self) -> tuple[Tensor, ...]:
        return self.whole.sources()

    def add_gradient(
        self, into: Sequence[Tensor], grad_tile: Tensor, queries: range, keys: range, grid: Grid
    ) -> None:
        if isinstance(self.keys, range):
            rows = self.queries[queries.start : queries.stop]
            self.whole.add_gradient(
                into, grad_tile, rows, self.keys[keys.start : keys.stop], self._outer(grid)
            )
        else:
            super().add_gradient(into, grad_tile, queries, keys, grid)
