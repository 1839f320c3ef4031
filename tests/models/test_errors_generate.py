"""What cannot be written is refused by a sentence, before any work is done."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.models import GPT
from course_lib.models.generate import generate
from course_lib.models.generate_rows import SpeedMeter
from course_lib.text import load_tokenizer

from .made import config, small, token_ids

TOKENS = token_ids(2, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens: expected a whole number of at least 0, got -1"),
        ({"max_new_tokens": 2.0}, "max_new_tokens: expected a whole number, got float 2.0"),
        ({"max_new_tokens": True}, "max_new_tokens: expected a whole number, got bool True"),
        ({"do_sample": 1}, "do_sample: expected True or False, got int 1"),
        (
            {"do_sample": True, "temperature": 0},
            "temperature: expected a number above 0, got 0. .* do_sample=False",
        ),
        ({"do_sample": True, "temperature": None}, "temperature: expected a number, got None"),
        ({"do_sample": True, "top_k": 54}, "top_k: expected from 1 to the 53 tokens of the vocabulary"),
        ({"do_sample": True, "top_p": 0.0}, "top_p: expected a probability above 0 and at most 1, got 0.0"),
        ({"temperature": 0.7}, "temperature: expected 1 without sampling, .* got 0.7. Pass do_sample=True"),
        ({"top_k": 5}, "top_k: expected None without sampling, .* got 5. Pass do_sample=True"),
        ({"top_p": 0.9}, "top_p: expected None without sampling, .* got 0.9. Pass do_sample=True"),
        ({"seed": "7"}, "seed: expected a whole number, got str '7'"),
        (
            {"do_sample": True, "seed": [1]},
            "seed: expected one for each of the 2 rows of tokens, or one for all, got 1",
        ),
        ({"stop": ""}, "stop: expected a string that can be found, got an empty one"),
        (
            {"stop": "\n"},
            r"tokenizer: expected one to find the stop string '\\n' in what is written, got None",
        ),
        ({"stop": 53}, "stop: expected ids from 0 to 52, the vocabulary of this model, got 53"),
        ({"stop": [1, -1]}, "stop: expected ids from 0 to 52, the vocabulary of this model, got -1"),
        ({"stop": 1.5}, "stop: expected ids of tokens, strings, or both in a list, .* got float 1.5"),
        ({"stop": b"\n"}, r"stop: expected ids of tokens, strings, or both in a list, .* got bytes b'\\n'"),
        ({"stop": [None]}, "stop: expected ids of tokens, strings, or both in a list, .* got NoneType None"),
        ({"stop": [True]}, "stop: expected ids of tokens, strings, or both in a list, .* got bool True"),
        (
            {"tokenizer": load_tokenizer()},
            "tokenizer: expected the 53 ids of the model's vocabulary, got one of 4096",
        ),
        (
            {"tokenizer": "opt"},
            r"tokenizer: expected an object with token_bytes\(id\) or decode\(ids\), got str",
        ),
        ({"on_token": "print"}, "on_token: expected a function of one NewToken, got str"),
        (
            {"attention_mask": torch.ones(2, 4)},
            r"attention_mask: expected \[batch, length\] = \[2, 5\] as tokens",
        ),
        ({"attention_mask": [[1] * 5] * 2}, "attention_mask: expected a tensor .* got list"),
        ({"attention_mask": torch.full((2, 5), 0.5)}, "attention_mask: expected only 1 .* got 0.5"),
        (
            {"attention_mask": torch.tensor([[0, 0, 1, 1, 1], [0] * 5])},
            "attention_mask: expected at least one real token in each row to go on from, got none in row 1",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    model = small()
    model.embed.register_forward_pre_hook(lambda *_: pytest.fail("work was done"))
    with pytest.raises((TypeError, ValueError), match=message):
        generate(model, TOKENS, **{"max_new_tokens": 4, **options})


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[1, 2]], "tokens: expected an int64 tensor .* got list"),
        ("hello", "tokens: expected an int64 tensor .* got str"),
        (
            torch.tensor([1, 2]),
            r"tokens: expected \[batch, length\], got shape \[2\]. A single text needs tokens\[None",
        ),
        (torch.tensor([[1, 53]]), "tokens: expected ids from 0 to 52, the vocabulary of this model, got 53"),
        (
            token_ids(2, 0),
            "tokens: expected at least one token in each row to go on from, got none. Text begins after",
        ),
    ],
)
def test_prompts_that_are_none_are_refused(tokens: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        generate(small(), tokens, max_new_tokens=4)


@pytest.mark.parametrize(
    ("length", "new", "message"),
    [
        (
            5,
            5,
            r"max_new_tokens: expected at most 4 after 5 tokens, since the model has learned 8 positions, got 5",
        ),
        (
            8,
            2,
            r"max_new_tokens: expected at most 1 after 8 tokens, since the model has learned 8 positions, got 2",
        ),
        (
            9,
            0,
            r"tokens: expected at most 8 in a row, the positions that the model has learned, got 9. .*\[:, -8:\]",
        ),
    ],
)
def test_more_than_the_learned_positions_are_refused_before_any_work(
    length: int, new: int, message: str
) -> None:
    """Fault 20."""
    model = small(positions="learned", max_length=8)
    model.embed.register_forward_pre_hook(lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match=message):
        generate(model, token_ids(2, length), max_new_tokens=new)


def test_padding_takes_no_positions() -> None:
    model = small(positions="learned", max_length=8)
    mask = torch.tensor([[0] * 6 + [1] * 3, [1] * 2 + [0] * 7])
    assert generate(model, token_ids(2, 9), attention_mask=mask, max_new_tokens=6).shape == (2, 15)
    with pytest.raises(ValueError, match="max_new_tokens: expected at most 6 after 3 tokens"):
        generate(model, token_ids(2, 9), attention_mask=mask, max_new_tokens=7)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("gpt", "model: expected a model of course_lib.models, .* got str. The model comes first"),
        (
            nn.Linear(2, 2),
            "model: expected a model .* got Linear without .config, .embed, .layers, .head, .hidden",
        ),
        (config(), "model: expected a model of course_lib.models, .* got GPTConfig. The model"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        generate(model, TOKENS, max_new_tokens=4)


def test_a_model_without_weights_is_refused() -> None:
    with torch.device("meta"):
        model = GPT(config())
    with pytest.raises(ValueError, match='model: expected one with weights, got one on the device "meta"'):
        generate(model, TOKENS, max_new_tokens=4)


def test_tokens_on_another_device_are_refused() -> None:
    model = small()
    with pytest.raises(ValueError, match="tokens: expected them on cpu as the model's weights, got meta"):
        generate(model, TOKENS.to("meta"), max_new_tokens=4)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_named_by_row_and_position(value: float, sampled: bool) -> None:
    model = small()
    steps: list[int] = []

    def broken(_: Any, inputs: Any, out: torch.Tensor) -> torch.Tensor:
        steps.append(1)
        if len(steps) == 3:
            out[1] = value
        return out

    model.head.register_forward_hook(broken)
    mask = torch.tensor([[1] * 5, [0, 1, 1, 1, 1]])
    message = (
        f"model: expected finite logits, got {value} as the largest for the token at position 6 of row 1"
    )
    with pytest.raises(ValueError, match=message):
        generate(model, TOKENS, attention_mask=mask, max_new_tokens=4, do_sample=sampled)


def test_weights_of_nan_are_found_at_the_first_token() -> None:
    model = small()
    with torch.no_grad():
        model.embed.weight.fill_(float("nan"))
    with pytest.raises(
        ValueError, match=r"got nan .* position 5 of row 0. Are there NaN among the weights\?"
    ):
        generate(model, TOKENS, max_new_tokens=4)


def test_a_meter_needs_a_function_to_pass_tokens_on_to() -> None:
    with pytest.raises(TypeError, match="on_token: expected a function of one NewToken, got int"):
        SpeedMeter(3)  # type: ignore[arg-type]
