"""AdamW as language models are trained with it: what decays, how fast it learns when, and batches in instalments.

The schedule is a function of the step alone, and so are the weights of micro-batches of their token counts: neither
has a state that a checkpoint could forget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from course_lib.attention.bias import as_whole_number


def decay_groups(
    model: nn.Module, weight_decay: float = 0.1, *, decay_embeddings: bool = False
) -> list[dict[str, object]]:
    """The trainable parameters of ``model`` as two groups for an optimiser: with ``weight_decay``, and with none.

    Matrices decay. Norms and biases do not: they are few, and pulling a gain towards 0 shrinks what it is there to
    scale. Nor do embeddings unless told to, since a rare word's row would shrink at each step that it is not in; a
    head tied to the embedding is that same table. Each parameter is in one group, once.

    Raises ValueError for a negative ``weight_decay`` and for a model without a parameter to train.
    """
    if not 0 <= weight_decay < math.inf:
        raise ValueError(f"weight_decay: expected a number of at least 0, got {weight_decay}.")
    tables = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        for parameter in module.parameters(recurse=False)
    }
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError(
            "model: expected parameters that train, got none that wants a gradient. model.requires_grad_(True) wakes "
            "them."
        )
    groups: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in trained:
        decays = parameter.dim() >= 2 and (decay_embeddings or id(parameter) not in tables)
        groups[not decays].append(parameter)
    rates = (weight_decay, 0.0)
    return [
        {"params": group, "weight_decay": rate} for group, rate in zip(groups, rates, strict=True) if group
    ]


def adamw(
    model: nn.Module,
    lr: float,
    *,
    weight_decay: float = 0.1,
    decay_embeddings: bool = False,
    betas: tuple[float, float] = (0.9, 0.95),
    fused: bool | None = None,
) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) over :func:`decay_groups`. ``fused`` None lets PyTorch choose its kernels.

    Raises ValueError for an ``lr`` that is not over 0, and as :func:`decay_groups`.
    """
    if not 0 < lr < math.inf:
        raise ValueError(f"lr: expected a number over 0, got {lr}.")
    groups = decay_groups(model, weight_decay, decay_embeddings=decay_embeddings)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=fused)


def learning_rate(step: int, *, peak: float, steps: int, warm_up: int = 0, floor: float = 0.1) -> float:
    """The learning rate of step ``step`` of 0 … ``steps`` - 1: up in a line, then down as a cosine.

    Step ``warm_up`` - 1 is the first at ``peak``, and the last step is at ``floor * peak``; later ones stay there. The
    first step is at ``peak / warm_up``, not at 0, at which it would teach nothing.

    Raises ValueError for a negative step, no steps, a warm-up over the run, and a floor outside of 0 to 1.
    """
    step = as_whole_number("step", step, 0)
    steps, warm_up = as_whole_number("steps", steps), as_whole_number("warm_up", warm_up)
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}.")
    if not 0 <= warm_up <= steps:
        raise ValueError(f"warm_up: expected 0 to {steps}, the steps of the run, got {warm_up}.")
    if not 0 <= floor <= 1:
        raise ValueError(f"floor: expected a share of peak, 0 to 1, got {floor}.")
    if not 0 < peak < math.inf:
        raise ValueError(f"peak: expected a number over 0, got {peak}.")
    if step < warm_up:
        return peak * (step + 1) / warm_up
    top = max(0, warm_up - 1)
    done = min(1.0, (step - top) / max(1, steps - 1 - top))
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Let every group of ``optimizer`` learn at ``lr``."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)  # a captured or compiled step reads the tensor
        else:
            group["lr"] = lr


def accumulation_weights(targets: Sequence[int]) -> tuple[float, ...]:
    """The weight of each micro-batch's mean loss, given how many targets each has: their share of all targets.

    The weighted losses then sum to the mean over the large batch, and so do their gradients. A mean of the means, as
    by 1 / len(targets), would let a token in a short micro-batch count for more. A micro-batch without targets has no
    mean: its weight is 0, and it is to be left out.

    Raises ValueError for a negative count, and where there is no target at all.
    """
    counts = [as_whole_number(f"targets[{i}]", count) for i, count in enumerate(targets)]
    for i, count in enumerate(counts):
        if count < 0:
            raise ValueError(f"targets[{i}]: expected a number of targets, at least 0, got {count}.")
    total = sum(counts)
    if not total:
        raise ValueError(
            f"targets: expected at least one target, got {len(counts)} micro-batches without any."
        )
    return tuple(count / total for count in counts)
