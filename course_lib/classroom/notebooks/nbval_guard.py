"""A pytest plugin for runs of nbval: a dead kernel is reported in seconds, each notebook has a state of its
own.

nbval by itself waits out the time limit of a cell before it notices that the kernel is gone. Here the
process is looked at once a second. Loaded by `python -m course_lib.classroom.notebooks nbval`, or by hand
with `pytest -p course_lib.classroom.notebooks.nbval_guard --nbval …`.
"""

import os
import time
from contextlib import ExitStack
from queue import Empty
from typing import Any

import nbval.plugin
import pytest
from nbval.kernel import RunningKernel

from course_lib.classroom.notebooks import course
from course_lib.classroom.notebooks.normalise import is_progress_bar

POLL_SECONDS = 1.0
STARTS = 3


class KernelDied(Exception):
    """The kernel's process ended while a cell was running."""


class WatchedKernel(RunningKernel):
    """nbval's kernel, which notices that its process has ended; it runs with the course's environment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._cleanup = ExitStack()
        environment = self._cleanup.enter_context(course.kernel_environment())
        # nbval passes no environment on, so the kernel inherits this process's, which is put back at once.
        before = dict(os.environ)
        try:
            os.environ.clear()
            os.environ.update(environment)
            self._start(*args, **kwargs)
        except BaseException:
            self._cleanup.close()
            raise
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _start(self, *args: Any, **kwargs: Any) -> None:
        """Start, and start again where it does not answer: two workers may have picked the same free port."""
        for attempt in range(1, STARTS + 1):
            try:
                return super().__init__(*args, **kwargs)
            except RuntimeError:  # nbval has ended that kernel
                if attempt == STARTS:
                    raise

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return super().await_reply(
                    msg_id, timeout=max(0.0, min(POLL_SECONDS, deadline - time.monotonic()))
                )
            except Empty:
                self._must_be_alive()
                if time.monotonic() >= deadline:
                    raise

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        try:
            return super().get_message(stream, timeout=timeout)
        except Empty:
            self._must_be_alive()
            raise

    def _must_be_alive(self) -> None:
        if not self.is_alive():
            self.kc.stop_channels()
            self._cleanup.close()
            raise KernelDied from None

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._cleanup.close()


def pytest_configure(config: pytest.Config) -> None:
    nbval.plugin.RunningKernel = WatchedKernel
    compare = nbval.plugin.IPyNbCell.compare_outputs

    def compare_without_progress(
        cell: Any, test: list[Any], ref: list[Any], skip_compare: Any = None
    ) -> bool:
        return compare(cell, [output for output in test if not is_progress_bar(output)], ref, skip_compare)

    nbval.plugin.IPyNbCell.compare_outputs = compare_without_progress  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings go to stderr, and there they differ from machine to machine (process ids, progress bars).

    `refresh` stores none and `check` refuses any, so what appears there in a new run is not held against it.
    """
    for notebook in {id(item.parent): item.parent for item in items}.values():
        if isinstance(notebook, nbval.plugin.IPyNbFile):
            notebook.skip_compare += ("stderr",)  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    notebook = item.parent
    if not isinstance(notebook, nbval.plugin.IPyNbFile):
        return (yield)
    dead = getattr(notebook, "died_in", None)
    if dead is not None:
        pytest.skip(f"the kernel died in {dead}")
    try:
        return (yield)
    except KernelDied:
        notebook.died_in = item.name  # type: ignore[attr-defined]
        pytest.fail(
            f"the kernel died in {item.name} of {notebook.path.name} (cells counted from 0)", pytrace=False
        )
