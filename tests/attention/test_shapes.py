"""Shapes: sizes that differ from each other, awkward sizes, empty ones, and memory in any order."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import Causal, attention

from .oracle import causal, matrix
from .running import ALWAYS, BACKENDS, check, may_decline, qkv, randn


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_length_heads_and_width_all_different_catch_a_swapped_axis(backend: str) -> None:
    query, key, value = qkv(batch=16, q_len=50, heads=12, head_dim=4)
    check(backend, query, key, value)
    check(backend, query, key, value, Causal(), visible=matrix(causal(), 50, 50))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [1, 6, 12, 40])
def test_head_counts(backend: str, heads: int) -> None:
    check(backend, *qkv(2, 5, 9, heads=heads, head_dim=8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("head_dim", [1, 5, 20, 64, 80, 512])
def test_head_widths(backend: str, head_dim: int, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 11, 13, heads=2, head_dim=head_dim, dtype=dtype)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(2), 11, 13))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("head_dim", "value_dim"), [(8, 24), (24, 8), (16, 1), (5, 80)])
def test_a_value_width_of_its_own(backend: str, head_dim: int, value_dim: int) -> None:
    query, key, value = qkv(2, 7, 7, heads=4, kv_heads=2, head_dim=head_dim, value_dim=value_dim)
    check(backend, query, key, value)
    check(backend, query, key, value, Causal(), visible=matrix(causal(), 7, 7))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k_len", [43, 61, 77])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_key_lengths_that_no_alignment_likes(backend: str, k_len: int, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 19, k_len, heads=3, head_dim=8, dtype=dtype)
    check(backend, query, key, value)
    bias = randn(1, 3, 19, k_len, seed=6, dtype=dtype, grad=True)
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (8, 1), (40, 8), (6, 3), (4, 4)])
def test_a_query_head_uses_the_kv_head_of_its_group(backend: str, heads: int, kv_heads: int) -> None:
    query, key, value = qkv(2, 6, 10, heads=heads, kv_heads=kv_heads, head_dim=8)
    check(backend, query, key, value)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(4), 6, 10))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradients_of_a_shared_key_head_are_summed_in_float32(backend: str, dtype: torch.dtype) -> None:
    """64 query heads add up in one key head: a running sum in half precision would lose the last ones."""
    query, key, value = qkv(1, 6, 10, heads=64, kv_heads=1, head_dim=8, dtype=dtype)
    ones = torch.ones(1, 6, 64, 8, dtype=dtype)
    check(backend, query, key, value, grad_out=ones)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(4), 6, 10), grad_out=ones)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [4, 8])
def test_grouped_queries_equal_kv_heads_repeated_interleaved(backend: str, heads: int) -> None:
    query, key, value = qkv(2, 6, heads=heads, kv_heads=2, head_dim=8, grad=False)
    may_decline(backend, query, key, value)
    grouped = attention(query, key, value, backend=backend)
    repeated = attention(
        query, key.repeat_interleave(heads // 2, 2), value.repeat_interleave(heads // 2, 2), backend=backend
    )
    torch.testing.assert_close(grouped, repeated, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q_len", "k_len"), [(0, 5), (5, 0), (0, 0), (1, 1), (1, 5), (5, 1)])
@pytest.mark.parametrize(
    "bias", [None, Causal("top-left"), Causal("bottom-right")], ids=["none", "top-left", "bottom-right"]
)
def test_lengths_zero_and_one(backend: str, q_len: int, k_len: int, bias: Causal | None) -> None:
    query, key, value = qkv(2, q_len, k_len, heads=4, kv_heads=2, head_dim=6)
    shift = k_len - q_len if bias is not None and bias.materialize(2, 3)[0, 0, 0, 1] == 0 else 0
    visible = None if bias is None else matrix(causal(shift), q_len, k_len)
    check(backend, query, key, value, bias, visible=visible)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch(backend: str) -> None:
    query, key, value = qkv(0, 4, 6, heads=2)
    check(backend, query, key, value)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(2), 4, 6))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_batch(backend: str) -> None:
    query, key, value = qkv(300, 5, 6, heads=4, kv_heads=1, head_dim=4)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(1), 5, 6))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [None, 1.0, 0.125, -0.7, 0.0, 3.0])
def test_scale_multiplies_the_scores_and_defaults_to_one_over_the_root_of_the_width(
    backend: str, scale: float | None
) -> None:
    check(backend, *qkv(2, 6, 9, head_dim=7), scale=scale)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [-0.7, 0.0])
@pytest.mark.parametrize(("heads", "kv_heads"), [(3, 3), (4, 2)])
def test_a_scale_that_is_not_positive_leaves_the_causal_mask_intact(
    backend: str, scale: float, heads: int, kv_heads: int
) -> None:
    """PyTorch's kernel scales what the mask has hidden: -inf * -0.7 is +inf, and -inf * 0 is NaN."""
    inputs = qkv(2, 6, heads=heads, kv_heads=kv_heads, head_dim=8)
    check(backend, *inputs, Causal(), visible=matrix(causal(), 6, 6), scale=scale)


