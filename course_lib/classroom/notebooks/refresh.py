"""`make notebooks`: execute notebooks in place and normalise them, so that their outputs may enter git."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from course_lib.atomic import write_atomically
from course_lib.classroom.notebooks import check, course
from course_lib.classroom.notebooks.execute import CELL_TIMEOUT, execute, read
from course_lib.classroom.notebooks.normalise import normalise, to_text
from course_lib.classroom.notebooks.progress import cells_shown


def refresh(
    paths: Sequence[Path], *, cell_timeout: int = CELL_TIMEOUT, console: Console | None = None
) -> int:
    """Execute and normalise each notebook where it lies. 0, or 1 where a notebook fails or breaks a rule.

    A notebook that fails is left as it was, byte for byte, and the cell that failed is shown; the others go
    on.
    """
    console = console or Console(stderr=True)
    failed = 0
    for path in paths:
        notebook = read(path)
        with cells_shown(console, path.name) as progress:
            run = execute(notebook, folder=path.parent, cell_timeout=cell_timeout, progress=progress)
        if run.failure is not None:
            failed += 1
            console.print(
                f"[red]✗[/red] {path.name} left as it was. It stopped {run.failure}", highlight=False
            )
            _show_source(console, run.failure.source)
            continue
        fresh = normalise(run.notebook)
        changed = write_atomically(path, to_text(fresh))
        console.print(
            f"[green]✓[/green] {path.name}: {'refreshed' if changed else 'unchanged'} "
            f"in {run.seconds:.0f} s, {run.peak_bytes / 1e9:.2f} GB",
            highlight=False,
        )
        for problem in check.problems(fresh, path):
            failed += 1
            console.print(f"    {problem}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def main(names: Sequence[str], *, cell_timeout: int = CELL_TIMEOUT) -> int:
    return refresh(course.select(names), cell_timeout=cell_timeout)


def _show_source(console: Console, source: str) -> None:
    for line in source.splitlines():
        console.print(f"    | {line}", highlight=False, markup=False)
