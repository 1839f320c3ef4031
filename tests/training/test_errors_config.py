"""Bad settings: the message names the field, what was expected, what came, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.training import TrainConfig

from .runs import small

pytestmark = pytest.mark.error_messages

CASES: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "no model": ({"model": None}, TypeError, ["model", "GPTConfig", "NoneType"]),
    "no step": ({"steps": 0}, ValueError, ["steps", "at least 1", "0"]),
    "half a step": ({"steps": 1.5}, TypeError, ["steps", "whole number", "1.5"]),
    "no steps at all": ({"steps": None}, TypeError, ["steps", "whole number", "None"]),
    "a row of one token": ({"batch_tokens": 1}, ValueError, ["batch_tokens", "at least 2"]),
    "no row": ({"rows_per_step": 0}, ValueError, ["rows_per_step", "at least 1"]),
    "a context over a row": ({"context": 300}, ValueError, ["context", "256", "300", "raise batch_tokens"]),
    "a context over the model's": ({"context": 65}, ValueError, ["context", "max_length = 64", "65"]),
    "no learning": ({"learning_rate": 0}, ValueError, ["learning_rate", "over 0", "got 0"]),
    "a learning rate of NaN": ({"learning_rate": float("nan")}, ValueError, ["learning_rate", "nan"]),
    "a rate of text": ({"learning_rate": "1e-3"}, TypeError, ["learning_rate", "number", "str"]),
    "a warm-up over the run": ({"warm_up": 7}, ValueError, ["warm_up", "at most steps, 6", "7"]),
    "a floor over 1": ({"floor": 1.1}, ValueError, ["floor", "at least 0", "at most 1", "1.1"]),
    "growth for decay": ({"weight_decay": -0.1}, ValueError, ["weight_decay", "at least 0", "-0.1"]),
    "one beta": ({"betas": 0.9}, TypeError, ["betas", "two numbers", "0.9"]),
    "a beta of 1": ({"betas": (0.9, 1.0)}, ValueError, [r"betas\[1\]", "below 1", "1.0"]),
    "a norm of 0": ({"max_norm": 0}, ValueError, ["max_norm", "over 0"]),
    "another precision": ({"precision": "int8"}, ValueError, ["precision", "'auto'", "'fp16'", "'int8'"]),
    "another engine": ({"engine": "deepspeed"}, ValueError, ["engine", "'ddp', 'fsdp'", "'deepspeed'"]),
    "another device": ({"device": "quantum"}, ValueError, ["device", "'auto', 'cpu'", "'quantum'"]),
    "a switch of text": ({"compile": "yes"}, TypeError, ["compile", "True or False", "'yes'"]),
    "fused of text": ({"fused": "yes"}, TypeError, ["fused", "True, False or None"]),
    "all held out": ({"held_out": 1}, ValueError, ["held_out", "below 1", "got 1"]),
    "never evaluated": ({"evaluate_every": 0}, ValueError, ["evaluate_every", "at least 1"]),
    "no checkpoint kept": ({"keep_checkpoints": 0}, ValueError, ["keep_checkpoints", "at least 1"]),
    "no data": ({"data": None}, TypeError, ["data", "course", "a path", "None"]),
    "a tokenizer's name": ({"tokenizer": 7}, TypeError, ["tokenizer", "tokenizer.json", "int"]),
    "an open file": ({"output": 7}, TypeError, ["output", "path of a folder", "int"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_is_wrong(name):
    changes, kind, words = CASES[name]
    with pytest.raises(kind) as caught:
        small(**changes)
    for word in words:
        assert caught.match(word)


DICTS: dict[str, tuple[Any, type[Exception], list[str]]] = {
    "no dict": ([1], TypeError, ["config", "list"]),
    "an unknown field": (
        {**small().to_dict(), "lr": 1},
        ValueError,
        ["TrainConfig", "got also lr", "later version"],
    ),
    "no model": ({"steps": 3}, ValueError, ["at least model and steps", "none for model"]),
    "data that was an object": (
        small().to_dict(),
        ValueError,
        ["data=...", "object of Python's", "Pass the same"],
    ),
}


@pytest.mark.parametrize("name", DICTS)
def test_a_dict_that_is_no_config_is_refused(name):
    values, kind, words = DICTS[name]
    with pytest.raises(kind) as caught:
        TrainConfig.from_dict(values)
    for word in words:
        assert caught.match(word)
