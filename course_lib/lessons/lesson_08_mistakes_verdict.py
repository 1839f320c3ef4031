"""Wrong answers to exercises 8.4 and 8.5 of lesson 08: pairs, and equal loss."""

import statistics

from course_lib.classroom.exercise import Attempt, Mistake

# --- 8.4 ---------------------------------------------------------------------------------------------------------


def _ratios(before, after):
    return [a / b for a, b in zip(before, after, strict=True)]


def pair_inverted(before, after):
    return statistics.median(_ratios(after, before))


def pair_inverted_median(before, after):
    return 1 / statistics.median(_ratios(before, after))


def pair_of_medians(before, after):
    return statistics.median(before) / statistics.median(after)


def pair_of_means(before, after):
    return sum(before) / sum(after)


def pair_mean(before, after):
    return statistics.mean(_ratios(before, after))


def pair_geometric(before, after):
    return statistics.geometric_mean(_ratios(before, after))


def pair_of_bests(before, after):
    return min(before) / min(after)


def pair_best_against_worst(before, after):
    return max(before) / min(after)


def pair_best(before, after):
    return max(_ratios(before, after))


def pair_worst(before, after):
    return min(_ratios(before, after))


def pair_first(before, after):
    return _ratios(before, after)[0]


def pair_last(before, after):
    return _ratios(before, after)[-1]


def pair_sorted(before, after):
    return statistics.median(_ratios(sorted(before), sorted(after)))


