"""`python -m course_lib solve NOTEBOOK -o OUT`: the notebook with its exercises filled in.

A solution is written once, as a tested function of the lesson's module. Here its source takes the stub's
place, so the solved notebook cannot differ from what the lesson's hints and checks mean.
"""

import argparse
import ast
import builtins
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.atomic import write_atomically
from course_lib.classroom.notebooks import course
from course_lib.classroom.notebooks.execute import CELL_TIMEOUT, Execution, execute, read
from course_lib.classroom.notebooks.exercise_cell import NotAnExerciseCell, find_stub
from course_lib.classroom.notebooks.normalise import to_text


class CannotSolve(ValueError):
    """The notebook and its lesson's module do not fit together; the message says where."""


@dataclass(frozen=True)
class Solved:
    """A notebook without outputs. `filled` are the exercises that were stubs; `kept` those that a student
    answered."""

    notebook: NotebookNode
    filled: tuple[str, ...]
    kept: tuple[str, ...]


def solve(notebook: NotebookNode) -> Solved:
    """A copy without outputs whose untouched stubs are replaced by the solutions of its lesson.

    Raises `CannotSolve` where the notebook names no lesson or no exercise, or the lesson does not know it.
    """
    notebook = deepcopy(notebook)
    exercises = [
        cell for cell in notebook.cells if cell.cell_type == "code" and cell.metadata.get("exercise")
    ]
    if not exercises:
        raise CannotSolve("it has no exercise cells, so there is nothing to solve.")
    lesson = lesson_of(notebook)
    bound = set(dir(builtins))
    filled: list[str] = []
    kept: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if name := cell.metadata.get("exercise"):
            source = _solved(cell, lesson, bound)
            (kept if source is None else filled).append(name)
            cell.source = cell.source if source is None else source
        bound |= _bound_names(cell.source)
    return Solved(notebook, tuple(filled), tuple(kept))


def lesson_of(notebook: NotebookNode) -> ModuleType:
    """The lesson's module, from the line that imports it: `from course_lib.lessons import lesson_01 as
    lesson`."""
    pattern = re.compile(
        r"^from course_lib\.lessons import (lesson_\w+)|^import course_lib\.lessons\.(lesson_\w+)", re.M
    )
    for cell in notebook.cells:
        if cell.cell_type == "code" and (match := pattern.search(cell.source)):
            return importlib.import_module(f"course_lib.lessons.{match[1] or match[2]}")
    raise CannotSolve("no cell has `from course_lib.lessons import lesson_NN as lesson`.")


def run_solved(path: Path, *, cell_timeout: int = CELL_TIMEOUT) -> Execution:
    """Solve a notebook and execute it; its last cell fails unless every exercise of the lesson was
    accepted."""
    notebook = solve(read(path)).notebook
    module = lesson_of(notebook).__name__
    notebook.cells.append(
        nbformat.v4.new_code_cell(
            f"from {module} import LESSON\n"
            "left = [name for name in LESSON.exercises if LESSON.state.entry(name)['status'] != 'solved']\n"
            "if left:\n"
            "    raise AssertionError('not accepted with its own solution: exercise ' + ', '.join(left))"
        )
    )
    return execute(notebook, folder=path.parent, cell_timeout=cell_timeout)


def check_solved(names: Sequence[str], *, cell_timeout: int = CELL_TIMEOUT) -> int:
    """Every notebook, solved and executed: 0 if each check accepts its lesson's solution, 1 otherwise."""
    failed = 0
    for path in course.select(names):
        try:
            run = run_solved(path, cell_timeout=cell_timeout)
            reason = None if run.failure is None else f"it stopped {run.failure}"
        except CannotSolve as error:
            reason = str(error)
        failed += reason is not None
        print(
            f"{course.shown(path)}: {'solved, and every check accepts' if reason is None else reason}",
            flush=True,
        )
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m course_lib solve", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("notebook", help="a notebook of the course, or a lesson's number")
    parser.add_argument("-o", "--output", required=True, type=Path, help="where to write the solved notebook")
    arguments = parser.parse_args(argv)
    try:
        (path, *others) = course.select([arguments.notebook])
        if others:
            raise course.NotANotebook(f"{arguments.notebook} holds {1 + len(others)} notebooks: name one.")
        if arguments.output.resolve() == path:
            raise CannotSolve("OUT is the notebook itself: its stubs would be lost. Name another file.")
        if arguments.output.is_dir():
            arguments.output = arguments.output / path.name
        solved = solve(read(path))
    except (CannotSolve, course.NotANotebook, course.NothingToDo) as error:
        print(f"solve: {error}", file=sys.stderr)
        return 2
    write_atomically(arguments.output, to_text(solved.notebook))
    print(f"{course.shown(arguments.output)}: filled in {', '.join(solved.filled) or 'nothing'}.")
    if solved.kept:
        print(f"Already answered, and kept as it is: {', '.join(solved.kept)}.")
    return 0


def _solved(cell: NotebookNode, lesson: ModuleType, bound: set[str]) -> str | None:
    """The cell's source with the solution in place of its stub; None where there is no stub any more."""
    name = cell.metadata["exercise"]
    exercise = lesson.LESSON.exercises.get(name)
    if exercise is None:
        raise CannotSolve(
            f"exercise {name} is not one of {lesson.__name__}: {', '.join(lesson.LESSON.exercises)}."
        )
    try:
        stub = find_stub(cell.source)
    except NotAnExerciseCell:
        return None
    if stub.name != exercise.stub:
        raise CannotSolve(
            f"exercise {name} is {exercise.stub} in {lesson.__name__}, but {stub.name} in the notebook."
        )
    if (stub.asks == "function") == exercise.is_question:
        raise CannotSolve(
            f"exercise {name} asks for a {stub.asks} in the notebook, but not in {lesson.__name__}."
        )
    if stub.asks == "function":
        written = exercise.solution_source().rstrip()
        written = "\n".join([*_imports(written, exercise.solution, bound | {stub.name}), written])
    else:
        answer = repr(exercise.solution())
        written = answer if stub.asks == "argument" else f"{stub.name} = {answer}"
    return cell.source[: stub.start] + written + cell.source[stub.end :]


def _imports(source: str, function: Callable[..., Any], bound: set[str]) -> Iterator[str]:
    """The imports a solution needs where it stands now, outside its module; none for what the notebook
    has."""
    needed = sorted(_used_names(source) - bound)
    available = function.__globals__
    lines = [_import_line(name, available[name], function.__module__) for name in needed if name in available]
    if lines:
        yield from [*lines, "", ""]


def _import_line(name: str, value: Any, home: str) -> str:
    if isinstance(value, ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    module = getattr(value, "__module__", None)
    origin = sys.modules.get(module) if isinstance(module, str) else None
    return f"from {module if getattr(origin, name, None) is value else home} import {name}"


def _used_names(source: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def _bound_names(source: str) -> set[str]:
    """Names that a cell binds at its top level."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the install cell may hold a magic
        return set()
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.alias):
                names.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names
