"""Properties over random lengths, heads, groups, corners, windows and segments."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.attention import Causal, KeyPadding, Segments, attention, merge_attentions

from .oracle import (
    assert_agrees,
    attend,
    attend_with_gradients,
    bottom_right,
    causal,
    everything,
    matrix,
    segments,
    top_left,
)
from .running import ALWAYS, check, qkv, randn

FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)

lengths = st.integers(0, 12)
groups = st.tuples(st.integers(1, 3), st.integers(1, 4))  # kv heads, query heads for each
windows = st.none() | st.integers(1, 15)
widths = st.integers(1, 9)


@st.composite
def packings(draw: st.DrawFn, equal: bool = False) -> tuple[list[int], list[int]]:
    q_lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    if equal:
        return q_lengths, q_lengths
    return q_lengths, draw(st.lists(st.integers(0, 6), min_size=len(q_lengths), max_size=len(q_lengths)))


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@FEW
@given(
    batch=st.integers(0, 3),
    q_len=lengths,
    k_len=lengths,
    heads=groups,
    head_dim=widths,
    value_dim=widths,
    align=st.sampled_from(["top-left", "bottom-right"]),
    window=windows,
    seed=st.integers(0, 99),
)
def test_causal_of_any_rectangle(
    backend: str,
    batch: int,
    q_len: int,
    k_len: int,
    heads: tuple[int, int],
    head_dim: int,
    value_dim: int,
    align: str,
    window: int | None,
    seed: int,
) -> None:
    kv_heads, each = heads
    query, key, value = qkv(batch, q_len, k_len, kv_heads * each, kv_heads, head_dim, value_dim, seed=seed)
    can_see = causal(0 if align == "top-left" else k_len - q_len, window)
    check(backend, query, key, value, Causal(align, window), visible=matrix(can_see, q_len, k_len))


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@FEW
@given(
    packing=packings(),
    batch=st.integers(1, 2),
    heads=groups,
    align=st.sampled_from([None, "top-left", "bottom-right"]),
    window=windows,
    seed=st.integers(0, 99),
)
def test_segments_of_any_lengths(
    backend: str,
    packing: tuple[list[int], list[int]],
    batch: int,
    heads: tuple[int, int],
    align: str | None,
    window: int | None,
    seed: int,
) -> None:
    q_lengths, k_lengths = packing
    kv_heads, each = heads
    query, key, value = qkv(batch, sum(q_lengths), sum(k_lengths), kv_heads * each, kv_heads, 4, seed=seed)
    inner = {None: None, "top-left": top_left(window), "bottom-right": bottom_right(window)}[align]
    bias = Segments(q_lengths, k_lengths, inner=None if align is None else Causal(align, window))
    visible = matrix(segments(q_lengths, k_lengths, inner), sum(q_lengths), sum(k_lengths))
    check(backend, query, key, value, bias, visible=visible)


@FEW
@given(packing=packings(), seed=st.integers(0, 99))
def test_packed_attention_equals_attention_of_each_document_alone(
    packing: tuple[list[int], list[int]], seed: int
) -> None:
    q_lengths, k_lengths = packing
    query, key, value = qkv(1, sum(q_lengths), sum(k_lengths), heads=4, kv_heads=2, seed=seed, grad=False)
    packed = attention(query, key, value, Segments(q_lengths, k_lengths, inner=Causal("bottom-right")))
    alone = [
        attention(q, k, v, Causal("bottom-right"), backend="reference")
        for q, k, v in zip(
            query.split(q_lengths, 1), key.split(k_lengths, 1), value.split(k_lengths, 1), strict=True
        )
    ]
    torch.testing.assert_close(packed, torch.cat(alone, 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@FEW
@given(
    q_len=st.integers(1, 9),
    k_len=st.integers(1, 9),
    terms=st.lists(
        st.sampled_from(["causal", "window", "padding", "bool", "dense", "segments"]), min_size=1, max_size=4
    ),
    tensor_first=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_sum_of_biases_masks_what_any_of_them_masks(
    backend: str, q_len: int, k_len: int, terms: list[str], tensor_first: bool, seed: int
) -> None:
    query, key, value = qkv(2, q_len, k_len, heads=2, seed=seed)
    padding = randn(2, k_len, seed=seed + 1) > -0.5
    mask = randn(1, 2, q_len, k_len, seed=seed + 2) > -0.8
    dense = randn(2, 1, q_len, k_len, seed=seed + 3, grad=True)
    split_q, split_k = q_len // 2, k_len // 3
    meanings = {
        "causal": (Causal("bottom-right"), matrix(causal(k_len - q_len), q_len, k_len)),
        "window": (Causal("top-left", window=3), matrix(causal(0, 3), q_len, k_len)),
        "padding": (KeyPadding(padding.long()), padding[:, None, None]),
        "bool": (mask, mask),
        "dense": (dense, torch.ones(1, 1, dtype=torch.bool)),
        "segments": (
            Segments([split_q, q_len - split_q], [split_k, k_len - split_k]),
            matrix(segments([split_q, q_len - split_q], [split_k, k_len - split_k]), q_len, k_len),
        ),
    }
    terms = list(dict.fromkeys(terms))
    visible = matrix(everything, q_len, k_len)
    total = None
    # At least one term is ours, so that "+" is: two tensors would add as tensors do.
    for name in sorted(terms, key=lambda name: (name in ("bool", "dense")) != tensor_first):
        bias, seen = meanings[name]
        visible = visible & seen
        if total is None:
            total = bias
        elif isinstance(total, torch.Tensor) and isinstance(bias, torch.Tensor):
            total = (total + Segments([q_len], [k_len])) + bias
        else:
            total = total + bias
    check(backend, query, key, value, total, visible=visible, scores=dense if "dense" in terms else None)


@pytest.mark.parametrize("backend", ALWAYS)
@FEW
@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    q_len=st.integers(1, 5),
    masked=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_merging_any_split_of_the_keys_equals_the_whole(
    backend: str, sizes: list[int], q_len: int, masked: int, seed: int
) -> None:
    k_len = sum(sizes)
    query, key, value = qkv(1, q_len, k_len, heads=2, seed=seed)
    mask = randn(q_len, k_len, seed=seed) > 0.3 * masked - 1
    parts = [
        attention(query, k, v, m, backend=backend, return_lse=True)
        for k, v, m in zip(key.split(sizes, 1), value.split(sizes, 1), mask.split(sizes, 1), strict=True)
    ]
    out, lse = merge_attentions([o for o, _ in parts], [s for _, s in parts])
    grad_out = randn(*out.shape, seed=seed + 1)
    expected = attend_with_gradients(query, key, value, grad_out, visible=mask)
    assert_agrees(out, expected["out"], "out")
    assert torch.allclose(lse.double(), expected["lse"], rtol=0, atol=1e-6, equal_nan=True)
    found = torch.autograd.grad(out, [query, key, value], grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient, expected[name], f"gradient of {name}")


@FEW
@given(seed=st.integers(0, 999), q_len=st.integers(1, 8), k_len=st.integers(1, 8))
def test_the_order_of_the_keys_does_not_matter(seed: int, q_len: int, k_len: int) -> None:
    query, key, value = qkv(1, q_len, k_len, seed=seed, grad=False)
    order = torch.randperm(k_len, generator=torch.Generator().manual_seed(seed))
    a = attention(query, key, value, backend="tiled")
    b = attention(query, key[:, order], value[:, order], backend="tiled")
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@FEW
@given(seed=st.integers(0, 999), constant=st.floats(-1e4, 1e4))
def test_a_constant_added_to_all_scores_changes_nothing(seed: int, constant: float) -> None:
    query, key, value = qkv(1, 4, 6, seed=seed, grad=False)
    a = attention(query, key, value, backend="tiled")
    b = attention(query, key, value, torch.full((1, 1, 1, 1), constant, dtype=torch.float64), backend="tiled")
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@FEW
@given(seed=st.integers(0, 999), length=st.integers(2, 12), data=st.data())
def test_the_past_does_not_know_the_future(seed: int, length: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, length - 1))
    query, key, value = qkv(1, length, seed=seed, grad=False)
    whole = attention(query, key, value, Causal())
    start = attention(query[:, :cut], key[:, :cut], value[:, :cut], Causal())
    torch.testing.assert_close(whole[:, :cut], start, rtol=0, atol=1e-12)
    later = attention(query[:, cut:], key, value, Causal("bottom-right"))
    torch.testing.assert_close(whole[:, cut:], later, rtol=0, atol=1e-12)
    expected, _ = attend(query, key, value, visible=matrix(causal(), length, length))
    assert_agrees(whole, expected, "out")
