"""Bad input to optimiser and schedule: the message names the argument, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from course_lib.training import accumulation_weights, adamw, decay_groups, learning_rate

MODEL = nn.Linear(2, 2)

CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a negative decay": (
        lambda: decay_groups(MODEL, -0.1),
        ValueError,
        r"weight_decay: .*at least 0, got -0\.1",
    ),
    "a frozen model": (
        lambda: decay_groups(nn.Linear(2, 2).requires_grad_(False)),
        ValueError,
        "model: expected parameters that train",
    ),
    "a learning rate of 0": (lambda: adamw(MODEL, 0.0), ValueError, "lr: expected a number over 0, got 0"),
    "a step before the first": (
        lambda: learning_rate(-1, peak=1.0, steps=5),
        ValueError,
        "step: .*at least 0, got -1",
    ),
    "half a step": (
        lambda: learning_rate(0.5, peak=1.0, steps=5),
        TypeError,
        "step: .*whole number, got float",
    ),
    "no steps": (
        lambda: learning_rate(0, peak=1.0, steps=0),
        ValueError,
        "steps: expected at least 1, got 0",
    ),
    "a warm-up over the run": (
        lambda: learning_rate(0, peak=1.0, steps=5, warm_up=6),
        ValueError,
        "warm_up: expected 0 to 5.*got 6",
    ),
    "a floor over the peak": (
        lambda: learning_rate(0, peak=1.0, steps=5, floor=1.5),
        ValueError,
        r"floor: .*0 to 1, got 1\.5",
    ),
    "a peak of 0": (lambda: learning_rate(0, peak=0.0, steps=5), ValueError, "peak: .*over 0"),
    "no target": (
        lambda: accumulation_weights([0, 0]),
        ValueError,
        "targets: .*got 2 micro-batches without any",
    ),
    "fewer than no target": (lambda: accumulation_weights([3, -1]), ValueError, r"targets\[1\]: .*got -1"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_is_wrong(name):
    call, kind, words = CASES[name]
    with pytest.raises(kind, match=words):
        call()
