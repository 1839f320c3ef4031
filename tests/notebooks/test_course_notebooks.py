"""The course's own notebooks keep every rule. What they compute is compared by `nbval`, and that
their solutions are accepted is seen by `solved`: both execute, these tests do not."""

import pytest

from course_lib.classroom.notebooks import course, solve
from course_lib.classroom.notebooks.check import problems
from course_lib.classroom.notebooks.execute import read

NOTEBOOKS = sorted(course.NOTEBOOKS.glob("*.ipynb"))
by_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def test_there_are_notebooks_numbered_without_a_gap():
    numbers = [course.lesson_number(path) for path in NOTEBOOKS]
    assert numbers and numbers == [f"{n:02d}" for n in range(len(numbers))]


@by_notebook
def test_a_lesson_keeps_every_rule(path):
    assert [str(problem) for problem in problems(read(path), path)] == []


@by_notebook
def test_a_lesson_and_its_module_name_the_same_exercises(path):
    notebook = read(path)
    solved = solve.solve(notebook)
    assert solved.kept == ()
    assert list(solved.filled) == list(solve.lesson_of(notebook).LESSON.exercises)
