"""The caches of a block: one for each layer and batch, in memory, or with a part on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course_lib.gqa import KVCache

from .disk_cache import DiskCache, Room, disk_bytes
from .lanes import Lanes
from .placement import Placement, Rows
from .read_ahead import Load, ReadAhead
from .scratch_file import ScratchFile

ROOMS = 2
"""One that is computed with, one that is being filled."""


class Caches:
    """``use(layer, batch)`` gives a cache that the layer can append to; ``expect`` says which come, in which order."""

    def __init__(
        self,
        config: Any,
        sizes: Sequence[int],
        length: int,
        placement: Placement,
        lanes: Lanes,
        *,
        dtype: torch.dtype,
        folder: Path,
    ) -> None:
        """``sizes``: the rows of each batch; ``length``: the columns that any of them may come to."""
        self._lanes = lanes
        self._caches: dict[tuple[int, int], KVCache] = {}
        self._ahead: ReadAhead[tuple[int, int], Room] | None = None
        self._file: ScratchFile | None = None
        heads, dim = config.kv_heads, config.head_width
        row = 2 * length * dim * dtype.itemsize
        kept: dict[tuple[int, int], int] = {}
        for layer in range(config.num_layers):
            for number, batch in enumerate(sizes):
                pieces = placement.place([Rows("", batch * heads, row)])
                kept[layer, number] = sum(piece.end - piece.begin for piece in pieces if piece.tier != "disk")
        if all(units == sizes[number] * heads for (_, number), units in kept.items()):
            self._caches = {key: KVCache(max_length=length) for key in kept}
            return
        offsets, total = {}, 0
        for key, units in kept.items():
            offsets[key] = total
            total += disk_bytes(sizes[key[1]] * heads - units, length, dim, dtype)
        self._file = ScratchFile(folder, total)
        for key, units in kept.items():
            self._caches[key] = DiskCache(
                self._file,
                offsets[key],
                batch=sizes[key[1]],
                kv_heads=heads,
                head_dim=dim,
                length=length,
                kept=units,
                dtype=dtype,
            )
        most = max(sizes) * heads
        rooms = [Room(most, length, dim, dtype, disk_bytes(most, length, dim, dtype)) for _ in range(ROOMS)]
        self._ahead = ReadAhead(lanes, "load cache", "cache", rooms, self._described)

    def _described(self, key: tuple[int, int]) -> Load:
        cache = self._caches[key]
        assert isinstance(cache, DiskCache)
        return Load(key[0], cache.stored_bytes, cache.gather)

    def next_positions(self, batch: int, real: Tensor) -> Tensor:
        return self._caches[0, batch].next_positions(real)

    def expect(self, keys: Sequence[tuple[int, int]]) -> None:
        """The layers and batches of the next step."""
        if self._ahead is not None:
            self._ahead.expect(keys)

    @contextmanager
    def use(self, layer: int, batch: int) -> Iterator[KVCache]:
        cache = self._caches[layer, batch]
        if self._ahead is None or not isinstance(cache, DiskCache):
            yield cache
            return
        with self._ahead.take((layer, batch)) as room:
            cache.enter(room)
            yield cache
            cache.put_away(room, self._lanes, layer)

    def close(self) -> None:
        """Give the file back. What the lanes still do must have ended."""
        if self._file is not None:
            self._file.close()
