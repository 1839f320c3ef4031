"""The machinery under the lessons: exercises and their checks, messages, progress, widgets, figures, the
doctor.

Names are loaded on first use, so that `python -m course_lib doctor` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.classroom.exercise import Attempt, Case, Mistake
    from course_lib.classroom.lesson import Lesson
    from course_lib.classroom.messages import say, set_language

_HOMES = {"Attempt": "exercise", "Case": "exercise", "Mistake": "exercise", "Lesson": "lesson"}
_HOMES |= {"say": "messages", "set_language": "messages"}

__all__ = ["Attempt", "Case", "Lesson", "Mistake", "say", "set_language"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
