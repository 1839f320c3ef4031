"""A model's tensors in one file on disk, laid out to be read at the disk's speed, and checked before they are used.

Every tensor begins at a multiple of ``ALIGNMENT``, in the order in which it was written, so that a layer is one range
of bytes. After the tensors stand an index, with a checksum of each, and an end that is only there if all before it is.
A file is made under a temporary name and takes its own name whole: what has the name is good or was harmed later, and
that is found out when it is opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from course_lib.training.progress import bytes_text

from .direct_io import DirectFile, aligned_buffer, aligned_down, aligned_up, bytes_of

SUFFIX, PART = ".tensors", ".part"
MAGIC = b"lean-tensors-1\n\0"
_END = struct.Struct("<16sQQI")
"""The last bytes of a file: the magic, where the index begins, its length, its checksum."""
_AT_ONCE = 8 * 2**20
"""Bytes of one read; two of them are in flight."""
IN_FLIGHT = 2

Progress = Callable[[int, int], Any]
"""Called with the bytes that are done, and those that are to be done."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    checksum: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class HarmedFileError(OSError):
    """A file that is not what was written: cut off, or with other bytes."""


class TensorStore:
    """Tensors on disk, read whole, by rows, or as ranges of bytes.

        with TensorStore.open_or_create(folder, key, nbytes, tensors) as store:
            weight = store.read("layers.0.weight")

    Reads may come from several threads at once.
    """

    def __init__(self, path: Path, *, verify: bool = True, progress: Progress | None = None) -> None:
        """Open the file ``path``. ``verify`` reads all of it once and compares the checksums.

        Raises HarmedFileError, which names the file and the tensor, FileNotFoundError.
        """
        self.path = path
        self._file = DirectFile(path)
        self._pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="read store")
        try:
            self.key, self._entries = _read_index(self._file)
            if verify:
                self._verify(progress)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TensorStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TensorStore({str(self.path)!r}, {len(self._entries)} tensors, {bytes_text(self.nbytes)})"

    @classmethod
    def open_or_create(
        cls,
        folder: str | Path,
        key: Mapping[str, Any],
        nbytes: int,
        tensors: Callable[[], Iterable[tuple[str, Tensor]]],
        *,
        progress: Progress | None = None,
    ) -> TensorStore:
        """The store in ``folder`` that holds what ``key`` describes; made of ``tensors()`` where there is none.

        ``key``, JSON, says all that the bytes depend on: the model's files, dtype, bits. ``tensors`` is called to make
        the file, and gives one tensor after another, which need not be there at the same time; ``nbytes`` is what they
        take together, at least, for a look at the free space before the first is written. A file that is harmed is made
        anew. Two processes that want the same file make it once: the second waits for the first.

        Raises OSError with a sentence where there is no room, or the folder cannot be written to.
        """
        folder = _usable_folder(folder)
        path = folder / (_name_of(key) + SUFFIX)
        with FileLock(path.with_suffix(".lock")):
            _remove_leftovers(path)
            if path.exists():
                try:
                    return cls(path, progress=progress)
                except HarmedFileError:
                    path.unlink()
            _check_room(folder, nbytes)
            try:
                _write(path, key, tensors(), nbytes, progress)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise OSError(
                        errno.ENOSPC,
                        f"offload_dir: the disk of {folder} is full, {bytes_text(nbytes)} are needed. Nothing was left "
                        "there. Make room, or pass another folder.",
                    ) from error
                raise
            return cls(path, verify=False)

    def close(self) -> None:
        """Close the file, which stays; a second time does nothing."""
        self._pool.shutdown(wait=True)
        self._file.close()

    def remove(self) -> None:
        """Close the file and delete it."""
        self.close()
        for path in (self.path, self.path.with_suffix(".lock")):
            path.unlink(missing_ok=True)

    @property
    def names(self) -> tuple[str, ...]:
        """All tensors, in the order of the file."""
        return tuple(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self._entries.values())

    @property
    def direct(self) -> bool:
        """Whether reads pass the page cache by."""
        return self._file.direct

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def dtype(self, name: str) -> torch.dtype:
        return self._entry(name).dtype

    def offset(self, name: str) -> int:
        """Where in the file the tensor begins, a multiple of ``ALIGNMENT``."""
        return self._entry(name).offset

    def read(self, name: str) -> Tensor:
        """The tensor, in memory of its own."""
        entry = self._entry(name)
        return self._read_bytes(entry, 0, entry.nbytes).view(entry.dtype).view(entry.shape)

    def read_rows(self, name: str, begin: int, end: int) -> Tensor:
        """Rows ``begin`` to ``end`` of the tensor, in memory of their own."""
        entry = self._entry(name)
        count = entry.shape[0] if entry.shape else 1
        if not 0 <= begin <= end <= count:
            raise ValueError(
                f"begin, end: expected rows from 0 to {count} of {name!r}, got {begin} to {end}."
            )
        row = entry.nbytes // count if count else 0
        found = self._read_bytes(entry, begin * row, end * row).view(entry.dtype)
        return found.view(end - begin, *entry.shape[1:]) if entry.shape else found.view(())

    def read_range(self, offset: int, nbytes: int, out: Tensor) -> None:
        """Fill ``out``, [nbytes] uint8, with the bytes of the file from ``offset`` on, aligned both of them. Several
        reads are in flight at once."""
        if nbytes <= _AT_ONCE:
            self._file.read(offset, out[:nbytes])
            return
        starts = range(0, nbytes, _AT_ONCE)
        reads = [
            self._pool.submit(self._file.read, offset + start, out[start : min(start + _AT_ONCE, nbytes)])
            for start in starts
        ]
        errors = [error for error in (read.exception() for read in reads) if error is not None]
        if errors:
            raise errors[0]

    def _entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise KeyError(f"name: expected a tensor of {self.path}, got {name!r}.") from None

    def _read_bytes(self, entry: Entry, begin: int, end: int) -> Tensor:
        first = aligned_down(entry.offset + begin)
        last = aligned_up(entry.offset + end)
        whole = aligned_buffer(last - first)
        self.read_range(first, last - first, whole)
        start = entry.offset + begin - first
        found = whole[start : start + end - begin]
        return found if start % entry.dtype.itemsize == 0 else found.clone()

    def _verify(self, progress: Progress | None) -> None:
        total, done = self.nbytes, 0
        buffer = aligned_buffer(4 * _AT_ONCE)
        for name, entry in self._entries.items():
            checksum = 0
            for begin in range(0, entry.nbytes, len(buffer)):
                count = min(len(buffer), entry.nbytes - begin)
                self.read_range(entry.offset + begin, aligned_up(count), buffer)
                checksum = zlib.crc32(bytes_of(buffer)[:count], checksum)
                done += count
                if progress is not None:
                    progress(done, total)
            if checksum != entry.checksum:
                raise HarmedFileError(
                    f"{self.path}: the bytes of {name!r} are not those that were written. Delete the file; it is made "
                    "anew from the checkpoint."
                )


