"""Wrong answers to exercises 8.1 to 8.3 of lesson 08, each written as a student would, and signs in what went wrong.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import statistics
from itertools import pairwise

from course_lib.classroom.exercise import Attempt, Mistake

# --- 8.1 ---------------------------------------------------------------------------------------------------------


def _seconds(steps):
    return sum(seconds for _, seconds in steps)


def _rates(steps):
    return [sum(lengths) / seconds for lengths, seconds in steps]


def _padded_rates(steps):
    return [len(lengths) * max(lengths) / seconds for lengths, seconds in steps]


def speed_padded(steps):
    return sum(len(lengths) * max(lengths) for lengths, _ in steps) / _seconds(steps)


def speed_padded_to_longest_of_all(steps):
    longest = max(max(lengths) for lengths, _ in steps)
    return sum(len(lengths) * longest for lengths, _ in steps) / _seconds(steps)


def speed_padded_mean(steps):
    return statistics.mean(_padded_rates(steps))


def speed_of_padding(steps):
    return speed_padded(steps) - sum(map(sum, (lengths for lengths, _ in steps))) / _seconds(steps)


def speed_mean_of_rates(steps):
    return statistics.mean(_rates(steps))


def speed_median_of_rates(steps):
    return statistics.median(_rates(steps))


def speed_documents(steps):
    return sum(len(lengths) for lengths, _ in steps) / _seconds(steps)


def speed_steps(steps):
    return len(steps) / _seconds(steps)


def speed_inverted(steps):
    return _seconds(steps) / sum(sum(lengths) for lengths, _ in steps)


def speed_first_step(steps):
    return _rates(steps)[0]


def speed_last_step(steps):
    return _rates(steps)[-1]


def speed_best_step(steps):
    return max(_rates(steps))


def speed_without_first(steps):
    return sum(sum(lengths) for lengths, _ in steps[1:]) / _seconds(steps[1:])


def speed_targets(steps):
    return sum(sum(lengths) - len(lengths) for lengths, _ in steps) / _seconds(steps)


def speed_targets_of_rows(steps):
    return sum(sum(lengths) - 1 for lengths, _ in steps) / _seconds(steps)


def speed_tokens(steps):
    return sum(sum(lengths) for lengths, _ in steps)


def speed_longest(steps):
    return sum(max(lengths) for lengths, _ in steps) / _seconds(steps)


def speed_of_a_mean_document(steps):
    return sum(sum(lengths) / len(lengths) for lengths, _ in steps) / _seconds(steps)


def speed_sum_of_rates(steps):
    return sum(_rates(steps))


def speed_harmonic(steps):
    return statistics.harmonic_mean(_rates(steps))


def speed_of_last_tokens(steps):
    return sum(steps[-1][0]) / _seconds(steps)


def speed_of_last_seconds(steps):
    return sum(sum(lengths) for lengths, _ in steps) / steps[-1][1]


def a_list(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple)


def rounded_to_whole(attempt: Attempt) -> bool:
    got = attempt.got
    return isinstance(got, int | float) and got == int(got) and abs(got - attempt.wanted) < 1


REAL_SPEED = [
    Mistake("list", when=a_list),
    Mistake("padded", like=speed_padded),
    Mistake("padded", like=speed_padded_to_longest_of_all),
    Mistake("padded", like=speed_padded_mean),
    Mistake("padding", like=speed_of_padding),
    Mistake("mean", like=speed_mean_of_rates),
    Mistake("mean", like=speed_median_of_rates),
    Mistake("mean", like=speed_sum_of_rates),
    Mistake("mean", like=speed_harmonic),
    Mistake("overwritten", like=speed_of_last_tokens),
    Mistake("overwritten", like=speed_of_last_seconds),
    Mistake("documents", like=speed_documents),
    Mistake("documents", like=speed_steps),
    Mistake("inverted", like=speed_inverted),
    Mistake("one_step_only", like=speed_first_step),
    Mistake("one_step_only", like=speed_last_step),
    Mistake("one_step_only", like=speed_best_step),
    Mistake("dropped", like=speed_without_first),
    Mistake("targets", like=speed_targets),
    Mistake("targets", like=speed_targets_of_rows),
    Mistake("no_seconds", like=speed_tokens),
    Mistake("one_document", like=speed_longest),
    Mistake("one_document", like=speed_of_a_mean_document),
    Mistake("rounded", when=rounded_to_whole),
]

# --- 8.2 ---------------------------------------------------------------------------------------------------------


def _tokens(lengths):
    return len(lengths) * max(lengths) / sum(lengths)


def _squares(lengths):
    return sum(n * n for n in lengths)


def _scores(lengths):
    return len(lengths) * max(lengths) ** 2 / _squares(lengths)


def packing_inverted(lengths):
    return 1 / _tokens(lengths), 1 / _scores(lengths)


def packing_swapped(lengths):
    return _scores(lengths), _tokens(lengths)


def packing_one_block(lengths):
    return _tokens(lengths), len(lengths) * max(lengths) ** 2 / sum(lengths) ** 2


def packing_rows_see_each_other(lengths):
    return _tokens(lengths), (len(lengths) * max(lengths)) ** 2 / _squares(lengths)


def packing_not_squared(lengths):
    return _tokens(lengths), _tokens(lengths)


def packing_square_of_gain(lengths):
    return _tokens(lengths), _tokens(lengths) ** 2


def packing_padding_share(lengths):
    return 1 - 1 / _tokens(lengths), 1 - 1 / _scores(lengths)


def packing_triangle(lengths):
    def pairs(n):
        return n * (n + 1) / 2

    return _tokens(lengths), len(lengths) * pairs(max(lengths)) / sum(map(pairs, lengths))


def packing_triangle_without_diagonal(lengths):
    def pairs(n):
        return n * (n - 1) / 2

    return _tokens(lengths), len(lengths) * pairs(max(lengths)) / sum(map(pairs, lengths))


def packing_only_padded_squared(lengths):
    return _tokens(lengths), len(lengths) * max(lengths) ** 2 / sum(lengths)


def packing_only_packed_squared(lengths):
    return _tokens(lengths), len(lengths) * max(lengths) / _squares(lengths)


def packing_mean_of_ratios(lengths):
    ratios = [max(lengths) / n for n in lengths]
    return statistics.mean(ratios), statistics.mean(ratio**2 for ratio in ratios)


def packing_one_row(lengths):
    return max(lengths) / sum(lengths), max(lengths) ** 2 / _squares(lengths)


def packing_one_row_of_scores(lengths):
    return _tokens(lengths), max(lengths) ** 2 / _squares(lengths)


def packing_saved(lengths):
    count, longest = len(lengths), max(lengths)
    return count * longest - sum(lengths), count * longest**2 - _squares(lengths)


def packing_extra(lengths):
    return _tokens(lengths) - 1, _scores(lengths) - 1


def packing_floored(lengths):
    count, longest = len(lengths), max(lengths)
    return count * longest // sum(lengths), count * longest**2 // _squares(lengths)


def packing_padded_counts(lengths):
    return len(lengths) * max(lengths), len(lengths) * max(lengths) ** 2


def packing_packed_counts(lengths):
    return sum(lengths), _squares(lengths)


def one_number(attempt: Attempt) -> bool:
    return isinstance(attempt.got, int | float)


def rounded_pair(attempt: Attempt) -> bool:
    return all(abs(got - wanted) <= 0.0501 for got, wanted in zip(attempt.got, attempt.wanted, strict=True))


PACKING_GAIN = [
    Mistake("one_number", when=one_number),
    Mistake("inverted", like=packing_inverted),
    Mistake("swapped", like=packing_swapped),
    Mistake("one_block", like=packing_one_block),
    Mistake("rows_see_each_other", like=packing_rows_see_each_other),
    Mistake("not_squared", like=packing_not_squared),
    Mistake("square_of_gain", like=packing_square_of_gain),
    Mistake("share", like=packing_padding_share),
    Mistake("share", like=packing_extra),
    Mistake("triangle", like=packing_triangle),
    Mistake("triangle", like=packing_triangle_without_diagonal),
    Mistake("one_side_squared", like=packing_only_padded_squared),
    Mistake("one_side_squared", like=packing_only_packed_squared),
    Mistake("mean_of_ratios", like=packing_mean_of_ratios),
    Mistake("one_row", like=packing_one_row),
    Mistake("one_row", like=packing_one_row_of_scores),
    Mistake("saved", like=packing_saved),
    Mistake("saved", like=packing_padded_counts),
    Mistake("saved", like=packing_packed_counts),
    Mistake("floored", like=packing_floored),
    Mistake("rounded", when=rounded_pair),
]

# --- 8.3 ---------------------------------------------------------------------------------------------------------


def _steps(ladder):
    return list(pairwise(ladder.items()))


def gains_over_first(ladder):
    first = next(iter(ladder.values()))
    return {name: speed / first for name, speed in list(ladder.items())[1:]}


def gains_difference(ladder):
    return {name: speed - before for (_, before), (name, speed) in _steps(ladder)}


def gains_share_of_rise(ladder):
    first, *_, last = ladder.values() if len(ladder) > 1 else (0, 1)
    return {name: (speed - before) / (last - first) for (_, before), (name, speed) in _steps(ladder)}


def gains_increase(ladder):
    return {name: speed / before - 1 for (_, before), (name, speed) in _steps(ladder)}


def gains_percent(ladder):
    return {name: 100 * (speed / before - 1) for (_, before), (name, speed) in _steps(ladder)}


def gains_hundred(ladder):
    return {name: 100 * speed / before for (_, before), (name, speed) in _steps(ladder)}


def gains_inverted(ladder):
    return {name: before / speed for (_, before), (name, speed) in _steps(ladder)}


def gains_of_the_next(ladder):
    return {name: after / speed for (name, speed), (_, after) in _steps(ladder)}


def gains_up_to_top(ladder):
    top = list(ladder.values())[-1]
    return {name: top / speed for name, speed in list(ladder.items())[1:]}


def gains_share_of_top(ladder):
    top = max(ladder.values())
    return {name: speed / top for name, speed in list(ladder.items())[1:]}


def gains_with_first(ladder):
    return {next(iter(ladder)): 1.0} | {name: b / a for (_, a), (name, b) in _steps(ladder)}


def gains_over_first_with_first(ladder):
    first = next(iter(ladder.values()))
    return {name: speed / first for name, speed in ladder.items()}


def gains_sorted(ladder):
    return {name: b / a for (_, a), (name, b) in pairwise(sorted(ladder.items(), key=lambda rung: rung[1]))}


def gains_never_below_one(ladder):
    return {name: max(1.0, b / a) for (_, a), (name, b) in _steps(ladder)}


def gains_only_up(ladder):
    return {name: b / a for (_, a), (name, b) in _steps(ladder) if b > a}


def gains_over_best_so_far(ladder):
    found, best = {}, next(iter(ladder.values()))
    for name, speed in list(ladder.items())[1:]:
        found[name] = speed / best
        best = max(best, speed)
    return found


def a_name(attempt: Attempt) -> bool:
    return isinstance(attempt.got, str)


def first_rung_too(attempt: Attempt) -> bool:
    """The right gains, and one for the first rung: 1, 0, None, or over the last rung."""
    got, first = dict(attempt.got), next(iter(attempt.args[0]))
    return got.pop(first, "absent") != "absent" and attempt.case.agree(got, attempt.wanted)


def rounded_gains(attempt: Attempt) -> bool:
    if attempt.got.keys() != attempt.wanted.keys():
        return False
    return all(abs(attempt.got[name] - gain) <= 0.0501 for name, gain in attempt.wanted.items())


GAINS = [
    Mistake("list", when=a_list),
    Mistake("one_number", when=one_number),
    Mistake("name", when=a_name),
    Mistake("over_first", like=gains_over_first),
    Mistake("over_first", like=gains_over_first_with_first),
    Mistake("difference", like=gains_difference),
    Mistake("difference", like=gains_share_of_rise),
    Mistake("percent", like=gains_increase),
    Mistake("percent", like=gains_percent),
    Mistake("percent", like=gains_hundred),
    Mistake("inverted", like=gains_inverted),
    Mistake("wrong_idea", like=gains_of_the_next),
    Mistake("over_top", like=gains_up_to_top),
    Mistake("over_top", like=gains_share_of_top),
    Mistake("with_first", when=first_rung_too),
    Mistake("sorted", like=gains_sorted),
    Mistake("only_up", like=gains_never_below_one),
    Mistake("only_up", like=gains_only_up),
    Mistake("best_so_far", like=gains_over_best_so_far),
    Mistake("rounded", when=rounded_gains),
]
