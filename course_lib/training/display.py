"""What a run shows while it goes on: what it is, a bar with loss, speed and memory, and how long it will take."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from .estimate import TYPICAL_WATTS, estimate
from .model_folder import data_text
from .progress import bytes_text, progress_line
from .result import StepRecord
from .set_up import Run

TIMED_STEPS = 3
"""After so many steps beyond the first, which also warms up, the time of a run is estimated."""
LONG = 600.0
"""Seconds from which a run's electricity is worth a word."""


class Display:
    """On the first process, and if ``shown``. A bar on a terminal and in a notebook; lines of text in a file."""

    def __init__(self, run: Run, *, shown: bool) -> None:
        self.run = run
        self.shown = shown and run.group.first
        self._first_step = run.step
        self._live = sys.stderr.isatty() or _in_a_notebook()
        self._bar: tqdm | None = None

    def start(self, resumed_from: int | None) -> None:
        if not self.shown:
            return
        run = self.run
        self._say(f"model: {parameters_text(run.model)}; data: {data_text(run)}")
        self._say(f"precision: {run.precision.why}")
        if run.group.world_size > 1:
            self._say(f"processes: {run.group.world_size}, {run.config.engine}, {run.group.backend}")
        if resumed_from is not None and run.step >= run.config.steps:
            self._say(f"all {run.config.steps:,} steps of this run are done")
            return
        if resumed_from is not None:
            self._say(f"goes on after step {resumed_from:,} of {run.config.steps:,}")
        self._bar = tqdm(
            total=run.config.steps, initial=run.step, unit="step", disable=not self._live, leave=True
        )

    def step(self, record: StepRecord) -> None:
        if self._bar is None:
            return
        records = self.run.records[-20:]
        seconds = sum(each.seconds for each in records)
        speed = sum(each.tokens for each in records) / seconds if seconds else 0.0
        steps = self.run.config.steps
        text = progress_line(
            record.step, steps, loss=record.loss, tokens_per_second=speed, memory=record.memory
        )
        self._bar.set_postfix_str(text.partition(" · ")[2], refresh=False)
        self._bar.update(record.step - self._bar.n)
        if not self._live and record.step * 10 // steps != (record.step - 1) * 10 // steps:
            self._say(text)
        if record.step - self._first_step == TIMED_STEPS + 1 and record.step < steps:
            self._say(self._estimate(steps - record.step))

    def evaluated(self, step: int, loss: float) -> None:
        self._say(f"step {step:,}: held-out loss {loss:.3f}")

    def say(self, text: str) -> None:
        """A line of its own."""
        self._say(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _say(self, text: str) -> None:
        if self.shown:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()

    def _estimate(self, steps: int) -> str:
        timed = self.run.records[-TIMED_STEPS:]
        seconds = sum(record.seconds for record in timed) / len(timed)
        watts = watts_of(self.run) if seconds * steps > LONG else None
        return f"still to come: {estimate(max(seconds, 1e-9), steps, watts=watts)}"


def _in_a_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def parameters_text(model: Any) -> str:
    """``5,300,000 parameters (20.2 MiB in fp32)``."""
    count = model.num_parameters()
    return f"{count:,} parameters ({bytes_text(4 * count)} in fp32)"


def watts_of(run: Run) -> float | None:
    """What a machine of this kind draws, if that is known: a guess for the estimate."""
    if run.group.device.type == "cpu":
        return TYPICAL_WATTS["laptop"]
    import torch

    name = torch.cuda.get_device_name(run.group.device).lower() if run.group.device.type == "cuda" else ""
    return next((watts for kind, watts in TYPICAL_WATTS.items() if kind in name), None)
