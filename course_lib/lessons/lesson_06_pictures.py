"""The pictures and the widget of lesson 06: curves, a gate as a dimmer, widths to scale, losses, bytes kept."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.classroom import figures, svg
from course_lib.classroom.figures import bytes_text
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider

CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "sigmoid": torch.sigmoid,
}
GATED = {"ReLU": "ReGLU", "GELU": "GeGLU", "SiLU": "SwiGLU", "sigmoid": "GLU"}
"""The feed-forward that each curve makes as a gate."""


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_06.{key}", **values)


def _curve_and_slope(name: str, at: Sequence[float]) -> tuple[list[float], list[float]]:
    gate = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    curve = CURVES[name](gate)
    (slope,) = torch.autograd.grad(curve.sum(), gate)
    return curve.tolist(), slope.tolist()


def _number(number: float, digits: int = 2) -> str:
    """Rounded for a reader, without a zero that has a minus sign."""
    return f"{round(number, digits) + 0.0:.{digits}f}"


# --- what a block is made of -------------------------------------------------------------------------------------


def block_figure(attention: int, feed_forward: int, dim: int) -> svg.Picture:
    """How many of a layer's parameters lie in attention, and how many in the feed-forward."""
    total = attention + feed_forward
    parts = (("attention", attention), ("feed-forward", feed_forward))
    title = f"One layer of width {dim}: " + ", ".join(f"{name} {n / total:.0%}" for name, n in parts)
    items = [(name, n, f"{n:,} · {n / total:.0%}") for name, n in parts]
    drawn = svg.bars(items, title=title, colours=(svg.SKY, svg.BLUE))
    return svg.Picture(svg.card(drawn, caption=_say("pictures.block", dim=dim)), title)


# --- curves ------------------------------------------------------------------------------------------------------


def curves_figure() -> None:
    """Four activations, and their slopes."""
    at = [i / 20 for i in range(-100, 101)]
    colours = dict(zip(CURVES, (figures.GREY, figures.GREEN, figures.BLUE, figures.VERMILION), strict=True))
    dashes = dict(zip(CURVES, ("-", "--", "-", ":"), strict=True))
    with figures.figure(height=3.3, columns=2) as (_, axes):
        for name in CURVES:
            for axis, numbers in zip(axes, _curve_and_slope(name, at), strict=True):
                axis.plot(at, numbers, color=colours[name], linestyle=dashes[name], label=name)
        axes[0].set_title("what comes out")
        axes[1].set_title("its slope")
        for axis in axes:
            axis.set_xlabel("what goes in")
            axis.set_xlim(-5, 5)
        axes[0].set_ylim(-0.6, 4)
        axes[0].legend(loc="upper left")
    for name in CURVES:
        figures.digest(f"{name} at -3, -1, 0, 1, 3", _curve_and_slope(name, [-3.0, -1.0, 0.0, 1.0, 3.0])[0])


# --- a gate as a dimmer ------------------------------------------------------------------------------------------


