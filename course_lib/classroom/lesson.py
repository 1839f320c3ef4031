"""One lesson's exercises, and what a student may ask of them: check, hint, solution, progress, restore.

A lesson module makes one `Lesson` and hands its methods to the notebook:

    LESSON = Lesson("lesson_01")
    hint, solution, progress, restore, language = LESSON.for_notebooks()
    check_causal_mask = LESSON.exercise("1.1", "causal_mask", solution=causal_mask, cases=[…], mistakes=[…])
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from course_lib.classroom.examine import Verdict, examine
from course_lib.classroom.exercise import Case, Exercise, Mistake
from course_lib.classroom.messages import CatalogueError, catalogue, say, set_language
from course_lib.classroom.progress import Progress, on_colab_without_drive

Check = Callable[[Any], None]


class NotebookNames(NamedTuple):
    """The functions of a lesson that do not depend on its exercises."""

    hint: Callable[[Any], None]
    solution: Callable[[Any], None]
    progress: Callable[[], None]
    restore: Callable[[Any], None]
    language: Callable[[str], None]


class Lesson:
    """The exercises of one lesson. `name` is the lesson module's and its message file's: "lesson_01"."""

    def __init__(self, name: str, *, progress: Progress | None = None) -> None:
        self.name = name
        self.exercises: dict[str, Exercise] = {}
        self.state = progress or Progress()
        self._hints_given: dict[str, int] = {}

    def exercise(
        self,
        id: str,
        name: str,
        *,
        solution: Callable[..., Any],
        cases: Sequence[Case],
        mistakes: Sequence[Mistake] = (),
    ) -> Check:
        """Add an exercise, and return its check for the notebook.

        id: "1.1". name: "causal_mask"; the student's stub is `my_causal_mask`, the messages are the tables
        below `[causal_mask]` in the lesson's message file: `title`, `start` (what to replace), `hint_1`,
        `hint_2` …, one for each case's label and each mistake's key.
        solution: the one right answer that exists, a function of the lesson module with the stub's
        parameters.
        cases: the calls to try, simplest first. mistakes: in the order in which they are to be thought of.
        Raises CatalogueError where a message is missing, ValueError for an id used twice or no cases.
        """
        return self._add(Exercise(id, name, f"{self.name}.{name}", solution, tuple(cases), tuple(mistakes)))

    def question(
        self, id: str, name: str, *, answer: Any, mistakes: Sequence[Mistake] = (), same: Any = None
    ) -> Check:
        """Add a question whose answer is a value: `lesson.check_bytes(4096)`. `...` and None are "not
        started".

        Mistakes are as for an exercise: `Mistake("bits", like=lambda: 8 * 4096)` recognises that value.
        """

        def solution() -> Any:
            return answer

        cases = (Case(same=same),)
        return self._add(Exercise(id, name, f"{self.name}.{name}", solution, cases, tuple(mistakes), True))

    def _add(self, exercise: Exercise) -> Check:
        if exercise.id in self.exercises or not re.fullmatch(r"\d+\.\d+", exercise.id):
            raise ValueError(
                f'id: expected a number like "1.2", not used before in {self.name}; got {exercise.id!r}.'
            )
        if not exercise.cases:
            raise ValueError(f"cases: exercise {exercise.id} has none.")
        for key in self.message_keys(exercise):
            if key not in catalogue():
                raise CatalogueError(f"exercise {exercise.id} needs the message {key!r} in {self.name}.toml.")
        self.exercises[exercise.id] = exercise

        def check(student_function: Any) -> None:
            self._check(exercise, student_function)

        check.__name__ = check.__qualname__ = f"check_{exercise.name}"
        check.__doc__ = f"Check your {exercise.stub} (exercise {exercise.id}) and print what was found."
        return check

    def message_keys(self, exercise: Exercise) -> list[str]:
        """Every message the exercise can say, hints included."""
        short = [
            "title",
            "start",
            *(c.label for c in exercise.cases if c.label),
            *(m.key for m in exercise.mistakes),
        ]
        return [exercise.key(name) for name in dict.fromkeys(short)] + self._hint_keys(exercise)

    def _hint_keys(self, exercise: Exercise) -> list[str]:
        keys: list[str] = []
        while exercise.key(f"hint_{len(keys) + 1}") in catalogue():
            keys.append(exercise.key(f"hint_{len(keys) + 1}"))
        return keys

    def examine(self, exercise_id: str, student_function: Any) -> Verdict:
        """The verdict on an answer, without printing or recording it (for tests)."""
        return examine(self.exercises[exercise_id], student_function)

    def _check(self, exercise: Exercise, student_function: Any) -> None:
        verdict = examine(exercise, student_function)
        print(verdict.text)
        if verdict.status != "not started":
            solved = verdict.status == "solved"
            source = _source(exercise, student_function) if solved else ""
            self.state.record_try(exercise.id, solved=solved, source=source)

    def say(self, key: str, /, **values: object) -> str:
        """The lesson's own message: `LESSON.say("corner.caption", row=1)` is `[corner.caption]` of its
        file."""
        return say(f"{self.name}.{key}", **values)

    def for_notebooks(self) -> NotebookNames:
        """`hint, solution, progress, restore, language`, in this order, to be bound in the lesson module."""
        return NotebookNames(self.hint, self.solution, self.progress, self.restore, self.language)

    def hint(self, exercise_id: Any) -> None:
        """Print the next hint of an exercise, numbered; after the last one, say that it was the last."""
        exercise = self._find(exercise_id)
        if exercise is None:
            return
        keys, given = self._hint_keys(exercise), self._hints_given.get(exercise.id, 0)
        if given < len(keys):
            self._hints_given[exercise.id] = given + 1
            print(
                say("common.hint", id=exercise.id, number=given + 1, count=len(keys), text=say(keys[given]))
            )
            self.state.record_hint(exercise.id, given + 1)
        elif keys:
            print(say("common.no_more_hints", id=exercise.id, count=len(keys)))
        else:
            print(say("common.no_hints", id=exercise.id))

    def solution(self, exercise_id: Any) -> None:
        """Print the source of the solution, named as the stub, ready to be pasted over it."""
        exercise = self._find(exercise_id)
        if exercise is not None and exercise.is_question:
            print(exercise.solution())
        elif exercise is not None:
            print(exercise.solution_source(), end="")

    def statuses(self) -> dict[str, str]:
        """Exercise id -> "not started", "tried" or "solved", in the lesson's order."""
        return {name: self.state.entry(name)["status"] for name in self.exercises}

    def progress(self) -> None:
        """Print, for each exercise of the lesson, whether it is not started, tried or solved."""
        statuses = self.statuses()
        solved = sum(status == "solved" for status in statuses.values())
        print(say("common.progress_title", solved=solved, total=len(statuses)))
        for name, exercise in self.exercises.items():
            status = say(f"common.status_{statuses[name].replace(' ', '_')}")
            print(f"  {name}  {status} · {say(exercise.key('title'))}")
        if on_colab_without_drive():
            print(say("common.state_on_colab"))

    def restore(self, exercise_id: Any) -> None:
        """Print the code of yours that was accepted for an exercise, for after a reset or in another
        notebook."""
        exercise = self._find(exercise_id)
        if exercise is None:
            return
        entry = self.state.entry(exercise.id)
        if not entry["source"]:
            print(say("common.restore_nothing", id=exercise.id))
            return
        print(say("common.restore_found", id=exercise.id, date=entry["date"]))
        print(entry["source"], end="" if entry["source"].endswith("\n") else "\n")

    def language(self, language: str) -> None:
        """Switch the messages to "en" or "bn"."""
        try:
            set_language(language)
        except ValueError:
            print(say("common.language_unknown", got=repr(language)))
        else:
            print(say("common.language_set"))

    def _find(self, exercise_id: Any) -> Exercise | None:
        known = ", ".join(self.exercises)
        if isinstance(exercise_id, float | int) and not isinstance(exercise_id, bool):
            print(say("common.id_needs_quotes", got=str(exercise_id), known=known))
            return None
        found = self.exercises.get(exercise_id.strip()) if isinstance(exercise_id, str) else None
        if found is None:
            print(say("common.unknown_exercise", got=repr(exercise_id), known=known))
        return found


def _source(exercise: Exercise, answer: Any) -> str:
    """What was accepted, under the stub's name, so that it can be pasted over the stub."""
    if exercise.is_question:
        return f"{exercise.stub} = {'torch.' if isinstance(answer, Tensor) else ''}{answer!r}\n"
    try:
        source = inspect.getsource(answer)
    except (OSError, TypeError):  # typed into a bare interpreter, or not a function
        return ""
    return re.sub(rf"\b{re.escape(answer.__name__)}\b", exercise.stub, source)
