"""NaN and infinity are data: what a query may see reaches its output, what it may not see leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from course_lib.attention import Causal, KeyPadding, Segments

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
from .running import BACKENDS, qkv, randn, run

NAN, INF = float("nan"), float("inf")
POISONS = [NAN, INF, -INF]
KEEP = torch.tensor([[1, 1, 1, 1, 0, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 0]])

# name, bias, visible [1 or B, 1, 8, 8]
BIASES = [
    ("causal", lambda: Causal(), lambda: matrix(causal(), 8, 8)[None, None]),
    ("window", lambda: Causal(window=3), lambda: matrix(causal(0, 3), 8, 8)[None, None]),
    ("segments", lambda: Segments([3, 5]), lambda: matrix(segments([3, 5]), 8, 8)[None, None]),
    (
        "causal segments",
        lambda: Segments([3, 5], inner=Causal()),
        lambda: matrix(segments([3, 5], inner=top_left()), 8, 8)[None, None],
    ),
    ("padding", lambda: KeyPadding(KEEP), lambda: KEEP.bool()[:, None, None].expand(2, 1, 8, 8)),
    (
        "causal + padding",
        lambda: Causal() + KeyPadding(KEEP),
        lambda: matrix(causal(), 8, 8) & KEEP.bool()[:, None, None],
    ),
    ("bool", lambda: matrix(causal(0, 4), 8, 8), lambda: matrix(causal(0, 4), 8, 8)[None, None]),
    (
        "minus infinity",
        lambda: torch.where(matrix(causal(), 8, 8), 0.0, -INF),
        lambda: matrix(causal(), 8, 8)[None, None],
    ),
    (
        "dense + causal",
        lambda: torch.zeros(1, 1, 8, 8) + Causal(),
        lambda: matrix(causal(), 8, 8)[None, None],
    ),
]
IDS = [name for name, *_ in BIASES]


def _poisoned(tensor: Tensor, position: int, poison: float) -> Tensor:
    spoilt = tensor.detach().clone()
    spoilt[:, position] = poison
    return spoilt.requires_grad_()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("position", [0, 4, 7])
@pytest.mark.parametrize(("bias", "visible"), [(b, v) for _, b, v in BIASES], ids=IDS)
def test_a_nan_key_and_value_reach_exactly_the_queries_that_see_them(
    backend: str,
    dtype: torch.dtype,
    position: int,
    bias,
    visible,
) -> None:
    query, key, value = qkv(2, 8, heads=4, kv_heads=2, head_dim=8, dtype=dtype, grad=False)
    seen = visible().expand(2, 1, 8, 8)
    sees_it = seen[:, 0, :, position]
    expected, _ = attend(query, key, value, visible=seen)
    for spoil_key, spoil_value in [(True, False), (False, True), (True, True)]:
        spoilt_key = _poisoned(key, position, NAN).detach() if spoil_key else key
        spoilt_value = _poisoned(value, position, NAN).detach() if spoil_value else value
        out = run(backend, query, spoilt_key, spoilt_value, bias())
        assert torch.isnan(out[sees_it]).all(), "a NaN that may be seen was swallowed"
        assert_agrees(out[~sees_it], expected[~sees_it], "the rows that may not see it")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize(("bias", "visible"), [(b, v) for _, b, v in BIASES], ids=IDS)
def test_infinity_in_a_value_reaches_exactly_the_queries_that_see_it(
    backend: str,
    poison: float,
    bias,
    visible,
) -> None:
    query, key, value = qkv(2, 8, heads=2, dtype=torch.float32, grad=False)
    seen = visible().expand(2, 1, 8, 8)
    expected, _ = attend(query, key, value, visible=seen)
    out = run(backend, query, key, _poisoned(value, 4, poison).detach(), bias())
    sees_it = seen[:, 0, :, 4]
    torch.testing.assert_close(out[sees_it], torch.full_like(out[sees_it], poison), equal_nan=True)
    assert_agrees(out[~sees_it], expected[~sees_it], "the rows that may not see it")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_in_one_column_of_a_value_stays_in_that_column(backend: str) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    value[:, 5, :, 3] = NAN
    out = run(backend, query, key, value, Causal())
    others = [0, 1, 2, 4, 5, 6, 7]
    assert torch.isnan(out[:, 5:, :, 3]).all()
    assert torch.isfinite(out[:, :5]).all()
    assert torch.isfinite(out[..., others]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bias", [None, Causal(), Causal(window=2)], ids=["none", "causal", "window"])
def test_a_nan_query_spoils_its_own_row_only(backend: str, bias) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    query[0, 3, 1, 2] = NAN
    out = run(backend, query, key, value, bias)
    assert torch.isnan(out[0, 3, 1]).all()
    rest = torch.ones(2, 8, 2, dtype=torch.bool)
    rest[0, 3, 1] = False
    assert torch.isfinite(out[rest]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", [NAN, INF])
def test_a_nan_without_a_mask_reaches_every_output(backend: str, poison: float) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    query = query.abs()
    out = run(backend, query, _poisoned(key, 2, poison).detach(), value)
    assert torch.isnan(out).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bias", [None, Causal(), Segments([3, 5])], ids=["none", "causal", "segments"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_gone_to_nan_does_not_look_healthy(backend: str, bias, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=dtype, grad=False)
    nothing = torch.full_like(query, NAN)
    assert torch.isnan(run(backend, nothing, nothing, nothing, bias)).all()
    assert torch.isnan(run(backend, query, nothing, value, bias)).all()
    assert torch.isnan(run(backend, nothing, key, value, bias)).all()
    assert torch.isnan(run(backend, query, key, nothing, bias)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_reaches_the_gradients_of_what_saw_it(backend: str) -> None:
    query, key, value = qkv(1, 8, heads=2, head_dim=8, dtype=torch.float32)
    key = _poisoned(key, 5, NAN)
    out = run(backend, query, key, value, Causal())
    grads = torch.autograd.grad(out.sum(), [query, key, value])
    assert torch.isnan(grads[0][:, 5:]).all()
    assert torch.isfinite(grads[0][:, :5]).all()
    assert torch.isnan(grads[1]).any()
    assert torch.isnan(grads[2]).any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["hidden first", "nan first"])
def test_a_nan_in_one_dense_bias_is_hidden_by_minus_infinity_in_another(backend: str, order: str) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    spoilt, hiding = torch.zeros(8, 8), torch.zeros(8, 8)
    spoilt[3, 5], hiding[3, 5] = NAN, -INF
    first, second = (hiding, spoilt) if order == "hidden first" else (spoilt, hiding)
    out = run(backend, query, key, value, first + Segments([8]) + second)
    expected, _ = attend(query, key, value, bias=hiding)
    assert_agrees(out, expected, "out")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_in_a_dense_bias_reaches_its_row(backend: str) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    bias = torch.zeros(8, 8)
    bias[3, 1] = NAN
    out = run(backend, query, key, value, bias)
    assert torch.isnan(out[:, 3]).all()
    assert torch.isfinite(out[:, [0, 1, 2, 4, 5, 6, 7]]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["bias first", "mask first"])
def test_a_nan_in_a_dense_bias_stays_hidden_behind_a_mask(backend: str, order: str) -> None:
    query, key, value = qkv(2, 8, heads=2, head_dim=8, dtype=torch.float32, grad=False)
    bias = torch.zeros(8, 8)
    bias[3, 5] = NAN
    bias = bias + Causal() if order == "bias first" else Causal() + bias
    out = run(backend, query, key, value, bias)
    expected, _ = attend(query, key, value, visible=matrix(causal(), 8, 8))
    assert_agrees(out, expected, "out")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_query_that_sees_nothing_yields_zeros(backend: str) -> None:
    query, key, value = qkv(1, 5, 3, heads=2, head_dim=8, dtype=torch.float32)
    query = _poisoned(query, 0, NAN)
    out = run(backend, query, key, value, Causal("bottom-right"))
    assert (out[:, :2] == 0).all()
    out.sum().backward()
    assert (query.grad[:, :2] == 0).all()
    assert torch.isfinite(key.grad).all()
    assert torch.isfinite(value.grad).all()


HIDDEN_FROM_ALL = [
    ("padding", KeyPadding(torch.tensor([[1, 1, 0, 1, 0, 0, 0, 1]] * 2)), everything, [2, 4, 5, 6]),
    (
        "bool",
        torch.tensor([True, True, False, True, False, False, False, True]).expand(8, 8),
        everything,
        [2, 4, 5, 6],
    ),
    (
        "minus infinity",
        torch.where(torch.tensor([True, True, False, True, False, False, False, True]), 0.0, -INF).expand(
            8, 8
        ),
        everything,
        [2, 4, 5, 6],
    ),
    (
        "causal + padding",
        Causal() + KeyPadding(torch.tensor([[1, 1, 0, 1, 0, 0, 0, 1]] * 2)),
        causal(),
        [2, 4, 5, 6],
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("bias", "can_see", "hidden"),
    [case[1:] for case in HIDDEN_FROM_ALL],
    ids=[case[0] for case in HIDDEN_FROM_ALL],
)
def test_a_nan_that_nobody_sees_changes_no_gradient(
    backend: str,
    dtype: torch.dtype,
    poison: float,
    bias,
    can_see,
    hidden: list[int],
) -> None:
    query, key, value = qkv(2, 8, heads=4, kv_heads=2, head_dim=8, dtype=dtype)
    visible = torch.ones(8, 8, dtype=torch.bool)
    visible[:, hidden] = False
    visible &= matrix(can_see, 8, 8)
    grad_out = randn(2, 8, 4, 8, seed=1, dtype=dtype)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible)
    for position in hidden:
        key, value = _poisoned(key, position, poison), _poisoned(value, position, poison)
    out = run(backend, query, key, value, bias)
    assert_agrees(out, expected["out"], "out")
    found = torch.autograd.grad(out, [query, key, value], grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient, expected[name], f"gradient of {name}")
    assert (found[1][:, hidden] == 0).all()
    assert (found[2][:, hidden] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "inner", [None, Causal("top-left"), Causal("bottom-right")], ids=["full", "top-left", "bottom-right"]
)
def test_a_document_full_of_nan_leaves_its_neighbours_exact(backend: str, inner: Causal | None) -> None:
    query, key, value = qkv(1, 9, 9, heads=2, head_dim=8)
    rule = None if inner is None else top_left() if inner.align == "top-left" else bottom_right()
    visible = matrix(segments([3, 4, 2], inner=rule), 9, 9)
    grad_out = randn(1, 9, 2, 8, seed=1)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible)
    middle, others = slice(3, 7), [0, 1, 2, 7, 8]
    tensors = []
    for tensor in (query, key, value):
        spoilt = tensor.detach().clone()
        spoilt[:, middle] = NAN
        tensors.append(spoilt.requires_grad_())
    out = run(backend, *tensors, Segments([3, 4, 2], inner=inner))
    assert torch.isnan(out[:, middle]).all()
    assert_agrees(out[:, others], expected["out"][:, others], "out")
    found = torch.autograd.grad(out, tensors, grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient[:, others], expected[name][:, others], f"gradient of {name}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [8, 300])
def test_a_nan_in_the_future_leaves_the_gradients_of_earlier_queries_exact(backend: str, length: int) -> None:
    query, key, value = qkv(1, length, heads=2, head_dim=8)
    grad_out = randn(1, length, 2, 8, seed=1)
    cut = length - 3
    visible = matrix(causal(), length, length)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible)
    key, value = _poisoned(key, cut, NAN), _poisoned(value, cut, NAN)
    out = run(backend, query, key, value, Causal())
    assert_agrees(out[:, :cut], expected["out"][:, :cut], "out")
    assert torch.isnan(out[:, cut:]).all()
    (grad_query,) = torch.autograd.grad(out, [query], grad_out)
    assert_agrees(grad_query[:, :cut], expected["query"][:, :cut], "gradient of query")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_keys_past_the_last_query_of_the_top_left_corner_change_nothing(backend: str) -> None:
    """A preallocated cache: the keys after the fourth are garbage that no query reaches."""
    query, key, value = qkv(2, 4, 10, heads=2, head_dim=8)
    grad_out = randn(2, 4, 2, 8, seed=1)
    expected = attend_with_gradients(query, key, value, grad_out, visible=matrix(causal(), 4, 10))
    tensors = [query]
    for tensor in (key, value):
        spoilt = tensor.detach().clone()
        spoilt[:, 4:] = NAN
        tensors.append(spoilt.requires_grad_())
    out = run(backend, *tensors, Causal("top-left"))
    assert_agrees(out, expected["out"], "out")
    found = torch.autograd.grad(out, tensors, grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        assert_agrees(gradient, expected[name], f"gradient of {name}")
