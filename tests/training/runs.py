"""Runs of a model of a few thousand weights on a few stories: a second each."""

from __future__ import annotations

from typing import Any

from course_lib.models import GPTConfig
from course_lib.text import stories
from course_lib.training import StepRecord, TrainConfig

STORIES = list(stories(40, seed=3))
MODEL = GPTConfig(vocab_size=4096, dim=16, num_layers=2, num_heads=2, num_kv_heads=1, max_length=64)


class Stopped(Exception):
    """Raised by a test to end a run where a power cut might."""


def small(**changes: Any) -> TrainConfig:
    fields = {"model": MODEL, "data": STORIES, "steps": 6, "batch_tokens": 256, "precision": "fp32"}
    return TrainConfig(**{**fields, "rows_per_step": 2, "held_out": 0.1, "checkpoint_every": 3, **changes})


def stop_after(step: int):
    def on_step(record: StepRecord) -> None:
        if record.step == step:
            raise Stopped

    return on_step


def losses(result: Any) -> list[float]:
    return [record.loss for record in result.records]
