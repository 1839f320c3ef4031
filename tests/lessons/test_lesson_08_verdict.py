"""Lesson 08: the exercises on pairs, on equal loss and on the gain of the whole know their wrong answers."""

import math
import statistics

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_08
from course_lib.lessons import lesson_08_mistakes_verdict as wrong
from course_lib.lessons import lesson_08_mistakes_whole as wrong_whole

# --- 8.4 ---------------------------------------------------------------------------------------------------------


def paired_by_sorting(before, after):
    ratios = sorted(b / a for b, a in zip(before, after, strict=True))
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2


def paired_by_index(before, after):
    return statistics.median([before[i] / after[i] for i in range(len(before))])


def paired_by_torch(before, after):
    ratios = torch.tensor(before, dtype=torch.float64) / torch.tensor(after, dtype=torch.float64)
    return torch.quantile(ratios, 0.5)


def test_exercise_8_4_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.4",
        wrong={
            "list": [
                lambda b, a: [x / y for x, y in zip(b, a, strict=True)],
                lambda b, a: (paired_by_index(b, a),),
            ],
            "inverted": [
                wrong.pair_inverted,
                wrong.pair_inverted_median,
                wrong.pair_of_medians_inverted,
                wrong.pair_of_means_inverted,
            ],
            "of_medians": [wrong.pair_of_medians],
            "of_means": [
                wrong.pair_of_means,
                lambda b, a: statistics.mean(b) / statistics.mean(a),
            ],
            "mean": [
                wrong.pair_mean,
                wrong.pair_geometric,
                wrong.pair_harmonic,
                wrong.pair_trimmed,
                wrong.pair_midrange,
            ],
            "bests": [
                wrong.pair_of_bests,
                wrong.pair_best_against_worst,
                wrong.pair_best,
                wrong.pair_worst,
            ],
            "one_round": [wrong.pair_first, wrong.pair_last],
            "sorted": [wrong.pair_sorted],
            "middle": [
                wrong.pair_upper_middle,
                wrong.pair_lower_middle,
                lambda b, a: torch.tensor([x / y for x, y in zip(b, a, strict=True)]).median(),
            ],
            "unsorted": [wrong.pair_middle_unsorted, wrong.pair_two_middles_unsorted],
            "difference": [wrong.pair_difference, wrong.pair_increase, wrong.pair_saved],
            "every": [wrong.pair_every],
            "dropped": [wrong.pair_without_first],
            "common.wrong_answer": [lambda b, a: 1.0],
        },
        right=[paired_by_sorting, paired_by_index, paired_by_torch],
    )


# --- 8.5 ---------------------------------------------------------------------------------------------------------


def faster_by_next(first, second, target):
    times = [next((s for s, loss in run if loss <= target), None) for run in (first, second)]
    return None if None in times else times[0] / times[1]


def faster_by_loop(first, second, target):
    found = []
    for run in (first, second):
        for seconds, loss in run:
            if not loss > target:
                found.append(seconds)
                break
    if len(found) < 2:
        return None
    return found[0] / found[1]


def faster_by_min(first, second, target):
    a = min((s for s, loss in first if loss <= target), default=math.inf)
    b = min((s for s, loss in second if loss <= target), default=math.inf)
    if math.isinf(a) or math.isinf(b):
        return None
    return a / b


def faster_that_crashes(first, second, target):
    a, b = (next(s for s, loss in run if loss <= target) for run in (first, second))
    return a / b


def faster_without_return(first, second, target):
    faster_by_next(first, second, target)


def test_exercise_8_5_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.5",
        wrong={
            "inverted": [wrong.loss_inverted],
            "total_time": [wrong.loss_total_time, wrong.loss_total_time_where_reached],
            "a_step": [wrong.loss_seconds_a_step],
            "steps": [wrong.loss_steps],
            "final": [wrong.loss_final, wrong.loss_of_the_first_reached],
            "one_early": [wrong.loss_one_early],
            "strict": [wrong.loss_strict],
            "last_point": [wrong.loss_last_point],
            "for_good": [wrong.loss_for_good],
            "best": [wrong.loss_best],
            "nearest": [wrong.loss_nearest],
            "difference": [wrong.loss_difference, wrong.loss_share_saved],
            "interpolated": [wrong.loss_interpolated],
            "columns": [wrong.loss_columns],
            "above": [wrong.loss_above, wrong.loss_last_above],
            "never": [
                faster_that_crashes,
                lambda a, b, t: faster_by_next(a, b, t) or 0,
                lambda a, b, t: faster_by_next(a, b, t) or math.inf,
                lambda a, b, t: faster_by_next(a, b, t) or "never",
            ],
            "none": [faster_without_return],
            "common.printed_instead": [lambda a, b, t: print(faster_by_next(a, b, t))],
        },
        right=[faster_by_next, faster_by_loop, faster_by_min],
    )


# --- 8.6 ---------------------------------------------------------------------------------------------------------


def whole_by_loop(shares, gains):
    time = 0.0
    for part in shares:
        time += shares[part] / gains[part] if part in gains else shares[part]
    return 1 / time


def whole_by_subtraction(shares, gains):
    saved = sum(shares[part] * (1 - 1 / gain) for part, gain in gains.items())
    return 1 / (1 - saved)


def whole_by_a_careful_student(shares, gains):
    assert sum(shares.values()) == 1
    assert set(gains) <= set(shares)
    return whole_by_loop(shares, gains)


def whole_by_torch(shares, gains):
    old = torch.tensor(list(shares.values()), dtype=torch.float64)
    times_as_fast = torch.tensor([float(gains.get(part, 1)) for part in shares], dtype=torch.float64)
    return old.sum() / (old / times_as_fast).sum()


def test_exercise_8_6_names_each_wrong_answer():
    assert_exercise(
        lesson_08.LESSON,
        "8.6",
        wrong={
            "untouched": [lambda s, g: 1 / sum(share / g[part] for part, share in s.items())],
            "rest_forgotten": [
                wrong_whole.amdahl_rest_forgotten,
                lambda s, g: 1 / sum(s[p] / g[p] for p in s if p in g) if g else math.inf,
            ],
            "product": [wrong_whole.amdahl_product],
            "mean": [wrong_whole.amdahl_mean, wrong_whole.amdahl_mean_of_touched, wrong_whole.amdahl_powers],
            "largest": [
                wrong_whole.amdahl_largest,
                wrong_whole.amdahl_only_the_best,
                wrong_whole.amdahl_first_part,
                wrong_whole.amdahl_last_part,
            ],
            "multiplied": [wrong_whole.amdahl_multiplied],
            "sum": [wrong_whole.amdahl_sum],
            "new_time": [wrong_whole.amdahl_new_time, wrong_whole.amdahl_saved],
            "vanish": [wrong_whole.amdahl_parts_vanish, wrong_whole.amdahl_saved_times_gain],
            "one_at_a_time": [wrong_whole.amdahl_one_at_a_time],
            "unweighted": [wrong_whole.amdahl_unweighted],
            "common.wrong_answer": [lambda s, g: 2.0],
        },
        right=[whole_by_loop, whole_by_subtraction, whole_by_torch, whole_by_a_careful_student],
    )
