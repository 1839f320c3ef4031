"""What a run did, and when: every load, store and compute, on the lane that did it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

LANES = ("compute", "load weights", "load cache", "store cache", "activations")
"""From top to bottom in the picture."""


@dataclass(frozen=True)
class Event:
    """A piece of work. ``layer`` is its number, -1 what stands before the first or after the last; seconds count from
    the beginning of the run; ``bytes`` were moved (0 for what computes)."""

    lane: str
    kind: str
    layer: int
    start_s: float
    end_s: float
    bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


class Trace:
    """The events of a run, in the order in which they ended. Lanes on other threads add to it as they work."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._began = time.perf_counter()

    @contextmanager
    def event(self, lane: str, kind: str, layer: int, nbytes: int = 0) -> Iterator[None]:
        """Records what happens inside; what raises is recorded as well."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.events.append(
                Event(lane, kind, layer, start - self._began, time.perf_counter() - self._began, nbytes)
            )

    @property
    def seconds(self) -> float:
        """From the beginning to the end of the last event."""
        return max((event.end_s for event in self.events), default=0.0)

    def busy(self, lane: str) -> float:
        """The seconds in which a lane worked."""
        return sum(event.seconds for event in self.events if event.lane == lane)

    def total(self, kind: str | None = None, *, lane: str | None = None) -> int:
        """The bytes that events of this kind, on this lane, moved."""
        return sum(
            event.bytes
            for event in self.events
            if (kind is None or event.kind == kind) and (lane is None or event.lane == lane)
        )

    def counts(self) -> dict[str, int]:
        """How many events there are of each kind."""
        found: dict[str, int] = defaultdict(int)
        for event in self.events:
            found[event.kind] += 1
        return dict(found)

    def plot(self, start_s: float = 0.0, end_s: float | None = None, *, ax: Any = None) -> Any:
        """The lanes as rows of bars over time (a Gantt chart), in matplotlib's axes, which are returned."""
        import matplotlib.pyplot as plt

        if not self.events:
            raise ValueError("trace: expected events to draw, got none. Call generate() first.")
        end_s = self.seconds if end_s is None else end_s
        lanes = [lane for lane in LANES if any(event.lane == lane for event in self.events)]
        ax = plt.subplots(figsize=(9, 0.6 + 0.5 * len(lanes)), layout="constrained")[1] if ax is None else ax
        kinds = sorted({event.kind for event in self.events})
        for kind in kinds:
            for row, lane in enumerate(lanes):
                spans = [
                    (max(event.start_s, start_s), min(event.end_s, end_s))
                    for event in self.events
                    if event.lane == lane
                    and event.kind == kind
                    and event.end_s > start_s
                    and event.start_s < end_s
                ]
                if spans:
                    bars = [(start, end - start) for start, end in spans]
                    ax.broken_barh(bars, (row - 0.4, 0.8), color=f"C{kinds.index(kind) % 10}", label=kind)
        ax.set_yticks(range(len(lanes)), lanes)
        ax.invert_yaxis()
        ax.set_xlim(start_s, end_s)
        ax.set_xlabel("seconds")
        shown: dict[str, Any] = {}
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
        ax.legend(
            list(shown.values()),
            list(shown),
            loc="upper center",
            bbox_to_anchor=(0.5, -0.35),
            ncol=len(shown),
        )
        return ax