# --- the file ----------------------------------------------------------------------------------------------------


def _name_of(key: Mapping[str, Any]) -> str:
    text = json.dumps(key, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:24]


def _read_index(file: DirectFile) -> tuple[dict[str, Any], dict[str, Entry]]:
    cut_off = HarmedFileError(
        f"{file.path}: this is no file of tensors, or its end is missing. Delete it; it is made anew from the "
        "checkpoint."
    )
    size = file.nbytes
    if size < _END.size:
        raise cut_off
    end = torch.empty(_END.size, dtype=torch.uint8)
    file.read(size - _END.size, end)
    magic, offset, length, checksum = _END.unpack(end.numpy().tobytes())
    if magic != MAGIC or offset + length + _END.size != size:
        raise cut_off
    packed = torch.empty(length, dtype=torch.uint8)
    file.read(offset, packed)
    text = packed.numpy().tobytes()
    if zlib.crc32(text) != checksum:
        raise cut_off
    index = json.loads(text.decode("utf-8"))
    entries = {
        name: Entry(getattr(torch, dtype), tuple(shape), begin, own)
        for name, (dtype, shape, begin, own) in index["tensors"].items()
    }
    return index["key"], entries


def _write(
    path: Path,
    key: Mapping[str, Any],
    tensors: Iterable[tuple[str, Tensor]],
    total: int,
    progress: Progress | None,
) -> None:
    part = path.with_name(f"{path.stem}.{os.getpid()}{PART}")
    file = DirectFile(part, write=True, new=True)
    try:
        offset, index = 0, {}
        room = aligned_buffer(_AT_ONCE)
        for name, tensor in tensors:
            if name in index:
                raise ValueError(f"tensors: expected every name once, got {name!r} twice.")
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            checksum = zlib.crc32(bytes_of(data)) if data.numel() else 0
            dtype = str(tensor.dtype).removeprefix("torch.")
            index[name] = (dtype, tuple(tensor.shape), offset, checksum)
            for begin in range(0, data.numel(), len(room)):
                count = min(len(room), data.numel() - begin)
                room[:count] = data[begin : begin + count]
                room[count : aligned_up(count)] = 0
                file.write(offset, room[: aligned_up(count)])
                offset += aligned_up(count)
            if progress is not None:
                progress(min(offset, total), total)
        file.close()
        text = json.dumps({"key": dict(key), "tensors": index}, ensure_ascii=False).encode("utf-8")
        with part.open("ab") as end:
            end.write(text + _END.pack(MAGIC, offset, len(text), zlib.crc32(text)))
            end.flush()
            os.fsync(end.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    finally:
        file.close()
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk, where a folder can be opened (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_leftovers(path: Path) -> None:
    """Parts of makers that died: whoever holds the lock is the only one."""
    for part in path.parent.glob(f"{path.stem}.*{PART}"):
        with suppress(OSError):
            part.unlink()


def _usable_folder(folder: str | Path) -> Path:
    folder = Path(folder).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not writable")
    except OSError as error:
        raise type(error)(
            error.errno,
            f"offload_dir: expected a folder that can be written to, got {str(folder)!r} ({error.strerror}). "
            "Pass another one.",
        ) from None
    return folder


def _check_room(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise OSError(
            errno.ENOSPC,
            f"offload_dir: {bytes_text(nbytes)} are needed on the disk of {folder}, and {bytes_text(free)} are free. "
            "Make room, pass another folder, or keep more of the model in memory.",
        )
