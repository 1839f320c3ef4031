"""Room on disk for what a run needs while it lasts: parts of caches and activations. Nothing of it is left behind."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from course_lib.training.progress import bytes_text

from .direct_io import DirectFile, aligned_up


class ScratchFile:
    """``nbytes`` of disk, taken at once, read and written at aligned offsets, from several threads.

    Where the system lets an open file be without a name, it has none from the start: then not even a process that is
    killed leaves it behind.
    """

    def __init__(self, folder: str | Path, nbytes: int) -> None:
        """Raises OSError with a sentence where the folder has no such room."""
        handle, name = tempfile.mkstemp(prefix="scratch-", suffix=".part", dir=folder)
        path = Path(name)
        try:
            if nbytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, aligned_up(nbytes))
            os.close(handle)
            self._file = DirectFile(path, write=True)
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(
                errno.ENOSPC,
                f"offload_dir: {bytes_text(nbytes)} are needed on the disk of {folder} for caches and activations, and "
                "they are not free. Make room, pass another folder, or keep more of them in memory.",
            ) from None
        self.nbytes = nbytes
        with suppress(OSError):  # Windows keeps the names of open files
            path.unlink()

    def write(self, offset: int, source: Tensor) -> None:
        """Write ``source``, aligned bytes (``aligned_buffer``), at ``offset``."""
        self._file.write(offset, source)

    def read(self, offset: int, out: Tensor) -> None:
        """Fill ``out`` with the bytes from ``offset`` on."""
        self._file.read(offset, out)

    def close(self) -> None:
        """Give the room back; a second time does nothing."""
        self._file.close()
        self._file.path.unlink(missing_ok=True)