def pair_upper_middle(before, after):
    return sorted(_ratios(before, after))[len(before) // 2]


def pair_lower_middle(before, after):
    return statistics.median_low(_ratios(before, after))


def pair_middle_unsorted(before, after):
    return _ratios(before, after)[len(before) // 2]


def pair_difference(before, after):
    return statistics.median(a - b for a, b in zip(before, after, strict=True))


def pair_increase(before, after):
    return statistics.median(_ratios(before, after)) - 1


def pair_of_medians_inverted(before, after):
    return statistics.median(after) / statistics.median(before)


def pair_of_means_inverted(before, after):
    return sum(after) / sum(before)


def pair_harmonic(before, after):
    return statistics.harmonic_mean(_ratios(before, after))


def pair_trimmed(before, after):
    return statistics.mean(sorted(_ratios(before, after))[1:-1])


def pair_midrange(before, after):
    return (pair_best(before, after) + pair_worst(before, after)) / 2


def pair_two_middles_unsorted(before, after):
    ratios = _ratios(before, after)
    return (ratios[len(ratios) // 2] + ratios[(len(ratios) - 1) // 2]) / 2


def pair_saved(before, after):
    return statistics.median((a - b) / a for a, b in zip(before, after, strict=True))


def pair_every(before, after):
    return statistics.median(a / b for a in before for b in after)


def pair_without_first(before, after):
    return statistics.median(_ratios(before, after)[1:])


def a_list(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple)


PAIRED_GAIN = [
    Mistake("list", when=a_list),
    Mistake("inverted", like=pair_inverted),
    Mistake("inverted", like=pair_inverted_median),
    Mistake("inverted", like=pair_of_medians_inverted),
    Mistake("inverted", like=pair_of_means_inverted),
    Mistake("of_medians", like=pair_of_medians),
    Mistake("of_means", like=pair_of_means),
    Mistake("mean", like=pair_mean),
    Mistake("mean", like=pair_geometric),
    Mistake("mean", like=pair_harmonic),
    Mistake("mean", like=pair_trimmed),
    Mistake("mean", like=pair_midrange),
    Mistake("bests", like=pair_of_bests),
    Mistake("bests", like=pair_best_against_worst),
    Mistake("bests", like=pair_best),
    Mistake("bests", like=pair_worst),
    Mistake("one_round", like=pair_first),
    Mistake("one_round", like=pair_last),
    Mistake("sorted", like=pair_sorted),
    Mistake("middle", like=pair_upper_middle),
    Mistake("middle", like=pair_lower_middle),
    Mistake("unsorted", like=pair_middle_unsorted),
    Mistake("unsorted", like=pair_two_middles_unsorted),
    Mistake("difference", like=pair_difference),
    Mistake("difference", like=pair_increase),
    Mistake("difference", like=pair_saved),
    Mistake("every", like=pair_every),
    Mistake("dropped", like=pair_without_first),
]

# --- 8.5 ---------------------------------------------------------------------------------------------------------


def _first_time(curve, target):
    return next((seconds for seconds, loss in curve if loss <= target), None)


def _ratio(first, second):
    return None if first is None or second is None else first / second


def loss_inverted(first, second, target):
    return _ratio(_first_time(second, target), _first_time(first, target))


def loss_total_time(first, second, target):
    return first[-1][0] / second[-1][0]


def loss_total_time_where_reached(first, second, target):
    if None in (_first_time(first, target), _first_time(second, target)):
        return None
    return first[-1][0] / second[-1][0]


def loss_seconds_a_step(first, second, target):
    return (first[-1][0] / len(first)) / (second[-1][0] / len(second))


def _steps_to(curve, target):
    return next((number for number, (_, loss) in enumerate(curve, 1) if loss <= target), None)


def loss_steps(first, second, target):
    return _ratio(_steps_to(first, target), _steps_to(second, target))


def loss_final(first, second, target):
    return first[-1][1] / second[-1][1]


def loss_strict(first, second, target):
    times = [next((s for s, loss in curve if loss < target), None) for curve in (first, second)]
    return _ratio(*times)


def loss_last_point(first, second, target):
    times = [next((s for s, loss in reversed(curve) if loss <= target), None) for curve in (first, second)]
    return _ratio(*times)


def loss_for_good(first, second, target):
    def time(curve):
        found = None
        for seconds, loss in curve:
            found = (seconds if found is None else found) if loss <= target else None
        return found

    return _ratio(time(first), time(second))


def loss_best(first, second, target):
    times = [min(curve, key=lambda point: point[1])[0] for curve in (first, second)]
    return times[0] / times[1]


def loss_nearest(first, second, target):
    times = [min(curve, key=lambda point: abs(point[1] - target))[0] for curve in (first, second)]
    return times[0] / times[1]


def loss_difference(first, second, target):
    a, b = _first_time(first, target), _first_time(second, target)
    return None if a is None or b is None else a - b


def loss_share_saved(first, second, target):
    a, b = _first_time(first, target), _first_time(second, target)
    return None if a is None or b is None else (a - b) / a


def loss_of_the_first_reached(first, second, target):
    losses = [next((loss for _, loss in curve if loss <= target), None) for curve in (first, second)]
    return _ratio(*losses)


def loss_one_early(first, second, target):
    def time(curve):
        before = None
        for seconds, loss in curve:
            if loss <= target:
                return before
            before = seconds
        return None

    return _ratio(time(first), time(second))


def loss_interpolated(first, second, target):
    def time(curve):
        before = None
        for seconds, loss in curve:
            if loss <= target:
                if before is None:
                    return seconds
                share = (before[1] - target) / (before[1] - loss)
                return before[0] + share * (seconds - before[0])
            before = seconds, loss
        return None

    return _ratio(time(first), time(second))


def loss_columns(first, second, target):
    def time(curve):
        return next((loss for seconds, loss in curve if seconds <= target), None)

    return _ratio(time(first), time(second))


def loss_above(first, second, target):
    times = [next((s for s, loss in curve if loss >= target), None) for curve in (first, second)]
    return _ratio(*times)


def loss_last_above(first, second, target):
    def time(curve):
        return max((s for s, loss in curve if loss > target), default=None)

    return _ratio(time(first), time(second))


def never_reached(attempt: Attempt) -> bool:
    """Anything but None where one of the two never gets there, a crash included."""
    return attempt.wanted is None and not attempt.timed_out


def none_where_reached(attempt: Attempt) -> bool:
    return attempt.got is None and attempt.wanted is not None and not attempt.printed.strip()


EQUAL_LOSS = [
    Mistake("inverted", like=loss_inverted),
    Mistake("total_time", like=loss_total_time),
    Mistake("total_time", like=loss_total_time_where_reached),
    Mistake("a_step", like=loss_seconds_a_step),
    Mistake("steps", like=loss_steps),
    Mistake("final", like=loss_final),
    Mistake("final", like=loss_of_the_first_reached),
    Mistake("strict", like=loss_strict),
    Mistake("last_point", like=loss_last_point),
    Mistake("for_good", like=loss_for_good),
    Mistake("best", like=loss_best),
    Mistake("nearest", like=loss_nearest),
    Mistake("difference", like=loss_difference),
    Mistake("difference", like=loss_share_saved),
    Mistake("one_early", like=loss_one_early),
    Mistake("interpolated", like=loss_interpolated),
    Mistake("columns", like=loss_columns),
    Mistake("above", like=loss_above),
    Mistake("above", like=loss_last_above),
    Mistake("never", when=never_reached),
    Mistake("none", when=none_where_reached),
]
