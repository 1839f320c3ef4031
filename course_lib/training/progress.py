"""What a run tells while it goes on: log.jsonl, a line for the terminal, and the most memory it held.

with TrainingLog(folder / "log.jsonl", up_to=resumed_from) as log:
    log.append({"step": 1, "loss": 8.3})
read_log(folder / "log.jsonl")
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.atomic import write_atomically
from course_lib.attention.bias import as_whole_number

NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""JSON has no such numbers: they are written as these words."""


class TrainingLog:
    """log.jsonl of a run: one JSON object a line, each with its ``"step"``, written when it is appended.

    Opening it keeps what is there, except for a last line that a kill or a full disk cut short. With ``up_to`` it also
    drops what comes after the record of that step, in one piece: the place where a run resumes (-1 empties it). A
    line is in the file, in the hands of the operating system, when ``append`` returns: a kill cannot take it back.

    Raises OSError where the folder cannot be made or written, ValueError as :func:`read_log`.
    """

    def __init__(self, path: str | Path, *, up_to: int | None = None) -> None:
        self.path = Path(path)
        if up_to is not None:
            up_to = as_whole_number("up_to", up_to, -1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                lines = [line for line in _lines(self.path) if up_to is None or line.record["step"] <= up_to]
                write_atomically(self.path, b"".join(line.text for line in lines))
            # Unbuffered, so that a failure shows at the record it befalls.
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115  (close() closes it)
        except OSError as error:
            raise _in_words(error, self.path) from error

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line. Raises OSError, and leaves the lines before whole, where the disk is full.

        Raises ValueError for a record without a whole number as its "step", TypeError for what JSON cannot hold.
        """
        _check_step(record, "record")
        text = json.dumps(_writable(dict(record)), ensure_ascii=False, allow_nan=False) + "\n"
        end = os.fstat(self._file.fileno()).st_size
        rest = memoryview(text.encode("utf-8"))
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self._file.fileno(), end)
            raise _in_words(error, self.path) from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The records of a log.jsonl, in their order; a last line that was cut short is left out.

    Raises FileNotFoundError where there is no file, ValueError that names the line which is no record.
    """
    return [line.record for line in _lines(Path(path))]


class _Line(NamedTuple):
    text: bytes
    record: dict[str, Any]


def _lines(path: Path) -> list[_Line]:
    found = []
    for number, text in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not text.endswith(b"\n"):
            break
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise ValueError(
                f"{path}: expected one JSON object a line, got something else in line {number}: {text[:60]!r}. Repair "
                "or remove the line; the run can then resume."
            )
        _check_step(record, f"{path}, line {number}")
        found.append(_Line(text, {name: _read(value) for name, value in record.items()}))
    return found


def _check_step(record: Mapping[str, Any], where: str) -> None:
    step = record.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        raise ValueError(f'{where}: expected a record with a whole number as its "step", got {step!r}.')


def _writable(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def _read(value: Any) -> Any:
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _in_words(error: OSError, path: Path) -> OSError:
    return type(error)(
        error.errno,
        f"the training log could not be written ({error.strerror}); the lines before are whole. Make room, or choose "
        "another output folder",
        str(path),
    )


def progress_line(
    step: int, steps: int, *, loss: float, tokens_per_second: float, memory: int | None = None
) -> str:
    """How a run stands, in a line: ``step 120 of 1,000 · loss 3.214 · 4,310 tokens/s · 812 MiB``."""
    parts = [f"step {step:,} of {steps:,}", f"loss {loss:.3f}", f"{tokens_per_second:,.0f} tokens/s"]
    if memory is not None:
        parts.append(bytes_text(memory))
    return " · ".join(parts)


def bytes_text(count: float) -> str:
    """A number of bytes for a reader: 512 B, 1.5 KiB, 812 MiB."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1023.5:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if abs(size) >= 99.95 or unit == "B" else f"{size:.1f} {unit}"


class PeakMemory:
    """The most memory held since it was made: by PyTorch's tensors on a GPU, else by this process.

    Of a process, Linux's count of memory that no file holds (RssAnon), so that code which is loaded on first use does
    not count; the resident set elsewhere. Linux and CUDA are told to begin their count anew. macOS and Windows count
    from the start of the process.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as marks:
            marks.write("5")
        status = _status()
        self._files = status.get("RssFile", 0)
        self._seen = 0

    def bytes(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        self._seen = max(self._seen, self._now())
        return self._seen

    def _now(self) -> int:
        status = _status()
        if "VmHWM" in status and "RssFile" in status:
            # The mark counts files' pages too; those that came since are code.
            files = max(self._files, status["RssFile"])
            return status["VmHWM"] - files - status.get("RssShmem", 0)
        if sys.platform == "darwin":
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        import psutil

        found = psutil.Process().memory_info()
        return getattr(found, "peak_wset", found.rss)


def _status() -> dict[str, int]:
    """Linux's sizes of this process in bytes (RssFile, VmHWM …); empty elsewhere."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            fields = (line.split() for line in lines if line.endswith(" kB\n"))
            return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}
    except FileNotFoundError:
        return {}
