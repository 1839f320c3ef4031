"""A short run that kills its own process, for the tests of going on."""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

from course_lib.models import GPTConfig
from course_lib.text import load_tokenizer, stories
from course_lib.training import checkpoint_folder, curves
from course_lib.training.config import TrainConfig
from course_lib.training.parallel import Processes
from course_lib.training.result import StepRecord
from course_lib.training.run import train

STEPS = 12


def config_of(folder: str, **options: Any) -> TrainConfig:
    model = GPTConfig(
        vocab_size=load_tokenizer().vocab_size, dim=16, num_layers=2, num_heads=2, max_length=32
    )
    settings = {
        "data": [story.text for story in stories(30)],
        "steps": STEPS,
        "batch_tokens": 64,
        "rows_per_step": 2,
        "precision": "fp32",
        "device": "cpu",
        "evaluate_every": 5,
        "checkpoint_every": 3,
    }
    return TrainConfig(output=folder, **{"model": model, **settings, **options})


def train_here(
    group: Processes,
    folder: str,
    options: dict[str, Any],
    kill_at: int | None = None,
    kill_at_write: int | None = None,
) -> dict[str, Any]:
    """Train, or be killed after step ``kill_at``, or at change ``kill_at_write`` of the files of checkpoints."""

    def after_each(record: StepRecord) -> None:
        if record.step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    curves.write_curves = lambda *arguments: None  # most of the time of so short a run, and of another test
    if kill_at_write is not None:
        _kill_at_write(kill_at_write)
    warnings.simplefilter("ignore")  # a story longer than the context
    result = train(config_of(folder, **options), progress=False, on_step=after_each)
    return {
        "resumed_from": result.resumed_from,
        "steps": [[r.step, r.loss, r.norm, r.loss_scale, r.learning_rate, r.targets] for r in result.records],
        "held_out": [list(pair) for pair in result.held_out],
        "weights": {name: tensor.tolist() for name, tensor in result.model.state_dict().items()},
    }


def _kill_at_write(moment: int) -> None:
    """End the process at the change of that number of files and folders, counted from 0."""
    done = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            return function(*arguments, **options)

        return call

    for name in ("save_tensors", "to_disk", "_write_state", "_folder_to_disk"):
        setattr(checkpoint_folder, name, counted(getattr(checkpoint_folder, name)))
    checkpoint_folder.os.replace = counted(os.replace)
    checkpoint_folder.shutil.rmtree = counted(checkpoint_folder.shutil.rmtree)
