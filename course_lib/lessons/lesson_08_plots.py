"""Plots of lesson 08: speeds, gains in pairs, memory by rung, loss against time, a profile, a roofline, and 3x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from course_lib.bench.ladder import RUNGS, Workload
from course_lib.classroom import figures
from course_lib.classroom.figures import bytes_text
from course_lib.lessons.lesson_08_measure import Climb, Machine
from course_lib.lessons.lesson_08_predict import LAPTOP, lengths_like, seconds_of
from course_lib.training.memory import MemoryBudget

MEMORY_PARTS = {
    "weights, gradients, AdamW": ("weights", "optimizer state", "gradients"),
    "activations": ("activations", "half-precision weights", "batch"),
    "logits": ("logits",),
    "workspace": ("workspace",),
}
_COLOURS = (figures.GREY, figures.BLUE, figures.ORANGE, figures.GREEN, figures.SKY)
_HATCHES = ("", "", "//", "..", "")
SHARES_LENGTHS = (128, 512, 2048)


def _rows(axes: object, names: Sequence[str]) -> None:
    """A row for each name, the first on top."""
    axes.set_yticks(range(len(names)), names)  # type: ignore[attr-defined]
    axes.set_ylim(len(names) - 0.4, -0.6)  # type: ignore[attr-defined]
    axes.grid(axis="y", visible=False)  # type: ignore[attr-defined]


def speeds_figure(climb: Climb) -> None:
    """Real tokens a second by rung, and how many times rung 0 that is."""
    names = list(climb.seconds)
    speeds = [climb.speed(name) for name in names]
    with figures.figure(height=3.3) as (_, axes):
        axes.barh(range(len(names)), speeds, color=figures.BLUE, height=0.7)
        for row, speed in enumerate(speeds):
            axes.annotate(
                f"{speed / speeds[0]:.1f}×",
                (speed, row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_xlim(0, max(speeds) * 1.14)
        axes.set_xlabel("real tokens a second")
        _rows(axes, names)
    figures.digest("real tokens a second", speeds, digits=2)


def gains_figure(climb: Climb, predicted: Mapping[str, float]) -> None:
    """Every rung over the one below: a dot a round, the median, and what was predicted."""
    names = list(climb.seconds)
    medians = []
    with figures.figure(height=3.5) as (_, axes):
        axes.axvline(1, color=figures.BLACK, linewidth=1)
        for row, (below, name) in enumerate(pairwise(names)):
            ratios = climb.ratios(below, name)
            medians.append(median(ratios))
            axes.plot(ratios, [row] * len(ratios), "o", color=figures.SKY, zorder=2)
            axes.plot(medians[-1], row, "|", color=figures.BLUE, markersize=22, mew=3, zorder=3)
            axes.plot(
                predicted[below] / predicted[name], row, "D", color=figures.VERMILION, mfc="none", zorder=4
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axes.set_xlabel("times as fast as the rung below")
        _rows(axes, names[1:])
        axes.plot([], [], "o", color=figures.SKY, label="a round")
        axes.plot([], [], "|", color=figures.BLUE, markersize=14, mew=3, label="median")
        axes.plot([], [], "D", color=figures.VERMILION, mfc="none", label="predicted")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    figures.digest("medians", medians, digits=2)


def memory_figure(budgets: Mapping[str, MemoryBudget], measured: Mapping[str, int]) -> None:
    """What is held at the peak of a step, by rung: predicted as bars, measured as marks."""
    names = list(budgets)
    left = [0.0] * len(names)
    with figures.figure(height=3.7) as (_, axes):
        for (part, members), colour, hatch in zip(MEMORY_PARTS.items(), _COLOURS, _HATCHES, strict=False):
            sizes = [
                sum(budget.moments[budget.moment].get(member, 0) for member in members)
                for budget in budgets.values()
            ]
            if not any(sizes):
                continue
            axes.barh(
                range(len(names)),
                sizes,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                height=0.7,
                label=part,
            )
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        for row, name in enumerate(names):
            if name in measured:
                axes.plot(measured[name], row, "|", color=figures.VERMILION, markersize=22, mew=3)
        axes.plot([], [], "|", color=figures.VERMILION, markersize=14, mew=3, label="measured")
        figures.bytes_axis(axes.xaxis)
        axes.set_xticks(
            [tick * 2**20 for tick in range(0, round(max(left) / 2**20) + 1, _step_of(max(left)))]
        )
        _rows(axes, names)
        axes.set_xlabel("at the peak of a step")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    figures.digest("predicted peak, MiB", [budget.peak / 2**20 for budget in budgets.values()], digits=2)


def _step_of(largest: float) -> int:
    """MiB between two ticks: a power of two that leaves five of them or fewer."""
    step = 1
    while largest / 2**20 / step > 5:
        step *= 2
    return step


def curves_figure(curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Loss against steps, which are equal tokens, and against seconds."""
    colours = (figures.BLACK, figures.BLUE, figures.VERMILION)
    marks = ("s", "o", "^")
    with figures.figure(height=3.3, columns=2, sharey=True) as (_, axes):
        for (name, points), colour, mark in zip(curves.items(), colours, marks, strict=True):
            seconds, losses = zip(*points, strict=True)
            steps = range(1, len(points) + 1)
            axes[0].plot(steps, losses, color=colour, marker=mark, label=name)
            axes[1].plot(seconds, losses, color=colour, marker=mark)
        axes[0].set_xlabel("steps (equal tokens)")
        axes[1].set_xlabel("seconds")
        axes[0].set_ylabel("loss, nats a token")
        axes[0].legend(loc="lower left")
    for name, points in curves.items():
        figures.digest(f"{name}, losses", [loss for _, loss in points], digits=2)


