"""A small lesson that keeps every rule, and ways to break it."""

import base64
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.classroom.notebooks.normalise import normalise

NAME = "01_sample.ipynb"

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
COLAB = f"https://colab.research.google.com/github/someone/course/blob/main/notebooks/{NAME}"

TITLE = f"""# 01 · A sample

You will see one lesson that keeps every rule.

[![Open in Colab]({BADGE})]({COLAB})

**You will be able to**

- say what a rule is
- write a cell that keeps it
- explain why it is there

**Needs:** nothing · **Minutes:** 5 · **Machine:** any."""

SECTION = "## 1 · Which corner?\n\nWords before the picture. See [the end](#Recap)."
RECAP = "## Recap\n\nBack to [the corner](#1-·-Which-corner?)."

# One transparent pixel, with a text chunk that names its writer, as matplotlib leaves one.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def exercise_cells(name: str, function: str, count: int) -> list[NotebookNode]:
    stub = f'def my_{function}(x):\n    """Return x."""\n    ...   # your code'
    source = f"{stub}\n\nlesson.check_{function}(my_{function})"
    return [
        new_markdown_cell(
            f"### Exercise {name} · give it back · ●○○ · 2 min\n\nThree lines of what and why."
        ),
        code(source, f"{name} not started.\n", count, tags=["exercise"], exercise=name),
    ]


def code(source: str, stdout: str = "", count: int | None = 1, **metadata: object) -> NotebookNode:
    outputs = [new_output("stream", name="stdout", text=stdout)] if stdout else []
    return new_code_cell(source, outputs=outputs, execution_count=count, metadata=metadata)


def picture(data: bytes = PIXEL) -> NotebookNode:
    text = base64.b64encode(data).decode()
    return new_output("display_data", data={"image/png": text, "text/plain": "<Figure size 1x1 with 1 Axes>"})


def good_notebook() -> NotebookNode:
    """Executed and normalised: `problems(good_notebook(), Path(NAME))` is empty."""
    figure = code("draw()\nprint('digest 1.0')", "digest 1.0\n", 4, tags=["figure"])
    figure.outputs.insert(0, picture())
    cells = [
        new_markdown_cell(TITLE),
        code("import course_lib", count=1, tags=["install"]),
        new_markdown_cell(SECTION, metadata={"tags": ["core"]}),
        code("from course_lib.lessons import lesson_01 as lesson", count=2),
        code("print(1 + 1)", "2\n", 3),
        figure,
        new_markdown_cell("*Two rivers, নদী, and `one` word.*\n\nMore prose."),
        *exercise_cells("1.1", "one", 5),
        *exercise_cells("1.2", "two", 6),
        *exercise_cells("1.3", "three", 7),
        new_markdown_cell(RECAP, metadata={"tags": ["core"]}),
        code("print('end')", "end\n", 8),
    ]
    return normalise(new_notebook(cells=cells))


def find(notebook: NotebookNode, start: str) -> NotebookNode:
    """The first cell whose source starts with `start`."""
    return next(cell for cell in notebook.cells if cell.source.startswith(start))


def bare_notebook(*sources: str, **metadata: object) -> NotebookNode:
    """Code cells that have not been executed."""
    return new_notebook(cells=[new_code_cell(source) for source in sources], metadata=metadata)


def write(notebook: NotebookNode, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    return path
