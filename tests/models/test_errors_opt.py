"""What an OPT and its config say to what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.gqa import KVCache
from course_lib.models import OPT, OPTConfig

from .made import token_ids
from .made_opt import opt_config, small_opt


def test_past_the_last_position_stands_a_sentence_that_says_the_limit() -> None:
    model = small_opt(max_length=8)
    sentence = r"positions: expected 0 to 7, those learned by a model of max_length = 8, got 8\."
    with pytest.raises(ValueError, match=sentence):
        model(token_ids(1, 9))
    caches = [KVCache() for _ in model.layers]
    with torch.no_grad():
        model(token_ids(1, 8), cache=caches)
        with pytest.raises(ValueError, match=sentence):
            model(token_ids(1, 1), cache=caches)
    assert caches[0].host_lengths == (8,)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"dim": 25}, ValueError, r"dim: expected a multiple of num_heads = 6, got 25"),
        ({"num_layers": 0}, ValueError, r"num_layers: expected"),
        ({"activation": "tanh"}, ValueError, r"activation: expected one of 'relu'.*got 'tanh'"),
        ({"norm_first": 1}, TypeError, r"norm_first: expected True or False, got 1"),
        ({"norm_first": False, "final_norm": True}, ValueError, r"final_norm: expected False or None"),
        ({"final_norm": "no"}, TypeError, r"final_norm: expected True, False or None, got 'no'"),
        ({"checkpointing": "all"}, ValueError, r"checkpointing: expected one of 'none', 'layers', got 'all'"),
        ({"init_std": 0}, ValueError, r"init_std: expected a number above 0, got 0"),
        ({"eos_token_id": "2"}, TypeError, r"eos_token_id: expected a token id, got str '2'"),
        ({"pad_token_id": 1.5}, TypeError, r"pad_token_id: expected a token id, got float 1.5"),
    ],
)
def test_a_field_that_does_not_fit_is_named(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        opt_config(**options)


def test_an_unknown_size_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"expected one of opt-125m, .*opt-iml-max-175b, got 'opt-7b'"):
        OPTConfig.of_size("opt-7b")
    with pytest.raises(ValueError, match="got 'opt-iml-125m'"):
        OPTConfig.of_size("opt-iml-125m")
    with pytest.raises(TypeError, match="name: expected the name of a model, got int 125"):
        OPTConfig.of_size(125)  # type: ignore[arg-type]


def test_a_config_of_another_family_is_refused() -> None:
    with pytest.raises(ValueError, match="expected model_type 'opt', got 'bloom'"):
        OPTConfig.from_dict({"model_type": "bloom"})
    with pytest.raises(TypeError, match=r"expected a dict of config\.json, got list"):
        OPTConfig.from_dict([])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config: expected an OPTConfig, got dict"):
        OPT({})  # type: ignore[arg-type]


def test_an_entry_of_config_json_that_does_not_fit_is_named_as_it_is_there() -> None:
    stored = opt_config().to_dict()
    with pytest.raises(ValueError, match=r"^dim: .*got 25\. dim is hidden_size in config\.json\.$"):
        OPTConfig.from_dict({**stored, "hidden_size": 25})
    with pytest.raises(ValueError, match=r"got 'quick_gelu'\. activation is activation_function in config"):
        OPTConfig.from_dict({**stored, "activation_function": "quick_gelu"})
    with pytest.raises(TypeError, match=r"^vocab_size: expected a whole number, got str '9'\.$"):
        OPTConfig.from_dict({**stored, "vocab_size": "9"})
