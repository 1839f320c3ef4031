"""A bias that is a tensor: every broadcast shape and dtype; its gradient, summed where it was broadcast."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .cases import HOLES
from .oracle import assert_agrees, attend_with_gradients, causal, matrix, segments
from .running import BACKENDS, check, may_decline, qkv, randn, run

B, H, M, N = 2, 4, 5, 7
SHAPES = [
    (M, N),
    (1, 1, M, N),
    (B, 1, M, N),
    (1, H, M, N),
    (B, H, M, N),
    (B, 1, 1, N),
    (1, H, 1, N),
    (1, H, M, 1),
    (B, H, 1, 1),
    (1, 1, 1, N),
    (1, 1, M, 1),
    (1, 1, 1, 1),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_float_bias_of_every_broadcast_shape_gets_its_summed_gradient(
    backend: str, shape: tuple[int, ...]
) -> None:
    query, key, value = qkv(B, M, N, heads=H, kv_heads=2)
    bias = randn(*shape, seed=21, grad=True)
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_float_bias_that_wants_no_gradient(backend: str, shape: tuple[int, ...]) -> None:
    query, key, value = qkv(B, M, N, heads=H, kv_heads=2)
    bias = randn(*shape, seed=22)
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bool_mask_of_every_broadcast_shape(backend: str, shape: tuple[int, ...]) -> None:
    query, key, value = qkv(B, M, N, heads=H, kv_heads=2)
    mask = randn(*shape, seed=23) > -0.3
    check(backend, query, key, value, mask, visible=mask)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(M, N), (B, 1, 1, N), (1, H, M, N)], ids=str)
def test_a_bias_mixes_scores_and_minus_infinity(backend: str, shape: tuple[int, ...]) -> None:
    query, key, value = qkv(B, M, N, heads=H)
    raw = randn(*shape, seed=24)
    bias = raw.masked_fill(raw > 0.4, -torch.inf).requires_grad_()
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["transposed", "expanded", "padded columns", "every other"])
def test_a_bias_need_not_be_contiguous(backend: str, layout: str) -> None:
    query, key, value = qkv(B, M, N, heads=H)
    bias = {
        "transposed": lambda: randn(B, H, N, M, seed=25).transpose(2, 3),
        "expanded": lambda: randn(1, H, 1, N, seed=25).expand(B, H, M, N),
        "padded columns": lambda: randn(B, H, M, 8, seed=25)[..., :N],
        "every other": lambda: randn(B, H, 2 * M, 2 * N, seed=25)[..., ::2, ::2],
    }[layout]().requires_grad_()
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["mask first", "bias first"])
@pytest.mark.parametrize("shape", [(N, N), (1, H, 1, N), (B, H, N, N)], ids=str)
def test_the_gradient_reaches_a_bias_inside_a_sum(backend: str, order: str, shape: tuple[int, ...]) -> None:
    query, key, value = qkv(B, N, N, heads=H)
    dense = randn(*shape, seed=26, grad=True)
    rest = Causal(window=4) + KeyPadding(HOLES)
    bias = rest + dense if order == "mask first" else dense + rest
    visible = matrix(causal(0, 4), N, N) & HOLES.bool()[:, None, None]
    check(backend, query, key, value, bias, visible=visible, scores=dense)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_reaches_two_biases_of_one_sum_and_one_used_twice(backend: str) -> None:
    query, key, value = qkv(B, N, N, heads=H)
    row, full = randn(1, H, 1, N, seed=27, grad=True), randn(N, N, seed=28, grad=True)
    bias = row + Causal() + full + row  # tensor + bias + tensor + tensor
    may_decline(backend, query, key, value, bias)
    out = attention(query, key, value, bias, backend=backend)
    grad_out = randn(*out.shape, seed=29)
    got = torch.autograd.grad(out, [row, full], grad_out)
    row2, full2 = row.detach().requires_grad_(), full.detach().requires_grad_()
    total = row2 + full2 + row2
    expected = attend_with_gradients(query, key, value, grad_out, visible=matrix(causal(), N, N), bias=total)
    assert_agrees(out, expected["out"], "out")
    wanted = torch.autograd.grad(total, [row2, full2], expected["bias"])
    assert_agrees(got[0], wanted[0], "gradient of the row")
    assert_agrees(got[1], wanted[1], "gradient of the full bias")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_reaches_a_bias_added_to_segments(backend: str) -> None:
    query, key, value = qkv(B, N, N, heads=H)
    for shape in [(N, N), (1, H, 1, N), (B, 1, N, 1)]:
        dense = randn(*shape, seed=30, grad=True)
        check(
            backend,
            query,
            key,
            value,
            dense + Segments([3, 4]),
            visible=matrix(segments([3, 4]), N, N),
            scores=dense,
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_passes_through_a_bias_to_what_made_it(backend: str) -> None:
    """A learned relative-position table, as T5's: [buckets, heads] looked up to [1, H, M, N]."""
    query, key, value = qkv(B, M, N, heads=H)
    table = randn(3, H, seed=31, grad=True)
    bucket = (torch.arange(M)[:, None] + torch.arange(N)[None]) % 3
    bias = table[bucket].permute(2, 0, 1)[None]
    may_decline(backend, query, key, value, bias)
    out = attention(query, key, value, bias, backend=backend)
    grad_out = randn(*out.shape, seed=32)
    (got,) = torch.autograd.grad(out, table, grad_out)
    expected = attend_with_gradients(query, key, value, grad_out, bias=bias.detach())["bias"]
    table2 = table.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(
        table2[bucket].permute(2, 0, 1)[None], table2, expected.sum(0, keepdim=True)[:1]
    )
    assert_agrees(got, wanted, "gradient of the table")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(M, N), (B, H, M, N)], ids=str)
def test_a_float32_bias_serves_half_precision_inputs(
    backend: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    query, key, value = qkv(B, M, N, heads=H, dtype=dtype)
    bias = randn(*shape, seed=33, dtype=torch.float32)
    check(backend, query, key, value, bias, scores=bias)
    learned = bias.clone().requires_grad_()
    check(backend, query, key, value, learned, scores=learned)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_float32_bias_keeps_its_precision_with_half_precision_inputs(backend: str) -> None:
    """1024 and 1025 are one number in bfloat16: a bias rounded to it cannot tell the two keys apart."""
    zeros = torch.zeros(1, 1, 1, 4, dtype=torch.bfloat16)
    key = torch.zeros(1, 2, 1, 4, dtype=torch.bfloat16)
    value = torch.tensor([0.0, 1.0], dtype=torch.bfloat16).reshape(1, 2, 1, 1).expand(1, 2, 1, 4)
    out = run(backend, zeros, key, value, torch.tensor([[1024.0, 1025.0]]))
    assert abs(out.mean().item() - torch.sigmoid(torch.tensor(1.0)).item()) < 0.01


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_bias_serves_half_precision_inputs(backend: str, dtype: torch.dtype) -> None:
    query, key, value = qkv(B, M, N, heads=H, dtype=dtype)
    bias = randn(B, 1, M, N, seed=34, dtype=dtype, grad=True)
    check(backend, query, key, value, bias, scores=bias)
