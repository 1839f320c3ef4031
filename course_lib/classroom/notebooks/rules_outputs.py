"""Rules about what a notebook shows: executed, in order, the same everywhere, fit to be stored."""

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from course_lib.classroom.notebooks import captions, normalise
from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem, output_texts, tags

TEXT_LIMIT = 64 * 1024
PICTURE_LIMIT = 512 * 1024
LESSONS_ABOUT_MEASURING = frozenset({"08", "10"})

_MACHINE = (
    (re.compile(r"\b0x[0-9a-fA-F]{8,}\b"), "an address in memory"),
    (
        re.compile(r"(?<![\w+/.<])/(?:home|root|tmp|Users|mnt|opt|private|var|work|content)/[\w.~-]+"),
        "a path of one machine",
    ),
    (re.compile(r"\b[A-Za-z]:\\\\?(?:Users|Windows|Temp|Program)\b"), "a path of one machine"),
    (re.compile(r"\bsite-packages\b|\bipykernel_\d+"), "a path of one machine"),
)
_PIP = re.compile(
    r"^\s*(?:Requirement already satisfied|Collecting \S+|Successfully installed|"
    r"Downloading \S+|Installing collected packages|Looking in indexes|Using cached \S+|"
    r"Note: you may need to restart the kernel)",
    re.MULTILINE,
)
_TOO_FINE = (
    (re.compile(r"\btensor\(|\barray\("), "print shapes, integers or rounded floats, not raw tensors"),
    (re.compile(r"\d\.\d{7,}"), "round it, as processors differ in the last digits"),
    (re.compile(r"\b\d+\.\d+\.\d+\+(?:cpu|cu\d+|rocm[\d.]+)"), "versions differ from machine to machine"),
)
_ERROR_TAGS = ("raises-exception", "nbval-raises-exception")


def executed_in_order(lesson: LessonFile) -> Iterator[Problem]:
    """Every code cell has run, from top to bottom in one session: In [1], In [2], …"""
    expected = 0
    for index, cell in lesson.code:
        if not cell.source.strip():
            yield Problem("executed", "an empty code cell.", index)
            continue
        expected += 1
        if cell.execution_count is None:
            yield Problem("executed", "has not been executed: run `refresh` on this notebook.", index)
        elif cell.execution_count != expected:
            yield Problem(
                "executed",
                f"ran as In [{cell.execution_count}] where In [{expected}] belongs: run `refresh`.",
                index,
            )


def printed_is_stored(lesson: LessonFile) -> Iterator[Problem]:
    """A cell that prints has its output in the file: nbval passes a stripped cell without comparing
    anything."""
    for index, cell in lesson.code:
        if not cell.outputs and _prints(cell.source):
            yield Problem("outputs", "prints, but no output is stored.", index)


def something_is_compared(lesson: LessonFile) -> Iterator[Problem]:
    if not any(is_compared(cell) for _, cell in lesson.code):
        yield Problem(
            "compared", "nothing in this notebook is compared by nbval, so running it again proves nothing."
        )


def ignored_share(lesson: LessonFile) -> Iterator[Problem]:
    """At most one code cell in four may go uncompared, one in two where the lesson is about measuring."""
    counted = [cell for _, cell in lesson.code if "install" not in tags(cell)]
    ignored = [cell for cell in counted if "nbval-ignore-output" in tags(cell)]
    parts = 2 if lesson.number in LESSONS_ABOUT_MEASURING else 4
    if len(ignored) * parts > len(counted):
        yield Problem(
            "ignored-share",
            f"{len(ignored)} of {len(counted)} code cells are not compared; at most 1 in {parts} may be.",
        )


def errors_are_announced(lesson: LessonFile) -> Iterator[Problem]:
    for index, cell in lesson.code:
        raised = [output for output in cell.outputs if output.output_type == "error"]
        announced = [tag for tag in _ERROR_TAGS if tag in tags(cell)]
        if raised and not announced:
            yield Problem("errors", f"shows {raised[0].ename} without the tag raises-exception.", index)
        if announced and not raised and cell.execution_count is not None:
            yield Problem("errors", f"is tagged {announced[0]} but raises nothing.", index)


def nothing_on_stderr(lesson: LessonFile) -> Iterator[Problem]:
    for index, cell in lesson.code:
        for kind, text in output_texts(cell):
            if kind == "stderr":
                line = next((line for line in text.splitlines() if line.strip()), "")
                yield Problem(
                    "stderr",
                    f"writes to stderr ({line.strip()[:90]!r}): mend the cause of the warning.",
                    index,
                )


