"""A notebook as the rules see it: its cells by kind, its headings and links, and where a fault is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode

from course_lib.classroom.notebooks import course

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.+?)\s*#*\s*$")


@dataclass(frozen=True)
class Problem:
    """One broken rule. `cell` is the cell's index in the file, from 0, and `near` the words it begins with;
    None for the notebook as a whole."""

    rule: str
    message: str
    cell: int | None = None
    near: str = ""

    def __str__(self) -> str:
        where = "" if self.cell is None else f"cell {self.cell} ({self.near}): "
        return f"{where}{self.message} [{self.rule}]"


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    cell: int
    line: int

    @property
    def anchor(self) -> str:
        """What a link to it ends in, after the `#`: Jupyter's own rule, spaces become dashes."""
        return self.text.replace(" ", "-")


@dataclass(frozen=True)
class LessonFile:
    """A notebook and where it lies; the file itself need not exist."""

    notebook: NotebookNode
    path: Path

    @property
    def number(self) -> str | None:
        return course.lesson_number(self.path)

    @property
    def cells(self) -> list[NotebookNode]:
        return self.notebook.cells

    @cached_property
    def code(self) -> list[tuple[int, NotebookNode]]:
        return [(i, cell) for i, cell in enumerate(self.cells) if cell.cell_type == "code"]

    @cached_property
    def markdown(self) -> list[tuple[int, NotebookNode]]:
        return [(i, cell) for i, cell in enumerate(self.cells) if cell.cell_type == "markdown"]

    @cached_property
    def headings(self) -> list[Heading]:
        return [
            Heading(len(match[1]), plain_text(match[2]), index, line)
            for index, cell in self.markdown
            for line, text in prose_lines(cell.source)
            if (match := _HEADING.match(text))
        ]


def tags(cell: NotebookNode) -> list[str]:
    found = cell.metadata.get("tags", [])
    return list(found) if isinstance(found, list) else [str(found)]


def prose_lines(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a markdown cell that are not inside a fenced block of code, with their numbers from 0."""
    fence = ""
    for number, line in enumerate(source.splitlines()):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            yield number, line


def plain_text(markdown: str) -> str:
    """A heading as it is rendered: without the marks of code, emphasis and links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"[`]|\*\*|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)", "", text)
    return text.strip()


def output_texts(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    """Every text that a code cell shows, as (kind, text): "stdout", "stderr", "error" or a media type."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.name, output.text
        elif output.output_type == "error":
            yield "error", "\n".join([f"{output.ename}: {output.evalue}", *output.get("traceback", [])])
        else:
            for kind, content in output.get("data", {}).items():
                if kind.startswith("text/") or kind == "image/svg+xml":
                    yield kind, content if isinstance(content, str) else "".join(content)
