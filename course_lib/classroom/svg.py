"""Pictures as SVG text, shaped by the browser: the right place for Bangla words. Pure functions, all values
escaped.

Colours follow JupyterLab's theme where there is one and fall back to dark ink on a white card, so that a
picture reads in light and dark, on GitHub and on paper. Nothing is told by colour alone: allowed cells carry
a dot.
"""

import base64
import re
import unicodedata
from collections.abc import Sequence
from html import escape

FONT = "'Noto Sans Bengali','Nirmala UI','Bangla Sangam MN','Vrinda',system-ui,sans-serif"
INK = "var(--jp-content-font-color1,#1f1f1f)"
FAINT = "var(--jp-border-color1,#8a8a8a)"
PAPER = "var(--jp-layout-color1,#ffffff)"
# Okabe and Ito's palette: told apart by colour-blind readers.
BLUE, ORANGE, GREEN, VERMILION, SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9"

Number = int | float

_CELL = 34
_LINE = 20


def as_images(html: str) -> str:
    """The same HTML with each SVG as an `<img>` of its own, its title as the alt text.

    GitHub, and JupyterLab in a notebook that it does not trust yet, drop inline SVG and keep images.
    """
    return re.sub(r"<svg .*?</svg>", lambda found: _image(found[0]), html, flags=re.DOTALL)


def _image(drawing: str) -> str:
    title = re.search(r"<title>(.*?)</title>", drawing, flags=re.DOTALL)
    data = base64.b64encode(drawing.encode("utf-8")).decode("ascii")
    alt = title[1].replace('"', "&quot;") if title else ""
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}" style="max-width:100%">'


def card(*parts: str, caption: str = "") -> str:
    """Pictures side by side on one opaque card, with an escaped caption below."""
    pictures = "".join(f'<div style="flex:none;max-width:100%">{part}</div>' for part in parts)
    below = f'<div style="margin-top:6px">{escape(caption)}</div>' if caption else ""
    return (
        f'<div style="background:{PAPER};color:{INK};font:14px {FONT};padding:10px;border:1px solid {FAINT};'
        f'border-radius:6px;max-width:640px;overflow-x:auto">'
        f'<div style="display:flex;flex-wrap:wrap;gap:18px">'
        f"{pictures}</div>{below}</div>"
    )


def picture(width: Number, height: Number, title: str, *shapes: str) -> str:
    """One SVG of `width` x `height` px around shapes, with `title` as what a screen reader says."""
    paper = rectangle(0, 0, width, height, fill=PAPER, stroke="none")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" style="max-width:100%;height:auto">'
        f"<title>{escape(title)}</title>{paper}{''.join(shapes)}</svg>"
    )


def text(
    x: Number,
    y: Number,
    words: object,
    *,
    anchor: str = "start",
    size: int = 14,
    colour: str = INK,
    weight: str = "normal",
    turn: Number = 0,
) -> str:
    """One line of escaped text. anchor: "start", "middle" or "end" at x; turn: degrees about (x, y)."""
    rotate = f' transform="rotate({_n(turn)} {_n(x)} {_n(y)})"' if turn else ""
    style = f"font:{weight} {size}px {FONT};fill:{colour}"
    place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{rotate}'
    return f'<text {place} style="{style}">{escape(str(words))}</text>'


def rectangle(
    x: Number,
    y: Number,
    width: Number,
    height: Number,
    *,
    fill: str = "none",
    stroke: str = FAINT,
    stroke_width: Number = 1,
) -> str:
    """One rectangle."""
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
        f'style="fill:{fill};stroke:{stroke};stroke-width:{_n(stroke_width)}"/>'
    )


