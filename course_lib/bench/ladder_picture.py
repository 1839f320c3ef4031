"""The ladder as bars: real tokens a second and peak memory, rung by rung, with the peers below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

RUNG_COLOUR, PEER_COLOUR = "#0072b2", "#999999"
MIB = 2**20


@dataclass(frozen=True)
class Bar:
    """A rung or a peer. ``peak_bytes`` None: not measured."""

    name: str
    tokens_per_second: float
    peak_bytes: int | None
    is_peer: bool = False


def picture(bars: Sequence[Bar]) -> bytes:
    """A PNG of 720 × 400 points or so, whose letters are read at 600 pixels too."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(bars)), layout="constrained")
    speed, memory = figure.subplots(1, 2, sharey=True)
    names = [bar.name for bar in bars]
    colours = [PEER_COLOUR if bar.is_peer else RUNG_COLOUR for bar in bars]
    columns = (
        (speed, [bar.tokens_per_second for bar in bars], "real tokens a second (more is better)"),
        (memory, [(bar.peak_bytes or 0) / MIB for bar in bars], "peak memory, MiB (less is better)"),
    )
    for axes, values, label in columns:
        drawn = axes.barh(names, values, color=colours)
        axes.bar_label(drawn, [f"{value:,.0f}" if value else "–" for value in values], padding=3, fontsize=11)
        axes.set_xlabel(label, fontsize=11)
        axes.tick_params(labelsize=11)
        axes.set_xlim(right=1.35 * max([1.0, *values]))
        axes.locator_params(axis="x", nbins=3)
        axes.spines[["top", "right"]].set_visible(False)
    speed.invert_yaxis()
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120)
    return buffer.getvalue()
