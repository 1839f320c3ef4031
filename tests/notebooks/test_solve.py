"""`solve`: each stub replaced by the one solution there is, and the result runs and is accepted."""

import sys
from importlib import import_module

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.classroom.notebooks import solve
from course_lib.classroom.notebooks.exercise_cell import NotAnExerciseCell, find_stub
from tests.notebooks.samples import write

LESSON = '''
import functools as ft
import math
from decimal import Decimal

from course_lib.classroom.exercise import Case, Exercise

SCALE = 2


class State:
    solved: set[str] = set()

    def entry(self, name):
        return {"status": "solved" if name in self.solved else "not started"}


class LESSON:
    exercises = {}
    state = State()


def add(id, name, solution, is_question=False):
    LESSON.exercises[id] = Exercise(id, name, "x", solution, (Case(),), (), is_question)

    def check(answer):
        right = answer == solution() if is_question else callable(answer) and answer(3.0) == solution(3.0)
        if right:
            State.solved.add(id)
        print(id, right)

    return check


def root(x: float) -> Decimal:
    """নদীর: the solution's own docstring."""
    return Decimal(math.sqrt(x)) * SCALE if x else root(1.0)  # calls itself by name


def plain(x):
    return ft.partial(round, x)()


check_root = add("9.1", "root", root)
check_plain = add("9.2", "plain", plain)
check_bytes = add("9.3", "bytes", lambda: 4096, is_question=True)
check_pair = add("9.4", "pair", lambda: [1, "দুই"], is_question=True)
'''

ROOT = '''def my_root(x):
    """নদীর মূল।"""
    ...   # your code

lesson.check_root(my_root)'''

PLAIN = (
    'import_me = 1\n\ndef my_plain(x):\n    """Round."""\n    ...\n\n\nlesson.check_plain(my_plain)  # keep'
)


@pytest.fixture
def course_of_one(tmp_path, monkeypatch):
    """A notebook of an invented lesson 99, importable here and in kernels."""
    (tmp_path / "lesson_99.py").write_text(LESSON, encoding="utf-8")
    package = import_module("course_lib.lessons")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "course_lib.lessons.lesson_99", raising=False)
    monkeypatch.delattr(package, "lesson_99", raising=False)

    def exercise(name, source):
        return new_code_cell(source, metadata={"tags": ["exercise"], "exercise": name})

    cells = [
        new_markdown_cell("# 99"),
        new_code_cell(
            f"import math\nimport course_lib.lessons\ncourse_lib.lessons.__path__.append({str(tmp_path)!r})"
        ),
        new_code_cell("from course_lib.lessons import lesson_99 as lesson"),
        exercise("9.1", ROOT),
        exercise("9.2", PLAIN.partition("\n\n")[2]),
        exercise("9.3", "lesson.check_bytes(...)"),
        exercise("9.4", "my_pair = ...   # a list\nlesson.check_pair(my_pair)"),
    ]
    return write(new_notebook(cells=cells), tmp_path / "99_invented.ipynb")