def grid(
    allowed: Sequence[Sequence[bool]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    cells: Sequence[Sequence[object]] | None = None,
    ringed: Sequence[tuple[int, int]] = (),
    colour: str = BLUE,
) -> str:
    """A mask as a grid: a row for each query, a column for each key, allowed cells filled and dotted.

    allowed: rows x columns of truth values. rows, columns: the words beside and above. cells: what to write
    in the cells in place of dots (scores, weights), in allowed ones only. ringed: (row, column) cells to draw
    a ring around. Raises ValueError where the labels do not fit the grid.
    """
    if len(rows) != len(allowed) or any(len(columns) != len(row) for row in allowed):
        sizes = f"{len(rows)} rows and {len(columns)} columns of labels"
        raise ValueError(f"grid: {sizes} for a grid of {len(allowed)} x {len(allowed[0]) if allowed else 0}.")
    left = 12 + max((_width(word) for word in rows), default=0)
    top = 12 + (max((_width(word) for word in columns), default=0) if _crowded(columns) else _LINE)
    shapes = [text(left - 6, top + _CELL * i + 22, word, anchor="end") for i, word in enumerate(rows)]
    for j, word in enumerate(columns):
        x = left + _CELL * (j + 0.5)
        shapes.append(
            text(x + 5, top - 6, word, turn=-90)
            if _crowded(columns)
            else text(x, top - 8, word, anchor="middle")
        )
    for i, row in enumerate(allowed):
        for j, may in enumerate(row):
            x, y = left + _CELL * j, top + _CELL * i
            shapes.append(rectangle(x, y, _CELL, _CELL, fill=colour if may else "none"))
            if may:
                mark = "•" if cells is None else cells[i][j]
                shapes.append(
                    text(
                        x + _CELL / 2,
                        y + 22,
                        mark,
                        anchor="middle",
                        size=18 if cells is None else 12,
                        colour="#ffffff",
                    )
                )
    for i, j in ringed:
        shapes.append(
            rectangle(
                left + _CELL * j + 2, top + _CELL * i + 2, _CELL - 4, _CELL - 4, stroke=ORANGE, stroke_width=3
            )
        )
    return picture(left + _CELL * len(columns) + 2, top + _CELL * len(allowed) + 2, title, *shapes)


def bars(
    items: Sequence[tuple[str, Number, str]],
    *,
    title: str,
    width: int = 560,
    colours: Sequence[str] = (),
    margin: int = 12,
) -> str:
    """Horizontal bars, each (label, value >= 0, what to write at its end), labelled directly.

    ``margin``: px beside the labels. Words of wide Bangla letters need more than is reckoned for them.
    """
    left = margin + max((_width(label) for label, _, _ in items), default=0)
    room = max(width - left - 12 - max((_width(end) for _, _, end in items), default=0), 40)
    largest = max((value for _, value, _ in items), default=0) or 1
    shapes: list[str] = []
    for i, (label, value, end) in enumerate(items):
        if not value >= 0:
            raise ValueError(f"bars: expected values of 0 or more, got {value} for {label!r}.")
        y, length = 6 + 28 * i, room * value / largest
        fill = colours[i % len(colours)] if colours else BLUE
        shapes += [
            text(left - 6, y + 16, label, anchor="end"),
            rectangle(left, y, max(length, 1), 22, fill=fill, stroke="none"),
            text(left + max(length, 1) + 6, y + 16, end),
        ]
    return picture(width, 12 + 28 * len(items), title, *shapes)


def _n(number: Number) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _width(word: object) -> float:
    """Roughly how wide a 14 px word is. Combining signs (Bangla vowel signs, hasant) take little room."""
    return 8.6 * sum(1 if unicodedata.category(letter)[0] != "M" else 0.3 for letter in str(word))


def _crowded(columns: Sequence[str]) -> bool:
    return any(_width(word) > _CELL + 2 for word in columns)


class Picture:
    """HTML or SVG as the last line of a cell: shown where HTML can be, its `title` where only text can."""

    def __init__(self, html: str, title: str) -> None:
        self.html = html
        self.title = title

    def __repr__(self) -> str:
        return self.title

    def _repr_html_(self) -> str:
        return as_images(self.html)
