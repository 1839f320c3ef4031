"""Reading token by token with a cache: as if all were read at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.attention import Causal
from course_lib.gqa import GroupedQueryAttention, KVCache
from course_lib.tiny_gpt import sample

from .test_model import POSITIONS, causal_with_distance, tiny


@pytest.mark.parametrize("positions", POSITIONS)
def test_with_a_cache_the_logits_are_those_of_reading_all_at_once(positions: str) -> None:
    model = tiny(positions=positions, num_kv_heads=2)
    tokens = torch.randint(0, 12, (2, 9))
    cache = [KVCache(block_size=4) for _ in model.layers]
    with torch.no_grad():
        parts = [model(part, cache=cache) for part in tokens.split([4, 1, 0, 3, 1], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)
    assert cache[1].host_lengths == (9, 9)


@pytest.mark.parametrize("attention_bias", [Causal("bottom-right", window=3), causal_with_distance])
def test_a_bias_of_the_model_holds_behind_a_cache(attention_bias: Any) -> None:
    model = tiny(attention_bias=attention_bias)
    tokens = torch.randint(0, 12, (1, 8))
    cache = [KVCache() for _ in model.layers]
    with torch.no_grad():
        parts = [model(part, cache=cache) for part in tokens.split(1, dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)


def test_the_attention_of_a_layer_goes_over_into_grouped_query_attention() -> None:
    attention = tiny(num_kv_heads=2, positions="none").layers[0].attention
    grouped = GroupedQueryAttention(16, 4, 2).double()
    grouped.load_state_dict(attention.state_dict())
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(attention(x, Causal(), None, None), grouped(x, Causal()), rtol=0, atol=1e-10)


def test_a_sample_is_the_same_with_and_without_a_cache() -> None:
    model = tiny(vocab_size=4096)
    plain = sample(model, "এক দিন", max_new_tokens=12, seed=5)
    assert sample(model, "এক দিন", max_new_tokens=12, seed=5, cache=[KVCache(), KVCache()]) == plain
