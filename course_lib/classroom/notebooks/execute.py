"""Execute a notebook in a fresh kernel of this very interpreter, and measure what it took.

A kernel that dies is noticed within two seconds (nbclient polls it once a second while a cell runs) and
reported with the notebook and the cell, instead of after the cell's time limit.
"""

import asyncio
import atexit
import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import nbformat
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets import default

from course_lib.classroom.notebooks import course, memory

CELL_TIMEOUT = 300

Progress = Callable[[int, int], None]
"""Called before each code cell with its position, from 1, and how many there are."""


@dataclass(frozen=True)
class Failure:
    """What stopped a notebook. `cell` counts code cells from 1, as `In [n]` does; None: before the first."""

    cell: int | None
    reason: str
    source: str = ""

    def __str__(self) -> str:
        where = "before its first cell" if self.cell is None else f"in code cell {self.cell}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True)
class Execution:
    """A notebook with the outputs of this run, its wall time in seconds and the peak bytes of its kernel."""

    notebook: NotebookNode
    seconds: float
    peak_bytes: int
    failure: Failure | None = None


class _ThisInterpreter(KernelSpecManager):
    """Answers every kernel name with this interpreter: what is installed elsewhere must not be what is
    tested."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


class _KernelManager(AsyncKernelManager):
    @default("kernel_spec_manager")
    def _this_interpreter(self) -> KernelSpecManager:
        return _ThisInterpreter(parent=self)


def read(path: Path) -> NotebookNode:
    """Read a notebook as format 4. Raises `course.NotANotebook` with a sentence for anything else."""
    try:
        # Not nbformat.reads: it gives random ids to cells without one, and nobody would know that they lack it.
        notebook = nbformat.v4.reads(path.read_text(encoding="utf-8"))
        if notebook.get("nbformat") != 4:
            raise ValueError(f"its format is {notebook.get('nbformat')}, expected 4")
        with_ids = deepcopy(notebook)
        for number, cell in enumerate(with_ids.cells if with_ids.nbformat_minor >= 5 else []):
            cell.setdefault("id", f"cell-{number}")
        nbformat.validate(with_ids)
    except FileNotFoundError:
        raise course.NotANotebook(f"{course.shown(path)} does not exist.") from None
    except Exception as error:  # nbformat has no base class for the many ways in which a file can be wrong
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise course.NotANotebook(
            f"{course.shown(path)} is not a notebook that can be read ({reason})."
        ) from None
    return notebook


def execute(
    notebook: NotebookNode,
    *,
    folder: Path,
    cell_timeout: int = CELL_TIMEOUT,
    language: str | None = "en",
    progress: Progress | None = None,
) -> Execution:
    """Execute a copy of `notebook` from its first cell to its last, or to the first that fails.

    folder: the kernel's working directory; cell_timeout: seconds a cell may take.
    A failing notebook is not an exception: the `Execution` says where it stopped and why.
    """
    notebook = deepcopy(notebook)
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()]
    running: list[int] = []
    peak = memory.Peak()

    def cell_starts(cell: NotebookNode, cell_index: int) -> None:
        if cell_index in code:
            running.append(cell_index)
            if progress is not None:
                progress(code.index(cell_index) + 1, len(code))

    client = NotebookClient(
        notebook,
        timeout=cell_timeout,
        startup_timeout=120,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        kernel_manager_class=_KernelManager,
        on_notebook_start=_leave_ctrl_c_alone,
        on_cell_start=cell_starts,
    )
    client.log.disabled = True  # it repeats at error level what the Failure says
    # Outputs of an earlier run must not survive in cells that this one does not reach.
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    started = time.perf_counter()
    reason: str | None = None
    process: subprocess.Popen[bytes] | None = None
    with course.kernel_environment(language) as environment, tempfile.TemporaryFile() as kernel_log:
        try:
            client.create_kernel_manager()
            client.start_new_kernel(cwd=str(folder), env=environment, stderr=kernel_log)
            process = _process_of(client)
            with memory.watch_tree(process.pid, peak):
                client.execute()
        except CellExecutionError as error:
            reason = f"{error.ename}: {error.evalue}".strip().rstrip(":")
        except CellTimeoutError:
            reason = f"it took longer than {cell_timeout} s, the limit for a cell."
        except DeadKernelError:
            reason = f"the kernel died{_how_it_ended(process)}."
        except RuntimeError as error:
            reason = f"the kernel did not start ({error}){_last_line(kernel_log)}."
        finally:
            if process is not None and process.poll() is None:  # Ctrl-C came between its start and its end
                process.kill()
                process.wait()
            atexit.unregister(client._cleanup_kernel)
    seconds = time.perf_counter() - started
    failure = None
    if reason is not None:
        number = code.index(running[-1]) + 1 if running else None
        failure = Failure(number, reason, notebook.cells[running[-1]].source if running else "")
    return Execution(notebook, seconds, peak.bytes, failure)


def _leave_ctrl_c_alone(notebook: NotebookNode) -> None:
    """Give Ctrl-C back to Python: nbclient's handler stops the kernel and goes on as if it had died."""
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


def _process_of(client: NotebookClient) -> "subprocess.Popen[bytes]":
    process = getattr(getattr(client.km, "provisioner", None), "process", None)
    if not isinstance(process, subprocess.Popen):
        raise RuntimeError("its process could not be found")
    return process


def _how_it_ended(process: "subprocess.Popen[bytes] | None") -> str:
    """What the exit status says, as the end of a sentence that began "the kernel died"."""
    status = process.poll() if process is not None else None
    if status is None:
        return ""
    if status >= 0:
        return f" (exit status {status})"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        memory_ran_out = ": this is what a machine without memory left does" if name == "SIGKILL" else ""
        return f" (by {name}{memory_ran_out})"
    return f" (by signal {-status})"


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
