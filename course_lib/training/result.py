"""What a run of training gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import TrainConfig
from .precision import Precision


@dataclass(frozen=True)
class StepRecord:
    """One step. ``step`` counts from 1; ``loss`` is the mean over its ``targets``, in nats, of all processes.

    ``norm`` is that of the gradient before clipping, ``loss_scale`` 1 without a scaler, ``skipped`` a step whose
    gradient overflowed in fp16; ``tokens`` those read; ``memory`` the peak of this process so far, in bytes.
    """

    step: int
    loss: float
    learning_rate: float
    norm: float
    loss_scale: float
    skipped: bool
    targets: int
    tokens: int
    seconds: float
    memory: int


@dataclass(frozen=True, eq=False)
class TrainResult:
    """``model`` is ready to use (``eval()``). ``records`` are the steps, those before a resumption included, and
    ``held_out`` the pairs (steps done, nats a token) of the evaluations. ``resumed_from`` is the step of the
    checkpoint that the run went on from, ``interrupted`` says that Ctrl-C ended it.
    """

    model: Any
    config: TrainConfig
    records: tuple[StepRecord, ...]
    held_out: tuple[tuple[int, float], ...]
    precision: Precision
    output: Path | None = None
    resumed_from: int | None = None
    interrupted: bool = False

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.records[-1].step if self.records else 0

    @property
    def tokens(self) -> int:
        """Tokens read, with repetition."""
        return sum(record.tokens for record in self.records)

    @property
    def seconds(self) -> float:
        """Spent in steps; evaluations and checkpoints do not count."""
        return sum(record.seconds for record in self.records)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def peak_bytes(self) -> int:
        """The most memory that the (first) process held at any time."""
        return max((record.memory for record in self.records), default=0)

    @property
    def final_loss(self) -> float:
        """The mean loss of the last tenth of the steps, since single ones scatter; NaN if there was none."""
        last = self.records[-max(1, len(self.records) // 10) :]
        return sum(record.loss for record in last) / len(last) if last else math.nan
