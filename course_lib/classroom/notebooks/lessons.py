"""`make lessons`: run the whole course on this machine, to pages that are read without a network.

An instructor learns before class that every lesson runs here today, how long each takes and how much memory.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from course_lib.atomic import write_atomically
from course_lib.classroom.notebooks import course
from course_lib.classroom.notebooks.execute import CELL_TIMEOUT, Failure, execute, read
from course_lib.classroom.notebooks.lesson_file import LessonFile
from course_lib.classroom.notebooks.normalise import normalise
from course_lib.classroom.notebooks.page import STYLE, LessonPage
from course_lib.classroom.notebooks.progress import cells_shown


@dataclass(frozen=True)
class Result:
    """What one lesson took on this machine. `failure` is None where it ran to its end."""

    path: Path
    page: Path
    title: str
    promise: str
    seconds: float
    peak_bytes: int
    failure: Failure | None

    @property
    def too_slow(self) -> bool:
        return self.seconds > course.seconds_allowed(self.path)

    @property
    def too_large(self) -> bool:
        return self.peak_bytes > course.PEAK_BYTES

    @property
    def verdict(self) -> str:
        if self.failure is not None:
            return "failed"
        over = [f"over {course.seconds_allowed(self.path)} s"] if self.too_slow else []
        over += [f"over {course.PEAK_BYTES / 1e9:.0f} GB"] if self.too_large else []
        return ", ".join(over) or "runs"


def main(names: Sequence[str], *, output: Path, cell_timeout: int = CELL_TIMEOUT) -> int:
    """Execute the lessons to pages in `output`, print the table. 0, or 1 where one fails; the others still
    run."""
    paths = course.select(names)
    output = output.resolve()
    pages = {path: output / f"{path.stem}.html" for path in paths}
    progress = Console(stderr=True)
    results = []
    for path in paths:
        result = _make_page(path, pages, progress, cell_timeout)
        results.append(result)
        if result.failure is not None:
            progress.print(
                f"{path.name} stopped {result.failure}", style="red", markup=False, highlight=False
            )
    index = output / "index.html"
    write_atomically(index, _index(results))
    console = Console()
    console.print(_table(results))
    failed = [result for result in results if result.failure is not None]
    for result in failed:
        console.print(
            f"{result.path.name} stopped {result.failure}", markup=False, highlight=False, soft_wrap=True
        )
    console.print(
        f"{len(results) - len(failed)} of {len(results)} lessons run. Read them: {course.shown(index)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 1 if failed else 0


def _make_page(path: Path, pages: dict[Path, Path], console: Console, cell_timeout: int) -> Result:
    page = pages[path]
    try:
        notebook = read(path)
    except course.NotANotebook as error:
        page.unlink(missing_ok=True)  # a page of an earlier run must not pass for this one's
        return Result(path, page, path.stem, "", 0.0, 0, Failure(None, str(error)))
    with cells_shown(console, path.name) as progress:
        # The reader's own language for messages: this page is for them, and is not compared.
        run = execute(
            notebook, folder=path.parent, cell_timeout=cell_timeout, language=None, progress=progress
        )
    title, promise = _title_and_promise(LessonFile(notebook, path), path)
    stopped = f"This lesson stopped {run.failure}" if run.failure is not None else ""
    text = LessonPage(path, pages).render(
        normalise(run.notebook), title=title, navigation=_navigation(path, pages), stopped=stopped
    )
    write_atomically(page, text)
    return Result(path, page, title, promise, run.seconds, run.peak_bytes, run.failure)


def _title_and_promise(lesson: LessonFile, path: Path) -> tuple[str, str]:
    title = next((heading.text for heading in lesson.headings if heading.level == 1), path.stem)
    source = lesson.cells[0].source.strip() if lesson.cells else ""
    paragraphs = source.partition("\n")[2].strip().split("\n\n")
    return title, " ".join(paragraphs[0].split()) if paragraphs[0].endswith((".", "?")) else ""


def _navigation(path: Path, pages: dict[Path, Path]) -> str:
    order = list(pages)
    here = order.index(path)
    before = _link("←", order[here - 1], pages) if here > 0 else "<span></span>"
    after = _link("→", order[here + 1], pages) if here + 1 < len(order) else "<span></span>"
    return (
        f'<nav class="course" aria-label="Lessons">{before}<a href="index.html">All lessons</a>{after}</nav>'
    )


def _link(arrow: str, path: Path, pages: dict[Path, Path]) -> str:
    name = path.stem.replace("_", " ")
    text = f"{arrow} {name}" if arrow == "←" else f"{name} {arrow}"
    return f'<a href="{html.escape(pages[path].name)}">{html.escape(text)}</a>'


def _minutes(seconds: float) -> str:
    """`0:34`, `1:07`: minutes and seconds."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="The course on this machine")
    table.add_column("lesson")
    table.add_column("min:s", justify="right", no_wrap=True)
    table.add_column("peak memory", justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    for result in results:
        style = "red" if result.failure is not None else "" if result.verdict == "runs" else "yellow"
        table.add_row(
            result.title,
            _minutes(result.seconds),
            f"{result.peak_bytes / 1e9:.2f} GB",
            result.verdict,
            style=style,
        )
    if len(results) > 1:
        total = _minutes(sum(result.seconds for result in results))
        largest = max(result.peak_bytes for result in results)
        table.add_section()
        table.add_row("all", total, f"{largest / 1e9:.2f} GB", "")
    return table


def _index(results: Sequence[Result]) -> str:
    rows = "\n".join(
        f'<tr><td><a href="{html.escape(result.page.name)}">{html.escape(result.title)}</a></td>'
        f"<td>{html.escape(result.promise)}</td>"
        f'<td class="number">{_minutes(result.seconds)}</td>'
        f'<td class="number">{result.peak_bytes / 1e9:.2f} GB</td>'
        f"<td>{html.escape(result.verdict)}</td></tr>"
        for result in results
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lean Transformers: the lessons</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Lean Transformers: the lessons</h1>
<table class="lessons">
<caption>Each lesson as it ran on this machine: minutes and seconds, and its peak memory.</caption>
<thead>
<tr><th>lesson</th><th>what it promises</th><th>min:s</th><th>peak memory</th><th>result</th></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
</main>
</body>
</html>
"""
