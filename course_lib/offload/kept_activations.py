"""What the batches of a block pass from layer to layer, in memory or with a part on disk."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .direct_io import aligned_buffer, aligned_up
from .lanes import Lanes
from .placement import Placement, Rows
from .scratch_file import ScratchFile


class Activations:
    """``put`` keeps the activations of a batch until ``take``: the first tokens in memory, the others on disk.

    A batch's part on disk is written on a lane of its own while others compute, and read when it is wanted.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        width: int,
        placement: Placement,
        lanes: Lanes,
        *,
        dtype: torch.dtype,
        folder: Path,
    ) -> None:
        """``tokens``: how many each batch has at most in a step, padding included."""
        self._lanes = lanes
        self._kept: dict[int, Tensor] = {}
        self._shapes: dict[int, torch.Size] = {}
        self._parts: list[int] = []
        for most in tokens:
            pieces = placement.place([Rows("", most, width * dtype.itemsize)])
            self._parts.append(sum(piece.end - piece.begin for piece in pieces if piece.tier != "disk"))
        self._most = list(tokens)
        self._file: ScratchFile | None = None
        if all(kept == most for kept, most in zip(self._parts, tokens, strict=True)):
            return
        self._offsets, total = [], 0
        for most in tokens:
            self._offsets.append(total)
            total += aligned_up(most * width * dtype.itemsize)
        self._file = ScratchFile(folder, total)
        self._buffers = [aligned_buffer(aligned_up(most * width * dtype.itemsize)) for most in tokens]
        self._written: dict[int, Future[Any]] = {}

    def put(self, batch: int, x: Tensor, layer: int) -> None:
        if self._file is None:
            self._kept[batch] = x
            return
        flat = x.flatten(0, 1)
        kept = len(flat) * self._parts[batch] // self._most[batch]
        self._kept[batch], self._shapes[batch] = flat[:kept].clone(), x.shape
        outside = flat[kept:].contiguous().view(-1).view(torch.uint8)
        buffer = self._buffers[batch][: aligned_up(len(outside))]
        buffer[: len(outside)] = outside
        self._written[batch] = self._lanes.submit(
            "activations",
            "store activations",
            layer,
            len(buffer),
            self._file.write,
            self._offsets[batch],
            buffer,
        )

    def take(self, batch: int, layer: int) -> Tensor:
        kept = self._kept.pop(batch)
        if self._file is None:
            return kept
        shape = self._shapes[batch]
        outside = (shape[0] * shape[1] - len(kept)) * shape[2] * kept.dtype.itemsize
        buffer = self._buffers[batch][: aligned_up(outside)]
        self._written.pop(batch).result()
        self._lanes.submit(
            "activations",
            "load activations",
            layer,
            len(buffer),
            self._file.read,
            self._offsets[batch],
            buffer,
        ).result()
        rest = buffer[:outside].view(kept.dtype).view(-1, shape[2])
        return torch.cat([kept, rest]).view(shape)

    def close(self) -> None:
        """Give the file back. What the lanes still do must have ended."""
        if self._file is not None:
            self._file.close()
