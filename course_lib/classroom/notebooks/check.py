"""The rules that every notebook of the course keeps, held against its JSON; nothing is executed.

nbval compares what is stored with what a new run shows. It says nothing about a notebook that stores
nothing, a tag misspelt, a figure without words or a link that leads nowhere: these rules do.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode

from course_lib.classroom.notebooks import (
    course,
    rules_exercises,
    rules_outputs,
    rules_pictures,
    rules_source,
    rules_text,
)
from course_lib.classroom.notebooks.execute import read
from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem
from course_lib.text import graphemes

RULES = (
    *rules_outputs.RULES,
    *rules_source.RULES,
    *rules_text.RULES,
    *rules_pictures.RULES,
    *rules_exercises.RULES,
)


def problems(notebook: NotebookNode, path: Path) -> list[Problem]:
    """Every broken rule of a notebook that lies (or will lie) at `path`, in the order of its cells."""
    lesson = LessonFile(notebook, path)
    found = [_located(problem, lesson) for rule in RULES for problem in rule(lesson)]
    return sorted(found, key=lambda problem: -1 if problem.cell is None else problem.cell)


def proves_something(notebook: NotebookNode, path: Path) -> list[Problem]:
    """What makes a comparison by nbval empty: cells that have not run, outputs that were stripped."""
    lesson = LessonFile(notebook, path)
    rules = (
        rules_outputs.executed_in_order,
        rules_outputs.printed_is_stored,
        rules_outputs.something_is_compared,
    )
    return [_located(problem, lesson) for rule in rules for problem in rule(lesson)]


def _located(problem: Problem, lesson: LessonFile) -> Problem:
    """The problem with the first words of its cell: JupyterLab shows no numbers beside most cells."""
    if problem.cell is None or problem.cell >= len(lesson.cells):
        return problem
    line = next(iter(lesson.cells[problem.cell].source.strip().splitlines()), "")
    shown = graphemes(line)  # a Bangla letter is never cut in half
    return replace(problem, near=line if len(shown) <= 30 else f"{''.join(shown[:29])}…")


def main(names: Sequence[str]) -> int:
    """Print every problem of the notebooks named, or of all. 0 if there is none, 1 otherwise."""
    paths = course.select(names)
    total = 0
    for path in paths:
        found = problems(read(path), path)
        total += len(found)
        print(f"{course.shown(path)}: {f'{len(found)} to mend' if found else 'all rules kept'}")
        for problem in found:
            print(f"    {problem}")
    return 1 if total else 0
