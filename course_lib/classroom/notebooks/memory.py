"""How much memory a process and its children hold at their peak."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass
class Peak:
    """The largest resident size seen so far, in bytes."""

    bytes: int = 0

    def saw(self, size: int) -> None:
        self.bytes = max(self.bytes, size)


@contextmanager
def watch_tree(pid: int, peak: Peak, interval: float = 0.1) -> Iterator[Peak]:
    """Record in `peak` the largest resident size of process `pid` together with its children, while the
    block runs.

    Sampled every `interval` seconds; on Linux the kernel's own high-water mark of `pid` is read as well, so
    that a spike between two samples counts. Pages that parent and child share are counted twice: an upper
    bound.
    """
    finished = threading.Event()

    def sample() -> None:
        while True:  # the first sample at once: a short notebook must not report zero
            peak.saw(_tree_bytes(pid))
            peak.saw(_high_water_mark(pid))
            if finished.wait(interval):
                return

    thread = threading.Thread(target=sample, name="peak-memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        finished.set()
        thread.join()


def _tree_bytes(pid: int) -> int:
    try:
        parent = psutil.Process(pid)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:  # it ended between the two calls
            continue
    return total


def _high_water_mark(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