def _heads_first(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, stored [B, H, M, K] as a projection followed by transpose leaves them."""
    return tensor.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()


def _every_other(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, as a slice with steps in sequence and width of a larger tensor."""
    batch, length, heads, width = tensor.shape
    wide = torch.full((batch, 2 * length + 1, heads, 3 * width), 7.0, dtype=tensor.dtype)
    view = wide[:, 1 : 2 * length + 1 : 2, :, ::3]
    view.copy_(tensor.detach())
    return view.detach().requires_grad_()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", [_heads_first, _every_other])
def test_inputs_need_not_be_contiguous(backend: str, layout) -> None:
    query, key, value = (layout(t) for t in qkv(2, 6, 9, heads=4, kv_heads=2, head_dim=8))
    assert not query.is_contiguous()
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(3), 6, 9))


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_may_be_expanded_views(backend: str) -> None:
    query, key, value = qkv(3, 6, 9, heads=4, kv_heads=1, head_dim=8, grad=False)
    query = query[:1].expand(3, 6, 4, 8).requires_grad_()
    key = key.expand(3, 9, 4, 8).requires_grad_()
    value = value[:, :1, :, :].expand(3, 9, 4, 8).requires_grad_()
    check(backend, query, key, value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_query_key_and_value_may_be_slices_of_one_projection(backend: str) -> None:
    joint = randn(2, 6, 3, 4, 8, seed=5, grad=True)
    query, key, value = joint.unbind(2)
    may_decline(backend, query, key, value)
    out = attention(query, key, value, backend=backend)
    grad_out = randn(*out.shape, seed=6)
    (gradient,) = torch.autograd.grad(out, joint, grad_out)
    apart = [t.detach().clone().requires_grad_() for t in (query, key, value)]
    expected = torch.autograd.grad(attention(*apart, backend="reference"), apart, grad_out)
    torch.testing.assert_close(gradient, torch.stack(expected, 2), rtol=0, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_output_gradient_need_not_be_contiguous(backend: str) -> None:
    query, key, value = qkv(2, 6, 9, heads=4, kv_heads=2, head_dim=8)
    transposed = randn(2, 4, 6, 8, seed=8).transpose(1, 2)
    check(backend, query, key, value, grad_out=transposed)
    expanded = torch.ones((), dtype=torch.float64).expand(2, 6, 4, 8)
    check(backend, query, key, value, grad_out=expanded)
    strided = randn(2, 6, 4, 16, seed=9)[..., ::2]
    check(backend, query, key, value, grad_out=strided)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_are_not_modified(backend: str) -> None:
    query, key, value = qkv(2, 6, 9, dtype=torch.float32)
    bias = randn(2, 3, 6, 9, seed=7, dtype=torch.float32, grad=backend in ALWAYS)
    may_decline(backend, query, key, value, bias)
    grad_out = randn(2, 6, 3, 5, seed=8, dtype=torch.float32)
    tensors = [query, key, value, bias, grad_out]
    before = [t.detach().clone() for t in tensors]
    attention(query, key, value, bias, backend=backend).backward(grad_out)
    for tensor, old in zip(tensors, before, strict=True):
        assert tensor._version == 0
        assert torch.equal(tensor, old)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_output_shares_no_memory_with_the_inputs(backend: str) -> None:
    query, key, value = qkv(1, 1, 1, heads=1, grad=False)
    out = attention(query, key, value, backend=backend)
    assert torch.equal(out, value)
    out.add_(1)
    assert not torch.equal(out, value)
