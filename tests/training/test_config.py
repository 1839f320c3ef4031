"""TrainConfig: what follows from what, and the way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.text import load_tokenizer, train_tokenizer
from course_lib.training import TrainConfig

from .runs import MODEL, small


def test_a_config_comes_back_from_json(tmp_path):
    config = small(
        data=[tmp_path / "a.txt", tmp_path / "b.jsonl"],
        tokenizer=tmp_path / "tokenizer.json",
        output=tmp_path / "out",
        betas=(0.8, 0.9),
        max_norm=None,
        warm_up=3,
    )
    back = TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert back == replace(config, output=str(config.output), tokenizer=str(config.tokenizer))


@pytest.mark.parametrize("data", ["course", "my.txt", Path("my.txt")])
def test_data_that_is_named_comes_back_from_json(data):
    back = TrainConfig.from_dict(small(data=data).to_dict()).data
    assert back == ("course" if data == "course" else Path("my.txt"))


def test_objects_are_described_and_given_again():
    config = small(tokenizer=load_tokenizer())
    written = config.to_dict()
    assert written["data"] == {"objects": "list", "count": 40}
    assert written["tokenizer"]["vocab_size"] == 4096
    assert TrainConfig.from_dict(written, data=config.data, tokenizer=config.tokenizer) == config


def test_two_tokenizers_are_told_apart_in_json():
    other = train_tokenizer(["নদীর ধারে রহিম", "by the river"], 300)
    assert (
        small(tokenizer=other).to_dict()["tokenizer"]
        != small(tokenizer=load_tokenizer()).to_dict()["tokenizer"]
    )


def test_the_context_is_the_models_unless_a_row_is_shorter():
    assert small().context_length == 64
    assert small(batch_tokens=40).context_length == 40
    assert small(context=32).context_length == 32


def test_the_warm_up_is_a_twentieth_of_the_run_and_at_least_a_step():
    assert [small(steps=steps).warm_up_steps for steps in (1, 19, 100)] == [1, 1, 5]
    assert small(warm_up=0).warm_up_steps == 0


def test_a_run_is_evaluated_before_after_and_ten_times_between():
    config = small(steps=100)
    assert [step for step in range(101) if config.is_evaluated(step)] == list(range(0, 101, 10))
    config = small(steps=7, evaluate_every=3)
    assert [step for step in range(8) if config.is_evaluated(step)] == [0, 3, 6, 7]


def test_with_nothing_held_out_nothing_is_evaluated():
    assert not any(small(held_out=0).is_evaluated(step) for step in range(7))


def test_checkpoints_are_written_at_the_end_and_between_but_not_before_the_first_step():
    config = small(steps=7, checkpoint_every=3)
    assert [step for step in range(8) if config.is_checkpointed(step)] == [3, 6, 7]


@pytest.mark.error_messages  # beartype would refuse them before they are made ints
def test_sizes_of_numpy_become_ints_that_json_can_hold():
    import numpy as np

    config = small(steps=np.int64(3), batch_tokens=np.int32(128))
    assert json.dumps(config.to_dict()) and type(config.steps) is int


def test_a_gpt_config_in_the_dict_may_be_an_object():
    assert TrainConfig.from_dict({"model": MODEL, "steps": 2}).model is MODEL
