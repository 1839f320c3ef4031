"""Where the time of a training step goes, by kind of work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from .ladder_rungs import Trainer

GROUPS = (
    "matmul",
    "attention forward",
    "attention backward",
    "feed-forward, number by number",
    "casts and copies",
    "norm",
    "optimizer",
    "loss",
    "other",
)
OPERATIONS = {
    "matmul": ("mm", "addmm", "bmm", "matmul", "linear", "mkldnn_linear", "addmm_"),
    "norm": ("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm"),
    "optimizer": ("linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),  # clipping
    "casts and copies": ("copy_", "_to_copy", "to", "clone", "contiguous"),
    "loss": (
        "_softmax",
        "_log_softmax",
        "_log_softmax_backward_data",
        "nll_loss_forward",
        "nll_loss_backward",
    ),
}
"""PyTorch's operations, without their prefix ``aten::``, where nothing around them says more."""


def shares(training: Trainer) -> dict[str, float]:
    """Of one step, after one that warms up: the share of each of ``GROUPS`` in the operations' own time."""
    training.step()
    device = next(training.model.parameters()).device.type
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with _silent_stderr(), profile(activities=activities) as seen:
        training.step()
    own = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    ours = _functions()
    spent = dict.fromkeys(GROUPS, 0.0)
    for event in seen.events() or []:
        spent[_group(event, ours)] += max(0.0, getattr(event, own))
    whole = sum(spent.values()) or 1.0
    return {name: seconds / whole for name, seconds in spent.items()}


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Without the two lines that PyTorch's profiler writes there, past Python, at each start and stop."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _functions() -> dict[str, str]:
    """Our own autograd functions, forward and backward, by the part of the library that they are of."""

    def below(cls: type) -> Iterator[type]:
        child: type
        for child in cls.__subclasses__():
            yield child
            yield from below(child)

    found = {}
    for function in below(torch.autograd.Function):
        part = function.__module__.removeprefix("course_lib.").split(".")
        if function.__module__.startswith("course_lib."):
            found[function.__name__] = "loss" if part[-1] == "loss" else part[0]
    return found


def _group(event: Any, ours: dict[str, str]) -> str:
    name = event.name.removeprefix("aten::")
    around = [event.name]
    parent = event.cpu_parent
    while parent is not None:
        around.append(parent.name)
        parent = parent.cpu_parent
    if any("Optimizer.step" in outer or "_fused_adam" in outer for outer in around):
        return "optimizer"
    backward = any(outer.startswith("autograd::engine") for outer in around)
    if any("scaled_dot_product" in outer for outer in around):
        return "attention backward" if backward else "attention forward"
    plain = next((group for group, operations in OPERATIONS.items() if name in operations), None)
    part = next((ours[own] for outer in around if (own := _own_name(outer, ours))), None)
    if part == "attention":
        return "attention backward" if backward else "attention forward"
    if part == "swiglu":
        return plain if plain == "matmul" else "feed-forward, number by number"
    if part == "loss":
        return plain if plain == "matmul" else "loss"
    return plain or "other"


def _own_name(event_name: str, ours: dict[str, str]) -> str | None:
    """The function of ours that an event is of, forward or backward."""
    bare = event_name.split(": ")[-1]
    return (
        bare
        if bare in ours
        else bare.removesuffix("Backward")
        if bare.removesuffix("Backward") in ours
        else None
    )
