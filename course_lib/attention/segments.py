"""Packed sequences: several documents side by side in one row, each attending only within itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Block, Grid, as_whole_number, four_dims


def as_lengths(name: str, lengths: Any) -> tuple[int, ...]:
    """Lengths as a tuple of ints. Raises ValueError or TypeError that names ``name`` for anything else."""
    if isinstance(lengths, Tensor):
        if lengths.dim() != 1:
            raise ValueError(
                f"{name}: expected one dimension, a length a segment, got shape {list(lengths.shape)}."
            )
        lengths = lengths.tolist()
    if isinstance(lengths, (str, bytes, int)) or not hasattr(lengths, "__iter__"):
        raise TypeError(
            f"{name}: expected a list of whole numbers, a length a segment, got {type(lengths).__name__} {lengths!r}."
        )
    checked = []
    for i, length in enumerate(lengths):
        length = as_whole_number(f"{name}[{i}]", length)
        if length < 0:
            raise ValueError(f"{name}[{i}]: expected a length of 0 or more, got {length}.")
        checked.append(length)
    return tuple(checked)


class Segments(AttentionBias):
    """Block-diagonal: the queries of a segment see the keys of the same segment, and no others.

    ``q_lengths`` (and ``k_lengths``, where keys differ) are the segments' lengths in order; their sums must be
    the numbers of queries and keys. ``inner`` is a bias applied within each segment, where positions restart at
    0: ``Segments(lengths, inner=Causal())``. A segment without keys yields zeros, one without queries nothing.
    """

    def __init__(self, q_lengths: Any, k_lengths: Any = None, inner: Any = None) -> None:
        # Imported here: a sum of biases is a bias, so combine.py stands above.
        from .combine import as_bias

        self.q_lengths = as_lengths("q_lengths", q_lengths)
        self.k_lengths = self.q_lengths if k_lengths is None else as_lengths("k_lengths", k_lengths)
        if len(self.q_lengths) != len(self.k_lengths):
            raise ValueError(
                f"k_lengths: expected one length a segment, {len(self.q_lengths)} as in q_lengths, got "
                f"{len(self.k_lengths)}. A segment without keys has length 0."
            )
        self.inner = as_bias(inner)
        self._q_starts = (0, *accumulate(self.q_lengths))
        self._key_runs: list[range | Tensor] = [
            range(stop - length, stop)
            for length, stop in zip(self.k_lengths, accumulate(self.k_lengths), strict=True)
        ]
        self._k_total: int | None = sum(self.k_lengths)
        self.adds_scores = self.inner is not None and self.inner.adds_scores
        self.per_head = self.inner is not None and self.inner.per_head
        self.batch_size = None if self.inner is None else self.inner.batch_size

    @classmethod
    def with_keys_at(
        cls, q_lengths: Sequence[int], keys: Sequence[range | Tensor], inner: Any, k_total: int | None
    ) -> Segments:
        """Segments whose keys lie anywhere among ``k_total``: padded or gappy runs, or scattered indices.

        Keys of no segment are never seen; a key may belong to several. ``k_total`` None accepts any number of
        keys that holds them all.
        """
        self = cls(q_lengths, [len(run) for run in keys], inner)
        self._key_runs, self._k_total = list(keys), k_total
        return self

    def __repr__(self) -> str:
        keys = "" if self.k_lengths == self.q_lengths else f", k_lengths summing to {sum(self.k_lengths)}"
        inner = "" if self.inner is None else f", inner={self.inner!r}"
        return f"Segments({len(self.q_lengths)} q_lengths summing to {sum(self.q_lengths)}{keys}{inner})"

    def check(self, grid: Grid) -> None:
        for what, name, lengths, total, have in (
            ("queries", "q_lengths", self.q_lengths, self._q_starts[-1], grid.q_len),
            ("keys", "k_lengths", self.k_lengths, self._k_total, grid.k_len),
        ):
            if total is not None and total != have:
                raise ValueError(
                    f"{name}: expected lengths that sum to the {have} {what} given, got {len(lengths)} lengths for "
                    f"{total}. Every token belongs to a segment: make padding a segment of its own, or leave it out."
                )
        for keys in self._key_runs:
            last = (keys.stop if isinstance(keys, range) else int(keys.max()) + 1) if len(keys) else 0
            if last > grid.k_len:
                raise ValueError(
                    f"k_lengths: a segment's keys reach key {last - 1}, but only {grid.k_len} keys came."
                )
        if self.inner is not None:
            for i, (q_len, k_len) in enumerate(zip(self.q_lengths, self.k_lengths, strict=True)):
                if q_len and k_len:
                    try:
                        self.inner.check(grid.crop(q_len, k_len))
                    except ValueError as error:
                        raise ValueError(
                            f"inner: {self.inner!r} does not fit segment {i} with {q_len} queries and {k_len} "
                            f"keys. {error}"
                        ) from None

    def blocks(self, grid: Grid) -> list[Block] | None:
        return [
            Block(range(start, start + q_len), keys, self.inner)
            for start, q_len, keys in zip(self._q_starts, self.q_lengths, self._key_runs, strict=False)
            if q_len and len(keys)
        ]

    def _overlapping(self, queries: range, grid: Grid) -> list[tuple[range, Block]]:
        """The blocks that these queries touch, each with the part of the queries that lies in it."""
        first = max(bisect_right(self._q_starts, queries.start) - 1, 0)
        found = []
        for i in range(first, len(self.q_lengths)):
            start, stop = self._q_starts[i], self._q_starts[i + 1]
            if start >= queries.stop:
                break
            part = range(max(start, queries.start), min(stop, queries.stop))
            if part and len(self._key_runs[i]):
                found.append((part, Block(range(start, stop), self._key_runs[i], self.inner)))
        return found

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        """Assembled from the tiles of the segments it touches; backends that ask for blocks never need it."""
        parts = []
        for rows, block in self._overlapping(queries, grid):
            inner_grid = grid.crop(len(block.queries), block.k_len)
            inside, columns = _columns(block.keys, keys, grid.device)
            if not inside:
                continue
            own = range(rows.start - block.queries.start, rows.stop - block.queries.start)
            if block.bias is None or block.bias.is_zero(own, inside, inner_grid):
                part = torch.zeros(1, 1, 1, 1, dtype=grid.dtype, device=grid.device)
            else:
                part = block.bias.tile(own, inside, inner_grid)
            parts.append((rows, columns, four_dims(part), len(inside)))
        lead = [max([1, *(part.shape[d] for _, _, part, _ in parts)]) for d in (0, 1)]
        tile = torch.full((*lead, len(queries), len(keys)), NEG_INF, dtype=grid.dtype, device=grid.device)
        for rows, columns, part, width in parts:
            at = slice(rows.start - queries.start, rows.stop - queries.start)
            if isinstance(columns, slice):
                tile[:, :, at, columns] = part
            else:
                inner_columns, tile_columns = columns
                part = part.expand(-1, -1, len(rows), width)
                tile[:, :, at, tile_columns] = part[..., inner_columns]
        return tile

    def visible_keys(self, queries: range, grid: Grid) -> range:
        start, stop = grid.k_len, 0
        for rows, block in self._overlapping(queries, grid):
            if isinstance(block.keys, range):
                run = range(block.k_len)
                if block.bias is not None:
                    own = range(rows.start - block.queries.start, rows.stop - block.queries.start)
                    run = block.bias.visible_keys(own, grid.crop(len(block.queries), block.k_len))
                if run:
                    start = min(start, block.keys.start + run.start)
                    stop = max(stop, block.keys.start + run.stop)
            else:
                start = min(start, int(block.keys.min()))
                stop = max(stop, int(block.keys.max()) + 1)
        return range(start, stop) if start < stop else range(0)

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        touched = self._overlapping(queries, grid)
        if len(touched) != 1 or len(touched[0][0]) != len(queries):
            return False
        block = touched[0][1]
        run = block.keys
        if not isinstance(run, range) or keys.start < run.start or keys.stop > run.stop:
            return False
        return block.bias is None or block.bias.is_zero(
            range(queries.start - block.queries.start, queries.stop - block.queries.start),
            range(keys.start - run.start, keys.stop - run.start),
            grid.crop(len(block.queries), block.k_len),
        )

    def learnable(self) -> tuple[Tensor, ...]:
        return () if self.inner is None else self.inner.learnable()

    def sources(self) -> tuple[Tensor, ...]:
        return () if self.inner is None else self.inner.sources()


def _columns(
    own: range | Tensor, keys: range, device: torch.device
) -> tuple[range, slice | tuple[Tensor, Tensor]]:
    """Which of a segment's keys fall into ``keys``: as a range of the segment's own positions that holds them,
    and where they land in the tile: a slice, or for scattered keys the pair (position in that range, column)."""
    if isinstance(own, range):
        start, stop = max(own.start, keys.start), min(own.stop, keys.stop)
        if start >= stop:
            return range(0), slice(0, 0)
        return range(start - own.start, stop - own.start), slice(start - keys.start, stop - keys.start)
    own = own.to(device)
    positions = ((own >= keys.start) & (own < keys.stop)).nonzero().flatten()
    return (range(len(own)) if len(positions) else range(0)), (positions, own[positions] - keys.start)
