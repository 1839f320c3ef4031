"""What each rung has learned after the same real tokens: a faster step that learns less would be no gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..training import learning_rate
from .ladder_rungs import LEARNING_RATE, RUNGS, Rung, Trainer, loss_of, trainer
from .ladder_workload import Batch, Workload, batches, held_out, real_tokens

EVALUATED_AT_ONCE = 16
AGREEMENT = 1e-3
"""Nats a token by which the first losses of two rungs may differ that are taken for one computation."""
PACKED = next(rung for rung in RUNGS if rung.packed)


@dataclass(frozen=True)
class Learned:
    """The held-out loss of a rung in nats a token, one for each seed, after ``tokens`` real tokens (mean)."""

    rung: Rung
    losses: tuple[float, ...]
    tokens: float
    apart: float | None = None
    """Of a rung that was compared with packing: the largest difference of a step's loss, in nats. None: it was trained
    to the end without."""

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


def trained_rung(
    rung: Rung,
    workload: Workload,
    read: list[Batch],
    seed: int,
    *,
    steps: int | None = None,
    device: str = "cpu",
    precision: str = "auto",
) -> Trainer:
    """A rung after one step on each of the batches, or on the first ``steps`` of them.

    The learning rate is that of the whole run: up over a tenth of it, then down as a cosine.
    """
    training = trainer(rung, workload, read, seed, device=device, precision=precision)
    for number in range(len(read) if steps is None else steps):
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
    agreeing_steps: int | None,
    progress: Callable[[str, int, int], None],
) -> list[Learned]:
    """Every rung under every seed. A seed decides the weights and the order of the documents; all rungs of a seed read
    the same batches.

    The rungs below packing compute its numbers in another order. So on a CPU, where they take most of the time, they
    are trained for ``agreeing_steps`` only: if the losses of each are then those of packing to ``AGREEMENT`` nats, its
    held-out loss is theirs, and they are trained to the end if not. None trains each to the end.
    """
    found: dict[int, list[float]] = {rung.number: [] for rung in RUNGS}
    apart: dict[int, list[float]] = {rung.number: [] for rung in RUNGS}
    tokens = 0
    for seed in range(seeds):
        ordered = replace(workload, seed=workload.seed + seed)
        read = batches(ordered, steps)
        tokens += sum(map(real_tokens, read))
        start = partial(
            trained_rung, workload=ordered, read=read, seed=seed, device=device, precision=precision
        )

        def learned(rung: Rung, training: Trainer, ordered: Workload = ordered) -> None:
            found[rung.number].append(held_out_loss(training, rung, ordered))

        for done, rung in enumerate((PACKED, *(rung for rung in RUNGS if rung is not PACKED))):
            progress(f"loss of {rung.name}", seed * len(RUNGS) + done, seeds * len(RUNGS))
            if rung is PACKED:
                packed = start(rung)
                learned(rung, packed)
            elif rung.packed or agreeing_steps is None:
                learned(rung, start(rung))
            else:
                few = start(rung, steps=agreeing_steps).losses
                difference = max(abs(a - b) for a, b in zip(few, packed.losses, strict=False))
                apart[rung.number].append(difference)
                if difference <= AGREEMENT:
                    found[rung.number].append(found[PACKED.number][-1])
                else:
                    learned(rung, start(rung))
    return [
        Learned(rung, tuple(found[rung.number]), tokens / seeds, max(apart[rung.number], default=None))
        for rung in RUNGS
    ]
