"""Work timed side by side: in which order, how often, and what the ratio is. No test depends on a time."""

from __future__ import annotations

import pytest

from course_lib.bench import measure
from course_lib.bench.measure import Paired, Rounds, interleaved, paired


class Clock:
    """Time that passes only where work says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.calls = ""
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)

    def work(self, name: str, seconds: float):
        def run() -> None:
            self.calls += name
            self.now += seconds

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_ratio_is_the_median_of_the_pairs_ratios_not_the_ratio_of_medians() -> None:
    pairs = Paired([1.0, 20.0, 3.0], [1.0, 10.0, 30.0])
    assert pairs.ratios == [1.0, 2.0, 0.1]
    assert pairs.ratio == 1.0, "the ratio of the medians would be 0.3"


def test_pairs_of_unequal_number_are_refused() -> None:
    with pytest.raises(ValueError):
        Paired([1.0, 2.0], [1.0])


def test_a_machine_that_slows_down_twofold_on_the_way_leaves_the_ratio_as_it_is() -> None:
    speed = [1, 1, 2, 2, 2]
    assert Paired([3.0 * s for s in speed], [2.0 * s for s in speed]).ratio == 1.5


def test_each_pair_is_taken_in_the_other_order_after_a_warm_up_of_both(clock: Clock) -> None:
    times = paired(clock.work("a", 2), clock.work("b", 1), pairs=4)
    assert clock.calls == "ab" + "ab" + "ba" + "ab" + "ba"
    assert times.first == [2.0] * 4 and times.second == [1.0] * 4
    assert times.ratio == 2.0


def test_the_warm_up_is_not_among_the_times(clock: Clock) -> None:
    first_call = iter([100.0])

    def slow_at_first() -> None:
        clock.now += next(first_call, 1.0)

    assert paired(slow_at_first, clock.work("b", 1), pairs=3).first == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("seconds", "pairs"), [(0.1, 15), (10.0, 15), (10.5, 5)])
def test_fifteen_pairs_or_five_of_work_over_ten_seconds(clock: Clock, seconds: float, pairs: int) -> None:
    assert len(paired(clock.work("a", 0.1), clock.work("b", seconds)).ratios) == pairs


def test_progress_is_told_after_each_pair(clock: Clock) -> None:
    told: list[tuple[int, int]] = []
    paired(clock.work("a", 1), clock.work("b", 1), pairs=2, on_pair=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]


# Several pieces of work, round by round.


def test_the_ratio_of_two_among_several_is_the_median_over_the_rounds_both_were_in() -> None:
    rounds = Rounds({"long": [10.0, 20.0, 60.0], "short": [1.0, 1.0, 2.0, 7.0, 7.0]})
    assert rounds.ratios("long", "short") == [10.0, 20.0, 30.0]
    assert rounds.ratio("long", "short") == 20.0


def test_each_round_begins_with_another_after_a_warm_up_of_all(clock: Clock) -> None:
    a, b, c = (clock.work(name, seconds) for name, seconds in (("a", 1), ("b", 2), ("c", 3)))
    rounds = interleaved({"a": lambda _: a(), "b": lambda _: b(), "c": lambda _: c()}, rounds=3)
    assert clock.calls == "abc" + "bca" + "cab" + "abc"
    assert rounds.seconds == {"a": [1.0] * 3, "b": [2.0] * 3, "c": [3.0] * 3}


def test_all_work_of_a_round_is_told_its_number(clock: Clock) -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}
    interleaved({"a": seen["a"].append, "b": seen["b"].append}, rounds=2)
    assert seen == {"a": [0, 1, 2], "b": [0, 1, 2]}


@pytest.mark.parametrize(("seconds", "rounds"), [(10.0, 15), (10.5, 5)])
def test_work_over_ten_seconds_takes_part_in_the_first_five_of_fifteen_rounds(
    clock: Clock, seconds: float, rounds: int
) -> None:
    long, short = clock.work("a", seconds), clock.work("b", 1)
    found = interleaved({"long": lambda number: long(), "short": lambda number: short()})
    assert (len(found.seconds["long"]), len(found.seconds["short"])) == (rounds, 15)
    assert len(found.ratios("long", "short")) == rounds
