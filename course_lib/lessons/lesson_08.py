"""Exercises of lesson 08, the ladder: real tokens, what packing saves, gains of rungs, pairs, equal loss, Amdahl.

What the lesson measures is in `lesson_08_measure`, what it predicts in `lesson_08_predict`, its pictures in
`lesson_08_pictures` and `lesson_08_explorer`, the wrong answers that the checks know by name in `lesson_08_mistakes`,
`lesson_08_mistakes_verdict` and `lesson_08_mistakes_whole`.
"""

import math

from course_lib.classroom.exercise import Case
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_08_mistakes as wrong
from course_lib.lessons import lesson_08_mistakes_verdict as wrong_verdict
from course_lib.lessons import lesson_08_mistakes_whole as wrong_whole
from course_lib.lessons.lesson_08_explorer import batch_figure, ladder_explorer, render_ladder
from course_lib.lessons.lesson_08_measure import (
    WORKLOAD,
    climb,
    curve,
    frozen,
    measured_machine,
    measured_memory,
    memory_budgets,
    precision_here,
    profile_of,
    quickest,
)
from course_lib.lessons.lesson_08_plots import (
    curves_figure,
    gains_figure,
    memory_figure,
    memory_table,
    profile_figure,
    roofline_figure,
    speeds_figure,
    three_times_figure,
)
from course_lib.lessons.lesson_08_predict import predicted, seconds_of, work_of

LESSON = Lesson("lesson_08")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "WORKLOAD",
    "batch_figure",
    "check_faster_to",
    "check_gains",
    "check_packing_gain",
    "check_paired_gain",
    "check_real_speed",
    "check_whole_gain",
    "climb",
    "curve",
    "curves_figure",
    "frozen",
    "gains_figure",
    "hint",
    "ladder_explorer",
    "language",
    "measured_machine",
    "measured_memory",
    "memory_budgets",
    "memory_figure",
    "memory_table",
    "precision_here",
    "predicted",
    "profile_figure",
    "profile_of",
    "progress",
    "quickest",
    "render_ladder",
    "restore",
    "roofline_figure",
    "seconds_of",
    "solution",
    "speeds_figure",
    "three_times_figure",
    "work_of",
]


# --- 8.1 ---------------------------------------------------------------------------------------------------------


def real_speed(steps):
    """Real tokens a second over all steps, each (lengths of its documents, seconds)."""
    real = sum(sum(lengths) for lengths, _ in steps)
    return real / sum(seconds for _, seconds in steps)


check_real_speed = LESSON.exercise(
    "8.1",
    "real_speed",
    solution=real_speed,
    cases=[
        Case(([([4, 10], 2.0)],), label="one_step", expected=7.0),
        Case(([([4, 10], 2.0), ([6, 6, 6], 1.0)],), label="several", expected=32 / 3),
        Case(([([512, 30, 90, 8], 0.5), ([20, 44], 0.0625), ([300], 0.25)],), label="uneven"),
        Case(([([2], 0.125), ([5, 1, 1, 1], 0.5), ([7, 9], 0.25), ([3, 3], 0.125)],)),
    ],
    mistakes=wrong.REAL_SPEED,
)


# --- 8.2 ---------------------------------------------------------------------------------------------------------


def packing_gain(lengths):
    """(tokens, scores): how many times as many of each a padded batch computes as a packed row."""
    documents, longest = len(lengths), max(lengths)
    tokens = documents * longest / sum(lengths)
    scores = documents * longest**2 / sum(n * n for n in lengths)
    return tokens, scores


check_packing_gain = LESSON.exercise(
    "8.2",
    "packing_gain",
    solution=packing_gain,
    cases=[
        Case(([3, 3, 3],), label="equal", expected=(1.0, 1.0)),
        Case(([2, 4],), label="two", expected=(8 / 6, 32 / 20)),
        Case(([1, 10],), label="one_long", expected=(20 / 11, 200 / 101)),
        Case(([512, 64, 64, 128, 40, 300],), label="real"),
        Case(([7],), label="alone", expected=(1.0, 1.0)),
    ],
    mistakes=wrong.PACKING_GAIN,
)


# --- 8.3 ---------------------------------------------------------------------------------------------------------


def gains(ladder):
    """{rung: how many times as fast as the rung below}; ladder: {rung: tokens a second}, bottom first."""
    names, found = list(ladder), {}
    for i in range(1, len(names)):
        found[names[i]] = ladder[names[i]] / ladder[names[i - 1]]
    return found


