"""The peak memory of a rung from its first parameter on, and the workspace of the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..training import chunked_cross_entropy
from .ladder_peers import peer
from .ladder_rungs import RUNGS, Trainer, trainer
from .ladder_workload import Batch, Workload, batches

STEPS = 2
"""The first makes the optimiser's state; the second has it beside all else."""
CHUNKED, WHOLE = "chunked_cross_entropy", "F.cross_entropy of all logits"


def started(
    way: str, workload: Workload, read: list[Batch], *, device: str = "cpu", precision: str = "auto"
) -> Trainer:
    """The rung or the peer of that name, ready for its first step."""
    for rung in RUNGS:
        if rung.name == way:
            return trainer(rung, workload, read, device=device, precision=precision)
    return peer(way, workload, read, device=device, precision=precision)


def training_work(
    *, way: str, workload: dict[str, Any], device: str, precision: str
) -> Callable[[], list[Tensor]]:
    """For :func:`course_lib.bench.memory.workspaces`: model, optimiser and two steps, parameters and all.

    A model of one narrow layer goes before it and loads the code.
    """
    work = Workload(**workload)
    small = replace(work, width=8 * work.heads, layers=1, documents=2)
    started(way, small, batches(small, 1), device=device, precision=precision).step()
    read = batches(work, STEPS)

    def run() -> list[Tensor]:
        training = started(way, work, read, device=device, precision=precision)
        for _ in range(STEPS):
            training.step()
        return []

    return run


def loss_work(*, way: str, tokens: int, vocab: int, width: int, device: str) -> Callable[[], list[Tensor]]:
    """The same of a head and its loss, forward and backward, fp32. The gradients count as results."""

    def prepared(tokens: int, vocab: int) -> Callable[[], list[Tensor]]:
        generator = torch.Generator(device).manual_seed(0)
        hidden = torch.randn(tokens, width, generator=generator, device=device).requires_grad_()
        head = torch.randn(vocab, width, generator=generator, device=device).mul_(0.02).requires_grad_()
        targets = torch.randint(vocab, (tokens,), generator=generator, device=device)

        def run() -> list[Tensor]:
            if way == CHUNKED:
                loss = chunked_cross_entropy(hidden, head, targets)
            else:
                loss = F.cross_entropy(F.linear(hidden, head), targets)
            return [loss.detach(), *torch.autograd.grad(loss, (hidden, head))]

        return run

    prepared(8, 16)()
    return prepared(tokens, vocab)
