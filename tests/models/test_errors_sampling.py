"""What shapes no distribution is refused by a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.models.sampling import keep_top_k, next_token_probabilities, row_seeds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"temperature": 0},
            "temperature: expected a number above 0, got 0. For the likeliest token .* do_sample=",
        ),
        ({"temperature": -1.0}, "temperature: expected a number above 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature: expected a number above 0, got nan"),
        ({"temperature": float("inf")}, "temperature: expected a number above 0, got inf"),
        ({"temperature": "1"}, "temperature: expected a number, got str '1'"),
        ({"temperature": True}, "temperature: expected a number, got bool True"),
        ({"top_k": 0}, "top_k: expected from 1 to the 5 tokens of the vocabulary, or None for all, got 0"),
        ({"top_k": 6}, "top_k: expected from 1 to the 5 tokens of the vocabulary, or None for all, got 6"),
        ({"top_k": 2.0}, "top_k: expected a whole number, got float 2.0"),
        ({"top_p": 0}, "top_p: expected a probability above 0 and at most 1, got 0"),
        ({"top_p": 1.01}, "top_p: expected a probability above 0 and at most 1, got 1.01"),
        ({"top_p": float("nan")}, "top_p: expected a probability above 0 and at most 1, got nan"),
        ({"top_p": "0.9"}, "top_p: expected a number, got str '0.9'"),
    ],
)
def test_settings_that_shape_nothing_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        next_token_probabilities(torch.zeros(5), **options)


def test_a_filter_alone_checks_as_well() -> None:
    with pytest.raises(ValueError, match="top_k: expected from 1 to the 5 tokens"):
        keep_top_k(torch.zeros(2, 5), 9)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([0.0, 1.0], "logits: expected a floating-point tensor .* got list"),
        (torch.zeros(5, dtype=torch.int64), "logits: expected a floating-point tensor .* got torch.int64"),
        (torch.tensor(1.0), r"logits: expected \[..., vocab\], got shape \[\]"),
        (torch.zeros(2, 0), r"logits: expected \[..., vocab\], got shape \[2, 0\]"),
    ],
)
def test_what_is_no_logits_is_refused(logits: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        next_token_probabilities(logits)


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (1.5, "seed: expected a whole number, got float 1.5"),
        ("7", "seed: expected a whole number, got str '7'"),
        (2**64, "seed: expected a whole number of at most 64 bits, got 18446744073709551616"),
        ([1, 2, 3], "seed: expected one for each of the 2 rows of tokens, or one for all, got 3"),
        ([1, None], r"seed\[1\]: expected a whole number, got NoneType None"),
    ],
)
def test_what_is_no_seed_is_refused(seed: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        row_seeds(seed, 2)
