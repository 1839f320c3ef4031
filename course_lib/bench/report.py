"""What a bench found: every raw figure, the claims with their bounds, as a table, a picture and a JSON file."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from course_lib.atomic import write_atomically

WIDTH_OF_A_LOG = 120  # in characters: a pipe has no width of its own

FIGURES = (
    "seconds",
    "peer_seconds",
    "ratio",
    "pairs",
    "tokens_per_second",
    "loss",
    "share",
    "workspace_bytes",
    "saved_bytes",
    "peak_bytes",
)
"""What a row may have measured, a column each; whatever else it says is what was measured."""

FOR_THE_FILE = ("ratios", "losses", "utilisations", "adds", "why")
"""What a row lists, or says at length, for the JSON file alone."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Claim:
    """A measured value and what the course says of it; ``bound`` as in ``"<= 0.04"``."""

    name: str
    value: float
    bound: str

    @property
    def limit(self) -> float:
        return float(self.bound.split()[1])

    @property
    def share(self) -> float:
        """Of the limit. A limit of 0 is one of a difference, in nats: e to it, which is one of perplexities."""
        return self.value / self.limit if self.limit else math.exp(self.value)

    @property
    def holds(self) -> bool:
        return math.isfinite(self.value) and _COMPARE[self.bound.split()[0]](self.value, self.limit)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "bound": self.bound, "holds": self.holds}


@dataclass
class Report:
    """``rows`` are raw figures, each a flat dictionary with at least a ``"name"``.

    ``quick``: measured on less work than the claims speak of, so that no claim is decided by it. ``pictures``: what a
    bench draws besides its claims, each as the bytes of a PNG, by name.
    """

    name: str
    machine: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    quick: bool = False
    pictures: dict[str, bytes] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing found here contradicts a claim; a quick report cannot."""
        return self.quick or all(claim.holds for claim in self.claims)

    def claim(self, name: str, value: float, bound: str) -> None:
        self.claims.append(Claim(name, value, bound))

    @classmethod
    def of_all(cls, reports: Sequence[Report]) -> Report:
        """One report of several of the same run: a row says which bench it is from."""
        return cls(
            "all",
            reports[0].machine,
            [{"bench": report.name, **row} for report in reports for row in report.rows],
            [claim for report in reports for claim in report.claims],
            quick=any(report.quick for report in reports),
        )

    def to_json(self) -> str:
        content = {
            "bench": self.name,
            "quick": self.quick,
            "machine": self.machine,
            "rows": self.rows,
            "claims": [claim.to_dict() for claim in self.claims],
        }
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"

    def write_json(self, path: Path) -> None:
        """Whole or not at all."""
        write_atomically(path, self.to_json())

    def print_table(self) -> None:
        from rich.console import Console
        from rich.table import Table

        title = f"bench {self.name}" + (", quick: it runs; what holds is not decided" if self.quick else "")
        table = Table(title=title, title_justify="left")
        for heading, justify in (("claim", "left"), ("measured", "right"), ("bound", "left"), ("", "left")):
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        for claim in self.claims:
            verdict = "[green]holds[/green]" if claim.holds else "[red]does not hold[/red]"
            verdict = "" if self.quick else verdict
            table.add_row(claim.name, f"{claim.value:.3g}", claim.bound, verdict)
        console = Console()
        if not console.is_terminal:
            console.width = WIDTH_OF_A_LOG
        title = "every measurement"
        # Rows that follow one another with the same figures are a table: no column is empty.
        for keys, rows in groupby(self.rows, lambda row: tuple(key for key in FIGURES if key in row)):
            raw = Table(title=title, title_justify="left")
            raw.add_column("name", overflow="fold")
            for key in keys:
                raw.add_column(key, justify="right")
            raw.add_column("of", overflow="fold")
            for row in rows:
                of = [f"{k} {_cell(row[k])}" for k in row if k not in ("name", *FOR_THE_FILE, *FIGURES)]
                raw.add_row(row["name"], *(_cell(row[key]) for key in keys), ", ".join(of))
            console.print(raw)
            title = ""
        if self.claims:
            console.print(table)

    def write_plot(self, path: Path) -> None:
        """The claims as bars on a logarithmic axis of value / bound: left of 1 where less is asked and reached."""
        import io

        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter

        figure = Figure(figsize=(7, 0.6 + 0.45 * max(len(self.claims), 1)), layout="constrained")
        axes = figure.add_subplot()
        names = [claim.name for claim in self.claims]
        shares = [claim.share for claim in self.claims]
        colours = ["#0072b2" if claim.holds else "#d55e00" for claim in self.claims]
        axes.barh(names, [share - 1 for share in shares], left=1, color=colours)
        for row, claim in enumerate(self.claims):
            axes.annotate(
                f"{claim.value:.3g}  ({claim.bound})",
                (max(1.0, shares[row]), row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.invert_yaxis()
        axes.axvline(1, color="#1f1f1f", linewidth=1)
        axes.set_xlabel("measured / bound (the line is the bound)")
        axes.set_xlim(right=4 * max([1.0, *shares]))  # room for the figures beside the bars
        buffer = io.BytesIO()
        figure.savefig(buffer, dpi=120)
        write_atomically(path, buffer.getvalue())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def this_machine(device: str) -> dict[str, Any]:
    """What the figures were measured on: versions, CPU features, threads, device."""
    import platform

    import torch

    from ..classroom import machine

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cpu": asdict(machine.cpu()),
        "threads": torch.get_num_threads(),
        "memory_bytes": machine.memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": machine.versions(),
    }
