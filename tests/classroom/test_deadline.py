"""The deadline ends what can be ended, reports the rest, and leaves the process as it was."""

import sys
import threading
import time

import pytest

from course_lib.classroom.deadline import call_with_deadline

# A busy machine is slow, but not this slow: what is meant to end in time gets so long, what must not, never ends.
SECONDS_OF_ANYTHING_LONG = 60


def forever():
    while True:
        pass


def swallows():
    while True:
        try:
            time.sleep(0.001)
        except:  # noqa: E722  (this is what a student writes)
            continue


def swallows_exceptions_only():
    while True:
        try:
            forever()
        except Exception:
            continue


def sleeps_in_naps():
    while True:
        time.sleep(0.01)


def sleeps_long():
    time.sleep(SECONDS_OF_ANYTHING_LONG)


def counts_in_a_generator():
    return sum(1 for _ in iter(int, 1))


@pytest.mark.parametrize(
    "function",
    [forever, swallows, swallows_exceptions_only, sleeps_in_naps, sleeps_long, counts_in_a_generator],
)
def test_an_endless_function_is_reported_soon_after_its_deadline(function):
    started = time.monotonic()
    outcome = call_with_deadline(function, 0.2)
    assert outcome.timed_out and outcome.error is None
    assert time.monotonic() - started < SECONDS_OF_ANYTHING_LONG / 2
    filename, line = outcome.frame_line
    assert filename == __file__ and line > 0


@pytest.mark.parametrize("function", [forever, swallows, swallows_exceptions_only, sleeps_in_naps])
def test_an_ended_loop_leaves_no_thread_behind(function):
    call_with_deadline(function, 0.1)
    for _ in range(100):
        if not any(
            thread.name == "student-function"
            for thread in threading.enumerate()
            if _is_ours(thread, function)
        ):
            return
        time.sleep(0.02)
    pytest.fail(f"{function.__name__} still runs")


def _is_ours(thread, function):
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if frame.f_code is function.__code__:
            return True
        frame = frame.f_back
    return False


def test_the_next_call_is_not_harmed_by_one_that_sleeps_on():
    assert call_with_deadline(sleeps_long, 0.1).timed_out
    assert call_with_deadline(lambda: sum(i for i in range(1000)), SECONDS_OF_ANYTHING_LONG).value == 499500


def test_the_value_or_the_exception_comes_back():
    assert call_with_deadline(lambda: 42, SECONDS_OF_ANYTHING_LONG).value == 42
    assert isinstance(call_with_deadline(lambda: 1 / 0, SECONDS_OF_ANYTHING_LONG).error, ZeroDivisionError)
    assert isinstance(call_with_deadline(sys.exit, SECONDS_OF_ANYTHING_LONG).error, SystemExit)


def test_endless_recursion_comes_back_as_recursion_error():
    def deeper():
        return deeper()

    assert isinstance(call_with_deadline(deeper, SECONDS_OF_ANYTHING_LONG).error, RecursionError)


def test_it_works_off_the_main_thread():
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(call_with_deadline(forever, 0.1)))
    thread.start()
    thread.join(SECONDS_OF_ANYTHING_LONG)
    assert outcomes[0].timed_out


def test_two_at_once_do_not_mix():
    outcomes = {}
    threads = [
        threading.Thread(
            target=lambda n=n: outcomes.update(
                {n: call_with_deadline(lambda: _count(n), SECONDS_OF_ANYTHING_LONG).value}
            )
        )
        for n in (1000, 2000, 3000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {n: n for n in (1000, 2000, 3000)}


def _count(n):
    total = 0
    for _ in range(n):
        total += 1
    return total


def test_calls_nest_and_the_inner_deadline_ends_only_the_inner_call():
    def outer():
        inner = call_with_deadline(forever, 0.1)
        return inner.timed_out, "outer went on"

    assert call_with_deadline(outer, SECONDS_OF_ANYTHING_LONG).value == (True, "outer went on")


def test_the_callers_trace_function_stays_and_that_of_new_threads_is_put_back():
    seen = []

    def trace(frame, event, argument):
        return None

    def for_threads(frame, event, argument):
        seen.append(frame.f_code.co_name)
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    threading.settrace(for_threads)
    try:
        call_with_deadline(lambda: 1, SECONDS_OF_ANYTHING_LONG)
        call_with_deadline(forever, 0.1)
        assert sys.gettrace() is trace
        assert "forever" not in seen
    finally:
        sys.settrace(before)
        threading.settrace(None)  # pytest-cov sets its own again for each process


def test_a_deadline_must_be_positive():
    with pytest.raises(ValueError, match="seconds: expected a positive number, got 0"):
        call_with_deadline(forever, 0)