check_gains = LESSON.exercise(
    "8.3",
    "gains",
    solution=gains,
    cases=[
        Case(
            ({"naive": 1000, "packing": 2000, "AMP": 3000},),
            label="three",
            expected={"packing": 2.0, "AMP": 1.5},
        ),
        Case(
            ({"naive": 800, "attention": 1000, "SwiGLU": 900, "AMP": 1125, "loss": 1280},),
            label="a_step_down",
        ),
        Case(({"naive": 640, "compile": 480},), label="slower", expected={"compile": 0.75}),
        Case(({"naive": 512},), label="alone", expected={}),
    ],
    mistakes=wrong.GAINS,
)


# --- 8.4 ---------------------------------------------------------------------------------------------------------


def paired_gain(before, after):
    """How many times as fast after is: the median of the rounds' ratios; both are seconds, round by round."""
    import statistics

    return statistics.median(slow / fast for slow, fast in zip(before, after, strict=True))


check_paired_gain = LESSON.exercise(
    "8.4",
    "paired_gain",
    solution=paired_gain,
    cases=[
        Case(([4.0, 4.0, 4.0], [2.0, 2.0, 2.0]), label="steady", expected=2.0),
        Case(([2.0, 4.0, 6.0], [1.0, 1.0, 6.0]), label="swinging", expected=2.0),
        Case(([3.0, 2.0, 8.0, 9.0], [1.0, 2.0, 4.0, 2.0]), label="even", expected=2.5),
        Case(([1.0, 2.0, 3.0], [2.0, 2.0, 12.0]), label="slower", expected=0.5),
        Case(([5.0, 1.5, 1.0, 1.25, 6.0], [1.0, 1.0, 2.0, 1.0, 1.5]), expected=1.5),
        Case(([2.0, 1.0, 6.0, 3.0, 6.0], [4.0, 2.0, 4.0, 4.0, 1.0]), expected=0.75),
    ],
    mistakes=wrong_verdict.PAIRED_GAIN,
)


# --- 8.5 ---------------------------------------------------------------------------------------------------------


def faster_to(first, second, target):
    """How many times as soon the second run has a loss of at most target; None if one of them never has.

    first, second: [(seconds since the start, loss), ...] in the order of time.
    """
    times = []
    for run in (first, second):
        reached = [seconds for seconds, loss in run if loss <= target]
        if not reached:
            return None
        times.append(reached[0])
    return times[0] / times[1]


_SLOW = [(2.0, 6.0), (4.0, 5.0), (6.0, 4.0), (8.0, 3.5)]
_QUICK = [(0.5, 6.5), (1.0, 6.0), (1.5, 5.25), (2.0, 4.75), (2.5, 4.25), (3.0, 3.75), (4.0, 3.25)]
_FLAT = [(0.25, 6.5), (0.5, 6.0), (0.75, 5.8), (1.0, 5.75)]
_BUMPY = [(1.0, 5.5), (2.0, 3.9), (3.0, 4.6), (4.0, 3.8), (5.0, 3.2), (6.0, 3.3)]

check_faster_to = LESSON.exercise(
    "8.5",
    "faster_to",
    solution=faster_to,
    cases=[
        Case((_SLOW, _QUICK, 4.0), label="reached", expected=2.0),
        Case((_SLOW, _QUICK, 5.0), expected=2.0),
        Case((_SLOW, _FLAT, 4.0), label="unreached", expected=None),
        Case((_SLOW, _BUMPY, 4.0), label="bumpy", expected=3.0),
        Case((_BUMPY, _SLOW, 4.0), label="slower", expected=1 / 3),
        Case((_FLAT, _SLOW, 3.75), expected=None),
        Case((_BUMPY, _QUICK, 3.25), expected=1.25),
    ],
    mistakes=wrong_verdict.EQUAL_LOSS,
)


# --- 8.6 ---------------------------------------------------------------------------------------------------------


def whole_gain(shares, gains):
    """How many times as fast the whole is; shares: {part: share of the time}, gains: {part: times as fast}.

    A part that is not in gains takes as long as before.
    """
    return 1 / sum(share / gains.get(part, 1) for part, share in shares.items())


check_whole_gain = LESSON.exercise(
    "8.6",
    "whole_gain",
    solution=whole_gain,
    cases=[
        Case(({"attention": 0.5, "rest": 0.5}, {"attention": 2.0}), label="half", expected=4 / 3),
        Case(
            # Shares whose float sum is exactly 1: a student may assert that.
            ({"attention": 0.5, "loss": 0.375, "optimiser": 0.125}, {"attention": 4.0, "loss": 3.0}),
            label="two_parts",
            expected=8 / 3,
        ),
        Case(({"attention": 0.75, "rest": 0.25}, {"attention": math.inf}), label="vanishes", expected=4.0),
        Case(
            ({"products": 0.8, "rest": 0.2}, {"products": 4.0, "rest": 0.5}), label="slower", expected=5 / 3
        ),
        Case(({"products": 0.7, "rest": 0.3}, {}), label="nothing", expected=1.0),
    ],
    mistakes=wrong_whole.AMDAHL,
)
