"""The keys and values of a layer and a batch, of which a part lies on disk between two steps.

A batch's heads are the units that are split: of ``batch * kv_heads`` units the first stay in memory, the others are
written to a scratch file, ``CHUNK`` columns of all of them at once. What does not fill a chunk yet waits in memory, the
tail. Before a step the whole cache is gathered into a room that batches share, where it is a ``KVCache`` like another.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from course_lib.gqa import KVCache

from .direct_io import aligned_buffer, aligned_up
from .lanes import Lanes
from .scratch_file import ScratchFile

CHUNK = 16
"""Columns that are written at once: fewer would be many small writes, more a longer tail."""


class Room:
    """Where the cache of one layer and batch lies while it is computed with: [2, batch * kv_heads, length, head_dim],
    keys and values, and bytes to read chunks into."""

    def __init__(self, units: int, length: int, head_dim: int, dtype: torch.dtype, staging: int) -> None:
        # Zeros: what no sequence has written yet may not be NaN, which a bias of -inf does not hide.
        self.tensor = torch.zeros(2, units, length, head_dim, dtype=dtype)
        self.staging = aligned_buffer(staging)


class DiskCache(KVCache):
    """A ``KVCache`` whose content comes into a :class:`Room` by ``gather`` and leaves it by ``put_away``."""

    def __init__(
        self,
        file: ScratchFile,
        offset: int,
        *,
        batch: int,
        kv_heads: int,
        head_dim: int,
        length: int,
        kept: int,
        dtype: torch.dtype,
    ) -> None:
        """``kept`` of the units stay in memory; the others have ``disk_bytes(...)`` of ``file`` from ``offset`` on."""
        super().__init__(max_length=length)
        self.host_lengths = (0,) * batch
        self._shape = (batch, kv_heads, length, head_dim)
        self._file, self._offset = file, offset
        self._units = units = batch * kv_heads
        self._resident = torch.zeros(2, kept, length, head_dim, dtype=dtype)
        self._tail = torch.zeros(2, units - kept, 0, head_dim, dtype=dtype)
        self._flushed = 0
        """Columns that are on disk, of every sequence."""
        self._written: Future[Any] | None = None
        self._chunk_bytes = chunk_bytes(units - kept, head_dim, dtype)

    @property
    def kept(self) -> int:
        """The units that stay in memory."""
        return self._resident.shape[1]

    @property
    def stored_bytes(self) -> int:
        """What ``gather`` reads."""
        return self._flushed // CHUNK * self._chunk_bytes

    def gather(self, room: Room) -> None:
        """Bring all that is held into ``room``; the disk is read here."""
        dim, here = self._shape[3], room.tensor[:, : self._units]
        held = max(self.host_lengths, default=0)
        kept, flushed = self.kept, self._flushed
        here[:, :kept, :held] = self._resident[:, :, :held]
        if self._written is not None:
            self._written.result()
        if flushed:
            chunks = flushed // CHUNK
            staged = room.staging[: chunks * self._chunk_bytes]
            self._file.read(self._offset, staged)
            parts = _chunks(staged, chunks, self._chunk_bytes, self._units - kept, dim, here.dtype)
            target = here[:, kept:, :flushed].unflatten(2, (chunks, CHUNK))
            target.copy_(parts.permute(1, 2, 0, 3, 4))
        here[:, kept:, flushed:held] = self._tail[:, :, : held - flushed]

    def enter(self, room: Room) -> None:
        """From now on ``append`` writes into ``room``, which holds what ``gather`` brought."""
        keys, values = room.tensor[:, : self._units]
        self._keys = keys.view(self._shape)
        self._values = values.view(self._shape)
        self._before = self.host_lengths

    def put_away(self, room: Room, lanes: Lanes, layer: int) -> None:
        """Take what was appended out of ``room``, and write the chunks that are full on a lane of their own."""
        self._keys = self._values = None
        low, high = min(self._before, default=0), max(self.host_lengths)
        kept, here = self.kept, room.tensor[:, : self._units]
        self._resident[:, :, low:high] = here[:, :kept, low:high]
        missing = high - self._flushed - self._tail.shape[2]
        if missing > 0:
            self._tail = torch.cat(
                [self._tail, self._tail.new_zeros(*self._tail.shape[:2], missing, self._shape[3])], 2
            )
        first = max(low, self._flushed)
        self._tail[:, :, first - self._flushed : high - self._flushed] = here[:, kept:, first:high]
        full = min(self.host_lengths) // CHUNK - self._flushed // CHUNK
        if full <= 0 or not self._tail.shape[1]:
            return
        columns = full * CHUNK
        staged = aligned_buffer(full * self._chunk_bytes)
        parts = _chunks(
            staged, full, self._chunk_bytes, self._tail.shape[1], self._shape[3], self._tail.dtype
        )
        parts.copy_(self._tail[:, :, :columns].unflatten(2, (full, CHUNK)).permute(2, 0, 1, 3, 4))
        offset = self._offset + self._flushed // CHUNK * self._chunk_bytes
        if self._written is not None:
            self._written.result()  # what went wrong there is told now
        self._written = lanes.submit(
            "store cache", "cache", layer, staged.numel(), self._file.write, offset, staged
        )
        self._tail = self._tail[:, :, columns:].clone()
        self._flushed += columns


def chunk_bytes(units: int, head_dim: int, dtype: torch.dtype) -> int:
    """What a chunk of ``units`` takes on disk."""
    return aligned_up(2 * units * CHUNK * head_dim * dtype.itemsize)


def disk_bytes(units: int, length: int, head_dim: int, dtype: torch.dtype) -> int:
    """What the units on disk of one layer and batch take in the file, for ``length`` columns."""
    return length // CHUNK * chunk_bytes(units, head_dim, dtype)


def _chunks(staged: Tensor, chunks: int, size: int, units: int, dim: int, dtype: torch.dtype) -> Tensor:
    """[chunks, 2, units, CHUNK, dim]: the numbers in ``staged``, whose chunks begin ``size`` bytes apart."""
    used = 2 * units * CHUNK * dim * dtype.itemsize
    return staged.view(chunks, size)[:, :used].view(dtype).view(chunks, 2, units, CHUNK, dim)
