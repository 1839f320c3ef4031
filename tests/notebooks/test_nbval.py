"""The comparison of stored outputs: strict, never empty, and quick to notice a dead kernel."""

import json
import subprocess
import sys
import time

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns

from course_lib.classroom.notebooks import course, nbval_guard, nbval_run
from course_lib.classroom.notebooks.__main__ import main
from tests.notebooks.samples import bare_notebook, write


def stored(path, *cells, tags=()):
    """A notebook that claims to have printed: pairs of source and stdout."""
    notebook = bare_notebook(*(source for source, _ in cells))
    for count, (cell, (_, text)) in enumerate(zip(notebook.cells, cells, strict=True), start=1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
    for index, name in tags:
        notebook.cells[index].metadata["tags"] = [name]
    return write(notebook, path)


def run(command, *arguments, timeout=240):
    process = subprocess.run(
        [sys.executable, "-m", "course_lib.classroom.notebooks", command, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        cwd=course.REPOSITORY,
        env={**nbval_run.os.environ, "PYTHONUTF8": "1"},
    )
    return process.returncode, process.stdout + process.stderr


def test_every_cell_is_compared_and_a_dead_kernel_is_named_within_seconds(tmp_path):
    started = time.monotonic()
    good = stored(
        tmp_path / "01_good.ipynb",
        ("from tqdm.auto import tqdm\nfor _ in tqdm(range(2)): pass\nprint('নদী', 2)", "নদী 2\n"),
        ("import warnings, os\nwarnings.warn(f'pid {os.getpid()}')\nprint(3)", "3\n"),
        ("import time\nprint(time.time())", "1.5\n"),
        ("print(os.path.isdir(os.environ['COURSE_STATE_DIR']), os.environ['COURSE_LANGUAGE'])", "True en\n"),
        tags=[(2, "nbval-ignore-output")],
    )
    changed = stored(tmp_path / "02_changed.ipynb", ("print(1 + 1)", "3\n"), ("print(5)", "5\n"))
    dead = stored(
        tmp_path / "03_dead.ipynb", ("print(0)", "0\n"), ("import os\nos._exit(1)", ""), ("print(1)", "1\n")
    )
    status, output = run(
        "nbval", good, changed, dead, "--pytest=-v", f"--junitxml={tmp_path / 'results.xml'}"
    )
    assert status == 1
    assert "2 failed, 6 passed, 1 skipped" in output
    assert "Cell outputs differ" in output
    assert "the kernel died in Cell 1 of 03_dead.ipynb" in output
    assert time.monotonic() - started < nbval_run.CELL_TIMEOUT / 2
    assert (tmp_path / "results.xml").exists()


def test_the_probe_computes_as_a_slower_laptop_does_and_hides_what_it_is_told_to(tmp_path):
    names = list(nbval_run.PROBE)
    path = stored(
        tmp_path / "01_probe.ipynb",
        (
            f"import os, sys\nprint({{name: os.environ[name] for name in {names}}} == {nbval_run.PROBE})",
            "True\n",
        ),
        ("import torch\nprint(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())", "AVX2 1\n"),
        (
            "import importlib.util\nprint(importlib.util.find_spec('tqdm'), 'tqdm' in sys.modules)",
            "None True\n",
        ),
        ("try:\n    import tqdm\nexcept ImportError:\n    print('hidden')", "hidden\n"),
    )
    if "AVX2" not in _capability() and "AVX512" not in _capability():
        pytest.skip("this processor has no AVX2")
    status, output = run("probe", path, "--without", "tqdm")
    assert status == 0 and "4 passed" in output, output
    assert "ATEN_CPU_CAPABILITY=avx2" in output


def _capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize("command", ["nbval", "probe", "check", "refresh", "lessons", "solved"])
def test_no_notebooks_is_a_failure_with_a_sentence(command, tmp_path, capsys):
    assert main([command, str(tmp_path)]) == 2
    assert f"{command}: no notebooks in" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["nbval", "probe"])
def test_a_stripped_notebook_fails_before_nbval_would_pass_it(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(nbval_run.subprocess, "run", lambda *a, **k: pytest.fail("nbval was started"))
    path = write(bare_notebook("print(1)"), tmp_path / "01_a.ipynb")
    assert main([command, str(path)]) == 2
    assert (
        "01_a.ipynb would pass without being compared: cell 0 (print(1)): has not been executed"
        in capsys.readouterr().err
    )


def test_a_notebook_that_stores_nothing_fails_before_nbval(tmp_path, capsys):
    path = stored(tmp_path / "01_a.ipynb", ("x = 1", ""))
    assert main(["nbval", str(path)]) == 2
    assert "nothing in this notebook is compared" in capsys.readouterr().err


def test_a_broken_file_is_named_by_every_command(tmp_path, capsys):
    path = tmp_path / "01_a.ipynb"
    path.write_text(json.dumps([]), encoding="utf-8")
    for command in ("nbval", "check", "refresh"):
        assert main([command, str(path)]) == 2
        assert "01_a.ipynb is not a notebook that can be read" in capsys.readouterr().err


def test_the_sanitiser_file_is_read_as_it_is_meant():
    """One bad pair silently disables its rule, so what nbval reads is counted."""
    text = (nbval_run.SETTINGS / "sanitise.cfg").read_text(encoding="ascii")
    lines = text.splitlines()
    rules = [line for line in lines if line.startswith("regex:")]
    assert (
        len(get_sanitize_patterns(text)) == len(rules) == sum(line.startswith("replace:") for line in lines)
    )


@pytest.mark.parametrize(("silent", "starts"), [(0, 1), (2, 3), (3, 3)])
def test_a_kernel_that_does_not_answer_is_started_again(monkeypatch, silent, starts):
    """Two workers that look for a free port at the same moment may find the same one."""
    attempts = []

    def start(self, name):
        attempts.append(name)
        if len(attempts) <= silent:
            raise RuntimeError("Kernel didn't respond in 60 seconds")

    monkeypatch.setattr(nbval_guard.RunningKernel, "__init__", start)
    if silent < nbval_guard.STARTS:
        nbval_guard.WatchedKernel("python3")
    else:
        with pytest.raises(RuntimeError, match="didn't respond"):
            nbval_guard.WatchedKernel("python3")
    assert attempts == ["python3"] * starts
