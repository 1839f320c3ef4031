"""The packing explorer of lesson 03: any lengths, padded, in one causal row, or packed into rows of a capacity."""

import re
from collections.abc import Sequence

from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, entry, slider
from course_lib.lessons.lesson_03_pictures import percent
from course_lib.packing import fill_bins

WAYS = ("padded", "one causal row", "packed")
MOST_DOCUMENTS, LONGEST = 9, 1000
_SIDE = 270
_COLOURS = (svg.BLUE, svg.GREEN, svg.SKY)


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_03.{key}", **values)


def _parsed(lengths: str) -> list[int]:
    words = re.findall(r"[^\s,;\[\]()]+", lengths)  # a list as Python writes it will do
    got = repr(lengths if len(lengths) <= 60 else lengths[:59] + "…")
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(_say("explorer.no_numbers", got=got))
    if len(numbers) > MOST_DOCUMENTS or not all(1 <= n <= LONGEST for n in numbers):
        raise ValueError(_say("explorer.too_many", documents=MOST_DOCUMENTS, longest=LONGEST, got=got))
    return numbers


def _triangle(x: float, y: float, side: float, fill: str) -> str:
    """The visible half of a causal square."""
    return (
        f'<path d="M{x:.1f} {y:.1f}V{y + side:.1f}H{x + side:.1f}Z" '
        f'style="fill:{fill};stroke:{svg.PAPER};stroke-width:.5"/>'
    )


def _rows(lengths: Sequence[int], rows: Sequence[Sequence[int]], places: int) -> list[str]:
    """Bars: what lies in memory, a bar for each row of `places` tokens, documents in turn in three colours."""
    height = min(24, (_SIDE - 4) / len(rows) - 3)
    shapes = []
    for r, row in enumerate(rows):
        x, y = 2.0, 26 + (height + 3) * r
        shapes.append(svg.rectangle(2, y, _SIDE, height, stroke=svg.FAINT))
        for i in row:
            width = _SIDE * lengths[i] / places
            shapes.append(svg.rectangle(x, y, width, height, fill=_COLOURS[i % 3], stroke=svg.PAPER))
            if width > 26 and height > 13:
                ink = "#1f1f1f" if _COLOURS[i % 3] == svg.SKY else "#ffffff"
                shapes.append(
                    svg.text(
                        x + width / 2, y + height / 2 + 5, lengths[i], anchor="middle", size=12, colour=ink
                    )
                )
            x += width
    return shapes


def _squares(lengths: Sequence[int], squares: Sequence[tuple[Sequence[int], int]], leak: bool) -> list[str]:
    """Score matrices: each (documents on its diagonal, side), in a grid; the first column is 24 px to the right."""
    columns = next(n for n in range(1, len(squares) + 1) if n * n >= len(squares))
    largest = max(side for _, side in squares)
    scale = (_SIDE - 6 * (columns - 1)) / (columns * largest)
    shapes = []
    for s, (documents, side) in enumerate(squares):
        x = _SIDE + 26 + (s % columns) * (largest * scale + 6)
        y = 26 + (s // columns) * (largest * scale + 6)
        if leak:
            shapes.append(_triangle(x, y, side * scale, svg.ORANGE))
        start = 0.0
        for i in documents:
            own = lengths[i] * scale
            shapes.append(_triangle(x + start, y + start, own, _COLOURS[i % 3]))
            start += own
        shapes.append(svg.rectangle(x, y, side * scale, side * scale, stroke=svg.FAINT))
    return shapes


def render_packing_explorer(lengths: str, way: str, capacity: int) -> str:
    """What lies in memory and which scores are made, as a card; ``lengths`` is what was typed."""
    n = _parsed(lengths)
    total, longest, documents = sum(n), max(n), len(n)
    everyone = list(range(documents))
    counts = {"documents": documents, "tokens": f"{total:,}"}
    if way == "padded":
        rows, places = [[i] for i in everyone], longest
        squares = [([i], longest) for i in everyone]
        share = percent(1 - total / (documents * longest))
        caption = _say(
            "explorer.padded",
            **counts,
            longest=longest,
            places=f"{documents * longest:,}",
            share=share,
            scores=f"{documents * longest**2:,}",
        )
    elif way == "one causal row":
        rows, places, squares = [everyone], total, [(everyone, total)]
        visible = total * (total + 1) // 2
        inside = sum(k * (k + 1) // 2 for k in n)
        leaks = percent((visible - inside) / visible)
        caption = _say("explorer.one_row", **counts, leaks=leaks, scores=f"{total**2:,}")
    else:
        if longest > capacity:
            raise ValueError(_say("explorer.over_capacity", length=longest, capacity=capacity))
        rows, places = fill_bins(n, capacity), capacity
        squares = [(row, capacity) for row in rows]
        caption = _say(
            "explorer.packed",
            **counts,
            rows=len(rows),
            capacity=capacity,
            share=percent(1 - total / (len(rows) * capacity)),
            scores=f"{sum(k * k for k in n):,}",
        )
    heads = [
        svg.text(2, 16, _say("explorer.memory"), weight="bold", size=13),
        svg.text(_SIDE + 26, 16, _say("explorer.scores"), weight="bold", size=13),
    ]
    shapes = [*heads, *_rows(n, rows, places), *_squares(n, squares, way == "one causal row")]
    picture = svg.picture(2 * _SIDE + 30, _SIDE + 30, f"{way}. {caption}", *shapes)
    return svg.card(picture, caption=caption)


def packing_explorer() -> Card:
    """Lengths, the way they are laid out, and the capacity of a row."""
    return card(
        render_packing_explorer,
        entry("lengths", "37, 120, 8, 200", label="lengths"),
        choice("way", "padded", WAYS, label="way"),
        slider("capacity", 256, 16, LONGEST, label="capacity (packed)"),
    )
