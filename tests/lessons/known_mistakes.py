"""The wrong answers that an exercise's checks hold themselves."""

from collections.abc import Callable
from typing import Any

from course_lib.classroom.lesson import Lesson


def known_mistakes(lesson: Lesson, exercise_id: str) -> dict[str, list[Callable[..., Any]]]:
    """Message key -> the functions that a check compares with. Each must get its own message, not that of another
    which happens to give the same on the first case."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for mistake in lesson.exercises[exercise_id].mistakes:
        found.setdefault(mistake.key, []).extend(() if mistake.like is None else [mistake.like])
    return found
