"""Files that are read and written beside the page cache, where the system allows it.

What passes through the page cache counts as the memory of whoever reads it, inside a container's limit too, and pushes
out what others need. ``O_DIRECT`` goes round it: the disk writes straight into the program's buffer, which has to begin
at a multiple of ``ALIGNMENT`` in memory as well as in the file. Where a system or a file system does not know it
(Windows, macOS, tmpfs), files are read as ever, and the cache is asked to forget what was read.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 4096
"""Of offsets, lengths and addresses: a page, and a multiple of every disk's block."""
LARGEST = 2**30
"""Bytes handed to the system at once; Linux takes 2 GiB less a page."""


def aligned_buffer(nbytes: int) -> Tensor:
    """[nbytes] uint8, uninitialised, whose memory begins at a multiple of ``ALIGNMENT``."""
    room = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8)
    start = -room.data_ptr() % ALIGNMENT
    return room[start : start + nbytes]


def aligned_down(offset: int) -> int:
    """The largest multiple of ``ALIGNMENT`` that is not above ``offset``."""
    return offset // ALIGNMENT * ALIGNMENT


def aligned_up(offset: int) -> int:
    """The smallest multiple of ``ALIGNMENT`` that is not below ``offset``."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class DirectFile:
    """An open file, read and written at offsets, from several threads at once.

    ``direct`` tells whether the page cache is passed by. Reads and writes that are not aligned are possible and go
    through a buffer of their own: rows of an embedding, say.
    """

    def __init__(self, path: Path, *, write: bool = False, new: bool = False, direct: bool = True) -> None:
        """Raises OSError as ``open`` does. ``new``: the file must not be there yet."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | getattr(os, "O_BINARY", 0)
        flags |= os.O_CREAT | os.O_EXCL if new else 0
        self.path = path
        self._lock = threading.Lock()
        self._fd = -1
        self.direct = False
        if direct and hasattr(os, "O_DIRECT"):
            try:
                self._fd = os.open(path, flags | os.O_DIRECT, 0o666)
                self.direct = True
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
        if self._fd < 0:
            # A file system without O_DIRECT may have made the file before it refused.
            self._fd = os.open(path, flags & ~os.O_EXCL, 0o666)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def nbytes(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def read(self, offset: int, out: Tensor) -> None:
        """Fill ``out``, a contiguous uint8 tensor, with the bytes from ``offset`` on. Raises EOFError where the file
        ends before."""
        bytes_of(out)  # raises where these are no bytes
        if self._needs_a_buffer(offset, out):
            begin, end = aligned_down(offset), aligned_up(offset + out.numel())
            whole = aligned_buffer(end - begin)
            got = self._read_all(begin, whole)
            if got < offset + out.numel() - begin:
                self._too_short(offset, out.numel())
            out.copy_(whole[offset - begin : offset - begin + out.numel()])
        elif self._read_all(offset, out) < out.numel():
            self._too_short(offset, out.numel())

    def write(self, offset: int, source: Tensor) -> None:
        """Write ``source``, a contiguous uint8 tensor, at ``offset``; aligned, in address and length, if ``direct``."""
        if self._needs_a_buffer(offset, source):
            raise ValueError(
                f"write: expected an offset, a length and an address that are multiples of {ALIGNMENT}, got "
                f"{offset} and {source.numel()}. Take the memory from aligned_buffer()."
            )
        view, done = bytes_of(source), 0
        while done < len(view):
            done += self._write_some(offset + done, view[done : done + LARGEST])

    def forget(self, offset: int = 0, nbytes: int = 0) -> None:
        """Let the page cache drop what it holds of a range (0 bytes: to the end), as far as it is on the disk."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, nbytes, os.POSIX_FADV_DONTNEED)

    def _needs_a_buffer(self, offset: int, tensor: Tensor) -> bool:
        return self.direct and bool(
            offset % ALIGNMENT or tensor.numel() % ALIGNMENT or tensor.data_ptr() % ALIGNMENT
        )

    def _read_all(self, offset: int, out: Tensor) -> int:
        """How many bytes were there to read."""
        view, done = bytes_of(out), 0
        while done < len(view):
            count = self._read_some(offset + done, view[done : done + LARGEST])
            done += count
            # With O_DIRECT the last block of a file comes short, and what follows it could not be aligned.
            if count == 0 or (self.direct and count % ALIGNMENT):
                break
        if not self.direct:
            self.forget(offset, done)
        return done

    def _read_some(self, offset: int, view: memoryview) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._fd, [view], offset)
        with self._lock:
            os.lseek(self._fd, offset, os.SEEK_SET)
            data = os.read(self._fd, len(view))
        view[: len(data)] = data
        return len(data)

    def _write_some(self, offset: int, view: memoryview) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self._fd, view, offset)
        with self._lock:
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.write(self._fd, view)

    def _too_short(self, offset: int, wanted: int) -> None:
        raise EOFError(
            f"{self.path}: expected {wanted:,} bytes from byte {offset:,} on, and the file ends at {self.nbytes:,}."
        )


def bytes_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous uint8 tensor, without a copy."""
    if tensor.dtype != torch.uint8 or not tensor.is_contiguous():
        raise TypeError(
            f"tensor: expected contiguous bytes (uint8), got {str(tensor.dtype).removeprefix('torch.')} of strides "
            f"{tensor.stride()}."
        )
    array: Any = tensor.numpy()
    return memoryview(array)
