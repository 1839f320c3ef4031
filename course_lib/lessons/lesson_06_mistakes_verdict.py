"""Wrong verdicts of exercise 6.3 of lesson 06 (which gate won), and signs of a mistake in what was returned."""

from course_lib.classroom.exercise import Attempt


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


def a_word_for_nothing(attempt: Attempt) -> bool:
    return attempt.wanted is None and isinstance(attempt.got, str) and attempt.got not in attempt.args[0]


def says_false(attempt: Attempt) -> bool:
    return attempt.wanted is None and (attempt.got is False or attempt.got == [] or attempt.got == ())


def a_number_for_a_name(attempt: Attempt) -> bool:
    return isinstance(attempt.got, int | float) and not isinstance(attempt.got, bool)


def a_list_of_names(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple | set | dict)


def says_true(attempt: Attempt) -> bool:
    return attempt.got is True


def finds_nobody(attempt: Attempt) -> bool:
    """None where somebody won: what comes of comparing each with all, itself among them."""
    return attempt.got is None and attempt.wanted is not None


def verdicts(attempt: Attempt) -> dict[str, object]:
    return {"verdict": repr(attempt.got), "right": repr(attempt.wanted)}
