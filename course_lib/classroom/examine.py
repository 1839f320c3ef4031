"""The check itself: try a function on every case, and put the result in one verdict.

The order is fixed, so that the first thing to mend is the one named: not started, cannot be called so, then
the first case that went wrong (a mistake known by name, else time, crash, nothing returned, type, shape,
dtype, value), then inputs that were modified.
"""

import inspect
import time
from dataclasses import dataclass
from typing import Any

from course_lib.classroom.attempt import attempt, call_problem, is_untouched, undisturbed
from course_lib.classroom.compare import Difference, difference, show
from course_lib.classroom.exercise import Attempt, Exercise, Mistake
from course_lib.classroom.messages import say

Values = dict[str, object]

CHECK_SECONDS = 1.3  # for all cases of one check; with what a stuck worker costs, under two seconds


@dataclass(frozen=True)
class Verdict:
    """What a check found. status: "not started", "not yet" or "solved".

    key: the message key of the diagnosis (tests compare it); text: the whole of what is printed.
    """

    status: str
    key: str
    text: str


def examine(exercise: Exercise, function: Any) -> Verdict:
    """Check a student's function (or, for a question, their answer). Prints nothing, records nothing."""
    if exercise.is_question:
        if function is None or function is Ellipsis:
            return _not_started(exercise)
        answer = function

        def function() -> Any:
            return answer

    elif is_untouched(function):
        return _not_started(exercise)
    elif not callable(function):
        return _not_yet(exercise, "common.not_a_function", {"stub": exercise.stub, "got": show(function)})
    parameters = call_problem(function, exercise.cases[0])
    if parameters is not None:
        call = _bare_call(exercise)
        return _not_yet(exercise, "common.wrong_parameters", {"call": call, "parameters": parameters})
    with undisturbed():
        attempts = _try_all(exercise, function)
        wrong = next((tried for tried in attempts if not tried.right), None)
        if wrong is None:
            spoilt = next((tried for tried in attempts if tried.modified), None)
            if spoilt is None:
                return _solved(exercise, attempts)
            spoilt_values: Values = {"call": spoilt.call, "name": spoilt.modified}
            return _not_yet(exercise, "common.modified_input", spoilt_values, spoilt)
        if wrong.got is Ellipsis or isinstance(wrong.error, NotImplementedError):
            return _not_started(exercise)
        key, values = _diagnosis(exercise, attempts, wrong)
    return _not_yet(exercise, key, values, wrong)


def _try_all(exercise: Exercise, function: Any) -> list[Attempt]:
    attempts: list[Attempt] = []
    until = time.monotonic() + CHECK_SECONDS
    for case in exercise.cases:
        tried = attempt(exercise, function, case, max(until - time.monotonic(), 0.05))
        attempts.append(tried)
        if tried.timed_out:
            break
    return attempts


def _diagnosis(exercise: Exercise, attempts: list[Attempt], wrong: Attempt) -> tuple[str, Values]:
    """The key and values of the one sentence that names what is wrong."""
    found = _difference(wrong)
    values: Values = {
        "call": wrong.call,
        "got": show(wrong.got),
        "wanted": show(wrong.wanted),
        "place": "result",
    }
    values |= {name: value for name, value in found.values.items() if name in values}
    mistake, certain = _known_mistake(exercise, attempts, wrong)
    if not certain:
        # Square cases hide swapped axes, as another mistake or as wrong values; a later case shows them.
        swapped = next((tried for tried in attempts if _difference(tried).key == "common.axes_swapped"), None)
        if swapped is not None:
            return "common.axes_swapped", {"call": swapped.call, **_difference(swapped).values}
    if mistake is not None:
        return exercise.key(mistake.key), values | dict(mistake.values(wrong) if mistake.values else {})
    if exercise.is_question:
        return "common.answer_wrong", {"id": exercise.id, "got": show(wrong.got)}
    if wrong.timed_out:
        return "common.timed_out", {"call": wrong.call, "line": _line(wrong)}
    if wrong.error is not None:
        return _crash(wrong)
    if wrong.got is None and wrong.printed.strip():
        return "common.printed_instead", {"call": wrong.call}
    if wrong.case.same is not None and found.key in ("common.wrong_value", "common.wrong_answer"):
        return (
            "common.not_the_same",
            values,
        )  # another value may be right too, so no cell of this one is "wrong"
    return found.key, {"call": wrong.call, **found.values}


def _known_mistake(
    exercise: Exercise, attempts: list[Attempt], wrong: Attempt
) -> tuple[Mistake | None, bool]:
    """The first mistake that fits, and whether it is certain: more than a match with the first wrong case.

    One that is not gives way to one that explains every case.
    """
    first = next((mistake for mistake in exercise.mistakes if mistake.made_in(attempts, wrong)), None)
    if first is None or first.when is not None or first.everywhere:
        return first, first is not None
    better = next((mistake for mistake in exercise.mistakes if mistake.explains(attempts)), None)
    return better or first, better is not None


def _difference(wrong: Attempt) -> Difference:
    """What separates a result from the one wanted; also for results that torch itself cannot compare."""
    if not wrong.returned:
        return Difference("common.returned_nothing", {})
    try:
        found = difference(wrong.got, wrong.wanted, wrong.case.tolerance)
    except Exception as error:  # a tensor on the meta device, an object whose == raises
        return Difference("common.not_comparable", {"error": _first_line(error)})
    return found or Difference("common.not_the_same", {"got": show(wrong.got), "wanted": show(wrong.wanted)})


def _crash(wrong: Attempt) -> tuple[str, Values]:
    error = wrong.error
    if isinstance(error, RecursionError):
        return "common.endless_recursion", {"call": wrong.call, "line": _line(wrong)}
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "common.left", {"call": wrong.call, "error": type(error).__name__, "line": _line(wrong)}
    return "common.crashed", {"call": wrong.call, "error": _first_line(error), "line": _line(wrong)}


def _first_line(error: BaseException | None) -> str:
    """The exception's type and the first line of its message."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _line(wrong: Attempt) -> str:
    if wrong.error_line is None:
        return say("common.line_unknown")
    number, text = wrong.error_line
    return say("common.line", number=number, text=text) if text else say("common.line_number", number=number)


def _bare_call(exercise: Exercise) -> str:
    names = [str(name) for name in inspect.signature(exercise.solution).parameters]
    return f"{exercise.stub}({', '.join(names)})"


def _not_started(exercise: Exercise) -> Verdict:
    text = say("common.not_started", id=exercise.id, start=say(exercise.key("start")))
    return Verdict("not started", "common.not_started", text)


def _not_yet(exercise: Exercise, key: str, values: Values, tried: Attempt | None = None) -> Verdict:
    text = say("common.not_yet", id=exercise.id, diagnosis=say(key, **values))
    return Verdict("not yet", key, text + _printed(tried))


def _solved(exercise: Exercise, attempts: list[Attempt]) -> Verdict:
    labels = [say(exercise.key(case.label)) for case in exercise.cases if case.label]
    if labels:
        text = say("common.solved_with", id=exercise.id, passed=", ".join(dict.fromkeys(labels)))
    else:
        text = say("common.solved", id=exercise.id)
    return Verdict("solved", "common.solved", text + _printed(attempts[0]))


def _printed(tried: Attempt | None) -> str:
    """What the student's function printed, below the verdict."""
    if tried is None or not tried.printed.strip():
        return ""
    lines = tried.printed.rstrip().splitlines()
    shown = [f"    {line}" for line in lines[:10]] + (["    …"] if len(lines) > 10 else [])
    return "\n" + "\n".join([say("common.it_printed", call=tried.call), *shown])
