"""What the tests of several processes run on each of them. In float64, so that only an error can part two runs."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from course_lib.models import GPTConfig
from course_lib.packing import NO_TARGET, PackedBatch, next_token_targets, pack
from course_lib.training.checkpoints import read_checkpoint, write_checkpoint
from course_lib.training.family import build
from course_lib.training.optimizer import adamw
from course_lib.training.parallel import Processes, accumulating, gathered, whole, wrap
from course_lib.training.precision import Precision, optimization_step
from course_lib.training.row_loss import RowLoss
from course_lib.training.run import train

from .runs import small

VOCABULARY = 53
SETTINGS = {"model": {"dim": 24}, "learning_rate": 0.01}
FP32 = Precision(torch.float32, None, "for a test.", torch.device("cpu"))


def model_of(seed: int = 0, dtype: torch.dtype = torch.float64, config: Any = None, **options: Any) -> Any:
    sizes = {"vocab_size": VOCABULARY, "dim": 24, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    if config is None:
        config = GPTConfig(**{**sizes, "max_length": 64, "init_std": 0.3, **options})
    model = build(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():  # norms too, which begin at 1
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=dtype) / 10)
    return model


def rows_of(step: int, count: int = 4) -> list[PackedBatch]:
    """Packed rows with unlike numbers of documents and targets."""
    generator = torch.Generator().manual_seed(step)
    lengths = [[3], [9, 2, 4], [17], [2, 5]]
    return [
        pack([torch.randint(VOCABULARY, (n,), generator=generator) for n in lengths[(step + k) % 4]])
        for k in range(count)
    ]


def train_steps(
    group: Processes, wrapped: nn.Module, optimizer: torch.optim.Optimizer, steps: range, **options: Any
) -> list[list[float]]:
    """[loss, norm] of each step."""
    reports = []
    for step in steps:
        rows = rows_of(step)[group.rank :: group.world_size]
        targets = [next_token_targets(row) for row in rows]
        (total,) = group.total(sum(int((wanted != NO_TARGET).sum()) for wanted in targets))
        losses = weighted(wrapped, rows, targets, group.world_size / total)
        report = optimization_step(losses, optimizer, FP32, processes=group, **{"max_norm": 0.5, **options})
        reports.append([report.loss, report.norm])
    return reports


def weighted(
    wrapped: nn.Module, rows: list[PackedBatch], targets: list[Tensor], weight: float
) -> Iterator[Tensor]:
    for number, (row, wanted) in enumerate(zip(rows, targets, strict=True)):
        with accumulating(wrapped, last=number == len(rows) - 1):
            loss = wrapped(row, wanted, "sum")
        yield loss * weight


def train_here(
    group: Processes,
    engine: str,
    options: dict[str, Any],
    steps: tuple[int, int] = (0, 4),
    read: str | None = None,
    write: str | None = None,
) -> dict[str, Any]:
    """Steps from .. to of one training, read from a checkpoint and written to one where asked for."""
    begin, end = steps
    # Another seed where weights are read: none of those that are there may remain.
    model = model_of(seed=0 if read is None else 9, **options)
    wrapped = wrap(RowLoss(model), engine, group)
    optimizer = adamw(model, 1e-2)
    told = []
    if read is not None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            saved = read_checkpoint(read, model, optimizer, config=SETTINGS, processes=group)
        assert saved.step == begin and saved.state == {"name": "কলম"}
    reports = train_steps(group, wrapped, optimizer, range(begin, end))
    if write is not None:
        write_checkpoint(
            write,
            step=end,
            model=model,
            optimizer=optimizer,
            config=SETTINGS,
            state={"name": "কলম"},
            processes=group,
        )
    weights = {name: tensor.tolist() for name, tensor in gathered(model).state_dict().items()}
    return {"reports": reports, "weights": weights, "told": [str(warning.message) for warning in told]}


def gradients_between(group: Processes, engine: str) -> list[Any]:
    """Whether the gradients agree on all processes after each of two micro-batches; None: not there yet."""
    model = model_of()
    wrapped = wrap(RowLoss(model), engine, group)
    agree: list[Any] = []
    for number, row in enumerate(rows_of(group.rank, 2)):
        with accumulating(wrapped, last=number == 1):
            loss = wrapped(row, next_token_targets(row))
        loss.backward()
        gradient = model.layers[0].attention.q_proj.weight.grad
        if gradient is None:
            agree.append(None)
        else:
            values = group.gather(whole(gradient).tolist())
            agree.append(values[0] == values[1])
    return agree


def save_whole_model(group: Processes, folder: str) -> list[Any]:
    model = model_of()
    wrap(RowLoss(model), "fsdp", group)
    plain = gathered(model)
    group.on_first(lambda: plain.save(folder))
    return [*{type(p).__name__ for p in plain.parameters()}, plain.head.weight is plain.embed.weight]


class PlantedInfinity(torch.amp.GradScaler):
    """Puts an infinity into the gradient that one process holds."""

    def __init__(self, rank: int, model: nn.Module) -> None:
        super().__init__("cpu", init_scale=1024.0)
        self.rank, self.model = rank, model

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self.rank == 1:
            gradient = next(self.model.parameters()).grad
            assert gradient is not None
            gradient.to_local()[0, 0] = float("inf")
        super().unscale_(optimizer)


def step_with_an_infinity(group: Processes) -> list[Any]:
    model = model_of(dtype=torch.float32)
    wrapped = wrap(RowLoss(model), "fsdp", group)
    optimizer = adamw(model, 1e-2)
    before = whole(model.embed.weight.detach()).clone()
    precision = Precision(torch.float32, PlantedInfinity(group.rank, model), "for a test.", group.device)
    row = rows_of(group.rank, 1)[0]
    report = optimization_step(wrapped(row, next_token_targets(row)), optimizer, precision, processes=group)
    after = whole(model.embed.weight.detach())
    assert precision.scaler is not None
    return [report.skipped, precision.scaler.get_scale(), torch.equal(before, after)]


def step_with_a_bad_loss(group: Processes, engine: str) -> None:
    model = model_of()
    wrapped = wrap(RowLoss(model), engine, group)
    row = rows_of(group.rank, 1)[0]
    loss = wrapped(row, next_token_targets(row))
    factor = float("nan") if group.rank == 1 else 1.0
    optimization_step(loss * factor, adamw(model, 1e-2), FP32, processes=group)


def fail_alone(group: Processes, rank: int) -> None:
    if group.rank == rank:
        raise ValueError(f"documents: nothing to read on {rank}.")
    group.total(1.0)


def fail_alike(group: Processes) -> None:
    raise ValueError("rows_per_step: cannot be shared.")


def train_with_a_bad_row(group: Processes, rank: int) -> None:
    """Only the row of process ``rank`` has a loss that is no number."""
    forward = RowLoss.forward

    def poisoned(self: RowLoss, batch: PackedBatch, targets: Tensor, reduction: str = "mean") -> Tensor:
        loss = forward(self, batch, targets, reduction)
        return loss * torch.nan if group.rank == rank and reduction == "mean" else loss

    RowLoss.forward = poisoned
    train(small(), progress=False)


def fail_on_first(group: Processes) -> None:
    def fails() -> None:
        raise OSError("folder: the disk is full.")

    group.on_first(fails)


def killed_alone(group: Processes) -> None:
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.total(1.0)


def exchanges(group: Processes) -> list[Any]:
    return [
        group.rank,
        group.first,
        group.backend,
        group.total(group.rank + 1, 0.5),
        group.gather({"rank": group.rank}),
        group.on_first(lambda: "written"),
        dist.get_backend(),
    ]


def write_into(group: Processes, folder: str) -> None:
    model = model_of()
    write_checkpoint(
        Path(folder), step=1, model=model, optimizer=adamw(model, 1e-2), config={}, state={}, processes=group
    )
