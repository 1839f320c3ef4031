"""Call a student's function, and come back in time whatever it does.

`call_with_deadline(function, seconds)` runs the function in a worker thread under a trace function
(`sys.settrace`) that looks at the clock on every line and raises once the time is up. No signal is used, so
it works in notebooks, on Windows and off the main thread, and it nests. The caller's own trace function (a
debugger, coverage) belongs to the caller's thread and is not touched; one that was installed for new threads
is put back.

What a trace cannot interrupt is one long call into C (`time.sleep(60)`, a huge matmul): Python runs no line
meanwhile. The caller then stops waiting and reports the time-out all the same; the worker, a daemon, dies at
the first line after that call. Two things are beyond it. A C call that also holds the interpreter lock, such
as `sum(range(10**11))`, keeps everyone waiting, so checks keep their inputs small. And on Python 3.11 an
endless loop that calls nothing inside a bare `except:` inside another such loop is reported in time, but
keeps one core busy until the kernel stops.
"""

import contextvars
import ctypes
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

_GRACE_S = 0.3  # after the deadline the trace gets this long to end the call by itself
_KILL_S = 0.2  # then the worker is sent exceptions for this long, for `except:` around an endless loop
_MACHINERY = os.path.dirname(__file__)
_LIBRARY_FOLDERS = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class TimeIsUp(BaseException):
    """Raised inside the student's function. Not an `Exception`, so that `except Exception` does not swallow
    it."""


@dataclass(frozen=True)
class Outcome:
    """What a call did: returned `value`, raised `error`, or ran out of time (then `line` is where it was)."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    frame_line: tuple[str, int] | None = None


def is_library(filename: str) -> bool:
    """Whether a source file belongs to Python or an installed package rather than to a student."""
    return filename.startswith(_LIBRARY_FOLDERS) or filename.startswith("<frozen")


def _is_students(filename: str) -> bool:
    return not is_library(filename) and os.path.dirname(filename) != _MACHINERY


def call_with_deadline(function: Callable[[], Any], seconds: int | float) -> Outcome:
    """Run `function()` for at most `seconds` (a little more where one line is slow) and say what happened.

    Never raises what the function raises, `SystemExit` included. Thread-local state of the caller (torch's
    grad mode, autocast) does not reach the function, which starts with the defaults.
    """
    if seconds <= 0:
        raise ValueError(f"seconds: expected a positive number, got {seconds}.")
    results: list[Outcome] = []
    stopped_at: list[tuple[str, int] | None] = []
    context = contextvars.copy_context()
    until = time.monotonic() + seconds

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        library = is_library(frame.f_code.co_filename)
        # Inside a library a little later: there it may hit a destructor, which swallows it and complains.
        if time.monotonic() > (until + _GRACE_S / 2 if library else until):
            stopped_at.append(_students_line(frame))
            sys.setprofile(rearm)
            raise TimeIsUp
        return None if library else trace  # calls are seen everywhere, lines only in the student's own code

    def rearm(frame: FrameType, _event: str, _argument: Any) -> None:
        # Python drops a trace function that has raised. Where the student's `except:` swallowed TimeIsUp, the
        # next call of anything brings it back.
        if frame.f_code.co_filename != __file__:
            sys.settrace(trace)
            frame.f_trace = trace

    def work() -> None:
        previous, previous_profile = sys.gettrace(), sys.getprofile()
        try:
            try:
                sys.settrace(trace)
                value = context.run(function)
            finally:
                sys.setprofile(previous_profile)
                sys.settrace(previous)
            results.append(Outcome(value=value))
        except TimeIsUp:
            results.append(Outcome(timed_out=True))
        except BaseException as error:  # a student may also raise SystemExit
            results.append(Outcome(error=error))

    worker = threading.Thread(target=work, name="student-function", daemon=True)
    worker.start()
    worker.join(seconds + _GRACE_S)
    if not results:
        stopped_at.append(_students_line(sys._current_frames().get(worker.ident or 0)))
        if _runs_python(worker):
            # Python 3.11 shows a trace no line of `while True: pass`; one exception from outside ends it.
            _send_time_is_up(worker)
            worker.join(0.05)
            _end_by_force(worker, results)
    if results and not results[0].timed_out:  # on a busy machine it may have ended while we looked
        return results[0]
    return Outcome(timed_out=True, frame_line=next(filter(None, stopped_at), None))


def _students_line(frame: FrameType | None) -> tuple[str, int] | None:
    """File and line of the innermost of the student's frames, from `frame` outwards."""
    while frame is not None and not _is_students(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


def _runs_python(worker: threading.Thread) -> bool:
    """Whether the worker moves from instruction to instruction, rather than sitting in one C call.

    An exception sent to a thread in a C call stays pending, and Python 3.11 then hangs other traced threads.
    """
    seen = set()
    for _ in range(8):
        frame = sys._current_frames().get(worker.ident or 0)
        seen.add((id(frame), frame.f_lasti) if frame is not None else None)
        time.sleep(0.001)
    return len(seen) > 1


def _end_by_force(worker: threading.Thread, results: list[Outcome]) -> None:
    """End a loop that swallows every TimeIsUp and calls nothing.

    The exceptions come so fast that one falls outside the `try`, in the handler or between two rounds.
    """
    until, interval = time.monotonic() + _KILL_S, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        while worker.is_alive() and not results and time.monotonic() < until:
            _send_time_is_up(worker)
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)


def _send_time_is_up(worker: threading.Thread) -> None:
    ident = ctypes.c_ulong(worker.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeIsUp))
