"""Executing a notebook: in this interpreter, measured, and never waiting for a kernel that is gone."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from course_lib.classroom.notebooks import course
from course_lib.classroom.notebooks.execute import execute, read
from tests.notebooks.samples import bare_notebook, write


def test_it_runs_here_with_its_own_state_and_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("COURSE_LANGUAGE", "bn")
    notebook = bare_notebook(
        "import os, sys, course_lib\nprint(sys.executable)\nprint(os.getcwd())",
        "state = os.environ['COURSE_STATE_DIR']\nprint(os.path.isdir(state), state)",
        "print(os.environ['COURSE_LANGUAGE'], os.environ.get('MPLBACKEND'))",
        "block = bytearray(200_000_000)\ndel block",
        metadata={"kernelspec": {"name": "no-such-kernel", "display_name": "x"}},
    )
    seen = []
    run = execute(notebook, folder=tmp_path, progress=lambda cell, cells: seen.append((cell, cells)))
    assert run.failure is None
    # Lines, not words: a path may hold a space.
    first, second, third = (cell.outputs[0].text.splitlines() for cell in run.notebook.cells[:3])
    assert first == [sys.executable, str(tmp_path)]
    isdir, _, state = second[0].partition(" ")
    assert isdir == "True" and not course.Path(state).exists()
    assert third[0].split() == ["en", "module://matplotlib_inline.backend_inline"]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert 200_000_000 < run.peak_bytes < 2_000_000_000
    assert run.seconds > 0
    assert [cell.execution_count for cell in run.notebook.cells] == [1, 2, 3, 4]
    assert notebook.cells[0].outputs == [] and "execution" not in run.notebook.cells[0].metadata


def test_an_error_stops_it_and_names_the_cell(tmp_path):
    run = execute(bare_notebook("1", "", "1 / 0", "2"), folder=tmp_path)
    assert str(run.failure) == "in code cell 2: ZeroDivisionError: division by zero"
    assert run.failure is not None and run.failure.source == "1 / 0"
    assert run.notebook.cells[3].execution_count is None


def test_an_expected_error_does_not_stop_it(tmp_path):
    notebook = bare_notebook("1 / 0", "print('on')")
    notebook.cells[0].metadata["tags"] = ["raises-exception"]
    run = execute(notebook, folder=tmp_path)
    assert run.failure is None and run.notebook.cells[1].outputs[0].text == "on\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals end a process otherwise there")
@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os._exit(3)", "the kernel died (exit status 3)."),
        (
            "os.kill(os.getpid(), 9)",
            "the kernel died (by SIGKILL: this is what a machine without memory left does).",
        ),
    ],
)
def test_a_dead_kernel_is_reported_with_its_cell_long_before_the_timeout(end, words, tmp_path):
    started = time.monotonic()
    run = execute(bare_notebook("import os", end, "2"), folder=tmp_path, cell_timeout=300)
    assert str(run.failure) == f"in code cell 2: {words}"
    assert time.monotonic() - started < 60


def test_a_cell_over_its_time_is_reported_with_the_limit(tmp_path):
    run = execute(bare_notebook("while True: pass"), folder=tmp_path, cell_timeout=1)
    assert str(run.failure) == "in code cell 1: it took longer than 1 s, the limit for a cell."


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"nbformat": 3, "nbformat_minor": 0, "metadata": {}}', "১২"]
)
def test_a_file_that_is_no_notebook_is_named(text, tmp_path):
    path = tmp_path / "খাতা ১.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(course.NotANotebook, match=r"খাতা ১\.ipynb is not a notebook that can be read"):
        read(path)


def test_selecting_takes_files_folders_and_lesson_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(course, "NOTEBOOKS", tmp_path)
    first, second = (write(bare_notebook("1"), tmp_path / name) for name in ("01_a.ipynb", "02_b.ipynb"))
    assert course.select() == [first, second]
    assert course.select([second, first]) == [second, first]
    assert course.select([tmp_path, first]) == [first, second]
    assert course.select(["2"]) == course.select(["02"]) == [second]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.ipynb", "no.ipynb does not exist"),
        ("a.txt", "is no notebook: expected a file that ends in .ipynb"),
        ("7", "there is no lesson 7"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name, words, tmp_path, monkeypatch):
    monkeypatch.setattr(course, "NOTEBOOKS", tmp_path)
    with pytest.raises(course.NotANotebook, match=words):
        course.select([name])


def test_no_notebooks_at_all_is_a_failure(tmp_path):
    with pytest.raises(course.NothingToDo, match="an empty check proves nothing"):
        course.select([tmp_path])


@pytest.mark.parametrize(
    ("name", "seconds"), [("01_a", 60), ("03_a", 120), ("07_a", 120), ("08_a", 60), ("extra", 60)]
)
def test_lessons_that_train_may_take_twice_as_long(name, seconds):
    assert course.seconds_allowed(course.Path(f"{name}.ipynb")) == seconds


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_ctrl_c_ends_the_command_and_the_kernel_and_leaves_the_notebook(tmp_path):
    source = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    path = write(bare_notebook(source), tmp_path / "01_a.ipynb")
    before = path.read_bytes()
    command = [sys.executable, "-m", "course_lib.classroom.notebooks", "refresh", str(path)]
    with subprocess.Popen(
        command, cwd=course.REPOSITORY, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text(encoding="ascii"):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped by you" in errors
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text(encoding="ascii")))
    assert path.read_bytes() == before
