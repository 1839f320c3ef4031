"""The log-sum-exp, and exact attention put together from parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.attention import Causal, KeyPadding, Segments, attention, available_backends, merge_attentions

from .cases import HOLES
from .oracle import assert_agrees, attend, attend_with_gradients, causal, matrix, segments
from .running import ALWAYS, WITH_LSE, Declined, assert_is_a_sentence, qkv, randn


def with_lse(
    backend: str, query: Tensor, key: Tensor, value: Tensor, bias: Any = None, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """A fused kernel may be unable to give the log-sum-exp; it has to say so."""
    try:
        answer = attention(query, key, value, bias, backend=backend, return_lse=True, **kwargs)
    except ValueError as error:
        assert backend == "torch_sdpa"
        assert_is_a_sentence(str(error))
        raise Declined(str(error)) from None
    assert isinstance(answer, tuple)
    assert len(answer) == 2
    return answer


@pytest.mark.parametrize("backend", WITH_LSE)
@pytest.mark.parametrize(
    ("dtype", "lse_dtypes"),
    [
        (torch.float64, {torch.float32, torch.float64}),
        (torch.float32, {torch.float32}),
        (torch.bfloat16, {torch.float32}),
        (torch.float16, {torch.float32}),
    ],
)
def test_the_lse_is_batch_by_heads_by_queries_in_float32(
    backend: str, dtype: torch.dtype, lse_dtypes: set[torch.dtype]
) -> None:
    query, key, value = qkv(2, 7, 11, heads=4, kv_heads=2, head_dim=8, dtype=dtype, grad=False)
    out, lse = with_lse(backend, query, key, value, Causal("bottom-right"))
    expected_out, expected_lse = attend(query, key, value, visible=matrix(causal(4), 7, 11))
    assert lse.shape == (2, 4, 7)
    assert lse.dtype in lse_dtypes
    assert_agrees(out, expected_out, "out")
    assert (lse.double() - expected_lse).abs().max() < (1e-6 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("backend", WITH_LSE)
def test_asking_for_the_lse_changes_no_output(backend: str) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32, grad=False)
    out, _ = with_lse(backend, query, key, value, Causal())
    torch.testing.assert_close(
        out, attention(query, key, value, Causal(), backend=backend), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("backend", WITH_LSE)
def test_the_lse_of_a_row_that_sees_nothing_is_minus_infinity(backend: str) -> None:
    query, key, value = qkv(1, 5, 3)
    out, lse = with_lse(backend, query, key, value, Causal("bottom-right"))
    assert (lse[..., :2] == -torch.inf).all()
    assert torch.isfinite(lse[..., 2:]).all()
    assert (out[:, :2] == 0).all()
    torch.where(lse.isfinite(), lse, 0).sum().backward()
    for tensor in (query, key):
        assert torch.isfinite(tensor.grad).all()
    assert (query.grad[:, :2] == 0).all()


@pytest.mark.parametrize("backend", WITH_LSE)
def test_the_lse_of_no_keys_is_minus_infinity(backend: str) -> None:
    query, key, value = qkv(2, 3, 0, grad=False)
    out, lse = with_lse(backend, query, key, value)
    assert (lse == -torch.inf).all()
    assert (out == 0).all()


@pytest.mark.parametrize("backend", WITH_LSE)
@pytest.mark.parametrize("use", ["lse alone", "both"])
@pytest.mark.parametrize("kind", ["none", "causal", "segments", "padding", "dense"])
def test_gradients_flow_through_the_lse(backend: str, use: str, kind: str) -> None:
    query, key, value = qkv(2, 7, 7, heads=4, kv_heads=2, head_dim=8)
    dense = randn(1, 4, 1, 7, seed=3, grad=True)
    bias, visible = {
        "none": lambda: (None, torch.ones(7, 7, dtype=torch.bool)),
        "causal": lambda: (Causal(), matrix(causal(), 7, 7)),
        "segments": lambda: (Segments([3, 4]), matrix(segments([3, 4]), 7, 7)),
        "padding": lambda: (KeyPadding(HOLES), HOLES.bool()[:, None, None]),
        "dense": lambda: (Causal() + dense, matrix(causal(), 7, 7)),
    }[kind]()
    out, lse = with_lse(backend, query, key, value, bias)
    grad_out = randn(2, 7, 4, 8, seed=4) * (use == "both")
    grad_lse = randn(2, 4, 7, seed=5)
    expected = attend_with_gradients(
        query,
        key,
        value,
        grad_out,
        visible=visible,
        bias=dense if kind == "dense" else None,
        grad_lse=grad_lse,
    )
    leaves = {"query": query, "key": key, "value": value, **({"bias": dense} if kind == "dense" else {})}
    loss = (lse * grad_lse).sum() + ((out * grad_out).sum() if use == "both" else 0)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
        assert_agrees(
            torch.zeros_like(leaf) if gradient is None else gradient, expected[name], f"gradient of {name}"
        )


def _parts(tensor: Tensor, sizes: list[int]) -> list[Tensor]:
    return list(tensor.split(sizes, dim=1))


@pytest.mark.parametrize("backend", WITH_LSE)
@pytest.mark.parametrize("sizes", [[6, 5], [1, 10], [11], [3, 3, 3, 2], [1] * 11, [5, 0, 6]], ids=str)
def test_merging_parts_of_the_keys_equals_the_whole_with_gradients(backend: str, sizes: list[int]) -> None:
    query, key, value = qkv(2, 4, 11, heads=4, kv_heads=2, head_dim=8, value_dim=6)
    pairs = zip(_parts(key, sizes), _parts(value, sizes), strict=True)
    parts = [with_lse(backend, query, k, v) for k, v in pairs]
    out, lse = merge_attentions([o for o, _ in parts], [s for _, s in parts])
    grad_out, grad_lse = randn(2, 4, 4, 6, seed=6), randn(2, 4, 4, seed=7)
    expected = attend_with_gradients(query, key, value, grad_out, grad_lse=grad_lse)
    assert_agrees(out, expected["out"], "out")
    assert_agrees(lse, expected["lse"], "lse")
    found = torch.autograd.grad((out * grad_out).sum() + (lse * grad_lse).sum(), [query, key, value])
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient, expected[name], f"gradient of {name}")


@pytest.mark.parametrize("backend", ALWAYS)
def test_merging_causal_parts_some_of_which_a_row_may_not_see(backend: str) -> None:
    """Keys 0-3 and 4-7 of a causal square: the first four queries see nothing of the second half."""
    query, key, value = qkv(2, 8, heads=2)
    whole = torch.where(matrix(causal(), 8, 8), 0.0, -torch.inf)
    halves = [
        with_lse(backend, query, key[:, part], value[:, part], whole[:, part])
        for part in (slice(0, 4), slice(4, 8))
    ]
    out, lse = merge_attentions([o for o, _ in halves], [s for _, s in halves])
    grad_out = randn(2, 8, 2, 5, seed=8)
    expected = attend_with_gradients(query, key, value, grad_out, visible=matrix(causal(), 8, 8))
    assert_agrees(out, expected["out"], "out")
    assert_agrees(lse, expected["lse"], "lse")
    found = torch.autograd.grad(out, [query, key, value], grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient, expected[name], f"gradient of {name}")


@pytest.mark.parametrize("backend", ALWAYS)
def test_merging_rows_that_see_nothing_in_any_part_gives_zeros_and_zero_gradients(backend: str) -> None:
    query, key, value = qkv(1, 4, 6, heads=2)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1] = False
    halves = [
        with_lse(backend, query, key[:, part], value[:, part], mask[:, part])
        for part in (slice(0, 3), slice(3, 6))
    ]
    out, lse = merge_attentions([o for o, _ in halves], [s for _, s in halves])
    assert (out[:, 1] == 0).all()
    assert (lse[..., 1] == -torch.inf).all()
    (out.sum() + torch.where(lse.isfinite(), lse, 0).sum()).backward()
    for tensor in (query, key, value):
        assert torch.isfinite(tensor.grad).all()
    assert (query.grad[:, 1] == 0).all()


def test_merged_results_merge_again() -> None:
    query, key, value = qkv(1, 3, 9, grad=False)
    a, b, c = (
        attention(query, k, v, return_lse=True, backend="reference")
        for k, v in zip(_parts(key, [2, 3, 4]), _parts(value, [2, 3, 4]), strict=True)
    )
    left = merge_attentions([a[0], b[0]], [a[1], b[1]])
    out, lse = merge_attentions([left[0], c[0]], [left[1], c[1]])
    expected_out, expected_lse = attend(query, key, value)
    assert_agrees(out, expected_out, "out")
    assert_agrees(lse, expected_lse, "lse")


def test_merge_takes_lses_far_apart_without_overflow() -> None:
    outs = [torch.full((1, 1, 1, 2), float(i)) for i in range(3)]
    lses = [torch.full((1, 1, 1), x) for x in (-3e4, 2e4, 2e4 - 1)]
    out, lse = merge_attentions(outs, lses)
    share = torch.sigmoid(torch.tensor(1.0))
    torch.testing.assert_close(out, torch.full_like(out, share.item() * 1 + (1 - share.item()) * 2))
    assert abs(lse.item() - 2e4) < 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_merge_keeps_the_dtype_of_the_outputs_and_float32_lses(dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 4, 10, dtype=dtype, grad=False)
    parts = [
        attention(query, k, v, return_lse=True)
        for k, v in zip(_parts(key, [4, 6]), _parts(value, [4, 6]), strict=True)
    ]
    out, lse = merge_attentions([o for o, _ in parts], [s for _, s in parts])
    assert out.dtype == dtype
    assert lse.dtype == torch.float32
    assert_agrees(out, attend(query, key, value)[0], "out")


def test_merge_leaves_its_arguments_as_they_were() -> None:
    query, key, value = qkv(1, 3, 4, grad=False)
    out, lse = attention(query, key, value, return_lse=True)
    before = out.clone(), lse.clone()
    merge_attentions([out, out], [lse, lse])
    assert torch.equal(out, before[0])
    assert torch.equal(lse, before[1])


def test_auto_always_finds_a_backend_that_gives_the_lse() -> None:
    for bias in (None, Causal("bottom-right"), Causal("bottom-right", window=2), Segments([1, 2], [2, 3])):
        query, key, value = qkv(1, 3, 5)
        _, lse = attention(query, key, value, bias, return_lse=True)
        assert lse.shape == (1, 3, 3)
        assert "ok" in available_backends(query, key, value, bias).values()


@pytest.mark.parametrize("backend", ALWAYS)
def test_gradcheck_of_output_and_lse(backend: str) -> None:
    query, key, value = qkv(1, 3, 4, heads=2, kv_heads=1, head_dim=3, value_dim=2)
    bias = randn(1, 2, 3, 1, seed=9, grad=True)

    def call(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return attention(query, key, value, Causal("bottom-right") + bias, backend=backend, return_lse=True)

    assert torch.autograd.gradcheck(call, (query, key, value, bias))
