"""A run of training so small that an exercise can stop it, resume it, and see whether anybody would notice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

HALF_MAX = torch.finfo(torch.float16).max
GROWTH_INTERVAL = 2


class PracticeRun:
    """Linear regression with dropout, momentum, a falling learning rate and a dynamic loss scale, one row a step.

    What it knows is in its attributes, and nothing else decides what comes next:

    weight       [4] what is learned
    average      [4] the optimiser's moving average of the gradients
    loss_scale   by which the loss is multiplied; halved at an overflow
    good_steps   since the scale last changed; after 2 of them it doubles
    step         how many steps were taken: the learning rate follows from it
    position     the row of the data that is read next
    generator    a torch.Generator, for the dropout
    """

    def __init__(self) -> None:
        self.weight = torch.zeros(4)
        self.average = torch.zeros(4)
        self.loss_scale = 2.0**16
        self.good_steps = 0
        self.step = 0
        self.position = 0
        self.generator = torch.Generator().manual_seed(7)

    def __repr__(self) -> str:
        return "PracticeRun(" + ", ".join(vars(self)) + ")"

    def train(self, steps: int) -> list[float]:
        """Take that many steps; the loss of each."""
        return [self._step() for _ in range(steps)]

    def load(self, saved: Mapping[str, Any]) -> PracticeRun:
        """Set what ``saved`` holds, by name; a generator by its state. Raises ValueError for other names."""
        for name, value in saved.items():
            if name not in vars(self):
                raise ValueError(f"saved: expected only {', '.join(vars(self))}, got also {name!r}.")
            if name != "generator":
                setattr(self, name, value.clone() if isinstance(value, torch.Tensor) else value)
            elif isinstance(value, torch.Generator):
                self.generator = value
            else:
                self.generator.set_state(value)
        return self

    def _step(self) -> float:
        rows = torch.Generator().manual_seed(70)
        data = 2 * torch.randn(16, 5, generator=rows)
        x, wanted = data[self.position % 16, :4], data[self.position % 16, 4]
        self.position += 1
        x = x * (torch.rand(4, generator=self.generator) > 0.25) / 0.75
        error = self.weight @ x - wanted
        scaled = 2 * error * x * self.loss_scale
        self.step += 1
        if scaled.abs().max() > HALF_MAX:
            self.loss_scale, self.good_steps = self.loss_scale / 2, 0
            return float(error**2)
        self.average.mul_(0.8).add_(scaled, alpha=0.2 / self.loss_scale)  # in place, as optimisers do
        self.weight.sub_(self.average, alpha=0.2 / (1 + self.step))
        self.good_steps += 1
        if self.good_steps == GROWTH_INTERVAL:
            self.loss_scale, self.good_steps = 2 * self.loss_scale, 0
        return float(error**2)


def resumed(saved: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """What a check looks at: how a new run goes on from ``saved``, made in ``args[0]``, which itself goes on first.

    "moved_on" names what has gone on with the run, "other" what is not, and never was, a value of it.
    """
    run = args[0]
    wanted = {name: _plain(value) for name, value in vars(run).items()}
    run.train(9)
    if not isinstance(saved, Mapping):
        return {"not_a_dict": saved}
    differ = [name for name in wanted if name in saved and not _holds(saved[name], wanted[name], name)]
    moved_on = [name for name in differ if _moves_with(saved[name], getattr(run, name))]
    unknown = [str(name) for name in saved if name not in wanted]
    return {
        "missing": [name for name in wanted if name not in saved],
        "unknown": unknown,
        "moved_on": moved_on,
        "other": [name for name in differ if name not in moved_on],
        "losses": []
        if unknown or differ
        else [round(loss, 6) for loss in PracticeRun().load(saved).train(9)],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _holds(value: Any, wanted: Any, name: str) -> bool:
    """Whether ``value`` is ``wanted``, and of a kind that a run can be given."""
    if name == "generator":
        return isinstance(value, torch.Generator | torch.Tensor) and _plain(value) == wanted
    if isinstance(wanted, list):
        return isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.tolist() == wanted
    return bool(_plain(value) == wanted)


def _moves_with(value: Any, now: Any) -> bool:
    if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
        return value.data_ptr() == now.data_ptr()
    return value is now and isinstance(value, torch.Generator)
