"""What each rung has learned after the same real tokens: a faster step that learns less would be no gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ..training import learning_rate
from .ladder_rungs import LEARNING_RATE, RUNGS, Rung, Trainer, loss_of, trainer
from .ladder_workload import Batch, Workload, batches, held_out, real_tokens

EVALUATED_AT_ONCE = 16


@dataclass(frozen=True)
class Learned:
    """The held-out loss of a rung in nats a token, one for each seed, after ``tokens`` real tokens (mean)."""

    rung: Rung
    losses: tuple[float, ...]
    tokens: float

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)

    @property
    def spread(self) -> float:
        """The range over the seeds."""
        return max(self.losses) - min(self.losses)


def held_out_loss(training: Trainer, rung: Rung, workload: Workload) -> float:
    """The mean loss on the documents never trained on, in nats a token, computed in fp32 on every rung."""
    documents = sorted(held_out(workload), key=len)
    total, targets = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(documents), EVALUATED_AT_ONCE):
            some = documents[start : start + EVALUATED_AT_ONCE]
            count = real_tokens(some) - len(some)  # a document's last token has no target
            total += float(loss_of(rung, training.model, some)) * count  # type: ignore[arg-type]
            targets += count
    return total / targets


def trained(
    rung: Rung, workload: Workload, read: list[Batch], seed: int, *, device: str, precision: str
) -> Trainer:
    """A rung after one step on each of the batches: warm-up over a tenth, then down as a cosine."""
    training = trainer(rung, workload, read, seed, device=device, precision=precision)
    for number in range(len(read)):
        training.step(
            learning_rate(number, peak=LEARNING_RATE, steps=len(read), warm_up=max(1, len(read) // 10))
        )
    return training


def compare_losses(
    workload: Workload,
    *,
    steps: int,
    seeds: int,
    device: str,
    precision: str,
    progress: Callable[[str, int, int], None],
) -> list[Learned]:
    """Every rung under every seed. A seed decides the weights and the order of the documents; all rungs of a seed read
    the same batches."""
    found: dict[int, list[float]] = {rung.number: [] for rung in RUNGS}
    tokens = 0
    for seed in range(seeds):
        ordered = replace(workload, seed=workload.seed + seed)
        read = batches(ordered, steps)
        tokens += sum(map(real_tokens, read))
        for rung in RUNGS:
            progress(f"loss of {rung.name}", seed * len(RUNGS) + rung.number, seeds * len(RUNGS))
            training = trained(rung, ordered, read, seed, device=device, precision=precision)
            found[rung.number].append(held_out_loss(training, rung, ordered))
    return [Learned(rung, tuple(found[rung.number]), tokens / seeds) for rung in RUNGS]
