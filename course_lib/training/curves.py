"""The curves of a run as a picture: loss, held-out loss, learning rate and speed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from course_lib.atomic import write_atomically

# Okabe and Ito's palette: told apart by colour-blind readers, and apart in grey.
BLUE, VERMILION, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
INK = "#1f1f1f"
SMOOTHED_OVER = 40
"""The smoothed loss is a mean over this share of the run's steps: one in 40."""


def curves_figure(records: Sequence[Any], held_out: Sequence[tuple[int, float]] = ()) -> Figure:
    """The loss of each step with its running mean and the held-out losses; below, learning rate and tokens/s.

    ``records`` are what ``train`` collects or the dicts of ``read_log``, with ``step``, ``loss``, ``learning_rate``,
    ``tokens`` and ``seconds``; those without a loss are left out, and so is a panel whose numbers are missing.
    ``held_out``: pairs of a step and a loss. 600 by 480 pixels. Raises ValueError if there is nothing to draw.
    """
    steps, loss = _series(records, "loss")
    if not len(steps) and not held_out:
        raise ValueError(
            "records: expected at least one step or held-out loss to draw, got none. Train first."
        )
    figure = Figure(figsize=(6, 4.8), dpi=100, layout="constrained", facecolor="white")
    grid = figure.add_gridspec(2, 2, height_ratios=(2.6, 1))
    axes = figure.add_subplot(grid[0, :])
    if len(steps):
        axes.plot(steps, loss, color=BLUE, alpha=0.3, linewidth=0.8)
        axes.plot(steps, _running_mean(loss), color=BLUE, linewidth=2, label="training (running mean)")
    if held_out:
        at, losses = zip(*held_out, strict=True)
        axes.plot(
            at,
            losses,
            color=VERMILION,
            marker="o",
            markersize=6,
            linewidth=1.5,
            linestyle="--",
            label="held out",
        )
    _dress(axes, "loss, nats a token")
    axes.set_xlabel("step", fontsize=9, color=INK)
    axes.legend(frameon=False, fontsize=10)
    _panel(figure, grid[1, 0], *_series(records, "learning_rate"), GREEN, "learning rate")
    _panel(figure, grid[1, 1], *_speed(records), GREY, "tokens a second")
    return figure


def write_curves(
    path: str | Path, records: Sequence[Any], held_out: Sequence[tuple[int, float]] = ()
) -> Path:
    """:func:`curves_figure` as a PNG, which takes an older one's place whole or not at all; returns the path."""
    picture = io.BytesIO()
    # Without the library's version in it, equal numbers make an equal file.
    curves_figure(records, held_out).savefig(picture, format="png", metadata={"Software": None})
    write_atomically(Path(path), picture.getvalue())
    return Path(path)


def _panel(
    figure: Figure, place: Any, steps: np.ndarray, values: np.ndarray, colour: str, title: str
) -> None:
    if len(steps):
        axes = figure.add_subplot(place)
        axes.plot(steps, values, color=colour, linewidth=1.6)
        axes.set_ylim(bottom=0)
        axes.locator_params(nbins=4)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=True)
        _dress(axes, title)


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.tick_params(labelsize=9, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)


def _speed(records: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    steps, tokens = _series(records, "tokens")
    _, seconds = _series(records, "seconds")
    if not len(steps) or len(tokens) != len(seconds):
        return steps[:0], tokens[:0]
    # Tokens over seconds of a window, not a mean of quotients, which a short step would rule.
    return steps, _running_mean(tokens) / np.maximum(_running_mean(seconds), 1e-9)


def _series(records: Sequence[Any], name: str) -> tuple[np.ndarray, np.ndarray]:
    """The steps that have a number of that name, and the numbers."""
    pairs = [(_get(record, "step"), _get(record, name)) for record in records]
    known = [(step, value) for step, value in pairs if step is not None and value is not None]
    array = np.array(known, dtype=float).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _get(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def _running_mean(values: np.ndarray) -> np.ndarray:
    """The mean of each value and those before it, ``len(values) / SMOOTHED_OVER`` of them; non-finite ones left out."""
    width = max(1, len(values) // SMOOTHED_OVER)
    finite = np.isfinite(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(finite, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(finite)))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    number = counts[ends] - counts[starts]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[ends] - sums[starts]) / number
