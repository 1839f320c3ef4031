"""Single and half precision, and autocast."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .cases import HOLES
from .oracle import assert_agrees, attend, causal, matrix, segments, top_left
from .running import ALWAYS, BACKENDS, check, may_decline, qkv, randn

BIASES = {
    "none": (lambda: None, lambda: torch.ones(7, 7, dtype=torch.bool)),
    "causal": (lambda: Causal(), lambda: matrix(causal(), 7, 7)),
    "segments": (
        lambda: Segments([3, 4], inner=Causal()),
        lambda: matrix(segments([3, 4], inner=top_left()), 7, 7),
    ),
    "padding": (lambda: KeyPadding(HOLES), lambda: HOLES.bool()[:, None, None]),
}
HALF = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
@pytest.mark.parametrize("name", BIASES)
def test_every_float_dtype_forward_and_backward(backend: str, dtype: torch.dtype, name: str) -> None:
    query, key, value = qkv(2, 7, heads=8, kv_heads=2, head_dim=16, dtype=dtype)
    bias, visible = BIASES[name]
    check(backend, query, key, value, bias(), visible=visible())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_precision_does_not_decay_with_length(backend: str, dtype: torch.dtype) -> None:
    """Half inputs accumulate in fp32: 1,100 keys, many tiles."""
    query, key, value = qkv(1, 150, 1100, heads=2, head_dim=16, dtype=dtype)
    check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(950), 150, 1100))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", HALF)
def test_half_sums_do_not_stall(backend: str, dtype: torch.dtype) -> None:
    """The mean of 4,096 values of 1 + 2^-6: a half-precision running sum stops growing long before."""
    query = torch.zeros(1, 1, 1, 8, dtype=dtype)
    key = torch.zeros(1, 4096, 1, 8, dtype=dtype)
    value = torch.full((1, 4096, 1, 8), 1 + 2**-6, dtype=dtype)
    out = attention(query, key, value, backend=backend)
    torch.testing.assert_close(out, value[:, :1], rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", HALF)
def test_autocast_casts_float32_inputs_and_returns_float32_gradients(
    backend: str, dtype: torch.dtype
) -> None:
    query, key, value = qkv(2, 7, heads=4, kv_heads=2, head_dim=8, dtype=torch.float32)
    may_decline(backend, *(t.to(dtype) for t in (query, key, value)), Causal())
    with torch.autocast("cpu", dtype=dtype):
        out = attention(query, key, value, Causal(), backend=backend)
    assert out.dtype == dtype
    rounded = [t.detach().to(dtype).double().requires_grad_() for t in (query, key, value)]
    expected, _ = attend(*rounded, visible=matrix(causal(), 7, 7))
    assert_agrees(out, expected, "out")
    grad_out = randn(*out.shape, seed=2, dtype=dtype)
    out.backward(grad_out)
    wanted = torch.autograd.grad(expected, rounded, grad_out.double())
    for name, tensor, gradient in zip(("query", "key", "value"), (query, key, value), wanted, strict=True):
        assert tensor.grad.dtype == torch.float32
        assert_agrees(tensor.grad, gradient, f"gradient of {name}", dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32, torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32, torch.bfloat16),
        (torch.float32, torch.float32, torch.bfloat16),
        (torch.float16, torch.bfloat16, torch.float32),
    ],
    ids=str,
)
def test_dtypes_that_differ_are_made_one_under_autocast(
    backend: str, dtypes: tuple[torch.dtype, ...]
) -> None:
    """As after a norm of queries and keys, which autocast leaves in float32."""
    tensors = [t.detach().to(d).requires_grad_() for t, d in zip(qkv(2, 7, head_dim=8), dtypes, strict=True)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(*tensors, Causal(), backend=backend)
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
    for tensor, dtype in zip(tensors, dtypes, strict=True):
        assert tensor.grad.dtype == dtype
    expected, _ = attend(*(t.detach().bfloat16() for t in tensors), visible=matrix(causal(), 7, 7))
    assert_agrees(out, expected, "out")


@pytest.mark.parametrize("backend", ALWAYS)
def test_half_inputs_accumulate_in_float32_even_under_autocast(backend: str) -> None:
    """Inside an autocast region a plain matmul would round every product to bfloat16."""
    query, key, value = qkv(1, 7, 900, heads=2, head_dim=16, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(backend, query, key, value, Causal("bottom-right"), visible=matrix(causal(893), 7, 900))
    out = attention(query, key, value, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = attention(query, key, value, backend=backend)
    assert torch.equal(out, inside)


@pytest.mark.parametrize("backend", ALWAYS)
def test_the_backward_may_run_inside_or_outside_autocast(backend: str) -> None:
    grads = []
    for inside in (True, False):
        query, key, value = qkv(1, 7, 40, heads=2, head_dim=16, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = attention(query, key, value, Causal("bottom-right"), backend=backend)
            if inside:
                out.float().square().sum().backward()
        if not inside:
            out.float().square().sum().backward()
        grads.append([query.grad, key.grad, value.grad])
    for a, b in zip(*grads, strict=True):
        # Autograd runs the reference's own backward, whose products autocast may round.
        assert_agrees(a, b.double(), "gradient", torch.float32 if backend == "tiled" else torch.bfloat16)


@pytest.mark.parametrize("backend", ALWAYS)
def test_a_float32_bias_is_not_rounded_by_autocast(backend: str) -> None:
    zeros, key = torch.zeros(1, 1, 1, 4), torch.zeros(1, 2, 1, 4)
    value = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1).expand(1, 2, 1, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(zeros, key, value, torch.tensor([[1024.0, 1025.0]]), backend=backend)
    assert abs(out.float().mean().item() - torch.sigmoid(torch.tensor(1.0)).item()) < 0.01


@pytest.mark.parametrize("backend", ALWAYS)
def test_a_dense_bias_gets_its_gradient_in_its_own_dtype_under_autocast(backend: str) -> None:
    query, key, value = qkv(2, 7, head_dim=8, dtype=torch.float32)
    bias = randn(1, 3, 1, 7, seed=3, dtype=torch.float32, grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(query, key, value, bias + Causal(), backend=backend)
    out.float().sum().backward()
    assert bias.grad.dtype == torch.float32
    assert bias.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_switched_off_inside_counts_as_no_autocast(backend: str) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32, grad=False)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        out = attention(query, key, value, backend=backend)
    assert out.dtype == torch.float32


def test_the_output_of_a_single_key_is_its_value_bit_for_bit() -> None:
    """One key: the weight is exactly 1, so the output is the value itself, in every dtype."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        query, key, value = qkv(2, 5, 1, heads=4, kv_heads=2, head_dim=8, dtype=dtype, grad=False)
        for backend in BACKENDS:
            out = attention(query, key, value, backend=backend)
            assert torch.equal(out, value.repeat_interleave(2, 2).expand(2, 5, 4, 8))
