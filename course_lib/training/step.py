"""One step: ``rows_per_step`` packed rows from the stream, their losses, one step of AdamW.

Rows are computed one after the other, and each loss is weighted by the row's share of all targets, so that the
gradients add up to that of one large batch, at the memory of one row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from torch import Tensor

from course_lib.packing import NO_TARGET, PackedBatch, next_token_targets

from .optimizer import accumulation_weights, learning_rate, set_learning_rate
from .parallel import accumulating
from .precision import optimization_step
from .progress import PeakMemory
from .result import StepRecord
from .set_up import Run

NAMED = 8
"""How many documents of a faulty row are named."""


def take_step(run: Run, memory: PeakMemory) -> StepRecord:
    """The next step of ``run``. Raises FloatingPointError that names the step and the row whose loss is not finite."""
    config, group = run.config, run.group
    started = time.perf_counter()
    set_learning_rate(
        run.optimizer,
        rate := learning_rate(
            run.step,
            peak=config.learning_rate,
            steps=config.steps,
            warm_up=config.warm_up_steps,
            floor=config.floor,
        ),
    )
    rows = StepRows(run)
    try:
        report = optimization_step(
            rows.losses(), run.optimizer, run.precision, max_norm=config.max_norm, processes=group
        )
    except FloatingPointError as error:
        raise FloatingPointError(f"step {run.step + 1}: {error} {rows.text()}") from None
    run.step += 1
    return StepRecord(
        step=run.step,
        loss=report.loss,
        learning_rate=rate,
        norm=report.norm,
        loss_scale=report.loss_scale,
        skipped=report.skipped,
        targets=rows.total_targets,
        tokens=rows.total_tokens,
        seconds=time.perf_counter() - started,
        memory=memory.bytes(),
    )


class StepRows:
    """The rows of a step: this process's share of them, and what all of them hold together."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows: list[PackedBatch] = []
        self.documents: list[tuple[int, ...]] = []
        self.first = run.stream.batches
        self.at: int | None = None
        """The place of the row whose loss was computed last; None when all are done."""
        self.loss: Tensor | None = None
        """Of that row."""
        for _ in range(run.config.rows_per_step // run.group.world_size):
            self.rows.append(next(run.stream))
            self.documents.append(run.stream.documents)
        self.targets = [next_token_targets(row) for row in self.rows]
        counts = run.group.gather([int((wanted != NO_TARGET).sum()) for wanted in self.targets])
        # In the order of the processes; each finds its own rows' weights in it.
        weights = accumulation_weights([count for own in counts for count in own])
        self.weights = weights[run.group.rank * len(self.rows) :][: len(self.rows)]
        self.total_targets = sum(map(sum, counts))
        self.total_tokens = int(run.group.total(sum(row.tokens.numel() for row in self.rows))[0])

    def losses(self) -> Iterator[Tensor]:
        """The weighted loss of each row, computed when the one before has been differentiated."""
        run, device = self.run, self.run.group.device
        for place, (row, wanted) in enumerate(zip(self.rows, self.targets, strict=True)):
            self.at = place
            with accumulating(run.wrapped, last=place == len(self.rows) - 1), run.precision.autocast():
                loss = run.wrapped(row.to(device), wanted.to(device))
            # DDP and FSDP average over processes, where the weights ask for a sum.
            self.loss = loss.detach()
            yield loss * (self.weights[place] * run.group.world_size)
        self.at = None

    def text(self) -> str:
        """Where the fault lies: in the row at work, or in any of the step where the sum of gradients is at fault.

        All processes ask together, and all get the same answer: a loss that is not finite may be that of another.
        """
        group = self.run.group
        places = range(len(self.rows)) if self.at is None else [self.at]
        sound = self.at is None or self.loss is None or math.isfinite(self.loss.item())
        own = [
            (
                self.first + place * group.world_size + group.rank,
                self.rows[place].tokens.numel(),
                self.documents[place],
            )
            for place in places
        ]
        found = group.gather((sound, own))
        at_fault = [rows for sound, rows in found if not sound] or [rows for _, rows in found]
        rows = sorted(row for own in at_fault for row in own)
        numbers = [number for number, _, _ in rows]
        documents = [document for _, _, held in rows for document in held]
        names = self.run.split.names(documents[:NAMED])
        more = f" and {len(documents) - NAMED} more" if len(documents) > NAMED else ""
        which = f"row {numbers[0]}" if len(numbers) == 1 else f"rows {numbers[0]} to {numbers[-1]}"
        return (
            f"The batch: {which} of the data, {sum(tokens for _, tokens, _ in rows):,} tokens of {len(documents)} "
            f"documents ({', '.join(names)}{more})."
        )
