"""The line of text that says what to see in a figure.

Convention: the markdown cell right after a figure's cell begins with one line in italics,

    *Two queries, five keys. Left: top-left. Right: bottom-right.*

That line is what every reader sees under the picture, and it is the picture's alternative text too: `refresh`
copies it into the metadata of the image output (`metadata["image/png"]["alt"]`, the place where Jupyter's own
classic template looks for it), and the HTML of `lessons` shows it from there.
"""

import re

from nbformat import NotebookNode

IMAGE_TYPES = ("image/png", "image/jpeg", "image/svg+xml")

_ITALIC = re.compile(r"\s*(?:\*(?!\*)(?P<star>[^*]+)(?<!\s)\*|_(?!_)(?P<line>.+)(?<!\s)_)\s*", re.DOTALL)


def pictures(cell: NotebookNode) -> list[tuple[NotebookNode, str]]:
    """The picture outputs of a code cell, each with its media type."""
    if cell.cell_type != "code":
        return []
    return [
        (output, kind)
        for output in cell.get("outputs", [])
        for kind in IMAGE_TYPES
        if kind in output.get("data", {})
    ]


def caption_after(cells: list[NotebookNode], index: int) -> str | None:
    """The caption of the figure in `cells[index]`, as plain text on one line; None where there is none."""
    if index + 1 >= len(cells) or cells[index + 1].cell_type != "markdown":
        return None
    first_paragraph = cells[index + 1].source.strip().split("\n\n")[0]
    match = _ITALIC.fullmatch(first_paragraph)
    if match is None:
        return None
    return _plain(match["star"] or match["line"])


def _plain(markdown: str) -> str:
    """Markdown as a screen reader should say it: without the marks of code, links and formulas."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"[`$]", "", text)
    return " ".join(text.split())
