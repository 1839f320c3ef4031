"""Draws the README's picture, for light and dark pages: `python assets/course_map.py`.

Four parts, each named for what does not fit in memory, with its lessons below. Standard library only.
"""

from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN, GAP = 960, 452, 16, 16
COLUMN = (WIDTH - 2 * MARGIN - 3 * GAP) / 4

PARTS = [  # (what is too big, what the part does about it, its lessons)
    ("Scores", "n² becomes n", ["00 start here", "01 causal masking", "02 tiled attention", "03 packing"]),
    ("Cache and layers", "fewer heads, less saved", ["04 grouped queries", "05 ALiBi", "06 SwiGLU"]),
    ("Training", "half the bytes, the same loss", ["07 AMP training", "08 the ladder"]),
    (
        "Weights",
        "on disk, and running",
        ["09 OPT and generation", "10 offloading", "11 planning", "12 four bits"],
    ),
]
THEMES = {
    "light": {
        "ink": "#1f2328",
        "soft": "#59636e",
        "line": "#d1d9e0",
        "card": "#f6f8fa",
        "parts": ("#0072b2", "#b3560f", "#007a59", "#a04a7f"),
    },
    "dark": {
        "ink": "#f0f6fc",
        "soft": "#9198a1",
        "line": "#3d444d",
        "card": "#151b23",
        "parts": ("#56b4e9", "#e69f00", "#2fc39a", "#e08fc0"),
    },
}
Theme = dict[str, str | tuple[str, ...]]


def rectangle(
    x: float, y: float, width: float, height: float, fill: str, *, radius: float = 3, **more: object
) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect {place} fill="{fill}"{extra}/>'


def label(
    x: float, y: float, words: str, fill: str, *, size: float = 14, weight: int = 400, anchor: str = "start"
) -> str:
    style = f'font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def draw_scores(x: float, y: float, colour: str, theme: Theme) -> list[str]:
    """A causal score matrix cut into tiles: full below the diagonal, half on it, skipped above."""
    cell, step, shapes = 17, 20, []
    for row in range(6):
        for column in range(6):
            left, top = x + column * step, y + row * step
            if column < row:
                shapes.append(rectangle(left, top, cell, cell, colour))
            elif column == row:
                shapes.append(f'<path d="M{left:g} {top:g}v{cell}h{cell}z" fill="{colour}"/>')
            else:
                shapes.append(rectangle(left, top, cell, cell, "none", stroke=theme["line"], stroke_width=1))
    return shapes


def draw_groups(x: float, y: float, colour: str, theme: Theme) -> list[str]:
    """Eight query heads that share two heads of the cache."""
    shapes = []
    for head in range(8):
        left = x - 34 + head * 24
        group = x - 34 + (head // 4) * 96 + 46
        line = f"M{left + 9:g} {y + 36:g}L{group:g} {y + 82:g}"
        shapes.append(f'<path d="{line}" stroke="{colour}" opacity="0.6"/>')
        shapes.append(rectangle(left, y + 14, 18, 22, "none", stroke=colour, stroke_width=2))
    for group in range(2):
        shapes.append(rectangle(x - 34 + group * 96 + 28, y + 82, 36, 22, colour))
    return shapes


def draw_ladder(x: float, y: float, colour: str, theme: Theme) -> list[str]:
    """Steps of memory, each lower than the one before."""
    heights = (112, 84, 62, 44, 30)
    steps = []
    for index, height in enumerate(heights):
        opacity = 0.35 if index < len(heights) - 1 else 1
        steps.append(rectangle(x - 24 + index * 34, y + 116 - height, 27, height, colour, opacity=opacity))
    return steps


def draw_tiers(x: float, y: float, colour: str, theme: Theme) -> list[str]:
    """Three stores, the fast one small and the large one slow, with arrows between."""
    shapes = []
    for index, (name, width) in enumerate((("GPU", 62), ("RAM", 122), ("disk", 182))):
        top = y + index * 42
        middle = x + 60
        shapes.append(rectangle(middle - width / 2, top, width, 28, colour, opacity=(1, 0.5, 0.25)[index]))
        words = str(theme["ink"] if index else theme["card"])
        shapes.append(label(middle, top + 19, name, words, size=13, weight=700, anchor="middle"))
        if index:
            for shift, arrow in ((-8, "M0 0V9M-3 3L0 0L3 3"), (8, "M0 0V9M-3 6L0 9L3 6")):
                place = f'transform="translate({middle + shift:g} {top - 11.5:g})"'
                shapes.append(f'<path {place} d="{arrow}" fill="none" stroke="{theme["ink"]}"/>')
    return shapes


def draw(theme: Theme) -> str:
    """The whole picture as an SVG document."""
    ink, soft, line, card = (str(theme[name]) for name in ("ink", "soft", "line", "card"))
    pictures = (draw_scores, draw_groups, draw_ladder, draw_tiers)
    title = "Map of the course: four parts, each named for what does not fit in memory, and their 13 lessons"
    font = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{font}">',
        f"<title>{title}</title>",
    ]
    for index, (name, promise, lessons) in enumerate(PARTS):
        left, colour = MARGIN + index * (COLUMN + GAP), str(theme["parts"][index])
        shapes.append(rectangle(left, 8, COLUMN, HEIGHT - 16, card, radius=10, stroke=line))
        shapes.append(label(left + 18, 42, name, ink, size=19, weight=700))
        shapes.append(label(left + 18, 64, promise, soft, size=13.5))
        shapes += pictures[index](left + COLUMN / 2 - 60, 88, colour, theme)
        for row, lesson in enumerate(lessons):
            top = 248 + row * 48
            number, words = lesson.split(" ", 1)
            shapes.append(f'<path d="M{left + 18:g} {top - 14}H{left + COLUMN - 18:g}" stroke="{line}"/>')
            shapes.append(label(left + 18, top + 15, number, colour, size=16, weight=700))
            shapes.append(label(left + 48, top + 15, words, ink, size=14.5))
    return "\n".join([*shapes, "</svg>"]) + "\n"


def main() -> None:
    for name, theme in THEMES.items():
        path = Path(__file__).with_name(f"course_map_{name}.svg")
        path.write_text(draw(theme), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
