"""One look for all matplotlib figures, and the printed digest below each, which is what nbval compares.

    with figure(height=3.2) as (fig, axes):
        axes.plot(lengths, workspace, color=BLUE)
        label_end(axes, lengths, workspace, "tiled", BLUE)
        bytes_axis(axes.yaxis)
    digest("tiled workspace, MiB", [w / 2**20 for w in workspace])

The card is opaque and light, so that a figure reads on dark pages too. Labels stay in Latin script:
matplotlib before 3.11 cannot shape Bangla. A picture with Bangla words is SVG (`course_lib.classroom.svg`).
"""

import math
import numbers
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat

# Okabe and Ito's palette: told apart by colour-blind readers, and apart in grey.
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, BLACK, GREY = "#56b4e9", "#cc79a7", "#1f1f1f", "#767676"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)

_STYLE: dict[str, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "figure.dpi": 100,
    "savefig.dpi": 100,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "text.color": BLACK,
    "axes.labelcolor": BLACK,
    "axes.edgecolor": GREY,
    "xtick.color": BLACK,
    "ytick.color": BLACK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "lines.linewidth": 2.2,
    "lines.markersize": 6,
    "svg.hashsalt": "lean-transformers",
    "legend.frameon": False,
}


@contextmanager
def figure(
    *, width: int | float = 6.0, height: int | float = 3.4, rows: int = 1, columns: int = 1, **subplots: Any
) -> Iterator[tuple[Any, Any]]:
    """`(fig, axes)` in the course's style, shown by `plt.show()` on the way out. Inches; 6 is 600 px.

    axes is one Axes, or an array of them as `plt.subplots` gives.
    """
    import matplotlib.pyplot as plt
    from cycler import cycler

    style: Any = {**_STYLE, "axes.prop_cycle": cycler(color=PALETTE)}
    with plt.rc_context(style):
        fig, axes = plt.subplots(rows, columns, figsize=(width, height), **subplots)
        try:
            yield fig, axes
            plt.show()
        finally:
            plt.close(fig)


def label_end(
    axes: Any, x: Iterable[SupportsFloat], y: Iterable[SupportsFloat], words: str, colour: str
) -> None:
    """Write a line's name at its last point, in its colour, in place of a legend."""
    point = (list(x)[-1], list(y)[-1])
    axes.annotate(
        words,
        point,
        xytext=(6, 0),
        textcoords="offset points",
        color=colour,
        va="center",
        fontweight="bold",
        annotation_clip=False,
    )


def bytes_text(count: int | float) -> str:
    """Bytes for a reader, in binary units: 512 B, 1.5 KiB, 64 MiB."""
    if not math.isfinite(count) or count < 0:
        raise ValueError(f"count: expected a number of bytes of 0 or more, got {count}.")
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1023.95:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


def bytes_axis(axis: Any) -> None:
    """Write an axis (`axes.yaxis`) in binary units, with ticks at powers of two where it is logarithmic."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(base=2, numticks=9))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(max(value, 0))))


def digest(name: str, values: Iterable[SupportsFloat], *, digits: int = 3) -> None:
    """Print what a figure shows in one line, rounded to `digits` significant digits: the part nbval
    compares."""
    print(f"{name}: {', '.join(_rounded(value, digits) for value in values)}")


def _rounded(value: SupportsFloat, digits: int) -> str:
    if isinstance(value, numbers.Integral):
        return str(value)
    number = float(value)
    if not math.isfinite(number) or number == 0:
        return "0" if number == 0 else str(number)
    places = digits - 1 - math.floor(math.log10(abs(number)))
    rounded = round(number, places)
    return f"{rounded:.{max(places, 0)}f}".rstrip("0").rstrip(".") if places > 0 else str(int(rounded))
