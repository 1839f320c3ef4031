"""Run nbval over the course: execute every notebook again and compare each stored output.

Strictly, and computing either as this machine does or as a slower laptop would: AVX2, one thread. An output on
which the two disagree was printed too finely. Neither passes over nothing: no notebooks, a notebook that
was not executed, one that stores nothing to compare, are failures before nbval starts.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.notebooks import check, course
from course_lib.classroom.notebooks.execute import read

SETTINGS = course.REPOSITORY / "tests" / "notebooks"
CELL_TIMEOUT = 180

PROBE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class NothingToCompare(ValueError):
    """The comparison would be empty, or cannot be made here; the message says why."""


def compare(
    names: Sequence[str],
    *,
    as_a_slower_laptop: bool = False,
    without: Sequence[str] = (),
    cell_timeout: float = CELL_TIMEOUT,
    pytest_arguments: Sequence[str] = (),
) -> int:
    """nbval, strict. Returns pytest's exit status; raises `NothingToCompare` before it starts.

    as_a_slower_laptop: with the instructions and the one thread of one. without: packages that the notebooks
    must not find, though they are installed: with and without xFormers they show the same lines.
    """
    with tempfile.TemporaryDirectory(prefix="course-nbval-") as folder:
        environment = dict(PROBE) if as_a_slower_laptop else {}
        if environment:
            print("Portability probe:", *(f"{name}={value}" for name, value in PROBE.items()), flush=True)
        if without:
            environment["PYTHONPATH"] = _hide(without, Path(folder))
            print("Hidden from the notebooks:", *without, flush=True)
        return _nbval(names, environment, cell_timeout, pytest_arguments)


def _hide(packages: Sequence[str], folder: Path) -> str:
    """A PYTHONPATH under which importing one of `packages` fails as if it were not installed."""
    lines = [f"import sys\nsys.modules[{name!r}] = None\n" for name in packages]
    (folder / "sitecustomize.py").write_text("".join(lines), encoding="utf-8")
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def _nbval(
    names: Sequence[str], environment: Mapping[str, str], cell_timeout: float, pytest_arguments: Sequence[str]
) -> int:
    paths = course.select(names)
    _must_prove_something(paths)
    if not (SETTINGS / "nbval.ini").exists():
        raise NothingToCompare(
            "tests/notebooks/nbval.ini is missing: the comparison runs from a checkout of the repository."
        )
    workers = min(len(paths), os.cpu_count() or 1)
    command = [
        *(sys.executable, "-m", "pytest"),
        *("-c", str(SETTINGS / "nbval.ini"), "--rootdir", str(_root_of(paths)), "-p", "no:cacheprovider"),
        *("-p", "course_lib.classroom.notebooks.nbval_guard"),
        *("--nbval", "--nbval-current-env", f"--nbval-cell-timeout={cell_timeout:g}"),
        f"--nbval-sanitize-with={SETTINGS / 'sanitise.cfg'}",
        # A notebook's cells share a kernel, so one worker takes the whole file.
        *(("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()),
        *pytest_arguments,
        *map(str, paths),
    ]
    # Each worker has a kernel that would otherwise take every core.
    threads = {} if workers == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(command, env={**inherited, **threads, **environment}, check=False).returncode


def _root_of(paths: Sequence[Path]) -> Path:
    """A folder that holds every notebook.

    Outside pytest's root the cells of two notebooks have the same names, and xdist runs only one of them.
    """
    if all(path.is_relative_to(course.REPOSITORY) for path in paths):
        return course.REPOSITORY
    return Path(os.path.commonpath([path.parent for path in paths]))


def _must_prove_something(paths: Sequence[Path]) -> None:
    for path in paths:
        found = check.proves_something(read(path), path)
        if found:
            raise NothingToCompare(
                f"{course.shown(path)} would pass without being compared: {found[0]}"
                + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")
            )
