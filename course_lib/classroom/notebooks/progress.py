"""Which cell of which notebook is running, on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from course_lib.classroom.notebooks.execute import Progress as Report


@contextmanager
def cells_shown(console: Console, name: str) -> Iterator[Report]:
    """Yield what `execute` calls before each cell: a bar on a terminal, one line where there is none (CI
    logs)."""
    if not console.is_terminal:
        console.print(f"  {name} …", highlight=False)
        yield lambda cell, cells: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda cell, cells: bar.update(task, completed=cell - 1, total=cells)
