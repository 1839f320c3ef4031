"""Bad input to gated feed-forwards: the message names the argument, what was expected, what came, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.swiglu import SwiGLU, matched_hidden_features

BFLOAT16 = torch.bfloat16


def call(x: Any, *, autocast: bool = False, **options: Any) -> object:
    with torch.autocast("cpu", dtype=BFLOAT16, enabled=autocast):
        return SwiGLU(4, 6, **options)(x)


def load(layer: nn.Module, **changes: torch.Tensor) -> object:
    return layer.load_state_dict(
        SwiGLU(4, 6).state_dict() | {k.replace("__", "."): v for k, v in changes.items()}
    )


CASES: dict[str, tuple[Callable[[], object], type[Exception], list[str]]] = {
    "no hidden numbers": (lambda: SwiGLU(4, 0), ValueError, ["^hidden_features", "at least 1", "got 0"]),
    "a negative input size": (lambda: SwiGLU(-4, 6), ValueError, ["^in_features", "at least 1", "got -4"]),
    "no output": (lambda: SwiGLU(4, 6, 0), ValueError, ["^out_features", "at least 1", "got 0"]),
    "a hidden size of two thirds": (
        lambda: SwiGLU(4, 8 / 3 * 4),
        TypeError,
        ["^hidden_features", "whole number", "float 10.6", "matched_hidden_features"],
    ),
    "a bool for a size": (
        lambda: SwiGLU(4, 6, True),
        TypeError,
        ["^out_features", "whole number", "bool True"],
    ),
    "a list for x": (lambda: call([1.0] * 4), TypeError, ["^x", r"tensor \[..., 4\]", "list"]),
    "token ids for x": (
        lambda: call(torch.ones(2, 4, dtype=torch.int64)),
        TypeError,
        ["^x", "floating-point", "int64", "embedding"],
    ),
    "complex numbers for x": (
        lambda: call(torch.ones(2, 4, dtype=torch.complex64)),
        TypeError,
        ["^x", "floating-point", "complex64"],
    ),
    "another width": (
        lambda: call(torch.ones(2, 5)),
        ValueError,
        ["^x", "in_features = 4", r"\[2, 5\]", "last dimension"],
    ),
    "features before tokens": (lambda: call(torch.ones(4, 7)), ValueError, ["^x", r"\[4, 7\]"]),
    "a single number": (lambda: call(torch.tensor(1.0)), ValueError, ["^x", "in_features = 4", r"\[\]"]),
    "half input to single weights": (
        lambda: call(torch.ones(2, 4, dtype=BFLOAT16)),
        TypeError,
        ["^x", "float32 as the weights", "got bfloat16", r"x\.to\(", "autocast"],
    ),
    "half input, recomputed": (
        lambda: call(torch.ones(2, 4, dtype=BFLOAT16), recompute=True),
        TypeError,
        ["^x", "float32 as the weights", "got bfloat16"],
    ),
    "double input to single weights, which autocast leaves": (
        lambda: call(torch.ones(2, 4, dtype=torch.float64), autocast=True, recompute=True),
        TypeError,
        ["^x", "float32", "got float64", "all but float64"],
    ),
    "a state dict of another width": (
        lambda: load(SwiGLU(5, 6, 4)),
        ValueError,
        [
            r"^w12\.weight",
            r"expected shape \[12, 5\]",
            r"SwiGLU\(5, 6, 4\)",
            r"got \[12, 4\]",
            "sizes that were saved",
        ],
    ),
    "a state dict of another output": (
        lambda: load(SwiGLU(4, 6, 3)),
        ValueError,
        [r"^w3\.weight", r"\[3, 6\]", r"got \[4, 6\]"],
    ),
    "a bias of another length": (
        lambda: load(SwiGLU(4, 6), w12__bias=torch.zeros(6)),
        ValueError,
        [r"^w12\.bias", r"\[12\]", r"got \[6\]"],
    ),
    "a state dict of another shape inside a model": (
        lambda: nn.Sequential(nn.Identity(), SwiGLU(4, 6)).load_state_dict(
            {"1.w12.weight": torch.zeros(6, 4)}
        ),
        ValueError,
        [r"^1\.w12\.weight", r"\[12, 4\]", r"got \[6, 4\]"],
    ),
    "halves of a state dict that differ": (
        lambda: SwiGLU(4, 6).load_state_dict(
            {"gate_proj.weight": torch.zeros(6, 4), "up_proj.weight": torch.zeros(5, 4)}
        ),
        ValueError,
        [r"^gate_proj\.weight, up_proj\.weight", "one shape", r"\[6, 4\] and \[5, 4\]", "halves of w12"],
    ),
    "halves of another size": (
        lambda: SwiGLU(4, 6).load_state_dict(
            {"w1.weight": torch.zeros(5, 4), "w2.weight": torch.zeros(5, 4)}
        ),
        ValueError,
        [r"^w12\.weight", r"\[12, 4\]", r"got \[10, 4\]"],
    ),
    "a dim of 0": (lambda: matched_hidden_features(0), ValueError, ["^dim", "at least 1", "got 0"]),
    "a dim that is no whole number": (lambda: matched_hidden_features(5.5), TypeError, ["^dim", "float 5.5"]),
    "no multiple": (
        lambda: matched_hidden_features(8, multiple_of=0),
        ValueError,
        ["^multiple_of", "at least 1", "got 0"],
    ),
    "no expansion": (
        lambda: matched_hidden_features(8, expansion=0),
        ValueError,
        ["^expansion", "above 0", "got 0", "plain feed-forward"],
    ),
    "an endless expansion": (
        lambda: matched_hidden_features(8, expansion=float("nan")),
        ValueError,
        ["^expansion", "got nan"],
    ),
    "an expansion in words": (
        lambda: matched_hidden_features(8, expansion="4"),
        TypeError,
        ["^expansion", "number such as 4", "str '4'"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_a_sentence(case: str) -> None:
    attempt, kind, needles = CASES[case]
    with pytest.raises(kind) as caught:
        attempt()
    message = str(caught.value)
    assert "expected" in message and len(message.split()) >= 8, message
    for needle in needles:
        assert re.search(needle, message), f"no {needle!r} in: {message}"


def test_a_refused_state_dict_changes_nothing() -> None:
    layer = SwiGLU(4, 6)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with pytest.raises(ValueError, match=r"w3\.bias"):
        load(layer, w3__bias=torch.zeros(3))
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())


def test_halves_that_are_no_tensors_are_left_to_pytorch() -> None:
    state = {"w1.weight": [1.0], "w2.weight": [2.0], "w3.weight": torch.zeros(4, 8)}
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "w12.weight"'):
        SwiGLU(4, 8, bias=False).load_state_dict(state)


def test_missing_and_superfluous_weights_are_named_by_pytorch_unless_strict_is_off() -> None:
    whole, no_bias = SwiGLU(4, 6), SwiGLU(4, 6, bias=False)
    with pytest.raises(RuntimeError, match=r"Missing key.*w12\.bias"):
        whole.load_state_dict(no_bias.state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*w12\.bias"):
        no_bias.load_state_dict(whole.state_dict())
    result = no_bias.load_state_dict(whole.state_dict(), strict=False)
    assert result.unexpected_keys == ["w12.bias", "w3.bias"]
