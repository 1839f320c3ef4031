"""Try a student's function on one case: in time, on copies, with its printing caught and the random state
kept."""

import contextlib
import dis
import inspect
import io
import linecache
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.classroom.compare import agree
from course_lib.classroom.deadline import call_with_deadline
from course_lib.classroom.exercise import MISSING, Attempt, Case, Exercise, call_text, fresh

_IDLE_OPCODES = {"RESUME", "NOP", "CACHE", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "COPY_FREE_VARS"}
_PRINT_LIMIT = 4000  # characters kept of what a student prints during a check


def is_untouched(function: Any) -> bool:
    """Whether a function's body does nothing and returns nothing: a docstring, `...`, `pass`, `return None`.

    Read from the bytecode, so that it also holds where the source is not at hand.
    """
    if isinstance(function, type):
        methods = [member for member in vars(function).values() if callable(member)]
        return bool(methods) and all(is_untouched(method) for method in methods)
    code = getattr(function, "__code__", None)
    if code is None:
        return function is None or function is Ellipsis
    steps = list(dis.get_instructions(code))
    if any(step.opname not in _IDLE_OPCODES and step.opname != "LOAD_SMALL_INT" for step in steps):
        return False
    return all(
        step.argval in (None, Ellipsis) for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")
    )


def call_problem(function: Any, case: Case) -> str | None:
    """None when `function` can be called as the case will; otherwise the parameters it has ("q_len,
    k_len")."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in without a signature: let the call speak
        return None
    try:
        signature.bind(*case.make_args(), **case.kwargs)
    except TypeError:
        return ", ".join(str(parameter) for parameter in signature.parameters.values())
    return None


def attempt(exercise: Exercise, function: Callable[..., Any], case: Case, seconds: float) -> Attempt:
    """Call `function` on fresh arguments of `case`. Never raises what the function raises."""
    args, kwargs = case.make_args(), fresh(dict(case.kwargs))
    before = fresh(args)
    call = call_text(exercise.stub, before, case.kwargs)
    wanted = exercise.wanted(case)
    printed = _Capped()
    torch.manual_seed(0)

    def run() -> Any:
        result = function(*args, **kwargs)
        return result if case.observe is None else case.observe(result, args)

    with contextlib.redirect_stdout(printed):
        outcome = call_with_deadline(run, seconds)
    got, error, line = outcome.value, outcome.error, None
    if outcome.timed_out:
        got, line = MISSING, _with_text(outcome.frame_line)
    elif error is not None:
        got, line = MISSING, _line_of(error, function)
    modified = "" if case.observe or got is MISSING else _modified(function, before, args)
    return Attempt(
        case, call, before, wanted, got, error, line, outcome.timed_out, printed.getvalue(), modified
    )


def _modified(function: Callable[..., Any], before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """The name of the first argument that is no longer what it was; "" when all are."""
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        plain = isinstance(old, torch.Tensor | list | dict | tuple)
        if plain and not agree(new, old):
            try:
                return list(inspect.signature(function).parameters)[index]
            except (TypeError, ValueError, IndexError):
                return f"argument {index}"
    return ""


def _line_of(error: BaseException, function: Callable[..., Any]) -> tuple[int, str] | None:
    """The student's line that raised: the innermost of the function's own file.

    Of endless recursion it is the line that is there most often.
    """
    own = getattr(getattr(function, "__code__", None), "co_filename", None)
    places = [
        (entry.filename, entry.lineno)
        for entry in traceback.extract_tb(error.__traceback__)
        if entry.filename == own and entry.lineno is not None
    ]
    if not places:
        return None
    if isinstance(error, RecursionError):
        return _with_text(Counter(places).most_common(1)[0][0])
    return _with_text(places[-1])


def _with_text(place: tuple[str, int] | None) -> tuple[int, str] | None:
    if place is None:
        return None
    filename, number = place
    return number, linecache.getline(filename, number).strip()


class _Capped(io.StringIO):
    """Text kept up to a limit, so that an endless loop that prints does not fill the memory."""

    def write(self, text: str, /) -> int:
        room = _PRINT_LIMIT - self.tell()
        if room > 0:
            super().write(text[:room])
        return len(text)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the random states of torch, random and numpy, and torch's default dtype and grad mode, as they
    are."""
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    python_state, dtype = random.getstate(), torch.get_default_dtype()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices), torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)
