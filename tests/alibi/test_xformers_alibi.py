"""The way to xFormers' kernels: ALiBi needs a dense bias there, and it trains only with the causal mask inside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import AttentionBias, Causal, KeyPadding, attention, available_backends
from course_lib.attention.call import Call
from course_lib.attention.xformers_bridge import refusal, run, to_xformers, xformers_ops
from course_lib.packing import Packed

from .oracle import lowered, published_slopes, qkv, randn

pytest.importorskip("xformers.ops", reason="xFormers has no wheel for this platform")

HEADS, KV_HEADS = 6, 3
T4, A100, RTX_5090 = (7, 5), (8, 0), (12, 0)
LEFT_PADDED = KeyPadding(torch.tensor([[0] * 4 + [1] * 9, [1] * 13]))
BIASES: dict[str, AttentionBias] = {
    "alone": ALiBi(HEADS),
    "causal": Causal() + ALiBi(HEADS),
    "window": ALiBi(HEADS) + Causal(window=3),
    "packed": Packed([5, 8], inner=Causal() + ALiBi(HEADS)),
    "rows that see nothing": LEFT_PADDED + Causal() + ALiBi(HEADS),
}


def call_of(bias: Any, q_len: int, k_len: int, dtype: torch.dtype = torch.float32, **changes: Any) -> Call:
    query, key, value = qkv(2, q_len, k_len, HEADS, KV_HEADS, dtype)
    return Call.of(query, key, value, bias, **changes)


@pytest.mark.parametrize("k_len", [13, 16, 61])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_causal_mask_is_baked_into_one_aligned_tensor_of_all_query_heads(
    k_len: int, dtype: torch.dtype
) -> None:
    dense = to_xformers(call_of(Causal("bottom-right") + ALiBi(HEADS), 13, k_len, dtype, training=True))
    assert isinstance(dense, Tensor) and dense.dtype == dtype
    assert dense.shape == (2, HEADS, 13, k_len)
    assert all(stride % 8 == 0 for stride in dense.stride()[:-1])
    future = torch.ones(13, k_len, dtype=torch.bool).triu(k_len - 12)
    expected = lowered(published_slopes(HEADS), range(k_len - 13, k_len), k_len).to(dtype)
    assert torch.equal(dense, expected.masked_fill(future, -torch.inf).expand_as(dense))


def test_the_dense_bias_is_built_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.attention import xformers_bridge

    call = call_of(BIASES["packed"], 13, 13)
    whole = to_xformers(call)
    monkeypatch.setattr(xformers_bridge, "DENSE_ROWS", 3)
    assert torch.equal(to_xformers(call), whole)


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("training", [False, True])
def test_what_reaches_the_kernel_trains_and_means_the_same(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's place is taken by xFormers' own reference: NaN, as there, in rows whose bias is -inf throughout."""
    from xformers.attn_bias_utils import ref_attention

    def kernel(query: Tensor, key: Tensor, value: Tensor, attn_bias: object, scale: float) -> Tensor:
        assert query.dim() == 4 and query.shape[2] == key.shape[2] == HEADS
        assert type(attn_bias) is Tensor, "its causal mask plus a tensor has no backward"
        return ref_attention(query, key, value, attn_bias, scale=scale).to(query.dtype)

    monkeypatch.setattr(xformers_ops(), "memory_efficient_attention", kernel)
    call = call_of(BIASES[name], 13, 13, training=training)
    leaves = call.query, call.key, call.value
    out = run(call)
    expected = attention(*leaves, BIASES[name], backend="reference")
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    grad_out = randn(*out.shape, seed=1, dtype=torch.float32)
    got, wanted = (torch.autograd.grad(o, leaves, grad_out) for o in (out, expected))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_each_gpu_has_a_kernel_for_it_but_those_that_take_no_dense_bias() -> None:
    query, key, value = (randn(1, 8, HEADS, 64, seed=i, dtype=torch.float16) for i in range(3))
    call = Call.of(query, key, value, Causal() + ALiBi(HEADS), training=True)
    assert refusal(T4, call) is None and refusal(A100, call) is None
    assert "no dense bias" in str(refusal(RTX_5090, call))


def test_slopes_that_train_are_left_to_the_backend_that_has_their_gradient() -> None:
    bias = Causal() + ALiBi(alibi_slopes(HEADS).requires_grad_())
    assert "gradient" in str(refusal(A100, call_of(bias, 8, 8, torch.float32)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", BIASES)
def test_on_cuda_every_available_backend_agrees_with_the_reference_forward_and_backward(
    name: str, dtype: torch.dtype
) -> None:
    leaves = [
        randn(2, 13, heads, 64, seed=heads + i).to("cuda", dtype).requires_grad_()
        for i, heads in enumerate((HEADS, KV_HEADS, KV_HEADS))
    ]
    wanted = attention(*leaves, BIASES[name], backend="reference")
    grads = torch.autograd.grad(wanted.float().square().sum(), leaves)
    for backend, answer in available_backends(*leaves, BIASES[name], training=True).items():
        if answer == "ok":
            out = attention(*leaves, BIASES[name], backend=backend)
            torch.testing.assert_close(out, wanted, rtol=2e-2, atol=5e-3)
            found = torch.autograd.grad(out.float().square().sum(), leaves)
            torch.testing.assert_close(found, grads, rtol=5e-2, atol=2e-2)
