"""The batch of lesson 08 as a picture, and its explorer: a workload's sliders, and the predicted rungs."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.bench.ladder import RUNGS
from course_lib.classroom import svg
from course_lib.classroom.figures import bytes_text
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider
from course_lib.lessons.lesson_08_measure import Machine
from course_lib.lessons.lesson_08_predict import LAPTOP, PARTS, lengths_like, seconds_of
from course_lib.models import GPTConfig
from course_lib.training.memory import training_memory

DOCUMENTS, WIDTH, LAYERS, HEADS = 64, 384, 6, 6
"""Those of the full ladder."""
MEMORY = {
    "weights and optimiser": ("weights", "optimizer state", "gradients"),
    "activations": ("activations", "half-precision weights", "batch", "workspace"),
    "logits": ("logits",),
}
_CAPTIONS = {"time": "explorer.time", "memory": "explorer.memory"}
_TIME_COLOURS = (svg.BLUE, svg.ORANGE, svg.GREEN, svg.SKY)
_MEMORY_COLOURS = (svg.SKY, svg.BLUE, svg.GREEN)


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_08.{key}", **values)


def batch_figure(lengths: Sequence[int]) -> svg.Picture:
    """A padded batch: a row for each document, what is there filled, padding framed."""
    longest, real = max(lengths), sum(lengths)
    slots = longest * len(lengths)
    scale = 500 / longest
    shapes = []
    for i, length in enumerate(lengths):
        y = 4 + 20 * i
        shapes.append(svg.rectangle(40, y, 500, 16, stroke=svg.FAINT))
        shapes.append(svg.rectangle(40, y, length * scale, 16, fill=svg.BLUE, stroke="none"))
        shapes.append(svg.text(34, y + 13, length, anchor="end", size=12))
    held = f"{real:,} of {slots:,} slots hold a token, {real / slots:.0%}"
    title = f"{len(lengths)} documents padded to {longest}: {held}"
    drawn = svg.picture(544, 8 + 20 * len(lengths), title, *shapes)
    caption = _say("pictures.batch", real=f"{real:,}", slots=f"{slots:,}", share=f"{1 - real / slots:.0%}")
    return svg.Picture(svg.card(drawn, caption=caption), title)


def _config(number: int, vocabulary: int, kv_heads: int) -> GPTConfig:
    """The model of a rung of the full ladder, with another vocabulary and other groups."""
    rung = RUNGS[number]
    return GPTConfig(
        vocab_size=vocabulary,
        dim=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        num_kv_heads=kv_heads if rung.grouped else None,
        feed_forward="swiglu" if rung.swiglu else "gelu",
        recompute=rung.swiglu,
        positions="learned",
        norm="layernorm",
        max_length=4096,
    )


def _memory(number: int, config: GPTConfig, lengths: Sequence[int], precision: str) -> dict[str, float]:
    rung = RUNGS[number]
    rows, length = (1, sum(lengths)) if rung.packed else (len(lengths), max(lengths))
    budget = training_memory(
        config,
        rows=rows,
        length=length,
        attention="dense" if rung.dense else "memory-efficient",
        precision=precision if rung.amp else "fp32",
        chunked_loss=rung.chunked_loss,
        fused=True if rung.fused else None,
    )
    held = budget.moments[budget.moment]
    return {part: float(sum(held.get(name, 0) for name in names)) for part, names in MEMORY.items()}


def render_ladder(
    show: str, longest: int, padding: int, vocabulary: int, kv_heads: int, half_speed: float
) -> str:
    """Every rung as a bar of what it is predicted to take, in time on a laptop or in memory."""
    lengths = lengths_like(DOCUMENTS, longest, padding / 100)
    machine = Machine(LAPTOP.products, LAPTOP.products * half_speed, LAPTOP.memory)
    rows: list[dict[str, float]] = []
    for rung in RUNGS:
        config = _config(rung.number, vocabulary, kv_heads)
        if show == "time":
            rows.append(seconds_of(rung, config, lengths, machine))
        else:
            rows.append(_memory(rung.number, config, lengths, "bf16" if half_speed > 1 else "fp32"))
    colours = _TIME_COLOURS if show == "time" else _MEMORY_COLOURS
    parts = PARTS if show == "time" else tuple(MEMORY)
    first, last = sum(rows[0].values()), sum(rows[-1].values())
    scale, left = 340 / max(sum(row.values()) for row in rows), 138
    shapes, x = [], 4.0
    for part, colour in zip(parts, colours, strict=True):
        shapes.append(svg.rectangle(x, 4, 14, 14, fill=colour, stroke="none"))
        shapes.append(svg.text(x + 19, 16, part, size=13))
        x += 34 + 7.6 * len(part)
    for i, (rung, row) in enumerate(zip(RUNGS, rows, strict=True)):
        y, at, total = 30 + 26 * i, float(left), sum(row.values())
        shapes.append(svg.text(left - 6, y + 15, rung.name, anchor="end", size=13))
        for part, colour in zip(parts, colours, strict=True):
            shapes.append(svg.rectangle(at, y, row[part] * scale, 20, fill=colour, stroke="none"))
            at += row[part] * scale
        amount = f"{total:.3g} s" if show == "time" else bytes_text(total)
        times = f" · 1/{first / total:.1f}" if i and total < first else ""
        shapes.append(svg.text(at + 5, y + 15, amount + times, size=12))
    real = sum(lengths)
    share = 1 - real / (len(lengths) * max(lengths))
    largest = max(rows[-1], key=lambda part: rows[-1][part])
    title = f"Predicted {show} by rung: the top takes 1/{first / last:.1f} of rung 0"
    said = [
        _say(_CAPTIONS[show], gain=f"{first / last:.1f}", real=f"{real:,}", share=f"{share:.0%}"),
        _say("explorer.left", part=largest, share=f"{rows[-1][largest] / last:.0%}"),
    ]
    drawn = svg.picture(618, 34 + 26 * len(RUNGS), title, *shapes)
    return svg.card(drawn, caption=" ".join(said))


def ladder_explorer() -> Card:
    """The full ladder's model: slide its workload, and see which rungs are worth climbing."""
    return card(
        render_ladder,
        choice("show", "time", ["time", "memory"], label="show"),
        slider("longest", 512, 64, 2048, step=64, label="longest document"),
        slider("padding", 65, 0, 90, step=5, label="padding, %"),
        choice("vocabulary", 4096, [4096, 16384, 50272], label="vocabulary"),
        choice("kv_heads", 2, [1, 2, 3, 6], label="kv heads"),
        slider("half_speed", 1.0, 1.0, 8.0, step=0.5, label="half precision, times as fast"),
    )
