"""Threads that move data while the main one computes: a lane for each kind of traffic, each in its own order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from .trace import Trace


class Lanes:
    """``submit`` puts work at the end of a lane and returns its future; what it raises, ``future.result()`` raises.

    Lanes work beside each other, the jobs of a lane one after another. Without ``overlap`` each job is done at once by
    the caller: the same work in the same order, for comparison. Use it as a context manager: at its end, also by an
    error or Ctrl-C, jobs that have not begun are dropped, and those at work are waited for, since they write into
    buffers.
    """

    def __init__(self, trace: Trace, *, overlap: bool = True) -> None:
        self.trace = trace
        self.overlap = overlap
        self._executors: dict[str, ThreadPoolExecutor] = {}

    def submit(
        self, lane: str, kind: str, layer: int, nbytes: int, job: Callable[..., Any], /, *arguments: Any
    ) -> Future[Any]:
        """``job(*arguments)`` on ``lane``; ``kind``, ``layer`` and ``nbytes`` are what the trace says of it."""

        def work() -> Any:
            with self.trace.event(lane, kind, layer, nbytes):
                return job(*arguments)

        if self.overlap:
            if lane not in self._executors:
                self._executors[lane] = ThreadPoolExecutor(1, thread_name_prefix=lane)
            return self._executors[lane].submit(work)
        done: Future[Any] = Future()
        done.set_result(work())  # an error is the caller's, at once
        return done

    def drain(self, *names: str) -> None:
        """Drop what these lanes have not begun, and wait for what they have; they can be used again."""
        for name in names:
            if name in self._executors:
                self._executors.pop(name).shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.drain(*self._executors)
