"""Bad input to grouped queries and their cache: the message names the argument, what was expected, what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.attention import Causal, attention
from course_lib.gqa import CausalAt, GroupedQueryAttention, KVCache, kv_cache_bytes, mean_pool_kv_heads

LAYER = GroupedQueryAttention(12, 6, 2)
X = torch.zeros(2, 3, 12)
KEY = torch.zeros(2, 3, 2, 4)
SIZES: dict[str, Any] = {"batch": 1, "length": 8, "num_layers": 2, "num_kv_heads": 2, "head_dim": 4}


def cache(**options: Any) -> KVCache:
    """One that holds 3 tokens of 2 sequences, 2 kv heads of 4."""
    made = KVCache(**options)
    made.append(KEY, KEY)
    return made


CASES: dict[str, tuple[Callable[[], object], type[Exception], list[str]]] = {
    "heads that the groups do not divide": (
        lambda: GroupedQueryAttention(16, 8, 3),
        ValueError,
        ["num_kv_heads", "divisor of num_heads = 8", "1, 2, 4, 8", "got 3"],
    ),
    "more kv heads than heads": (
        lambda: GroupedQueryAttention(16, 4, 8),
        ValueError,
        ["num_kv_heads", "divisor of num_heads = 4", "got 8"],
    ),
    "no kv heads": (
        lambda: GroupedQueryAttention(16, 4, 0),
        ValueError,
        ["num_kv_heads", "at least 1", "got 0"],
    ),
    "heads that are no whole number": (
        lambda: GroupedQueryAttention(16, 4.0, 2),  # type: ignore[arg-type]
        TypeError,
        ["num_heads", "whole number", "float 4.0"],
    ),
    "a width that the heads do not divide": (
        lambda: GroupedQueryAttention(16, 6, 2),
        ValueError,
        ["dim", "multiple of num_heads = 6", "got 16", "head_dim="],
    ),
    "no head_dim": (
        lambda: GroupedQueryAttention(16, 4, 2, head_dim=0),
        ValueError,
        ["head_dim", "at least 1", "got 0"],
    ),
    "x of another width": (
        lambda: LAYER(torch.zeros(2, 3, 8)),
        ValueError,
        ["^x:", "dim = 12", r"\[2, 3, 8\]"],
    ),
    "x without a batch": (lambda: LAYER(torch.zeros(3, 12)), ValueError, ["^x:", r"\[3, 12\]", r"x\[None\]"]),
    "x that is no tensor": (lambda: LAYER([[0.0] * 12]), TypeError, ["^x:", "tensor", "list"]),
    "x of another dtype": (
        lambda: LAYER(X.double()),
        ValueError,
        ["^x:", "float32 as the weights", "float64", "autocast"],
    ),
    "ids in place of x": (lambda: LAYER(X.long()), ValueError, ["^x:", "float32", "int64"]),
    "rotary that returns another shape": (
        lambda: LAYER(X, rotary=lambda heads: heads.mT),
        ValueError,
        ["^rotary", r"\[2, 3, 6, 2\]", r"got \[2, 3, 2, 6\]"],
    ),
    "rotary that returns nothing": (
        lambda: LAYER(X, rotary=lambda heads: None),  # type: ignore[arg-type, return-value]
        ValueError,
        ["^rotary", "function that returns", "got NoneType"],
    ),
    "the caches of all layers": (
        lambda: LAYER(X, cache=[KVCache()]),
        TypeError,
        ["cache", "KVCache", "list", "this layer"],
    ),
    "rotary of another length": (
        lambda: LAYER(X, rotary=(torch.zeros(5, 2), torch.zeros(5, 2))),
        ValueError,
        ["rotary", "cos", r"\[2, 3, 2\]", r"\[5, 2\]"],
    ),
    "rotary that is one tensor": (
        lambda: LAYER(X, rotary=torch.zeros(3, 2)),
        TypeError,
        ["rotary", r"pair of tensors \(cos, sin\)", "Tensor"],
    ),
    "rotary of an odd head": (
        lambda: GroupedQueryAttention(9, 3, 3)(
            torch.zeros(1, 2, 9), rotary=(torch.ones(2, 3), torch.ones(2, 3))
        ),
        ValueError,
        ["rotary", "even head_dim", "got 3"],
    ),
    "a causal bias that does not say where a cache's queries stand": (
        lambda: GroupedQueryAttention(12, 2, 2, head_dim=4)(X, bias=Causal(), cache=cache()),
        ValueError,
        ["3 queries and 6 keys", "bottom-right", "KV cache"],
    ),
    "a window over sequences of different lengths": (
        lambda: LAYER(
            X,
            bias=Causal("bottom-right", window=2),
            cache=KVCache(),
            attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]),
        ),
        ValueError,
        ["bias", "window=2", "last of 3 keys", "one length"],
    ),
    "a mask of another length": (
        lambda: LAYER(X, attention_mask=torch.ones(2, 4)),
        ValueError,
        ["attention_mask", "2 sequences of 3 keys", "of 4 keys"],
    ),
    "tokens of another batch": (
        lambda: cache().append(KEY[:1], KEY[:1]),
        ValueError,
        ["^key", "2 sequences", "got 1", "reorder"],
    ),
    "tokens of other heads": (
        lambda: cache().append(torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4)),
        ValueError,
        ["^key", "2 kv heads of 4", r"\[2, 1, 4, 4\]", "layer"],
    ),
    "tokens of another dtype": (
        lambda: cache().append(KEY.double(), KEY.double()),
        ValueError,
        ["^key", "float32", "float64", "autocast"],
    ),
    "values that are fewer than keys": (
        lambda: KVCache().append(KEY, KEY[:, :2]),
        ValueError,
        ["^value", r"\[2, 3, 2\] as in key", r"\[2, 2, 2, 4\]"],
    ),
    "keys with three dimensions": (
        lambda: KVCache().append(KEY[0], KEY[0]),
        ValueError,
        ["^key", "4 dimensions", r"\[3, 2, 4\]"],
    ),
    "a list of keys": (lambda: KVCache().append([1], [1]), TypeError, ["^key", "tensor", "list"]),
    "a cache that is full": (
        lambda: cache(max_length=4).append(KEY, KEY),
        ValueError,
        ["^key", "at most 1 further tokens for sequence 0", "holds 3 of max_length = 4", "got 3", "truncate"],
    ),
    "a mask of other tokens": (
        lambda: cache().append(KEY, KEY, torch.ones(2, 6)),
        ValueError,
        ["attention_mask", r"\[2, 3\]", r"\[2, 6\]", "earlier ones"],
    ),
    "a mask of other values": (
        lambda: cache().append(KEY, KEY, torch.full((2, 3), 2)),
        ValueError,
        ["attention_mask", "only 1 .* and 0", "got 2"],
    ),
    "a block of nothing": (lambda: KVCache(block_size=0), ValueError, ["block_size", "at least 1", "got 0"]),
    "a maximum of nothing": (
        lambda: KVCache(max_length=0),
        ValueError,
        ["max_length", "at least 1", "got 0"],
    ),
    "truncating to more than is held": (
        lambda: cache().truncate(4),
        ValueError,
        ["lengths", "at most the 3 tokens held", "got 4"],
    ),
    "truncating one sequence to more than it holds": (
        lambda: cache().truncate([3, 4]),
        ValueError,
        [r"lengths\[1\]", "at most the 3 tokens held", "got 4"],
    ),
    "truncating to half a token": (
        lambda: cache().truncate(1.5),
        TypeError,
        ["^lengths", "list of whole numbers", "float 1.5"],
    ),
    "truncating to True": (
        lambda: cache().truncate(True),
        TypeError,
        ["^lengths", "whole number", "bool True"],
    ),
    "truncating another batch": (
        lambda: cache().truncate([1]),
        ValueError,
        ["lengths", "2 sequences", "got 1"],
    ),
    "truncating to a negative length": (
        lambda: cache().truncate(-1),
        ValueError,
        ["lengths", "at least 0", "-1"],
    ),
    "reordering by a number that is none": (
        lambda: cache().reorder([0, 2]),
        ValueError,
        [r"indices\[1\]", "2 sequences", "got 2"],
    ),
    "reordering by a negative number": (
        lambda: cache().reorder(torch.tensor([-1])),
        ValueError,
        [r"indices\[0\]", "counted from 0", "got -1"],
    ),
    "reordering by nothing": (
        lambda: cache().reorder(None),
        TypeError,
        ["^indices", "numbers of sequences", "got NoneType", "no tensor"],
    ),
    "reordering by a text": (lambda: cache().reorder("10"), TypeError, ["^indices", "got str"]),
    "reordering by a mask": (
        lambda: cache().reorder(torch.tensor([True, False])),
        ValueError,
        ["indices", "bool", "nonzero"],
    ),
    "positions of another batch": (
        lambda: cache().next_positions(torch.ones(3, 1)),
        ValueError,
        ["attention_mask", "2 sequences", "got 3"],
    ),
    "a CausalAt for another batch": (
        lambda: attention(KEY, KEY, KEY, CausalAt(torch.zeros(1, 3, dtype=torch.int64))),
        ValueError,
        ["bias", "made for 1 sequences of 3", "got 2"],
    ),
    "a size that is no whole number": (
        lambda: kv_cache_bytes(**{**SIZES, "length": 8.0}, dtype=torch.float16),
        TypeError,
        ["length", "whole number", "float 8.0"],
    ),
    "a negative batch": (
        lambda: kv_cache_bytes(**{**SIZES, "batch": -1}, dtype=torch.float16),
        ValueError,
        ["batch", "at least 0", "got -1"],
    ),
    "a dtype by its name": (
        lambda: kv_cache_bytes(**SIZES, dtype="float16"),  # type: ignore[arg-type]
        TypeError,
        ["dtype", "torch.float16", "'float16'"],
    ),
    "pooling heads that the groups do not divide": (
        lambda: mean_pool_kv_heads(torch.zeros(12, 5), 6, 4),
        ValueError,
        ["num_kv_heads", "divisor of num_heads = 6", "got 4"],
    ),
    "pooling rows that are no heads": (
        lambda: mean_pool_kv_heads(torch.zeros(13, 5), 6, 2),
        ValueError,
        ["weight", "num_heads = 6", r"\[13, 5\]", "rows"],
    ),
    "pooling whole numbers": (
        lambda: mean_pool_kv_heads(torch.zeros(12, 4, dtype=torch.int64), 6, 2),
        TypeError,
        ["^weight", "floating-point", "int64"],
    ),
    "pooling a layer": (
        lambda: mean_pool_kv_heads(LAYER, 6, 2),
        TypeError,
        ["weight", "tensor", "GroupedQueryAttention", "k_proj.weight"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_a_sentence(case: str) -> None:
    call, kind, needles = CASES[case]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert len(message.split()) >= 8, message
    assert re.search("[Ee]xpected|needs|made for", message), message
    for needle in needles:
        assert re.search(needle, message), f"no {needle!r} in: {message}"


def test_a_refused_append_leaves_the_cache_as_it_was() -> None:
    full = cache(max_length=4)
    for key, value, mask in (
        (KEY, KEY, None),
        (KEY[:, :1], KEY[:, :2], None),
        (KEY[:, :1], KEY[:, :1].double(), None),
        (KEY[:, :1], KEY[:, :1], torch.ones(1, 1)),
    ):
        with pytest.raises(ValueError, match="expected"):
            full.append(key + 1, value + 1, mask)
    assert full.lengths.tolist() == [3, 3]
    keys, values, _ = full.append(KEY[:, :1], KEY[:, :1])
    assert not keys.any() and not values.any()


def test_a_refused_step_leaves_the_cache_as_it_was() -> None:
    """A student who mends the call and runs the cell again must not have read the token twice."""
    layer, held = GroupedQueryAttention(12, 2, 2, head_dim=4), cache()
    with pytest.raises(ValueError, match="bottom-right"):
        layer(X, bias=Causal(), cache=held)
    assert held.lengths.tolist() == [3, 3]
    fresh = KVCache()
    with pytest.raises(ValueError, match="window"):
        layer(
            X,
            bias=Causal(window=2),
            cache=fresh,
            attention_mask=torch.tensor([[1, 1, 1], [0, 1, 1]]),
        )
    assert fresh.lengths.tolist() == [0, 0]