def nothing_of_one_machine(lesson: LessonFile) -> Iterator[Problem]:
    """No addresses, no paths, no pip logs: in outputs, nor (paths) in sources."""
    for index, cell in lesson.code:
        for kind, text in output_texts(cell):
            for pattern, name in _MACHINE:
                if match := pattern.search(text):
                    yield Problem("machine", f"its output ({kind}) holds {name}: {match[0][:60]!r}.", index)
            if match := _PIP.search(text):
                yield Problem(
                    "pip-log",
                    f"its output holds the log of an installation: {match[0].strip()[:60]!r}.",
                    index,
                )
    for index, cell in enumerate(lesson.cells):
        if "install" in tags(cell):
            continue
        for pattern, name in _MACHINE[1:]:
            if match := pattern.search(cell.source):
                yield Problem("machine", f"its source holds {name}: {match[0][:60]!r}.", index)


def printed_for_every_machine(lesson: LessonFile) -> Iterator[Problem]:
    """What is compared is printed so that AVX2, AVX-512, AMX and one thread agree on it."""
    for index, cell in lesson.code:
        if not is_compared(cell):
            continue
        for kind, text in output_texts(cell):
            if kind not in ("stdout", "text/plain"):
                continue
            for pattern, advice in _TOO_FINE:
                if match := pattern.search(text):
                    yield Problem("portable", f"its output holds {match[0][:40]!r}: {advice}.", index)


def outputs_are_small(lesson: LessonFile) -> Iterator[Problem]:
    for index, cell in lesson.code:
        for kind, text in output_texts(cell):
            if (size := len(text.encode("utf-8"))) > TEXT_LIMIT:
                yield Problem(
                    "size",
                    f"its output ({kind}) is {size // 1024} KB of text; {TEXT_LIMIT // 1024} are allowed.",
                    index,
                )
        for output, kind in captions.pictures(cell):
            if kind != "image/svg+xml" and (size := len(output.data[kind]) * 3 // 4) > PICTURE_LIMIT:
                yield Problem(
                    "size", f"its picture is {size // 1024} KB; {PICTURE_LIMIT // 1024} are allowed.", index
                )


def widgets_leave_a_picture(lesson: LessonFile) -> Iterator[Problem]:
    """Without a live kernel a reader still sees something: HTML is stored, and no reference to a widget's
    model."""
    if "widgets" in lesson.notebook.metadata:
        yield Problem(
            "widget-state",
            "metadata.widgets is set: GitHub cannot render what Colab stores there. Run `refresh`.",
        )
    for index, cell in lesson.code:
        shown = [output.get("data", {}) for output in cell.outputs if output.output_type != "stream"]
        if any(normalise.WIDGET_VIEW in data for data in shown):
            yield Problem(
                "widget-state", "stores the view of a widget, whose model is gone: run `refresh`.", index
            )
        if "widget" in tags(cell) and cell.outputs and not any("text/html" in data for data in shown):
            yield Problem(
                "widget-picture", "is tagged widget but stores no text/html to show without a kernel.", index
            )


def in_canonical_form(lesson: LessonFile) -> Iterator[Problem]:
    """The file is as `refresh` writes it: kernelspec, ids, no timings, stripped pictures, captions copied."""
    notebook = lesson.notebook
    spec = notebook.metadata.get("kernelspec", {})
    if dict(spec) != normalise.KERNELSPEC:
        yield Problem(
            "kernelspec",
            f"metadata.kernelspec must be {normalise.KERNELSPEC}, got {dict(spec)}: run `refresh`.",
        )
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) != len(ids):
        yield Problem("cell-ids", "every cell needs an id of its own: run `refresh`.")
    fresh = normalise.normalise(notebook)
    if fresh == notebook:
        return
    for index, (before, after) in enumerate(zip(notebook.cells, fresh.cells, strict=True)):
        if before != after:
            parts = [key for key in after if before.get(key) != after[key]] or ["attachments"]
            yield Problem(
                "canonical", f"its {' and '.join(parts)} are not as `refresh` writes them: run it.", index
            )
            return
    if {**notebook, "cells": []} != {**fresh, "cells": []}:
        yield Problem("canonical", "the notebook's metadata are not as `refresh` writes them: run it.")


def is_compared(cell: NotebookNode) -> bool:
    """Whether nbval holds something in this cell against a new run: a picture alone says only its size."""
    if "nbval-ignore-output" in tags(cell):
        return False
    return any(
        text.strip() and not text.startswith("<Figure size")
        for kind, text in output_texts(cell)
        if kind != "stderr"
    )


def _prints(source: str) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return False
    return any(
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id == "print"
        for statement in body
    )


RULES = (
    executed_in_order,
    printed_is_stored,
    something_is_compared,
    ignored_share,
    errors_are_announced,
    nothing_on_stderr,
    nothing_of_one_machine,
    printed_for_every_machine,
    outputs_are_small,
    widgets_leave_a_picture,
    in_canonical_form,
)
