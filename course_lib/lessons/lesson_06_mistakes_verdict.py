"""Wrong verdicts of exercise 6.3 of lesson 06 (which gate won), and signs of a mistake in what was returned."""

import statistics

from course_lib.classroom.compare import show
from course_lib.classroom.exercise import Attempt, Mistake


def _mean(numbers):
    return sum(numbers) / len(numbers)


def _spread(numbers):
    return max(numbers) - min(numbers)


def _deviation(numbers):
    return (sum((x - _mean(numbers)) ** 2 for x in numbers) / len(numbers)) ** 0.5


def winner_by_mean(losses):
    return min(losses, key=lambda name: _mean(losses[name]))


def winner_by_median(losses):
    return min(losses, key=lambda name: sorted(losses[name])[len(losses[name]) // 2])


def winner_by_best_run(losses):
    return min(losses, key=lambda name: min(losses[name]))


def winner_by_worst_run(losses):
    return min(losses, key=lambda name: max(losses[name]))


def winner_by_first_seed(losses):
    return min(losses, key=lambda name: losses[name][0])


def winner_by_last_seed(losses):
    return min(losses, key=lambda name: losses[name][-1])


def winner_of_largest(losses):
    return max(losses, key=lambda name: _mean(losses[name]))


def winner_above_all(losses):
    for name, own in losses.items():
        if all(min(own) > max(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_over_second(losses):
    first, second = sorted(losses, key=lambda name: _mean(losses[name]))[:2]
    return first if max(losses[first]) < min(losses[second]) else None


def winner_over_any(losses):
    for name, own in losses.items():
        if any(max(own) < min(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_or_tie(losses):
    for name, own in losses.items():
        if all(max(own) <= min(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_mean_below_all(losses):
    for name, own in losses.items():
        if all(_mean(own) < min(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_worst_below_means(losses):
    for name, own in losses.items():
        if all(max(own) < _mean(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_worst_below_worst(losses):
    for name, own in losses.items():
        if all(max(own) < max(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_by_gap_and_spread(losses):
    first, second = sorted(losses, key=lambda name: _mean(losses[name]))[:2]
    gap = _mean(losses[second]) - _mean(losses[first])
    return first if gap > max(_spread(losses[first]), _spread(losses[second])) else None


def winner_by_gap_and_own_spread(losses):
    first, second = sorted(losses, key=lambda name: _mean(losses[name]))[:2]
    return first if _mean(losses[second]) - _mean(losses[first]) > _spread(losses[first]) else None


def winner_by_deviation(losses):
    first, second = sorted(losses, key=lambda name: _mean(losses[name]))[:2]
    gap = _mean(losses[second]) - _mean(losses[first])
    return first if gap > max(_deviation(losses[first]), _deviation(losses[second])) else None


def winner_by_sample_deviation(losses):
    first, second = sorted(losses, key=lambda name: _mean(losses[name]))[:2]
    gap = _mean(losses[second]) - _mean(losses[first])
    return first if gap > statistics.stdev(losses[first]) else None


def winner_by_bars(losses):
    def high(own):
        return _mean(own) + _deviation(own)

    def low(own):
        return _mean(own) - _deviation(own)

    for name, own in losses.items():
        if all(high(own) < low(other) for key, other in losses.items() if key != name):
            return name
    return None


def winner_seed_by_seed(losses):
    for name, own in losses.items():
        others = [other for key, other in losses.items() if key != name]
        if all(a < b for other in others for a, b in zip(own, other, strict=True)):
            return name
    return None


def _seeds_won(losses):
    ranks = zip(*losses.values(), strict=True)
    first = [min(zip(runs, losses, strict=True))[1] for runs in ranks]
    return {name: first.count(name) / len(first) for name in losses}


def winner_of_most_seeds(losses):
    won = _seeds_won(losses)
    return max(won, key=lambda name: won[name])


def winner_of_a_majority(losses):
    won = _seeds_won(losses)
    best = max(won, key=lambda name: won[name])
    return best if won[best] > 0.5 else None


def winner_against_itself(losses):
    for name, own in losses.items():
        if all(max(own) < min(other) for other in losses.values()):
            return name
    return None


def a_word_for_nothing(attempt: Attempt) -> bool:
    return attempt.wanted is None and isinstance(attempt.got, str) and attempt.got not in attempt.args[0]


def says_false(attempt: Attempt) -> bool:
    return attempt.wanted is None and (attempt.got is False or attempt.got == [] or attempt.got == ())


def a_number_for_a_name(attempt: Attempt) -> bool:
    return isinstance(attempt.got, int | float) and not isinstance(attempt.got, bool)


def a_list_of_names(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple | set | dict)


def prints_the_name(attempt: Attempt) -> bool:
    return attempt.got is None and bool(attempt.printed.strip())


def says_true(attempt: Attempt) -> bool:
    return attempt.got is True


def finds_nobody(attempt: Attempt) -> bool:
    """None where somebody won."""
    return attempt.got is None and attempt.wanted is not None


def names_one_that_did_not_win(attempt: Attempt) -> bool:
    return attempt.wanted is None and attempt.got in attempt.args[0]


def verdicts(attempt: Attempt) -> dict[str, object]:
    return {"verdict": show(attempt.got), "right": show(attempt.wanted)}


WINNER = [
    Mistake("printed", when=prints_the_name),
    Mistake("true", when=says_true),
    Mistake("word", when=a_word_for_nothing, values=verdicts),
    Mistake("false", when=says_false, values=verdicts),
    Mistake("number", when=a_number_for_a_name, values=verdicts),
    Mistake("list", when=a_list_of_names, values=verdicts),
    Mistake("largest", like=winner_of_largest),
    Mistake("largest", like=winner_above_all),
    Mistake("mean", like=winner_by_mean),
    Mistake("mean", like=winner_by_median),
    Mistake("best_run", like=winner_by_best_run),
    Mistake("worst_run", like=winner_by_worst_run),
    Mistake("one_seed", like=winner_by_first_seed),
    Mistake("one_seed", like=winner_by_last_seed),
    Mistake("second", like=winner_over_second),
    Mistake("any", like=winner_over_any),
    Mistake("tie", like=winner_or_tie),
    Mistake("mean_below", like=winner_mean_below_all),
    Mistake("below_means", like=winner_worst_below_means),
    Mistake("worst_run", like=winner_worst_below_worst),
    Mistake("gap", like=winner_by_gap_and_spread, values=verdicts),
    Mistake("gap", like=winner_by_gap_and_own_spread, values=verdicts),
    Mistake("gap", like=winner_by_deviation, values=verdicts),
    Mistake("gap", like=winner_by_bars, values=verdicts),
    Mistake("gap", like=winner_by_sample_deviation, values=verdicts),
    Mistake("pairs", like=winner_seed_by_seed),
    Mistake("pairs", like=winner_of_most_seeds),
    Mistake("pairs", like=winner_of_a_majority),
    Mistake("itself", like=winner_against_itself),
    Mistake("too_early", when=finds_nobody),
    Mistake("no_win", when=names_one_that_did_not_win, values=verdicts),
]
