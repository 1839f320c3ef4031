"""What every exercise owes its students, as assertions for the tests of a lesson.

def test_exercise_1_1_knows_its_wrong_answers():
    assert_exercise(lesson_01.LESSON, "1.1", wrong={"top_left": [mask_top_left]}, right=[mask_by_loop, …])
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lib.classroom.lesson import Lesson
from course_lib.classroom.messages import LANGUAGES, current_language, set_language


def assert_exercise(
    lesson: Lesson,
    exercise_id: str,
    *,
    wrong: Mapping[str, Sequence[Callable[..., Any]]],
    right: Sequence[Callable[..., Any]],
    minimum_wrong: int = 5,
    minimum_right: int = 3,
) -> None:
    """Assert that each wrong answer is refused with the message it stands under, and each right one accepted.

    wrong: short message key ("top_left") -> wrong answers for it; "common.wrong_shape" names one of the
    common sentences. right: at least three ways to write it. Also asserted: the solution's printed source
    runs by itself given torch and math, and passes; every mistake has at least one wrong answer; every
    sentence can be said in both languages, in under two seconds.
    """
    exercise = lesson.exercises[exercise_id]
    assert len(right) >= minimum_right, f"{exercise_id}: give at least {minimum_right} right answers."
    assert sum(map(len, wrong.values())) >= minimum_wrong, (
        f"{exercise_id}: give at least {minimum_wrong} wrong answers."
    )
    missing = {mistake.key for mistake in exercise.mistakes} - set(wrong)
    assert not missing, f"{exercise_id}: no wrong answer is tried for {sorted(missing)}."
    spoken = current_language()
    try:
        for language in LANGUAGES:
            set_language(language)
            for key, functions in wrong.items():
                full = key if key.startswith("common.") else exercise.key(key)
                for function in functions:
                    _assert_verdict(lesson, exercise_id, function, "not yet", full)
            for function in [*right, exercise.solution() if exercise.is_question else exercise.solution]:
                _assert_verdict(lesson, exercise_id, function, "solved", "common.solved")
    finally:
        set_language(spoken)
    if not exercise.is_question:
        _assert_verdict(
            lesson, exercise_id, run_solution_source(lesson, exercise_id), "solved", "common.solved"
        )


def run_solution_source(lesson: Lesson, exercise_id: str) -> Callable[..., Any]:
    """The function that a student gets by pasting the printed solution into a notebook that imports torch and
    math."""
    import math

    import torch

    exercise = lesson.exercises[exercise_id]
    names: dict[str, Any] = {"torch": torch, "math": math, "Tensor": torch.Tensor}
    exec(compile(exercise.solution_source(), f"<solution {exercise_id}>", "exec"), names)
    return names[exercise.stub]


def _assert_verdict(lesson: Lesson, exercise_id: str, function: Any, status: str, key: str) -> None:
    name = getattr(function, "__name__", repr(function))
    started = time.monotonic()
    verdict = lesson.examine(exercise_id, function)
    took_s = time.monotonic() - started
    assert verdict.status == status, f"{exercise_id}, {name}: expected {status!r}, got: {verdict.text}"
    if status == "not yet":
        assert verdict.key == key, (
            f"{exercise_id}, {name}: expected the message {key}, got {verdict.key}: {verdict.text}"
        )
    assert took_s < 2.5, f"{exercise_id}, {name}: the check took {took_s:.1f} s."
