"""The ladder of lesson 08: one GPT trained seven ways on the same documents, beside two peers."""

from __future__ import annotations

from .ladder_rungs import RUNGS, DenseAttention, Rung, Step, Trainer, loss_of, trainer
from .ladder_workload import Batch, Workload, batches, held_out, real_tokens

__all__ = [
    "RUNGS",
    "Batch",
    "DenseAttention",
    "Rung",
    "Step",
    "Trainer",
    "Workload",
    "batches",
    "held_out",
    "loss_of",
    "real_tokens",
    "trainer",
]
