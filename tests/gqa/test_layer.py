"""Grouped queries: values, gradients, Llama's numbers, and heads that are never copied."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course_lib.attention import Causal, KeyPadding, attention
from course_lib.gqa import GroupedQueryAttention, mean_pool_kv_heads
from course_lib.packing import Packed, unpack

from .oracle import attend_alone, layer, randn, randomised, rotary_pair

HEADS = st.sampled_from([(1, 1), (2, 1), (6, 2), (6, 3), (6, 6), (12, 4), (12, 1)])


@given(HEADS, st.integers(1, 9), st.booleans(), st.booleans(), st.booleans())
def test_output_and_gradients_are_those_of_heads_computed_one_by_one(
    heads: tuple[int, int], length: int, bias: bool, causal: bool, rotary: bool
) -> None:
    gqa = layer(10, *heads, head_dim=4, bias=bias, seed=length)
    x = randn(2, length, 10, seed=length).requires_grad_()
    pair = rotary_pair(torch.arange(length), 4) if rotary else None
    out = gqa(x, bias=Causal() if causal else None, rotary=pair)
    expected = torch.stack([attend_alone(gqa, row, causal=causal, rotary=rotary) for row in x])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    weight = randn(*out.shape, seed=5)
    leaves = [x, *gqa.parameters()]
    found = torch.autograd.grad((out * weight).sum(), leaves)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("attention_bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_equals_transformers_llama_attention_with_the_same_state_dict(
    attention_bias: bool, dtype: torch.dtype, tolerance: float
) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        hidden_size=60,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=80,
        attention_bias=attention_bias,
    )
    config._attn_implementation = "sdpa"  # "eager" rounds its softmax to float32 even in float64
    theirs = randomised(LlamaAttention(config, layer_idx=0), dtype=dtype)
    ours = GroupedQueryAttention(60, 6, 2, head_dim=80, bias=attention_bias).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x = randn(2, 17, 60).to(dtype)
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(17)[None])
    future = torch.full((17, 17), float("-inf"), dtype=dtype).triu(1)
    expected, _ = theirs(x, position_embeddings=(cos, sin), attention_mask=future[None, None])
    got = ours(x, bias=Causal(), rotary=(cos, sin))
    assert (got - expected).norm() <= tolerance * expected.norm()
    weight = randn(*x.shape, seed=1).to(dtype)
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        g = torch.autograd.grad((got * weight).sum(), mine, retain_graph=True)[0]
        e = torch.autograd.grad((expected * weight).sum(), other, retain_graph=True)[0]
        assert (g - e).norm() <= tolerance * e.norm() + 1e-12, name


@pytest.mark.parametrize("backend", ["reference", "tiled", "torch_sdpa"])
def test_query_heads_share_kv_heads_in_runs_and_not_in_turn(backend: str) -> None:
    """`repeat` in place of `repeat_interleave` gives head 1 the keys of kv head 1; it shares those of head 0."""
    query, key, value = randn(1, 5, 4, 3), randn(1, 5, 2, 3, seed=1), randn(1, 5, 2, 3, seed=2)
    got = attention(query, key, value, backend=backend)
    right = attention(query, *(t.repeat_interleave(2, dim=2) for t in (key, value)), backend="reference")
    wrong = attention(query, *(t.repeat(1, 1, 2, 1) for t in (key, value)), backend="reference")
    torch.testing.assert_close(got, right, rtol=0, atol=1e-12)
    assert (got - wrong).abs().max() > 1e-2


def test_multi_head_weights_repeated_for_a_group_are_the_grouped_layer() -> None:
    """Where gradients of shared heads go: the multi-head layer's, summed over each group."""
    grouped = layer(12, 6, 2, head_dim=4)
    multi = GroupedQueryAttention(12, 6, 6, head_dim=4).double()
    state = grouped.state_dict()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = state[name].unflatten(0, (2, 4)).repeat_interleave(3, dim=0).flatten(0, 1)
    multi.load_state_dict(state)
    x, weight = randn(2, 7, 12), randn(2, 7, 12, seed=1)
    outs = [module(x, bias=Causal()) for module in (grouped, multi)]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-10)
    for out in outs:
        (out * weight).sum().backward()
    assert grouped.k_proj.weight.grad is not None and multi.k_proj.weight.grad is not None
    summed = multi.k_proj.weight.grad.unflatten(0, (2, 3, 4)).sum(1).flatten(0, 1)
    torch.testing.assert_close(grouped.k_proj.weight.grad, summed, rtol=0, atol=1e-10)


