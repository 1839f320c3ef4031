"""Work beside its peer, in time and in memory, with what was found written into a report."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .measure import Paired, paired
from .memory import workspaces
from .report import Report

Step = Callable[[], object]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Comparison:
    """Measures on one device into one report. ``pairs`` of timings: None for as many as :func:`paired` takes.

    The course's bounds are those of a CPU: on another device there are rows and no claims.
    """

    report: Report
    device: str
    pairs: int | None
    progress: Progress

    def time(self, name: str, work: Step, peer: str, peer_work: Step, **facts: Any) -> Paired:
        """Seconds of ``name`` and of ``peer``; both go into the report's rows, with ``facts`` beside them."""
        times = paired(
            work,
            peer_work,
            device=self.device,
            pairs=self.pairs,
            on_pair=lambda done, of: self.progress(f"{name} against {peer}", done, of),
        )
        self.report.rows.append(
            {
                "name": f"{name} / {peer}",
                **facts,
                "seconds": sorted(times.first)[len(times.first) // 2],
                "peer_seconds": sorted(times.second)[len(times.second) // 2],
                "ratio": times.ratio,
                "pairs": len(times.ratios),
                "ratios": times.ratios,
            }
        )
        return times

    def workspace(self, work: str, settings: Sequence[dict[str, Any]], **facts: Any) -> list[int]:
        """:meth:`measured_workspaces`, as rows too."""
        found = self.measured_workspaces(work, settings)
        for setting, size in zip(settings, found, strict=True):
            self.report.rows.append(
                {"name": f"workspace, {setting['way']}", **facts, "workspace_bytes": size}
            )
        return found

    def measured_workspaces(self, work: str, settings: Sequence[dict[str, Any]]) -> list[int]:
        """The workspace in bytes of ``work`` (see :func:`workspaces`) under each of the settings.

        ``work`` also takes a ``device``; a setting's ``way`` is told as what is at work.
        """

        def announced() -> Iterator[dict[str, Any]]:
            for number, setting in enumerate(settings):
                self.progress(f"workspace of {setting['way']}", number, len(settings))
                yield setting | {"device": self.device}

        if self.device == "cuda":
            return [_cuda_workspace(work, setting) for setting in announced()]
        return workspaces(work, announced())

    def claim(self, name: str, value: float, bound: str) -> None:
        """What the course says of a CPU."""
        if self.device == "cpu":
            self.report.claim(name, value, bound)


def _cuda_workspace(work: str, setting: dict[str, Any]) -> int:
    """As :func:`workspaces`, by the count that PyTorch keeps of a GPU's memory."""
    import torch

    module, function = work.split(":")
    run = getattr(importlib.import_module(module), function)(**setting)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = run()
    torch.cuda.synchronize()
    kept = sum(tensor.untyped_storage().nbytes() for tensor in results)
    return max(0, torch.cuda.max_memory_allocated() - before - kept)
