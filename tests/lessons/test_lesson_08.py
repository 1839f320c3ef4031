"""Lesson 08: the exercises on real tokens, on what packing saves and on gains know their wrong answers."""

import statistics
from fractions import Fraction
from itertools import pairwise

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_08
from course_lib.lessons import lesson_08_mistakes as wrong

# --- 8.1 ---------------------------------------------------------------------------------------------------------


def speed_by_loop(steps):
    tokens, time = 0, 0.0
    for lengths, seconds in steps:
        for n in lengths:
            tokens += n
        time += seconds
    return tokens / time


def speed_by_zip(steps):
    lengths, seconds = zip(*steps, strict=True)
    return sum(map(sum, lengths)) / sum(seconds)


def speed_by_weighted_mean(steps):
    total = sum(seconds for _, seconds in steps)
    return sum(sum(lengths) / seconds * (seconds / total) for lengths, seconds in steps)


def speed_by_torch(steps):
    return torch.tensor([n for lengths, _ in steps for n in lengths]).sum() / sum(s for _, s in steps)


def test_exercise_8_1_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.1",
        wrong={
            "list": [lambda steps: [sum(lengths) / s for lengths, s in steps]],
            "padded": [
                wrong.speed_padded,
                wrong.speed_padded_to_longest_of_all,
                wrong.speed_padded_mean,
                lambda steps: sum(max(n) * len(n) for n, _ in steps) / sum(s for _, s in steps),
            ],
            "padding": [wrong.speed_of_padding],
            "mean": [
                wrong.speed_mean_of_rates,
                wrong.speed_median_of_rates,
                wrong.speed_sum_of_rates,
                wrong.speed_harmonic,
                lambda steps: sum(sum(n) / s for n, s in steps) / len(steps),
            ],
            "overwritten": [wrong.speed_of_last_tokens, wrong.speed_of_last_seconds],
            "documents": [wrong.speed_documents, wrong.speed_steps],
            "inverted": [wrong.speed_inverted],
            "one_step_only": [wrong.speed_first_step, wrong.speed_last_step, wrong.speed_best_step],
            "dropped": [wrong.speed_without_first],
            "targets": [wrong.speed_targets, wrong.speed_targets_of_rows],
            "no_seconds": [wrong.speed_tokens],
            "one_document": [wrong.speed_longest, wrong.speed_of_a_mean_document],
            "rounded": [
                lambda steps: round(speed_by_loop(steps)),
                lambda steps: int(speed_by_loop(steps)),
                lambda steps: sum(map(sum, (n for n, _ in steps))) // sum(s for _, s in steps),
            ],
            "common.wrong_type": [lambda steps: Fraction(speed_by_loop(steps))],
            "common.printed_instead": [lambda steps: print(speed_by_loop(steps))],
            "common.crashed": [lambda steps: sum(steps) / len(steps)],
        },
        right=[speed_by_loop, speed_by_zip, speed_by_weighted_mean, speed_by_torch],
    )


# --- 8.2 ---------------------------------------------------------------------------------------------------------


def packing_by_loop(lengths):
    longest = padded = scores = 0
    for n in lengths:
        longest = n if n > longest else longest
    for _ in lengths:
        padded, scores = padded + longest, scores + longest * longest
    real = pairs = 0
    for n in lengths:
        real, pairs = real + n, pairs + n * n
    return padded / real, scores / pairs


def packing_by_torch(lengths):
    n = torch.tensor(lengths, dtype=torch.float64)
    padded = n.max().expand(len(n))
    return [padded.sum() / n.sum(), (padded**2).sum() / (n**2).sum()]


def packing_by_means(lengths):
    longest = max(lengths)
    return longest / statistics.mean(lengths), longest**2 / statistics.mean(n**2 for n in lengths)


def test_exercise_8_2_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.2",
        wrong={
            "one_number": [lambda lengths: packing_by_loop(lengths)[0], lambda x: packing_by_loop(x)[1]],
            "inverted": [wrong.packing_inverted],
            "swapped": [wrong.packing_swapped],
            "one_block": [wrong.packing_one_block],
            "rows_see_each_other": [wrong.packing_rows_see_each_other],
            "not_squared": [wrong.packing_not_squared],
            "square_of_gain": [
                wrong.packing_square_of_gain,
                lambda x: (max(x) / statistics.mean(x), (max(x) / statistics.mean(x)) ** 2),
            ],
            "share": [wrong.packing_padding_share, wrong.packing_extra],
            "triangle": [wrong.packing_triangle, wrong.packing_triangle_without_diagonal],
            "one_side_squared": [wrong.packing_only_padded_squared, wrong.packing_only_packed_squared],
            "mean_of_ratios": [wrong.packing_mean_of_ratios],
            "rounded": [lambda x: tuple(round(gain, 2) for gain in packing_by_loop(x))],
            "one_row": [wrong.packing_one_row, wrong.packing_one_row_of_scores],
            "saved": [wrong.packing_saved, wrong.packing_padded_counts, wrong.packing_packed_counts],
            "floored": [wrong.packing_floored],
            "common.wrong_length": [lambda x: (*packing_by_loop(x), 1.0)],
            "common.wrong_type": [lambda x: dict(zip("ab", packing_by_loop(x), strict=True))],
        },
        right=[packing_by_loop, packing_by_torch, packing_by_means],
    )


# --- 8.3 ---------------------------------------------------------------------------------------------------------


def gains_by_loop(ladder):
    found, below = {}, None
    for name in ladder:
        if below is not None:
            found[name] = ladder[name] / ladder[below]
        below = name
    return found


def gains_by_index(ladder):
    names = list(ladder)
    return {names[i]: ladder[names[i]] / ladder[names[i - 1]] for i in range(1, len(names))}


def gains_by_times(ladder):
    items = [(name, 1 / speed) for name, speed in ladder.items()]
    return dict((name, before / after) for (_, before), (name, after) in pairwise(items))


def test_exercise_8_3_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.3",
        wrong={
            "list": [lambda x: list(gains_by_loop(x).values()), lambda x: list(gains_by_loop(x).items())],
            "one_number": [lambda x: list(x.values())[-1] / next(iter(x.values()))],
            "name": [lambda x: max(gains_by_loop(x) or {"": 0}, key=lambda n: x[n])],
            "over_first": [wrong.gains_over_first, wrong.gains_over_first_with_first],
            "difference": [wrong.gains_difference, wrong.gains_share_of_rise],
            "percent": [wrong.gains_increase, wrong.gains_percent, wrong.gains_hundred],
            "inverted": [wrong.gains_inverted],
            "wrong_idea": [wrong.gains_of_the_next],
            "over_top": [wrong.gains_up_to_top, wrong.gains_share_of_top],
            "with_first": [
                wrong.gains_with_first,
                lambda x: {next(iter(x)): None} | gains_by_loop(x),
                lambda x: {next(iter(x)): 0.0} | gains_by_loop(x),
                lambda x: {name: x[name] / x[list(x)[i - 1]] for i, name in enumerate(x)},
            ],
            "sorted": [wrong.gains_sorted],
            "only_up": [wrong.gains_never_below_one, wrong.gains_only_up],
            "best_so_far": [wrong.gains_over_best_so_far],
            "rounded": [lambda x: {name: round(gain, 1) for name, gain in gains_by_loop(x).items()}],
            "common.wrong_keys": [lambda x: {i: gain for i, gain in enumerate(gains_by_loop(x).values())}],
        },
        right=[gains_by_loop, gains_by_index, gains_by_times],
    )