def dimmer_figure(words: Sequence[str], gates: Sequence[float], ups: Sequence[float]) -> svg.Picture:
    """One neuron and the words of a sentence: what `up` offers, and how much of it the gate lets through."""
    opened = F.silu(torch.tensor(gates, dtype=torch.float64)).tolist()
    passed = [o * u for o, u in zip(opened, ups, strict=True)]
    scale = 150 / max(abs(n) for n in (*passed, *ups))
    columns = (104, 178, 232, 292)
    shapes = [
        svg.text(x, 18, head, anchor="end", size=12, weight="bold")
        for x, head in zip(columns, ("gate", "silu(gate)", "up", "passes"), strict=True)
    ]
    for i, (word, *numbers) in enumerate(zip(words, gates, opened, ups, passed, strict=True)):
        y = 28 + 30 * i
        shapes.append(svg.text(6, y + 18, word))
        shapes += [
            svg.text(x, y + 18, _number(number), anchor="end", size=13)
            for x, number in zip(columns, numbers, strict=True)
        ]
        offered, through = abs(numbers[2]) * scale, abs(numbers[3]) * scale
        colour = svg.ORANGE if numbers[1] < 0 else svg.BLUE
        shapes.append(svg.rectangle(304, y + 3, through, 20, fill=colour, stroke="none"))
        shapes.append(svg.rectangle(304, y + 3, offered, 20, stroke=svg.INK, stroke_width=1.5))
    title = "One neuron, word by word: " + "; ".join(
        f"{word}: {_number(u)} becomes {_number(p)}" for word, u, p in zip(words, ups, passed, strict=True)
    )
    drawn = svg.picture(470, 34 + 30 * len(words), title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.dimmer")), title)


# --- widths ------------------------------------------------------------------------------------------------------


def widths_figure(dim: int, plain: int, gated: int) -> svg.Picture:
    """The matrices of a plain and of a gated feed-forward, to one scale, side by side."""
    scale = 230 / plain
    side, rows = dim * scale, []
    for hidden, names in ((plain, ("up", "down")), (gated, ("gate (w1)", "up (w2)", "down (w3)"))):
        width = hidden * scale
        total = len(names) * dim * hidden
        head = f"{len(names)} of {dim} × {hidden} = {total:,}"
        shapes = [svg.text(1, 15, head, weight="bold", size=13)]
        for i, name in enumerate(names):
            y = 26 + (side + 8) * i
            colour = (svg.SKY, svg.BLUE, svg.GREEN)[i if len(names) == 3 else i + 1]
            shapes.append(svg.rectangle(1, y, width, side, fill=colour, stroke="none"))
            ink = "#1f1f1f" if colour == svg.SKY else "#ffffff"
            shapes.append(
                svg.text(1 + width / 2, y + side / 2 + 5, name, anchor="middle", size=13, colour=ink)
            )
        height = 26 + (side + 8) * len(names)
        rows.append(
            svg.picture(max(width, 232) + 4, height, f"{', '.join(names)}: {head} parameters", *shapes)
        )
    title = f"two matrices of {dim} × {plain} hold as many parameters as three of {dim} × {gated}"
    return svg.Picture(svg.card(*rows, caption=_say("pictures.widths", dim=dim)), title)


# --- losses ------------------------------------------------------------------------------------------------------


def losses_figure(losses: Mapping[str, Sequence[float]]) -> None:
    """Every run a dot, a row for each feed-forward; runs of one seed are joined by a thin line."""
    names = list(losses)
    rows = list(range(len(names)))
    with figures.figure(height=1.2 + 0.45 * len(names)) as (_, axes):
        for runs in zip(*losses.values(), strict=True):
            axes.plot(runs, rows, color=figures.GREY, linewidth=0.8, zorder=1)
        for row, name in zip(rows, names, strict=True):
            own = losses[name]
            axes.plot(own, [row] * len(own), "o", color=figures.BLUE, zorder=2)
            axes.plot(
                sum(own) / len(own), row, "|", color=figures.VERMILION, markersize=26, mew=2.5, zorder=3
            )
        axes.set_yticks(rows, names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel("loss on unseen stories, nats a token (lower is better)")
    for name in names:
        figures.digest(name, sorted(losses[name]))


# --- what is kept for the backward -------------------------------------------------------------------------------


def saved_figure(tokens: int, dim: int, hidden: int) -> svg.Picture:
    """What eager SwiGLU keeps for its backward, and what it keeps with recompute=True, in float32 to scale."""
    unit = 4 * tokens
    rows = (
        (
            "eager",
            (("x", dim), ("gate", hidden), ("up", hidden), ("silu(gate)", hidden), ("product", hidden)),
        ),
        ("recompute=True", (("x", dim),)),
    )
    scale = 590 / (dim + 4 * hidden)
    colours = (svg.GREEN, svg.BLUE, svg.BLUE, svg.ORANGE, svg.SKY)
    shapes = []
    for i, (name, parts) in enumerate(rows):
        y, x = 6 + 66 * i, 1.0
        total = bytes_text(unit * sum(width for _, width in parts))
        shapes.append(svg.text(1, y + 14, f"{name}: {total}", weight="bold"))
        for (part, width), colour in zip(parts, colours, strict=False):
            shapes.append(
                svg.rectangle(x, y + 22, width * scale, 30, fill=colour, stroke=svg.PAPER, stroke_width=1.5)
            )
            ink = "#ffffff" if colour in (svg.BLUE, svg.GREEN) else "#1f1f1f"
            place = x + width * scale / 2
            shapes.append(svg.text(place, y + 42, part, anchor="middle", size=12, colour=ink))
            x += width * scale
    title = f"{tokens:,} tokens of width {dim}: eager keeps x and four tensors of {hidden}, recompute=True keeps x."
    drawn = svg.picture(592, 132, title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.saved", dim=dim, tokens=f"{tokens:,}")), title)


# --- the widget --------------------------------------------------------------------------------------------------

_LEFT, _TOP, _X, _Y = 30, 14, 28.0, 30.0  # the plot's corner, and pixels a unit
_HIGH, _LOW = 4.0, -1.0
_REACH = 5.0


def _place(x: float, y: float) -> tuple[float, float]:
    return _LEFT + (x + _REACH) * _X, _TOP + (_HIGH - min(max(y, _LOW), _HIGH)) * _Y


def _line(xs: Sequence[float], ys: Sequence[float], colour: str, dash: str = "") -> str:
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in (_place(x, y) for x, y in zip(xs, ys, strict=True)))
    style = f"fill:none;stroke:{colour};stroke-width:2.5" + (f";stroke-dasharray:{dash}" if dash else "")
    return f'<polyline points="{points}" style="{style}"/>'


def _axes() -> list[str]:
    shapes = [_line([-_REACH, _REACH], [0, 0], svg.FAINT), _line([0, 0], [_LOW, _HIGH], svg.FAINT)]
    for x in (-4, -2, 2, 4):
        px, py = _place(x, 0)
        shapes.append(svg.text(px, py + 15, x, anchor="middle", size=11))
    for y in (1, 2, 3):
        px, py = _place(0, y)
        shapes.append(svg.text(px - 6, py + 4, y, anchor="end", size=11))
    return shapes


def _bar(x: float, value: float, label: str, colour: str) -> str:
    """An upright bar of `value`, 0 where the plot's 0 is, with its number at the end."""
    length = min(abs(value), 4.0 if value >= 0 else 1.6) * _Y
    zero = _place(0, 0)[1]
    top = zero - length if value >= 0 else zero
    place = top - 5 if value >= 0 else top + length + 14
    under = zero + 16 if value >= 0 else zero - 6
    return "".join(
        (
            svg.rectangle(x, top, 44, max(length, 1), fill=colour, stroke="none"),
            svg.text(x + 22, place, _number(value), anchor="middle", size=12),
            svg.text(x + 22, under, label, anchor="middle", size=12),
        )
    )


def render_activation(activation: str, gate: float, up: float) -> str:
    """The curve and its slope with the gate marked, and beside it what passes of `up`."""
    xs = [i / 10 for i in range(-50, 51)]
    curve, slopes = _curve_and_slope(activation, xs)
    (opening,), (slope,) = _curve_and_slope(activation, [gate])
    passed = opening * up
    px, py = _place(gate, opening)
    right = _LEFT + 2 * _REACH * _X + 26
    shapes = [
        *_axes(),
        *_clipped(xs, slopes, svg.ORANGE, "5 4"),
        *_clipped(xs, curve, svg.BLUE),
        _line([gate, gate], [0, opening], svg.VERMILION),
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" style="fill:{svg.VERMILION}"/>',
        svg.text(_LEFT + 4, _TOP + 12, activation, colour=svg.BLUE, weight="bold", size=13),
        svg.text(_LEFT + 4, _TOP + 30, "╌ slope", weight="bold", size=13),
        _bar(right, up, "up", svg.SKY),
        _bar(right + 62, passed, "passes", svg.VERMILION),
    ]
    title = (
        f"{activation} at a gate of {_number(gate, 1)}: {_number(opening)}, slope {_number(slope)}; "
        f"of {_number(up, 1)}, {_number(passed)} passes. As a gate this curve makes {GATED[activation]}."
    )
    said = [
        _say(
            "explorer.passes",
            gate=_number(gate, 1),
            activation=activation,
            opening=_number(opening),
            up=_number(up, 1),
            passed=_number(passed),
        ),
        _say("explorer.slope", slope=_number(slope)),
    ]
    if slope == 0:
        said.append(_say("explorer.dead"))
    elif opening < 0:
        said.append(_say("explorer.turned"))
    if activation == "sigmoid":
        said.append(_say("explorer.bounded"))
    drawn = svg.picture(right + 116, _TOP + (_HIGH - _LOW) * _Y + 24, title, *shapes)
    return svg.card(drawn, caption=" ".join(said))


def _clipped(xs: Sequence[float], ys: Sequence[float], colour: str, dash: str = "") -> list[str]:
    """A curve as far as it lies inside of the plot."""
    inside = [(x, y) for x, y in zip(xs, ys, strict=True) if _LOW <= y <= _HIGH]
    gaps = [i + 1 for i, ((a, _), (b, _)) in enumerate(pairwise(inside)) if not math.isclose(b - a, 0.1)]
    pieces = [inside[i:j] for i, j in pairwise([0, *gaps, len(inside)])]
    return [_line([x for x, _ in piece], [y for _, y in piece], colour, dash) for piece in pieces]


def activation_explorer() -> Card:
    """An activation as a gate: slide what goes in and what `up` offers."""
    return card(
        render_activation,
        choice("activation", "SiLU", list(CURVES), label="activation"),
        slider("gate", 1.0, -5.0, 5.0, step=0.5, label="gate"),
        slider("up", 2.0, -3.0, 3.0, step=0.5, label="up"),
    )
