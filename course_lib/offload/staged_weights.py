"""The weights of a model that does not fit: what stays in memory, and buffers through which the rest passes.

A pass over the model is a line of stages: its layers, then the head in runs of rows no larger than a layer. Every stage
has its resident part and, after it in the file, a part on disk, which is one range of bytes. Ahead of the computation a
lane reads these ranges into a ring of buffers; a buffer mirrors its range, so a tensor in it is a view.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .direct_io import aligned_buffer, aligned_down, aligned_up
from .lanes import Lanes
from .placement import Piece, Placement, Rows, by_tensor
from .read_ahead import Load, ReadAhead
from .tensor_store import TensorStore

BUFFERS = 3
"""One that is computed with, one that is full, one that is being filled."""


@dataclass
class Stage:
    """What is loaded and computed with at once. ``names`` are tensors in the store; of ``rows`` of them, where it is a
    run of the head's."""

    layer: int
    """The number of the layer; -1 for the head."""
    names: tuple[str, ...]
    rows: tuple[int, int] | None = None
    begin: int = 0
    """Where in the file the buffer begins: with the first tensor that is not wholly resident."""
    read_from: int = 0
    """Where in the file its part on disk begins."""
    end: int = 0
    partly: dict[str, Tensor] = field(default_factory=dict)
    """Resident first rows of tensors whose other rows are on disk."""

    @property
    def nbytes(self) -> int:
        """What is read from disk for it."""
        return self.end - self.read_from