def sources(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_the_solved_notebook_holds_the_solutions_under_the_stubs_names(course_of_one, tmp_path, capsys):
    out = tmp_path / "solved" / "99.ipynb"
    assert solve.main([str(course_of_one), "-o", str(out)]) == 0
    solved = sources(out)
    assert solved[3] == (
        "from decimal import Decimal\n"
        "from course_lib.lessons.lesson_99 import SCALE\n\n\n"
        "def my_root(x: float) -> Decimal:\n"
        '    """নদীর: the solution\'s own docstring."""\n'
        "    return Decimal(math.sqrt(x)) * SCALE if x else my_root(1.0)  # calls itself by name\n\n"
        "lesson.check_root(my_root)"
    )
    assert solved[4].startswith(
        "import functools as ft\n\n\ndef my_plain(x):\n    return ft.partial(round, x)()\n"
    )
    assert solved[4].endswith("lesson.check_plain(my_plain)  # keep")
    assert solved[5] == "lesson.check_bytes(4096)"
    assert solved[6] == "my_pair = [1, 'দুই']\nlesson.check_pair(my_pair)"
    assert "filled in 9.1, 9.2, 9.3, 9.4." in capsys.readouterr().out


def test_the_solved_notebook_runs_and_every_check_accepts(course_of_one, capsys):
    assert solve.check_solved([str(course_of_one)]) == 0
    assert "solved, and every check accepts" in capsys.readouterr().out


def test_an_exercise_that_the_notebook_leaves_out_is_missed(course_of_one, capsys):
    notebook = nbformat.read(course_of_one, as_version=4)
    del notebook.cells[4]
    write(notebook, course_of_one)
    assert solve.check_solved([str(course_of_one)]) == 1
    assert "not accepted with its own solution: exercise 9.2" in capsys.readouterr().out


def test_what_a_student_has_written_is_kept(course_of_one, tmp_path, capsys):
    notebook = nbformat.read(course_of_one, as_version=4)
    mine = notebook.cells[3].source.replace("...   # your code", "return x")
    notebook.cells[3].source = mine
    write(notebook, course_of_one)
    assert solve.main([str(course_of_one), "-o", str(tmp_path / "out.ipynb")]) == 0
    assert sources(tmp_path / "out.ipynb")[3] == mine
    assert "kept as it is: 9.1" in capsys.readouterr().out


def test_the_notebook_itself_is_never_overwritten(course_of_one, capsys):
    before = course_of_one.read_bytes()
    assert solve.main([str(course_of_one), "-o", str(course_of_one)]) == 2
    assert course_of_one.read_bytes() == before
    assert "its stubs would be lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda n: n.cells[3].metadata.update(exercise="9.9"),
            "exercise 9.9 is not one of course_lib.lessons.lesson_99: 9.1",
        ),
        (lambda n: n.cells[3].metadata.update(exercise="9.2"), "exercise 9.2 is my_plain in"),
        (
            lambda n: n.cells[3].update(source="my_root = ...\nlesson.check_root(my_root)"),
            "asks for a value in the notebook",
        ),
        (lambda n: n.cells.pop(2), "no cell has `from course_lib.lessons import lesson_NN as lesson`"),
        (lambda n: [cell.metadata.pop("exercise", None) for cell in n.cells], "no exercise cells"),
    ],
)
def test_a_notebook_that_does_not_fit_its_lesson_is_refused_with_a_sentence(
    change, words, course_of_one, tmp_path, capsys
):
    notebook = nbformat.read(course_of_one, as_version=4)
    change(notebook)
    write(notebook, course_of_one)
    assert solve.main([str(course_of_one), "-o", str(tmp_path / "out.ipynb")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize(
    ("source", "name", "asks", "text"),
    [
        (ROOT, "my_root", "function", ROOT.partition("\n\n")[0]),
        (
            "my_bytes = ...  # how many?\nlesson.check_bytes(my_bytes)",
            "my_bytes",
            "value",
            "my_bytes = ...  # how many?",
        ),
        ("lesson.check_bytes(...)", "my_bytes", "argument", "..."),
        ("পাঠ.check_bytes( ... )", "my_bytes", "argument", "..."),
        ("'নদী'; lesson.check_bytes(...)", None, None, None),
    ],
)
def test_a_stub_is_found_by_position(source, name, asks, text):
    if name is None:
        with pytest.raises(NotAnExerciseCell, match=r"must be `def my_name"):
            find_stub(source)
        return
    stub = find_stub(source)
    assert (stub.name, stub.asks, source[stub.start : stub.end]) == (name, asks, text)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "it is empty"),
        ("def f(:", "not plain Python"),
        (PLAIN, "expected one stub and its check, got 2 statements"),
        (ROOT.replace("...", "pass"), "the docstring and `...`"),
        (ROOT.replace("...", "x = 1\n    ..."), "the docstring and `...`"),
        (ROOT.replace("check_root(my_root)", "check_root(my_other)"), "must be given my_root"),
        (ROOT.replace("check_root(my_root)", "check_root()"), "its last line must be"),
        ("my_bytes = 3\nlesson.check_bytes(my_bytes)", "must be `...`"),
    ],
)
def test_a_cell_of_another_form_is_told_where_it_departs(source, words):
    with pytest.raises(NotAnExerciseCell) as error:
        find_stub(source)
    assert words in str(error.value)
