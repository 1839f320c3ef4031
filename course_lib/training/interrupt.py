"""Ctrl-C that lets the step be finished first, so that what was learned is whole and can be written."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """``made``: whether someone asked for the end of the run."""

    made = False


@contextmanager
def stop_request(*, tell: bool = True) -> Iterator[StopRequest]:
    """Within it, the first Ctrl-C (or SIGTERM, by which clusters announce their end) is noted; the second one stops.

    In another thread than the main one, signals are left as they are.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        if request.made:
            # Not by the handler from before: a shell lets what it runs in the background ignore Ctrl-C.
            raise KeyboardInterrupt
        request.made = True
        if tell:
            print("\nStopping after this step; once more stops at once.", file=sys.stderr, flush=True)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
