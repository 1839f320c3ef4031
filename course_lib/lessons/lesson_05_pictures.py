"""The pictures and the widget of lesson 05 that hold Bangla words: dials, a pack, slopes and heat maps, in SVG."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal
from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider
from course_lib.packing import Packed

WORDS = ("নদীর", "ধারে", "বসে", "রহিম", "মাছ", "ধরছে")
"""Rahim is fishing by the river, word by word."""

_CELL = 40
_LEFT = 56
_TOP = 44
_BLUE, _RED = "0,114,178", "213,94,0"


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_05.{key}", **values)


# --- a grid of numbers ---------------------------------------------------------------------------------------------


def _heat(
    numbers: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    largest: float,
    rgb: str,
    digits: int,
    heading: str = "",
) -> str:
    """One SVG: a number in each cell, the stronger the larger it is; None leaves a cell blank."""
    shapes = [svg.text(_LEFT, 14, heading, weight="bold", size=13)] if heading else []
    shapes += [svg.text(_LEFT - 6, _TOP + _CELL * i + 25, word, anchor="end") for i, word in enumerate(rows)]
    shapes += [
        svg.text(_LEFT + _CELL * (j + 0.5), _TOP - 7, word, anchor="middle", size=13)
        for j, word in enumerate(columns)
    ]
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            x, y = _LEFT + _CELL * j, _TOP + _CELL * i
            if number is None:
                shapes.append(svg.rectangle(x, y, _CELL, _CELL))
                continue
            share = min(abs(number) / largest, 1.0) if largest else 0.0
            shapes.append(svg.rectangle(x, y, _CELL, _CELL, fill=f"rgba({rgb},{share:.2f})"))
            shown = f"{number:.{digits}f}".replace("-", "−")
            colour = "#ffffff" if share > 0.8 else svg.INK
            shapes.append(svg.text(x + _CELL / 2, y + 25, shown, anchor="middle", size=12, colour=colour))
    width = _LEFT + _CELL * len(columns) + 4
    return svg.picture(width, _TOP + _CELL * len(rows) + 4, title, *shapes)


# --- rotary positions ----------------------------------------------------------------------------------------------


def dials_figure(words: Sequence[str], *, turns: Sequence[float] = (1.0, 0.1)) -> svg.Picture:
    """A row of dials for each pair of numbers: the hand stands at the angle ``position * turn`` in radians."""
    column, row, radius, left = 92, 84, 28, 92
    shapes = [svg.text(left + column * (j + 0.5), 18, word, anchor="middle") for j, word in enumerate(words)]
    for i, turn in enumerate(turns):
        y = 66 + row * i
        shapes.append(
            svg.text(left - 8, y + 5, _say("dials.fast" if i == 0 else "dials.slow"), anchor="end", size=13)
        )
        for j in range(len(words)):
            x = left + column * (j + 0.5)
            angle = j * turn
            tip = x + radius * math.sin(angle), y - radius * math.cos(angle)
            shapes.append(
                f'<circle cx="{x:.1f}" cy="{y}" r="{radius}" style="fill:none;stroke:{svg.FAINT}"/>'
                f'<line x1="{x:.1f}" y1="{y}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}" '
                f'style="stroke:{svg.BLUE if i == 0 else svg.VERMILION};stroke-width:3;stroke-linecap:round"/>'
            )
    title = f"Dials of {len(words)} words: a step turns one hand by {turns[0]:g} radians, the other by {turns[1]:g}."
    picture = svg.picture(left + column * len(words) + 4, 66 + row * len(turns) - 40, title, *shapes)
    return svg.Picture(svg.card(picture, caption=_say("dials.caption")), title)


# --- a pack --------------------------------------------------------------------------------------------------------


def pack_figure(documents: Sequence[Sequence[str]], slope: float) -> svg.Picture:
    """The bias of one head over a packed row: counted over the whole row, and within each document."""
    words = [word for document in documents for word in document]
    lengths, total = [len(document) for document in documents], len(words)
    inner = Causal("top-left") + ALiBi(torch.tensor([slope]))
    grids = []
    for key, bias in (("pack.whole", inner), ("pack.within", Packed(lengths, inner=inner))):
        numbers = bias.materialize(total, total)[0, 0]
        heading = _say(key)
        grids.append(
            _heat(
                _visible(numbers),
                words,
                words,
                title=f"{heading}: {int(numbers.isfinite().sum())} of {total * total} cells are visible.",
                largest=slope * (total - 1),
                rgb=_RED,
                digits=1,
                heading=heading,
            )
        )
    return svg.Picture(
        svg.card(*grids, caption=_say("pack.caption")), f"the bias of a pack of {len(documents)} documents"
    )


def _visible(bias: Tensor) -> list[list[float | None]]:
    return [[None if number == -math.inf else number for number in row] for row in bias.tolist()]


# --- the widget ----------------------------------------------------------------------------------------------------


def render_slopes_explorer(heads: int, head: int, words: int, show: str) -> str:
    """The slopes of so many heads, and one head's bias ("fine") or weights ("weights") over the first words.

    A head past the last one shows the last. The weights are those of equal scores, where only distance decides.
    """
    slopes = alibi_slopes(heads)
    chosen = min(head, heads)
    slope = float(slopes[chosen - 1])
    bars = svg.bars(
        [(f"{i}", float(s), _fraction(float(s))) for i, s in enumerate(slopes, start=1)],
        title=f"Slopes of {heads} heads: {', '.join(_fraction(float(s)) for s in slopes)}.",
        width=230,
        colours=[svg.VERMILION if i == chosen else svg.SKY for i in range(1, heads + 1)],
    )
    bias = (Causal() + ALiBi(torch.tensor([slope]))).materialize(words, words)[0, 0]
    weights = show == "weights"
    grid = _heat(
        _visible(bias.softmax(-1).masked_fill(bias == -math.inf, -math.inf) if weights else bias),
        WORDS[:words],
        WORDS[:words],
        title=f"Head {chosen} of {heads}, {show}: a row for each of {words} words that ask.",
        largest=1.0 if weights else max(slope * (words - 1), 1.0),
        rgb=_BLUE if weights else _RED,
        digits=2,
    )
    caption = _say(
        "explorer.weights" if weights else "explorer.fine",
        head=chosen,
        heads=heads,
        slope=_fraction(slope),
        last=WORDS[words - 1],
        share=f"{float(bias[-1].softmax(-1)[-1]):.0%}",
        half=f"{math.log(2) / slope:.1f}",
    )
    return svg.card(bars, grid, caption=caption)


def _fraction(slope: float) -> str:
    """1/16 where it is one, else three digits."""
    inverse = 1 / slope
    return f"1/{inverse:.0f}" if abs(inverse - round(inverse)) < 1e-6 else f"{slope:.3g}"


def slopes_explorer() -> Card:
    """Heads, one of them, how many words, and whether its fine or its weights are shown."""
    return card(
        render_slopes_explorer,
        choice("heads", 8, [1, 2, 4, 6, 8, 12, 16], label="heads"),
        slider("head", 1, 1, 16, label="head"),
        slider("words", 6, 2, 6, label="words"),
        choice("show", "fine", ["fine", "weights"], label="show"),
    )
