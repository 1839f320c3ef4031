"""The plots of lesson 05, in matplotlib: tables, waves, reach, extrapolation, rounding, memory."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from course_lib.classroom import figures
from course_lib.tiny_gpt import sinusoids

_COLOURS = {
    "ALiBi": figures.BLUE,
    "rotary": figures.VERMILION,
    "learned": figures.GREEN,
    "sinusoidal": figures.ORANGE,
    "none": figures.PURPLE,
}


def _mark_training(axes, trained: int, height: float = 0.98) -> None:
    axes.axvline(trained, color=figures.GREY, linestyle=":", linewidth=1.5)
    axes.text(
        trained,
        height,
        " trained up to here",
        color=figures.GREY,
        transform=axes.get_xaxis_transform(),
        va="top",
        fontsize=10,
    )


def table_figure(table: Tensor, trained: int) -> None:
    """How long each row of a learned table [positions, dim] is; the first ``trained`` have been used."""
    lengths = table.detach().norm(dim=-1)
    with figures.figure(height=2.8) as (_, axes):
        axes.plot(lengths.tolist(), color=figures.GREEN)
        _mark_training(axes, trained)
        axes.set_xlabel("position")
        axes.set_ylabel("length of its row")
        axes.set_ylim(bottom=0)
    before, after = float(lengths[:trained].mean()), float(lengths[trained:].mean())
    figures.digest("rows used in training are longer than the others", [before > 1.3 * after], digits=1)


def waves_figure(pairs: Sequence[int], dim: int, length: int, trained: int) -> None:
    """The sines of some pairs of numbers over the positions, one below the other."""
    waves = sinusoids(torch.arange(length)[None], dim)[0]
    with figures.figure(height=3.6, rows=len(pairs), sharex=True) as (_, axes):
        for i, (axis, pair) in enumerate(zip(axes, pairs, strict=True)):
            axis.plot(waves[:, pair].tolist(), color=figures.PALETTE[i])
            axis.set_ylim(-1.25, 1.25)
            axis.set_yticks([-1, 1])
            axis.set_ylabel(f"pair {pair}", rotation=0, ha="right", va="center")
            axis.axvline(trained, color=figures.GREY, linestyle=":", linewidth=1.5)
        axes[0].text(trained + 2, 1.4, "trained up to here", color=figures.GREY, fontsize=10)
        axes[-1].set_xlabel("position")
    lengths = [2 * math.pi * 10_000 ** (2 * pair / dim) for pair in pairs]
    figures.digest("tokens to one turn", [round(x) for x in lengths])
    figures.digest(
        "share of a turn seen in training", [min(1.0, trained / turn) for turn in lengths], digits=2
    )


def reach_figure(slopes: Tensor, longest: int = 512) -> None:
    """What is left of a weight at each distance, a line for each head, before the scores have a say."""
    distances = torch.arange(1, longest + 1)
    with figures.figure(height=3.2) as (_, axes):
        for i, slope in enumerate(slopes.tolist()):
            kept = (-slope * distances).exp()
            axes.plot(
                distances.tolist(), kept.tolist(), color=figures.BLUE, alpha=0.35 + 0.65 * i / len(slopes)
            )
        for i in (0, len(slopes) // 2, len(slopes) - 1):
            half = math.log(2) / float(slopes[i])
            axes.annotate(
                f"head {i + 1}",
                (half, 0.5),
                xytext=(5, 3),
                textcoords="offset points",
                fontweight="bold",
                color=figures.BLACK,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axes.set_xlabel("distance in tokens")
        axes.set_ylabel("left of the weight")
        axes.set_ylim(0, 1.02)
    figures.digest("distance that halves the weight", [math.log(2) / s for s in slopes.tolist()])


def extrapolation_figure(
    losses: Mapping[str, Sequence[Sequence[float]]], lengths: Sequence[int], trained: int
) -> None:
    """Losses by kind, seed and length of reading: a line through the means, a dot for every seed, a band between."""
    with figures.figure(height=3.9) as (_, axes):
        for kind, by_seed in losses.items():
            colour = _COLOURS[kind]
            columns = list(zip(*by_seed, strict=True))
            means = [sum(column) / len(column) for column in columns]
            axes.fill_between(
                lengths, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.18
            )
            axes.plot(lengths, means, color=colour)
            for line in by_seed:
                axes.plot(lengths, line, linestyle="none", marker="o", markersize=4, color=colour)
            figures.label_end(axes, lengths, means, kind, colour)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(n) for n in lengths])
        axes.minorticks_off()
        axes.set_xlim(lengths[0] * 0.9, lengths[-1] * 2.1)
        axes.set_xlabel("tokens read at once")
        axes.set_ylabel("loss, nats a token")
        _mark_training(axes, trained)
    for kind, by_seed in losses.items():
        rises = all(line[-1] > line[0] for line in by_seed)
        print(f"{kind}: higher at {lengths[-1]} than at {lengths[0]} for every seed: {rises}")


def added_figure(added: Mapping[str, Tensor], step: int, trained: int) -> None:
    """Loss that a longer past adds, by position [positions], averaged over ``step`` positions, a line for each kind."""
    with figures.figure(height=3.4) as (_, axes):
        axes.axhline(0, color=figures.GREY, linewidth=1)
        for kind, by_position in added.items():
            means = by_position[: len(by_position) // step * step].reshape(-1, step).mean(1).tolist()
            middles = [step * (i + 0.5) for i in range(len(means))]
            axes.plot(middles, means, color=_COLOURS[kind], marker="o", markersize=4)
            figures.label_end(axes, middles, means, kind, _COLOURS[kind])
        axes.set_xlim(0, step * (len(middles) + 1.6))
        axes.set_xlabel("position in the window of 512")
        axes.set_ylabel("loss added")
        _mark_training(axes, trained)
    for kind, by_position in added.items():
        print(f"{kind}: a longer past harms: {bool(by_position[trained:].mean() > 0.02)}")


def rounding_figure(start: int, stop: int) -> None:
    """What whole numbers become in float16 and in bfloat16."""
    positions = torch.arange(start, stop)
    kept = {dtype: positions.to(dtype).double() for dtype in (torch.bfloat16, torch.float16)}
    with figures.figure(height=3.2) as (_, axes):
        for dtype, colour, place in (
            (torch.bfloat16, figures.VERMILION, (0.3, 0.72)),
            (torch.float16, figures.BLUE, (0.62, 0.3)),
        ):
            axes.plot(
                positions.tolist(), kept[dtype].tolist(), color=colour, drawstyle="steps-mid", marker="."
            )
            name = str(dtype).removeprefix("torch.")
            axes.text(*place, name, color=colour, fontweight="bold", transform=axes.transAxes, ha="center")
        axes.set_xlabel("position")
        axes.set_ylabel("as stored")
    for dtype, values in kept.items():
        figures.digest(
            f"different values here in {str(dtype).removeprefix('torch.')}", [values.unique().numel()]
        )


def memory_figure(
    lengths: Sequence[int], predicted: Sequence[int], dense: Sequence[int], tiled: Sequence[int]
) -> None:
    """Bytes of the dense bias as predicted, and both workspaces as measured (dense at the first lengths only)."""
    with figures.figure(height=3.5) as (_, axes):
        axes.plot(lengths, predicted, color=figures.BLUE, linestyle="--")
        axes.plot(lengths[: len(dense)], dense, color=figures.BLUE, marker="o", linestyle="none")
        axes.plot(lengths, tiled, color=figures.VERMILION, marker="o")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.set_xlim(lengths[0] * 0.85, lengths[-1] * 2.4)
        axes.set_xlabel("tokens")
        figures.label_end(axes, lengths, predicted, "dense bias,\npredicted", figures.BLUE)
        figures.label_end(axes, lengths, tiled, "in tiles", figures.VERMILION)
        figures.bytes_axis(axes.yaxis)
    figures.digest("tokens", lengths)
    figures.digest("dense bias, predicted, MiB", [size // 2**20 for size in predicted])
