"""The plots of lesson 09: tokens read at once, the roofline of a decode step, weights beside caches."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.classroom import figures
from course_lib.models import OPTConfig


def machines_figure(lengths: Sequence[int], seconds: Sequence[float]) -> None:
    """Seconds a token against how many are read at once: decode is the first of these points, prefill the others."""
    from matplotlib.ticker import LogLocator

    milliseconds = [1000 * second for second in seconds]
    with figures.figure(height=3.2) as (_, axes):
        axes.plot(lengths, milliseconds, color=figures.BLUE, marker="o")
        axes.plot(lengths[0], milliseconds[0], color=figures.VERMILION, marker="o", markersize=9)
        for point, word, place in ((0, "decode", (10, 0)), (len(lengths) - 1, "prefill", (-8, 14))):
            axes.annotate(
                word,
                (lengths[point], milliseconds[point]),
                xytext=place,
                textcoords="offset points",
                va="center",
                ha="left" if point == 0 else "center",
                fontweight="bold",
                color=figures.BLUE if point else figures.VERMILION,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("tokens read at once")
        axes.set_ylabel("milliseconds a token")
    figures.digest("milliseconds a token", milliseconds, digits=2)


def roofline_figure(
    batches: Sequence[int], measured: Sequence[float], moving: Sequence[float], computing: Sequence[float]
) -> None:
    """Tokens a second against the rows of a batch: measured, and the two limits, each given as seconds of a step."""

    def speed(seconds: Sequence[float]) -> list[float]:
        return [batch / second for batch, second in zip(batches, seconds, strict=True)]

    with figures.figure(height=3.6) as (_, axes):
        for name, seconds, colour in (
            ("memory", moving, figures.ORANGE),
            ("arithmetic", computing, figures.GREEN),
        ):
            axes.plot(batches, speed(seconds), color=colour, linestyle="--")
            point = -1 if name == "memory" else 0
            axes.annotate(
                f"limit of {name}",
                (batches[point], speed(seconds)[point]),
                xytext=(-14, 0) if point else (2, 5),
                textcoords="offset points",
                ha="right" if point else "left",
                va="center" if point else "bottom",
                color=colour,
                fontweight="bold",
            )
        axes.plot(batches, speed(measured), color=figures.BLUE, marker="o")
        figures.label_end(axes, batches, speed(measured), "measured", figures.BLUE)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.minorticks_off()
        axes.set_xlim(batches[0] * 0.85, batches[-1] * 2.6)
        axes.set_xlabel("rows in the batch")
        axes.set_ylabel("tokens a second")
    figures.digest("tokens a second, measured", speed(measured), digits=2)


def weights_and_caches_figure(sizes: Sequence[str], *, length: int, batch: int) -> None:
    """GB of weights and of ``batch`` caches of ``length`` tokens, in fp16, for published sizes of OPT."""
    configs = [OPTConfig.of_size(size) for size in sizes]
    weights = [2 * parameters_of(config) / 1e9 for config in configs]
    caches = [2 * 2 * c.num_layers * c.dim * length * batch / 1e9 for c in configs]
    with figures.figure(height=3.2) as (_, axes):
        for row, (own, cache) in enumerate(zip(weights, caches, strict=True)):
            axes.barh(row - 0.2, own, height=0.36, color=figures.BLUE)
            axes.barh(row + 0.2, cache, height=0.36, color=figures.ORANGE)
            for y, value in ((row - 0.2, own), (row + 0.2, cache)):
                axes.annotate(
                    f"{value:.3g} GB",
                    (value, y),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=10,
                    bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
                )
        axes.bar(0, 0, color=figures.BLUE, label="weights")
        axes.bar(0, 0, color=figures.ORANGE, label=f"{batch} caches of {length:,} tokens")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
        axes.axvline(16, color=figures.GREY, linestyle=":")
        axes.annotate(
            "a T4", (16, 0), xytext=(4, 10), textcoords="offset points", color=figures.GREY, va="bottom"
        )
        axes.set_xscale("log")
        axes.set_xlim(0.1, 4000)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} GB")
        axes.set_yticks(range(len(sizes)), [f"OPT-{size}" for size in sizes])
        axes.grid(axis="y", visible=False)
        axes.invert_yaxis()
    figures.digest("weights, GB", weights)
    figures.digest("caches, GB", caches)


def parameters_of(config: OPTConfig) -> int:
    """The parameters of an OPT with these sizes, a tied head counted once, without making it."""
    dim, width = config.dim, config.embed_width
    layer = 4 * (dim * dim + dim) + 2 * dim * config.hidden_width + config.hidden_width + dim + 4 * dim
    tables = config.vocab_size * width + (config.max_length + 2) * dim
    return config.num_layers * layer + tables + (2 * dim if config.has_final_norm else 2 * dim * width)