def profile_figure(profiles: Mapping[str, Mapping[str, float]]) -> None:
    """Where the time of a step goes, by kind of operation."""
    names = list(profiles)
    left = [0.0] * len(names)
    with figures.figure(height=1.5 + 0.5 * len(names)) as (_, axes):
        kinds = list(next(iter(profiles.values())))
        for kind, colour, hatch in zip(
            kinds,
            (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE, figures.GREY),
            _HATCHES,
            strict=False,
        ):
            shares = [100 * profile[kind] for profile in profiles.values()]
            axes.barh(
                range(len(names)),
                shares,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                height=0.65,
                label=kind,
            )
            left = [a + b for a, b in zip(left, shares, strict=True)]
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the time in operations")
        _rows(axes, names)
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    for name, profile in profiles.items():
        figures.digest(name, profile.values(), digits=2)


def roofline_figure(
    machine: Machine, operations: Mapping[str, tuple[float, float]], steps: Mapping[str, float]
) -> None:
    """The roof of this machine, single operations below it as (FLOP a byte, FLOP/s), and whole steps as lines."""
    lowest, highest = 0.05, 1000.0
    # An operation may have met a quicker moment than the machine did: the roof is the best that was seen.
    flat = max(machine.half_products, *(speed for _, speed in operations.values()))
    slope = max(machine.memory, *(speed / intensity for intensity, speed in operations.values()))
    with figures.figure(height=3.8) as (_, axes):
        roof = [lowest, flat / slope, highest]
        axes.plot(roof, [min(x * slope, flat) / 1e9 for x in roof], color=figures.BLACK)
        for (name, (intensity, speed)), mark in zip(operations.items(), "osD^v", strict=False):
            axes.plot(intensity, speed / 1e9, mark, color=figures.BLUE)
            left = 10 < intensity < 120
            axes.annotate(
                name,
                (intensity, speed / 1e9),
                xytext=(-7 if left else 7, -13),
                textcoords="offset points",
                ha="right" if left else "left",
                color=figures.BLUE,
            )
        for name, speed in steps.items():
            axes.axhline(speed / 1e9, color=figures.VERMILION, linewidth=1.5, linestyle="--")
            axes.annotate(
                f"a step of {name}",
                (highest, speed / 1e9),
                xytext=(-4, 4),
                textcoords="offset points",
                ha="right",
                color=figures.VERMILION,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(lowest, highest)
        axes.set_xlabel("operations for each byte moved")
        axes.set_ylabel("GFLOP/s")


def three_times_figure() -> None:
    """The top over rung 0 as predicted for a laptop, by how much of the batch is padding and how long it is."""
    workload = Workload()
    shares = [i / 20 for i in range(19)]
    naive, top = RUNGS[0], RUNGS[-1]
    found = {}
    with figures.figure(height=3.6) as (_, axes):
        axes.axhline(3, color=figures.GREY, linestyle="--", linewidth=1.5)
        axes.annotate("3×", (0, 3), xytext=(4, 4), textcoords="offset points", color=figures.GREY)
        for longest, colour in zip(
            SHARES_LENGTHS, (figures.BLUE, figures.GREEN, figures.VERMILION), strict=True
        ):
            gains = []
            for share in shares:
                lengths = lengths_like(64, longest, share)
                times = [
                    sum(seconds_of(rung, rung.config(workload), lengths, LAPTOP).values())
                    for rung in (naive, top)
                ]
                gains.append(times[0] / times[1])
            found[longest] = gains
            axes.plot([100 * share for share in shares], gains, color=colour)
            figures.label_end(axes, [100 * share for share in shares], gains, f"{longest:,}", colour)
        axes.set_yscale("log")
        axes.set_yticks([1, 2, 3, 5, 10, 20, 50], ["1×", "2×", "3×", "5×", "10×", "20×", "50×"])
        axes.minorticks_off()
        axes.set_xlim(0, 102)
        axes.set_xlabel("% of the padded batch that is padding")
        axes.set_ylabel("top over rung 0")
    for longest, gains in found.items():
        figures.digest(f"longest {longest}, at 0, 50 and 90 %", [gains[0], gains[10], gains[-1]], digits=2)


def memory_table(budgets: Mapping[str, MemoryBudget], measured: Mapping[str, int]) -> str:
    """A line for each measured rung: predicted, measured, the difference in percent."""
    lines = [f"{'':20}  {'predicted':>10}  {'measured':>10}"]
    for name, size in measured.items():
        peak = budgets[name].peak
        lines.append(f"{name:20}  {bytes_text(peak):>10}  {bytes_text(size):>10}  {size / peak - 1:+.1%}")
    return "\n".join(lines)
