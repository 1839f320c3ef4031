"""Bad input to the loss: the message names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.training import chunked_cross_entropy

GOOD: dict[str, Any] = {
    "hidden": torch.zeros(3, 4),
    "head_weight": torch.zeros(5, 4),
    "targets": torch.tensor([0, 1, 4]),
}

CASES: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "logits for hidden": ({"hidden": torch.zeros(3, 5)}, ValueError, ["hidden", "4", "not the logits"]),
    "hidden that is a list": ({"hidden": [[0.0] * 4] * 3}, TypeError, ["hidden", "list"]),
    "hidden of whole numbers": (
        {"hidden": torch.zeros(3, 4, dtype=torch.long)},
        TypeError,
        ["hidden", "int64"],
    ),
    "a head that is a vector": ({"head_weight": torch.zeros(4)}, ValueError, ["head_weight", "vocab, dim"]),
    "an empty vocabulary": ({"head_weight": torch.zeros(0, 4)}, ValueError, ["head_weight"]),
    "a head of another dtype": (
        {"head_weight": torch.zeros(5, 4, dtype=torch.bfloat16)},
        TypeError,
        ["head_weight", "float32", "bfloat16", "autocast"],
    ),
    "a head on another device": (
        {"head_weight": torch.zeros(5, 4, device="meta")},
        ValueError,
        ["head_weight", "cpu", "meta"],
    ),
    "a bias of another length": ({"bias": torch.zeros(4)}, ValueError, ["bias", r"\[5\]", r"\[4\]"]),
    "one target too few": ({"targets": torch.tensor([0, 1])}, ValueError, ["targets", r"\[3\]", r"\[2\]"]),
    "probabilities for targets": ({"targets": torch.zeros(3)}, TypeError, ["targets", "F.cross_entropy"]),
    "a target past the vocabulary": (
        {"targets": torch.tensor([0, 5, 1])},
        ValueError,
        ["targets", "0 to 4", "got 5", "another tokenizer"],
    ),
    "a negative target": ({"targets": torch.tensor([0, -1, 1])}, ValueError, ["targets", "-100", "got -1"]),
    "a mean over no target": (
        {"targets": torch.full((3,), -100)},
        ValueError,
        ["targets", "3 tokens without any", "reduction='sum'"],
    ),
    "a mean over no token": (
        {"hidden": torch.zeros(0, 4), "targets": torch.zeros(0, dtype=torch.long)},
        ValueError,
        ["targets", "0 tokens"],
    ),
    "an unknown reduction": ({"reduction": "avg"}, ValueError, ["reduction", "'mean'", "'avg'"]),
    "a chunk of nothing": ({"chunk": 0}, ValueError, ["chunk", "at least 1", "0"]),
    "half a chunk": ({"chunk": 0.5}, TypeError, ["chunk", "whole number", "float"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_is_wrong(name):
    changes, kind, words = CASES[name]
    arguments = GOOD | changes
    with pytest.raises(kind) as caught:
        chunked_cross_entropy(
            arguments.pop("hidden"), arguments.pop("head_weight"), arguments.pop("targets"), **arguments
        )
    for word in words:
        assert caught.match(word)