class StagedWeights:
    """The weights of a model in ``store``: the rows of device and host resident, the rest passing by.

    ``names`` of the layers' and the head's tensors are those of the store. ``resident[name]`` holds first rows, or all.
    """

    def __init__(
        self,
        store: TensorStore,
        layers: Sequence[Sequence[str]],
        embeddings: Sequence[str],
        head: str,
        fractions: Sequence[float],
    ) -> None:
        self.store = store
        self.placement = Placement(fractions)
        self.resident: dict[str, Tensor] = {}
        self._kept: dict[str, int] = {}
        pieces = [
            piece for group in (*layers, *([name] for name in embeddings)) for piece in self._placed(group)
        ]
        for name, own in by_tensor(pieces).items():
            kept = sum(piece.end - piece.begin for piece in own if piece.tier != "disk")
            self._kept[name] = kept
            if kept:
                self.resident[name] = store.read_rows(name, 0, kept)
        self.stages = [self._stage(number, names) for number, names in enumerate(layers)]
        largest = max((stage.end - stage.begin for stage in self.stages), default=0)
        self.stages += self._head_stages(head, largest)
        largest = max((stage.end - stage.begin for stage in self.stages if stage.nbytes), default=0)
        waiting = sum(1 for stage in self.stages if stage.nbytes)
        self.buffers = [aligned_buffer(largest) for _ in range(min(BUFFERS, waiting))]
        self._ahead: ReadAhead[int, Tensor] | None = None

    def begin(self, lanes: Lanes) -> None:
        """A run begins, which reads ahead on a lane of ``lanes``."""
        self._ahead = ReadAhead(lanes, "load weights", "weights", self.buffers, self._described)

    def _described(self, number: int) -> Load:
        stage = self.stages[number]
        return Load(stage.layer, stage.nbytes, lambda buffer: self._load(stage, buffer))

    def _placed(self, names: Sequence[str]) -> list[Piece]:
        return self.placement.place([self._rows(name) for name in names])

    def _rows(self, name: str) -> Rows:
        shape, dtype = self.store.shape(name), self.store.dtype(name)
        count = shape[0] if shape else 1
        return Rows(name, count, math.prod(shape[1:]) * dtype.itemsize)

    def _stage(self, number: int, names: Sequence[str]) -> Stage:
        stage = Stage(number, tuple(names))
        outside = [name for name in names if self._is_outside(name)]
        if outside:
            first, last = outside[0], outside[-1]
            kept, rows = self._kept[first], self._rows(first)
            stage.begin = self.store.offset(first)
            stage.read_from = aligned_down(stage.begin + kept * rows.nbytes)
            stage.end = aligned_up(self.store.offset(last) + self._rows(last).count * self._rows(last).nbytes)
            if kept:
                stage.partly[first] = self.resident[first]
        return stage

    def _is_outside(self, name: str) -> bool:
        """Whether any row of the tensor is on disk."""
        return self._kept[name] < self._rows(name).count

    def _head_stages(self, head: str, largest: int) -> list[Stage]:
        """The resident rows, then runs of those on disk."""
        rows, kept = self._rows(head), self._kept[head]
        stages = [Stage(-1, (head,), (0, kept))] if kept else []
        run = max(1, max(largest, 2**20) // rows.nbytes)
        offset = self.store.offset(head)
        for begin in range(kept, rows.count, run):
            end = min(rows.count, begin + run)
            start = aligned_down(offset + begin * rows.nbytes)
            stages.append(
                Stage(-1, (head,), (begin, end), start, start, aligned_up(offset + end * rows.nbytes))
            )
        return stages

    def expect(self, passes: int) -> None:
        """As many further passes are to come; reading ahead begins."""
        assert self._ahead is not None, "begin(lanes) comes first"
        self._ahead.expect([number for number, stage in enumerate(self.stages) if stage.nbytes] * passes)

    def stop(self) -> None:
        """All sequences have ended: what was expected does not come."""
        assert self._ahead is not None, "begin(lanes) comes first"
        self._ahead.stop()

    @contextmanager
    def use(self, number: int) -> Iterator[dict[str, Tensor]]:
        """The tensors of stage ``number`` by their names, inside the context only; of the head, its rows of the stage.
        Stages are used in their line, pass after pass."""
        stage = self.stages[number]
        if stage.nbytes:
            assert self._ahead is not None, "begin(lanes) comes first"
            with self._ahead.take(number) as buffer:
                yield self._views(stage, buffer)
        else:
            begin, end = stage.rows or (0, None)
            yield {name: self.resident[name][begin:end] for name in stage.names}

    def rows(self, name: str, wanted: Tensor) -> Tensor:
        """The rows ``wanted``, ascending numbers, of the tensor ``name``: from memory, or read one by one."""
        kept = self._kept[name]
        here = wanted[wanted < kept]
        found = [self.resident[name][here]] if len(here) else []
        found += [self.store.read_rows(name, row, row + 1) for row in wanted[len(here) :].tolist()]
        return torch.cat(found)

    def _load(self, stage: Stage, buffer: Tensor) -> None:
        start = stage.read_from - stage.begin
        self.store.read_range(stage.read_from, stage.nbytes, buffer[start : start + stage.nbytes])
        for name, rows in stage.partly.items():
            self._view(name, stage, buffer)[: len(rows)].copy_(rows)

    def _views(self, stage: Stage, buffer: Tensor) -> dict[str, Tensor]:
        if stage.rows is not None:
            (name,), (begin, end) = stage.names, stage.rows
            own = self._rows(name)
            offset = self.store.offset(name) + begin * own.nbytes - stage.begin
            shape = (end - begin, *self.store.shape(name)[1:])
            return {name: _as(buffer, offset, shape, self.store.dtype(name))}
        return {
            name: self._view(name, stage, buffer) if self._is_outside(name) else self.resident[name]
            for name in stage.names
        }

    def _view(self, name: str, stage: Stage, buffer: Tensor) -> Tensor:
        offset = self.store.offset(name) - stage.begin
        return _as(buffer, offset, self.store.shape(name), self.store.dtype(name))

    @property
    def resident_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.resident.values())


def _as(buffer: Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The tensor whose bytes begin at ``offset`` of ``buffer``."""
    nbytes = math.prod(shape) * dtype.itemsize
    return buffer[offset : offset + nbytes].view(dtype).view(tuple(shape))
