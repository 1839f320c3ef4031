"""The training loop: ``train(TrainConfig(model=..., steps=400))``.

A step takes ``rows_per_step`` packed rows from the stream, computes their losses one row after the other, each weighted
by its share of the targets, and lets AdamW take one step. Between steps the model is evaluated on text that it is not
trained on, and written to disk, so that a run that is stopped at any moment goes on as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course_lib.packing import NO_TARGET, PackedBatch, next_token_targets

from .config import TrainConfig
from .evaluate import mean_loss
from .optimizer import accumulation_weights, learning_rate, set_learning_rate
from .parallel import accumulating, gathered, processes
from .precision import optimization_step
from .progress import PeakMemory
from .result import StepRecord, TrainResult
from .set_up import Run, set_up


@torch.enable_grad()
def train(
    config: TrainConfig,
    *,
    resume: bool = True,
    progress: bool = True,
    on_step: Callable[[StepRecord], None] | None = None,
) -> TrainResult:
    """Train a GPT as ``config`` says."""
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config: expected a TrainConfig, got {type(config).__name__} {config!r}.")
    with processes(config.device) as group:
        run = set_up(config, group)
        memory = PeakMemory(group.device)
        run.wrapped.train()
        if config.is_evaluated(0):
            run.held_out.append((0, mean_loss(run.wrapped, run.held_out_rows, run.precision, group)))
        while run.step < config.steps:
            record = take_step(run, memory)
            run.records.append(record)
            if config.is_evaluated(run.step):
                loss = mean_loss(run.wrapped, run.held_out_rows, run.precision, group)
                run.held_out.append((run.step, loss))
            if on_step is not None:
                on_step(record)
        return TrainResult(
            gathered(run.model).eval(), config, tuple(run.records), tuple(run.held_out), run.precision
        )


def take_step(run: Run, memory: PeakMemory) -> StepRecord:
    """The next step of ``run``: rows, losses, gradients, optimiser."""
    config, group = run.config, run.group
    started = time.perf_counter()
    rows = [next(run.stream) for _ in range(config.rows_per_step // group.world_size)]
    targets = [next_token_targets(row) for row in rows]
    own = [int((wanted != NO_TARGET).sum()) for wanted in targets]
    counts = group.gather(own)
    tokens = int(group.total(sum(row.tokens.numel() for row in rows))[0])
    weights = accumulation_weights([count for each in counts for count in each])
    mine = weights[group.rank * len(rows) : (group.rank + 1) * len(rows)]
    rate = learning_rate(
        run.step,
        peak=config.learning_rate,
        steps=config.steps,
        warm_up=config.warm_up_steps,
        floor=config.floor,
    )
    set_learning_rate(run.optimizer, rate)
    report = optimization_step(
        _losses(run, rows, targets, mine), run.optimizer, run.precision, max_norm=config.max_norm
    )
    run.step += 1
    return StepRecord(
        step=run.step,
        loss=report.loss,
        learning_rate=rate,
        norm=report.norm,
        loss_scale=report.loss_scale,
        skipped=report.skipped,
        targets=sum(map(sum, counts)),
        tokens=tokens,
        seconds=time.perf_counter() - started,
        memory=memory.bytes(),
    )


def _losses(
    run: Run, rows: list[PackedBatch], targets: list[Tensor], weights: tuple[float, ...]
) -> Iterator[Tensor]:
    """The weighted loss of each row, computed when the one before has been differentiated."""
    device = run.group.device
    for number, (row, wanted, weight) in enumerate(zip(rows, targets, weights, strict=True)):
        with accumulating(run.wrapped, last=number == len(rows) - 1), run.precision.autocast():
            loss = run.wrapped(row.to(device), wanted.to(device))
        # The engines average over processes where a sum is wanted.
        yield loss * (weight * run.group.world_size)
