"""The SVG pictures and the widget of lesson 07: number formats to scale, the GPT, a format laid over gradients."""

from __future__ import annotations

import math

from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, slider
from course_lib.lessons.lesson_07_gradients import measured_beforehand
from course_lib.models import GPT

FORMATS = {"fp32": (8, 23), "tf32": (8, 10), "bf16": (8, 7), "fp16": (5, 10)}
"""Bits of exponent and mantissa. A sign has one more."""
NAMED = {bits: name for name, bits in FORMATS.items()} | {(5, 2): "fp8 e5m2"}


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_07.{key}", **values)


def ends(exponent_bits: int, mantissa_bits: int) -> tuple[float, float, float]:
    """The smallest number over 0, the smallest with full precision, and the largest."""
    bias = 2 ** (exponent_bits - 1) - 1
    return (
        2.0 ** (1 - bias - mantissa_bits),
        2.0 ** (1 - bias),
        (2 - 2.0**-mantissa_bits) * 2.0**bias,
    )


# --- bits --------------------------------------------------------------------------------------------------------


def formats_figure() -> svg.Picture:
    """One row a format, one cell a bit: sign, exponent, mantissa."""
    cell, left, shapes = 16, 50, []
    for row, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        y = 24 + 42 * row
        shapes.append(svg.text(left - 8, y + 19, name, anchor="end", weight="bold"))
        for bit in range(1 + exponent + mantissa):
            fill = svg.ORANGE if bit == 0 else svg.GREEN if bit <= exponent else svg.SKY
            shapes.append(
                svg.rectangle(left + cell * bit, y, cell, 28, fill=fill, stroke=svg.PAPER, stroke_width=1.5)
            )
        middle = y + 19
        for at, count in ((1, exponent), (1 + exponent, mantissa)):
            shapes.append(
                svg.text(
                    left + cell * (at + count / 2),
                    middle,
                    count,
                    anchor="middle",
                    colour="#1f1f1f",
                    weight="bold",
                )
            )
    for at, count, word in ((0, 1, "sign"), (1, 8, "exponent"), (9, 23, "mantissa")):
        anchor = "end" if at == 0 else "middle"
        x = left + cell if at == 0 else left + cell * (at + count / 2)
        shapes.append(svg.text(x, 16, word, anchor=anchor, size=13))
    title = "Bits to scale: " + "; ".join(
        f"{name} 1 sign, {e} exponent, {m} mantissa" for name, (e, m) in FORMATS.items()
    )
    drawn = svg.picture(left + 32 * cell + 4, 24 + 42 * len(FORMATS), title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.formats")), title)


# --- the model ---------------------------------------------------------------------------------------------------


def parts_of(model: GPT) -> list[tuple[str, int, str]]:
    """(part, its parameters, the lesson that built it), from the tokens up; those of a layer are of one layer."""
    layer = model.layers[0]

    def count(module: object) -> int:
        return sum(parameter.numel() for parameter in module.parameters())  # type: ignore[attr-defined]

    return [
        ("tokens, packed", 0, "03"),
        ("embedding", count(model.embed), "03"),
        ("norm", count(layer.attention_norm), "07"),
        ("grouped-query attention", count(layer.attention), "04"),
        ("norm", count(layer.feed_forward_norm), "07"),
        ("SwiGLU", count(layer.feed_forward), "06"),
        ("norm", count(model.norm), "07"),
        ("head, tied to the embedding", 0, "03"),
    ]


def gpt_figure(model: GPT) -> svg.Picture:
    """The model from the bottom up, each part with its parameters and its lesson."""
    parts, layers = parts_of(model), model.config.num_layers
    width, height, left = 280, 30, 84
    # Above each part but the last. The wide ones hold the start of a branch, or its +.
    gaps = (12, 34, 12, 40, 12, 40, 12)
    y = {len(parts) - 1: 16}
    for i in range(len(parts) - 2, -1, -1):
        y[i] = y[i + 1] + height + gaps[i]
    middle, branch = left + width / 2, left + width + 16
    colours = (svg.PAPER, svg.SKY, svg.PAPER, svg.BLUE, svg.PAPER, svg.GREEN, svg.PAPER, svg.SKY)
    shapes = [
        svg.rectangle(
            left - 14, y[5] - 30, width + 44, y[2] + height - y[5] + 46, stroke=svg.FAINT, stroke_width=1.5
        ),
        svg.text(
            left - 22, (y[5] + y[2] + height) / 2 + 5, f"{layers} ×", anchor="end", size=18, weight="bold"
        ),
    ]
    shapes += [
        f'<line x1="{middle}" y1="{y[i - 1]}" x2="{middle}" y2="{y[i] + height}" '
        f'style="stroke:{svg.INK};stroke-width:1.2"/>'
        for i in range(1, len(parts))
    ]
    # A branch around attention and around the feed-forward: what they return is added.
    for bottom, top in ((2, 3), (4, 5)):
        start, end = y[bottom] + height + 8, y[top] - 14
        shapes += [
            f'<polyline points="{middle},{start} {branch},{start} {branch},{end} {middle},{end}" '
            f'style="fill:none;stroke:{svg.INK};stroke-width:1.2"/>',
            f'<circle cx="{middle}" cy="{end}" r="8" style="fill:{svg.PAPER};stroke:{svg.INK};stroke-width:1.2"/>',
            svg.text(middle, end + 5, "+", anchor="middle", weight="bold"),
        ]
    for i, (name, count, lesson) in enumerate(parts):
        shapes.append(svg.rectangle(left, y[i], width, height, fill=colours[i], stroke=svg.INK))
        ink = (
            svg.INK
            if colours[i] == svg.PAPER
            else "#ffffff"
            if colours[i] in (svg.BLUE, svg.GREEN)
            else "#1f1f1f"
        )
        shapes.append(svg.text(middle, y[i] + 20, name, anchor="middle", colour=ink))
        if count:
            shapes.append(svg.text(left + width + 104, y[i] + 20, f"{count:,}", anchor="end"))
        shapes.append(svg.text(left + width + 116, y[i] + 20, f"lesson {lesson}", size=13))
    title = f"{model.config.num_layers} layers of {model.config.dim}: " + ", ".join(
        f"{name} ({count:,}, lesson {lesson})" if count else f"{name} (lesson {lesson})"
        for name, count, lesson in parts
    )
    drawn = svg.picture(left + width + 184, y[0] + height + 10, title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.gpt")), title)


# --- the widget --------------------------------------------------------------------------------------------------

_LOW, _HIGH, _LEFT, _STEP, _BASE, _TALL = -64, 24, 10, 6.4, 190, 150


def _x(power: float) -> float:
    return _LEFT + (min(max(power, _LOW), _HIGH + 1) - _LOW) * _STEP


def _power(number: float) -> str:
    """A number as itself where it is short, else the power of two next to it."""
    return f"{number:,.0f}" if 1 < number < 1e7 else f"2^{math.log2(number):.0f}"


def render_range(exponent: int, mantissa: int, power: int) -> str:
    """Gradients that were measured beforehand, multiplied by ``2**power``, over what a format can hold."""
    smallest, normal, largest = ends(exponent, mantissa)
    shares = {at + power: share for at, share in measured_beforehand().items()}
    # Half of the smallest number is still rounded up to it.
    vanishing = sum(share for at, share in shares.items() if at < math.log2(smallest) - 1)
    overflowing = sum(share for at, share in shares.items() if at >= math.log2(largest))
    top = max(shares.values())
    bands = (
        (_LOW, math.log2(smallest) - 1, "#d55e0033"),
        (math.log2(smallest) - 1, math.log2(normal), "#56b4e94d"),
        (math.log2(normal), math.log2(largest), "#0072b233"),
        (math.log2(largest), _HIGH + 1, "#d55e0033"),
    )
    shapes = [
        svg.rectangle(_x(a), 22, _x(b) - _x(a), _BASE - 22, fill=fill, stroke="none")
        for a, b, fill in bands
        if _x(b) > _x(a)
    ]
    for at, share in sorted(shares.items()):
        if _LOW <= at <= _HIGH and share:
            tall = max(share / top * _TALL, 0.7)
            lost = at < math.log2(smallest) - 1 or at >= math.log2(largest)
            fill = svg.VERMILION if lost else svg.BLUE
            shapes.append(
                svg.rectangle(_x(at) + 0.6, _BASE - tall, _STEP - 1.2, tall, fill=fill, stroke="none")
            )
    for at in range(-60, _HIGH + 1, 10):
        shapes.append(svg.text(_x(at), _BASE + 16, f"2^{at}" if at else "1", anchor="middle", size=11))
    for a, b, word in (
        (bands[0][0], bands[0][1], "0"),
        (bands[1][0], bands[2][1], "kept"),
        (*bands[3][:2], "inf"),
    ):
        if _x(b) - _x(a) > 16:
            shapes.append(svg.text((_x(a) + _x(b)) / 2, 16, word, anchor="middle", size=13, weight="bold"))
    name = NAMED.get((exponent, mantissa), "")
    said = [
        _say(
            "explorer.format",
            exponent=exponent,
            mantissa=mantissa,
            name=f" ({name})" if name else "",
            smallest=_power(smallest),
            largest=_power(largest),
            spacing=_power(2.0**-mantissa),
        ),
        _say(
            "explorer.shares",
            power=str(power),
            vanishing=_percent(vanishing),
            overflowing=_percent(overflowing),
        ),
    ]
    if overflowing:
        said.append(_say("explorer.step_lost"))
    elif not vanishing:
        said.append(_say("explorer.good"))
    drawn = svg.picture(_x(_HIGH + 1) + 14, _BASE + 24, " ".join(said), *shapes)
    return svg.card(drawn, caption=" ".join(said))


def _percent(share: float) -> str:
    if share == 0:
        return "0 %"
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.2g} %"


def range_widget() -> Card:
    """Slide the bits of a format, and the loss scale, over the gradients of a trained GPT."""
    return card(
        render_range,
        slider("exponent", 5, 4, 8, label="exponent bits"),
        slider("mantissa", 10, 2, 10, label="mantissa bits"),
        slider("power", 0, 0, 32, label="loss scale, 2^"),
    )
