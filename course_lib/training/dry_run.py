"""What a run would be: its config, memory, time and electricity, with nothing trained and nothing written."""

from __future__ import annotations

from typing import Any

import torch

from .config import TrainConfig
from .display import TIMED_STEPS, parameters_text, watts_of
from .estimate import estimate
from .memory import memory_budget
from .model_folder import data_text
from .output import check_output
from .parallel import Processes
from .progress import PeakMemory
from .set_up import check_device, set_up
from .step import take_step


def show(config: TrainConfig, *, watts: float | None = None, price: float | None = None) -> None:
    """Print it. Raises what ``train`` would raise before its first step. One process, also under torchrun."""
    check_device(config.device)
    check_output(config, resume=True)
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    run = set_up(config, Processes(device=torch.device(device)))
    for name, value in config.to_dict().items():
        print(f"{name:<18}{_text(value)}")
    print(f"\nmodel: {parameters_text(run.model)}\ndata: {data_text(run)}\nprecision: {run.precision.why}\n")
    print(memory_budget(config).table(), end="\n\n", flush=True)
    run.wrapped.train()
    memory = PeakMemory(run.group.device)
    seconds = [take_step(run, memory).seconds for _ in range(min(config.steps, 1 + TIMED_STEPS))]
    timed = seconds[1:] or seconds
    drawn = watts_of(run) if watts is None else watts
    print(estimate(sum(timed) / len(timed), config.steps, watts=drawn, price_per_kwh=price))
    print(
        f"Timed on {len(timed)} steps of a model that is thrown away; evaluations and checkpoints come on top."
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items())
    return str(value)