def test_packed_documents_pass_as_if_alone() -> None:
    gqa, lengths = layer(), [4, 0, 1, 6]
    x = randn(1, 11, 12)
    positions = torch.cat([torch.arange(n) for n in lengths])
    out = gqa(x, bias=Packed(lengths, inner=Causal()), rotary=rotary_pair(positions, 2))
    for got, document in zip(unpack(out, lengths), unpack(x, lengths), strict=True):
        torch.testing.assert_close(got, attend_alone(gqa, document, rotary=True), rtol=0, atol=1e-10)


def test_the_attention_mask_hides_padding_without_a_cache() -> None:
    gqa, x = layer(), randn(2, 6, 12)
    real = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
    by_name = gqa(x, bias=Causal(), attention_mask=real)
    torch.testing.assert_close(by_name, gqa(x, bias=Causal() + KeyPadding(real)), rtol=0, atol=0)
    torch.testing.assert_close(by_name[0, 2:], attend_alone(gqa, x[0, 2:]), rtol=0, atol=1e-10)


def test_rotary_may_be_a_function_of_the_heads() -> None:
    gqa, x = layer(), randn(2, 5, 12)
    shapes = []

    def double(tensor: Tensor) -> Tensor:
        shapes.append(tuple(tensor.shape))
        return tensor * 2

    got = gqa(x, rotary=double)
    assert shapes == [(2, 5, 6, 2), (2, 5, 2, 2)]
    gqa.q_proj.weight.data *= 2
    gqa.k_proj.weight.data *= 2
    torch.testing.assert_close(got, gqa(x), rtol=0, atol=1e-12)


def test_autocast_gives_bfloat16_close_to_single_precision() -> None:
    gqa = layer().float()
    x = randn(2, 9, 12).float()
    pair = rotary_pair(torch.arange(9), 2)
    expected = gqa(x, bias=Causal(), rotary=pair)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = gqa(x, bias=Causal(), rotary=pair)
    assert got.dtype == torch.bfloat16
    assert (got.float() - expected).norm() <= 0.03 * expected.norm()


def test_pooling_takes_the_mean_of_each_group_of_heads() -> None:
    weight = randn(12, 5)
    pooled = mean_pool_kv_heads(weight, 6, 2)
    expected = torch.cat(
        [(weight[s : s + 2] + weight[s + 2 : s + 4] + weight[s + 4 : s + 6]) / 3 for s in (0, 6)]
    )
    torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(mean_pool_kv_heads(weight[:, 0], 6, 2), expected[:, 0], rtol=0, atol=1e-12)
    assert torch.equal(mean_pool_kv_heads(weight, 6, 6), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("group", [2, 3, 7, 8])
def test_heads_that_agree_are_pooled_to_themselves_bit_for_bit(group: int, dtype: torch.dtype) -> None:
    heads = randn(2, 1, 3, 200).to(dtype)
    pooled = mean_pool_kv_heads(heads.expand(2, group, 3, 200).flatten(0, 2), 2 * group, 2)
    assert pooled.dtype == dtype and torch.equal(pooled, heads[:, 0].flatten(0, 1))


def test_a_layer_whose_heads_agree_within_groups_loses_nothing_by_pooling() -> None:
    multi, grouped = layer(12, 6, 6, bias=True), GroupedQueryAttention(12, 6, 2, bias=True).double()
    state = multi.state_dict()
    for name in ("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"):
        first = state[name].unflatten(0, (2, 3, 2))[:, :1]
        state[name] = first.expand(2, 3, *first.shape[2:]).flatten(0, 2)
    multi.load_state_dict(state)
    for name in ("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"):
        state[name] = mean_pool_kv_heads(state[name], 6, 2)
    grouped.load_state_dict(state)
    x = randn(2, 5, 12)
    torch.testing.assert_close(grouped(x, bias=Causal()), multi(x, bias=Causal()), rtol=0, atol=1e-10)
