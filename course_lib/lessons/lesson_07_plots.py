"""The matplotlib figures of lesson 07: reach of formats, sizes of gradients, small updates, memory, loss curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.classroom import figures
from course_lib.classroom.figures import bytes_text
from course_lib.lessons.lesson_07_gradients import VANISHES, Sizes
from course_lib.lessons.lesson_07_pictures import FORMATS, ends
from course_lib.training.memory import PARTS

FP16_NORMAL, FP16_TOP = -14, 16
"""Powers of two where fp16's full precision begins, and where it ends."""


def ranges_figure() -> None:
    """From the smallest to the largest number of each format, on a logarithmic axis."""
    names = list(FORMATS)
    with figures.figure(height=2.9) as (_, axes):
        for row, name in enumerate(names):
            bits = FORMATS[name]
            smallest, normal, largest = (math.log10(end) for end in ends(*bits))
            axes.barh(row, largest - normal, left=normal, height=0.5, color=figures.BLUE)
            axes.barh(row, normal - smallest, left=smallest, height=0.5, color=figures.SKY)
            axes.text(largest + 1, row, name, va="center", fontweight="bold")
        axes.axvline(0, color=figures.BLACK, linewidth=1)
        axes.set_yticks([])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(-48, 50)
        axes.set_xticks(range(-40, 41, 10), [f"$10^{{{p}}}$" if p else "1" for p in range(-40, 41, 10)])
        axes.set_xlabel("size of a number (dark: full precision; light: subnormal)")
    for name in names:
        figures.digest(f"{name}, powers of ten", [math.log10(end) for end in ends(*FORMATS[name])])


def gradients_figure(sizes: Mapping[str, Sizes], scale_power: int = 0) -> None:
    """Shares of gradients by size, before and after multiplication by ``2**scale_power``, over what fp16 can hold."""
    low, high = -60, 20
    labels = {"logits": "at the logits", "layers": "inside the layers", "weights": "of the weights"}
    colours = dict(zip(labels, (figures.VERMILION, figures.BLUE, figures.GREEN), strict=True))
    with figures.figure(height=3.6) as (_, axes):
        axes.axvspan(low, VANISHES, color="#f3d9cc", zorder=0)
        axes.axvspan(FP16_TOP, high, color="#f3d9cc", zorder=0)
        axes.axvspan(VANISHES, FP16_NORMAL, color="#e3eef6", zorder=0)
        for key, words in labels.items():
            shares = sizes[key].shares(low - scale_power, high - scale_power)
            axes.plot(
                range(low, high + 1), [100 * share for share in shares], color=colours[key], label=words
            )
        top = axes.get_ylim()[1] * 1.18
        axes.set_ylim(0, top)
        for x, words in ((-44, "fp16 makes 0\nof these"), (-19.5, "sub-\nnormal"), (18, "inf")):
            axes.text(x, top * 0.98, words, ha="center", va="top", fontsize=10)
        axes.set_xlim(low, high)
        axes.set_xticks(range(low, high + 1, 10), [f"$2^{{{p}}}$" for p in range(low, high + 1, 10)])
        axes.set_xlabel("size of a gradient" + (f", times $2^{{{scale_power}}}$" if scale_power else ""))
        axes.set_ylabel("% of them")
        axes.legend(loc="center left", fontsize=10)


def updates_figure(weights: Mapping[str, Sequence[float]]) -> None:
    """A weight over many small updates, in each dtype."""
    colours = {"fp32": figures.BLUE, "fp16": figures.GREEN, "bf16": figures.VERMILION}
    with figures.figure(height=3.0) as (_, axes):
        for name, values in weights.items():
            steps = range(len(values))
            axes.plot(steps, values, color=colours[name])
            axes.annotate(
                name,
                (len(values) - 1, values[-1]),
                xytext=(6, -9 if name == "fp16" else 3),  # fp32 ends right above it
                textcoords="offset points",
                color=colours[name],
                fontweight="bold",
                annotation_clip=False,
            )
        axes.set_xlim(0, 1.1 * (len(next(iter(weights.values()))) - 1))
        axes.set_xlabel("updates of 0.001")
        axes.set_ylabel("the weight")
    for name, values in weights.items():
        figures.digest(name, [values[0], values[len(values) // 2], values[-1]])


def memory_figure(budgets: Mapping[str, Any]) -> None:
    """What training holds at its fullest moment, part by part, a bar for each config."""
    held = [budget.moments[budget.moment] for budget in budgets.values()]
    peak = max(budget.peak for budget in budgets.values())
    # What could not be seen needs no place in the legend.
    parts = [part for part in PARTS if max(moment.get(part, 0) for moment in held) > 0.005 * peak]
    with figures.figure(height=1.5 + 0.75 * len(budgets)) as (_, axes):
        for row, budget in enumerate(budgets.values()):
            left = 0
            for part, colour in zip(parts, _colours(len(parts)), strict=True):
                size = budget.moments[budget.moment].get(part, 0)
                axes.barh(row, size, left=left, color=colour, height=0.55, label=part if row == 0 else None)
                left += size
            axes.text(left * 1.01, row, bytes_text(left), va="center", fontweight="bold")
        axes.set_yticks(range(len(budgets)), list(budgets))
        axes.set_ylim(len(budgets) - 0.4, -0.6)
        axes.set_xlim(0, 1.22 * peak)
        unit = 2.0 ** math.floor(math.log2(peak / 4))
        axes.set_xticks([unit * i for i in range(int(1.22 * peak / unit) + 1)])
        figures.bytes_axis(axes.xaxis)
        axes.legend(ncols=3, fontsize=9, loc="upper center", bbox_to_anchor=(0.45, -0.18))
    for name, budget in budgets.items():
        figures.digest(f"{name}, MiB", [budget.peak / 2**20])


def _colours(count: int) -> list[str]:
    more = (*figures.PALETTE, figures.GREY, figures.BLACK)
    return [more[i % len(more)] for i in range(count)]


def curves_figure(records: Sequence[Any], held_out: Sequence[tuple[int, float]]) -> None:
    """The loss of each step, its running mean, and the losses on text that is not trained on."""
    steps = [record.step for record in records]
    losses = [record.loss for record in records]
    window = max(1, len(losses) // 20)
    smooth = [sum(losses[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(losses))]
    with figures.figure(height=3.4) as (_, axes):
        axes.plot(steps, losses, color=figures.BLUE, alpha=0.3, linewidth=0.8)
        axes.plot(steps, smooth, color=figures.BLUE)
        axes.plot(*zip(*held_out, strict=True), "o--", color=figures.VERMILION, linewidth=1.5)
        axes.set_xlim(0, 1.16 * steps[-1])
        axes.set_ylim(0, None)
        figures.label_end(axes, steps, smooth, "training", figures.BLUE)
        axes.annotate(
            "held out",
            held_out[-1],
            xytext=(6, 12),
            textcoords="offset points",
            color=figures.VERMILION,
            fontweight="bold",
            annotation_clip=False,
        )
        axes.set_xlabel("step")
        axes.set_ylabel("loss, nats a token")
