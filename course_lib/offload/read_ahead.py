"""Reading ahead of a computation into a ring of buffers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from .lanes import Lanes

Key = TypeVar("Key")
Buffer = TypeVar("Buffer")


class Load(NamedTuple):
    """How a key is loaded: ``job(buffer)``, and what the trace says of it."""

    layer: int
    nbytes: int
    job: Callable[[Any], Any]


class ReadAhead(Generic[Key, Buffer]):
    """A lane fills free ``buffers`` with what ``expect`` announced, in that order; ``take`` waits for the next one and
    gives its buffer back at the end.

    With a buffer more than are taken at once, loading goes on while the computation works; a second one more evens out
    loads and computations of different length.
    """

    def __init__(
        self,
        lanes: Lanes,
        lane: str,
        kind: str,
        buffers: Sequence[Buffer],
        describe: Callable[[Key], Load],
    ) -> None:
        self._lanes = lanes
        self._lane, self._kind = lane, kind
        self._describe = describe
        self._free = deque(buffers)
        self._loading: deque[tuple[Key, Buffer, Future[Any]]] = deque()
        self._coming: deque[Key] = deque()

    def expect(self, keys: Sequence[Key]) -> None:
        """These will be taken, in this order; the first of them may be on their way already."""
        underway = [key for key, _, _ in self._loading]
        if list(keys[: len(underway)]) != underway:
            raise RuntimeError(f"{self._kind}: {underway} are being loaded, and {list(keys[:3])} come next.")
        self._coming = deque(keys[len(underway) :])
        self._fill()

    def stop(self) -> None:
        """Nothing else will be loaded. What is on its way can still be expected."""
        self._coming.clear()

    @contextmanager
    def take(self, key: Key) -> Iterator[Buffer]:
        """The buffer with ``key`` in it, inside the context only. Raises what its loading raised."""
        if not self._loading or self._loading[0][0] != key:
            raise RuntimeError(f"{self._kind}: {key} is taken before its turn.")
        _, buffer, future = self._loading.popleft()
        try:
            if not future.done():
                with self._lanes.trace.event("compute", f"wait for {self._kind}", self._describe(key).layer):
                    future.exception()
            future.result()
            yield buffer
        finally:
            self._free.append(buffer)
            self._fill()

    def _fill(self) -> None:
        while self._free and self._coming:
            key, buffer = self._coming.popleft(), self._free.popleft()
            load = self._describe(key)
            future = self._lanes.submit(self._lane, self._kind, load.layer, load.nbytes, load.job, buffer)
            self._loading.append((key, buffer, future))
