"""Two pieces of work timed side by side: machines swing twofold within a minute, a ratio taken pair by pair less."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

PAIRS = 15
PAIRS_OF_LONG_WORK = 5
LONG_SECONDS = 10.0


@dataclass(frozen=True)
class Paired:
    """Seconds of two pieces of work, pair by pair."""

    first: list[float]
    second: list[float]
    ratios: list[float] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratios", [a / b for a, b in zip(self.first, self.second, strict=True)])

    @property
    def ratio(self) -> float:
        """How many times as long the first takes as the second: the median of the pairs' ratios."""
        return statistics.median(self.ratios)


def timed(work: Callable[[], object], device: str = "cpu") -> float:
    """Seconds that the work takes, waiting for the device before and after."""
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def paired(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    device: str = "cpu",
    pairs: int | None = None,
    on_pair: Callable[[int, int], None] = lambda done, of: None,
) -> Paired:
    """Time both in turn, each pair in the other order than the one before, after a warm-up of each.

    15 pairs, or 5 where one piece takes over 10 seconds, unless ``pairs`` says otherwise. ``on_pair(done, of)`` is
    called after each.
    """
    warm = max(timed(first, device), timed(second, device))
    of = pairs or (PAIRS_OF_LONG_WORK if warm > LONG_SECONDS else PAIRS)
    firsts, seconds = [], []
    for pair in range(of):
        if pair % 2:
            seconds.append(timed(second, device))
            firsts.append(timed(first, device))
        else:
            firsts.append(timed(first, device))
            seconds.append(timed(second, device))
        on_pair(pair + 1, of)
    return Paired(firsts, seconds)


@dataclass(frozen=True)
class Rounds:
    """Seconds of several pieces of work by name, round by round. Long work may have fewer rounds, the first ones."""

    seconds: Mapping[str, list[float]]

    def ratios(self, first: str, second: str) -> list[float]:
        """How many times as long ``first`` took as ``second``, in each round that both took part in."""
        return [a / b for a, b in zip(self.seconds[first], self.seconds[second], strict=False)]

    def ratio(self, first: str, second: str) -> float:
        """The median of :meth:`ratios`."""
        return statistics.median(self.ratios(first, second))


def interleaved(
    works: Mapping[str, Callable[[int], object]],
    *,
    device: str = "cpu",
    rounds: int | None = None,
    on_work: Callable[[str, int, int], None] = lambda name, done, of: None,
) -> Rounds:
    """Time all of them round after round, each round in another order than the one before, after a warm-up of each.

    Each is called with the number of the round, 0 for the warm-up. 15 rounds, of which work that took over 10 seconds
    to warm up or in its first round takes part in 5, unless ``rounds`` says otherwise. ``on_work(name, number, of)``
    is called before each.
    """
    names = list(works)
    of = rounds or PAIRS

    def took(name: str, number: int) -> float:
        on_work(name, number, of)
        return timed(lambda: works[name](number), device)

    warm = {name: took(name, 0) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, of + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if rounds or number <= PAIRS_OF_LONG_WORK or max(warm[name], seconds[name][0]) <= LONG_SECONDS:
                seconds[name].append(took(name, number))
    return Rounds(seconds)
