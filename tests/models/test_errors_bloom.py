"""What fits no BLOOM is refused by a sentence that names it and says what would."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.gqa import KVCache
from course_lib.models import Bloom, BloomConfig, GPTConfig
from course_lib.models.alibi_at import ALiBiAt

from .made import token_ids
from .made_bloom import bloom_config, small_bloom


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim: expected a whole number of at least 1, got 0"),
        ({"num_layers": 1.5}, "num_layers: expected a whole number, got float 1.5"),
        ({"dim": 25}, "dim: expected a multiple of num_heads = 6, got 25"),
        ({"max_length": 0}, "max_length: expected a whole number of at least 1, got 0"),
        ({"residual_after_norm": 1}, "residual_after_norm: expected True or False, got 1"),
        ({"tied_head": None}, "tied_head: expected True or False, got None"),
        ({"norm_eps": 0}, "norm_eps: expected a number above 0, got 0"),
        ({"norm_eps": "1e-5"}, "norm_eps: expected a number, got str '1e-5'"),
        ({"init_std": float("inf")}, "init_std: expected a number above 0, got inf"),
        ({"checkpointing": True}, "checkpointing: expected one of 'none', 'layers', got True"),
        ({"eos_token_id": "</s>"}, "eos_token_id: expected a token id, got str '</s>'"),
        ({"eos_token_id": [2, "x"]}, "eos_token_id: expected a token id, got str 'x'"),
        ({"pad_token_id": True}, "pad_token_id: expected a token id, got bool True"),
    ],
)
def test_a_config_that_fits_nothing_is_refused_by_field(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        bloom_config(**options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("config.json", r"config: expected a dict of config.json, got str"),
        ({"model_type": "opt"}, r"config: expected model_type 'bloom', got 'opt'"),
        (
            {"n_embed": 64, "hidden_size": 32},
            r"config: expected one dim, got hidden_size = 32 and n_embed = 64. Rem",
        ),
        (
            {"n_head": 4, "num_attention_heads": 8},
            r"one num_heads, got n_head = 4 and num_attention_heads = 8",
        ),
        (
            {"hidden_size": 64, "n_inner": 128},
            r"expected n_inner = 256, four times as wide as the model, got 128",
        ),
        ({"hidden_size": 60}, r"dim: expected a multiple of num_heads = 8, got 60"),
    ],
)
def test_a_config_json_that_describes_no_bloom_is_refused_by_entry(values: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        BloomConfig.from_dict(values)


def test_an_unknown_size_is_answered_by_all_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"name: expected one of bloom-560m, .*bloomz-7b1.* got 'bloom-2b5'"):
        BloomConfig.of_size("bloom-2b5")
    with pytest.raises(TypeError, match=r"name: expected the name of a model, got int 560"):
        BloomConfig.of_size(560)  # type: ignore[arg-type]


def test_a_model_needs_a_config_of_its_own() -> None:
    with pytest.raises(TypeError, match=r"config: expected a BloomConfig, got GPTConfig"):
        Bloom(GPTConfig(vocab_size=9, dim=8, num_layers=1, num_heads=2))  # type: ignore[arg-type]


def test_a_mask_of_another_length_is_refused_and_caches_stay_as_they_were() -> None:
    model = small_bloom()
    caches = [KVCache() for _ in model.layers]
    model(token_ids(2, 3), cache=caches)
    with pytest.raises(ValueError, match=r"attention_mask: expected .* With a cache it marks the new tokens"):
        model(token_ids(2, 1), attention_mask=torch.ones(2, 4), cache=caches)
    assert all(cache.host_lengths == (3, 3) for cache in caches)


def test_a_part_of_a_fused_weight_and_a_strange_name_are_refused_by_name() -> None:
    model = small_bloom()
    state = model.state_dict()
    del state["layers.1.attention.k_proj.bias"]
    with pytest.raises(
        ValueError, match=r"q_proj.bias, .* together, .* got none for layers.1.attention.k_proj.bias"
    ):
        model.to_stored(state)
    with pytest.raises(
        ValueError, match=r"state: expected names of this model's state dict, got also position_embed"
    ):
        model.to_stored({**model.state_dict(), "position_embed.weight": torch.ones(1)})


def test_alibi_among_real_tokens_is_refused_over_another_grid() -> None:
    bias = ALiBiAt(torch.ones(2), torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"made for 1 sequences of 4 queries and keys with 2 heads, got 1 of 3"
    ):
        bias.materialize(3, 4, num_heads=2)
