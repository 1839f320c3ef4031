"""Short segments computed together: what is filled up, cut and rounded there and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from allocations import LargestTensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, Segments, attention, available_backends
from course_lib.attention.batched import _product

from .oracle import Predicate, assert_agrees, attend_with_gradients, bottom_right, matrix, segments, top_left
from .running import check, qkv, randn

RAGGED = [33, 40, 0, 1, 34, 39, 150, 2]
"""Some alike, some empty, one long enough to be cut into runs of rows."""
TOTAL = sum(RAGGED)

INNER: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "causal": (Causal(), top_left()),
    "window": (Causal(window=7), top_left(7)),
    "bottom-right": (Causal("bottom-right"), bottom_right()),
}


def visible(can_see: Predicate, k_total: int = TOTAL) -> torch.Tensor:
    return matrix(can_see, TOTAL, k_total)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("name", INNER)
def test_segments_of_like_length_agree_with_the_definition(
    name: str, kv_heads: int, dtype: torch.dtype
) -> None:
    inner, can_see = INNER[name]
    query, key, value = qkv(2, TOTAL, heads=4, kv_heads=kv_heads, head_dim=8, dtype=dtype)
    check(
        "batched",
        query,
        key,
        value,
        Segments(RAGGED, inner=inner),
        visible=visible(segments(RAGGED, inner=can_see)),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_segments_whose_keys_differ_in_number(align: str, dtype: torch.dtype) -> None:
    """Some see no key at all, and some of the rows of others do not."""
    k_lengths = [35, 42, 3, 0, 30, 44, 100, 2]
    query, key, value = qkv(1, TOTAL, sum(k_lengths), heads=2, head_dim=8, value_dim=6, dtype=dtype)
    can_see = segments(RAGGED, k_lengths, top_left() if align == "top-left" else bottom_right())
    bias = Segments(RAGGED, k_lengths, inner=Causal(align))
    check("batched", query, key, value, bias, visible=visible(can_see, sum(k_lengths)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("beside", [False, True])
def test_scores_of_a_bias_count_within_each_segment(beside: bool, dtype: torch.dtype) -> None:
    query, key, value = qkv(1, TOTAL, heads=4, kv_heads=2, head_dim=8, dtype=dtype)
    places = torch.arange(TOTAL, dtype=torch.float64)
    scores = -alibi_slopes(4).double()[:, None, None] * (places[:, None] - places).abs()
    bias = (
        Segments(RAGGED, inner=Causal()) + ALiBi(4) if beside else Segments(RAGGED, inner=Causal() + ALiBi(4))
    )
    mask = visible(segments(RAGGED, inner=top_left()))
    check("batched", query, key, value, bias, visible=mask, scores=scores[None])


def test_a_dense_bias_for_each_sequence_falls_on_its_own() -> None:
    query, key, value = qkv(2, 12, heads=3, head_dim=8)
    scores = randn(2, 3, 4, 4, seed=7)
    whole = torch.full((2, 3, 12, 12), float("-inf"), dtype=torch.float64)
    for start in (0, 4, 8):
        whole[:, :, start : start + 4, start : start + 4] = scores
    check("batched", query, key, value, Segments([4, 4, 4], inner=scores), scores=whole)


def test_a_nan_from_above_stays_in_its_segment() -> None:
    """The two are one batch, and the last token of the shorter one is repeated there."""
    query, key, value = qkv(1, 37, heads=2, head_dim=8)
    out = attention(query, key, value, Segments([20, 17], inner=Causal()), backend="batched")
    grad_out = torch.ones_like(out)
    grad_out[:, -1] = float("nan")
    for gradient in torch.autograd.grad(out, (query, key, value), grad_out):
        assert gradient[:, :20].isfinite().all()
        assert gradient[:, -1].isnan().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_hidden_values_that_are_not_finite_are_left_to_another_backend(value: float) -> None:
    query, key, values = qkv(1, 40, heads=2, head_dim=8, dtype=torch.bfloat16, grad=False)
    values[:, 30] = value
    bias = Segments([20, 20], inner=Causal())
    assert "NaN" in available_backends(query, key, values, bias)["batched"]
    out = attention(query, key, values, bias)
    assert out[:, :30].isfinite().all()
    assert not out[:, 30:].isfinite().any()


def test_scores_too_large_for_half_precision_are_left_to_another_backend() -> None:
    """One at -1e40, which takes no weight. As inf, less what the rounding took of it, it would be NaN."""
    query, key, value = qkv(1, 40, heads=2, head_dim=8, dtype=torch.bfloat16, grad=False)
    query[:, 5], key[:, 3] = 1e20, -1e20
    bias = Segments([20, 20], inner=Causal())
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert "so large" in available_backends(query, key, value, bias)["batched"]
    assert attention(query, key, value, bias).isfinite().all()


class ProductShapes(TorchDispatchMode):
    """The distinct shapes that bmm multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[torch.Size, ...]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.bmm.default:
            self.seen.add((args[0].shape, args[1].shape))
        return func(*args, **(kwargs or {}))


def test_rows_of_any_lengths_multiply_few_shapes() -> None:
    """oneDNN keeps a kernel for each of them."""
    numbers = torch.Generator().manual_seed(0)
    with ProductShapes() as shapes:
        for _ in range(12):
            lengths = torch.randint(1, 250, (24,), generator=numbers).tolist()
            query, key, value = qkv(1, sum(lengths), heads=2, head_dim=4, dtype=torch.bfloat16, grad=False)
            attention(query, key, value, Segments(lengths, inner=Causal()), backend="batched")
    assert len(shapes.seen) <= 128  # 314 where each batch is as long as its longest


def test_packed_half_precision_is_left_to_it_and_one_long_row_is_not() -> None:
    query, key, value = qkv(1, 64, heads=2, head_dim=8, dtype=torch.bfloat16)
    packed = Segments([32, 32], inner=Causal())
    names = list(available_backends(query, key, value, packed, training=True))
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert names.index("batched") < names.index("torch_sdpa")
    alone = list(available_backends(query, key, value, Causal(), training=True))
    assert alone.index("batched") > alone.index("tiled")


@pytest.mark.parametrize("documents", [16, 64])
def test_no_tensor_grows_with_the_square_of_the_row(documents: int) -> None:
    lengths = [60 + i % 9 for i in range(documents)]
    n = sum(lengths)
    query, key, value = qkv(1, n, heads=8, head_dim=8, dtype=torch.bfloat16)
    with LargestTensor() as watch:
        out = attention(query, key, value, Segments(lengths, inner=Causal()), backend="batched")
        out.float().sum().backward()
    assert watch.entries <= 2 * 2**20, watch.operation


def test_a_long_segment_is_cut_into_rows_whose_scores_fit() -> None:
    query, key, value = qkv(1, 3000, heads=8, head_dim=8, dtype=torch.float32)
    with LargestTensor() as watch:
        attention(query, key, value, Segments([2990, 10]), backend="batched").sum().backward()
    assert watch.entries <= 2 * 2**20, watch.operation


@pytest.mark.parametrize("length", [40, 300])
def test_half_scores_are_as_exact_as_single_ones(length: int) -> None:
    a = randn(6, length, 64, seed=1, dtype=torch.bfloat16)
    b = randn(6, 64, length, seed=2, dtype=torch.bfloat16)
    exact = a.double() @ b.double() * 0.3
    error = (_product(a, b, 0.3).double() - exact).norm() / exact.norm()
    assert error <= 2**-16, f"relative error {error:.1e}"


def test_sharp_rows_in_half_precision_keep_their_weights() -> None:
    """Scores near 40, which bf16 would round by up to 0.125, and the weights with them by an eighth."""
    query, key, value = qkv(1, 48, heads=2, head_dim=64, dtype=torch.bfloat16, grad=False)
    query, key, value = ((t * 2).requires_grad_() for t in (query, key, value))
    check(
        "batched",
        query,
        key,
        value,
        Segments([20, 28], inner=Causal()),
        visible=matrix(segments([20, 28], inner=top_left()), 48, 48),
    )


def test_a_source_changed_before_the_backward_is_an_error() -> None:
    query, key, value = qkv(1, 12, heads=2, head_dim=8)
    scores = randn(4, 4, seed=3)
    out = attention(query, key, value, Segments([4, 4, 4], inner=scores), backend="batched")
    scores.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_only_a_first_derivative() -> None:
    query, key, value = qkv(1, 12, heads=2, head_dim=8)
    out = attention(query, key, value, Segments([6, 6], inner=Causal()), backend="batched")
    (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        first.sum().backward()


def test_a_second_backward_gives_the_same_gradients() -> None:
    query, key, value = qkv(1, TOTAL, heads=2, head_dim=8)
    out = attention(query, key, value, Segments(RAGGED, inner=Causal()), backend="batched")
    once = torch.autograd.grad(out.sum(), (query, key, value), retain_graph=True)
    again = torch.autograd.grad(out.sum(), (query, key, value))
    for a, b in zip(once, again, strict=True):
        assert torch.equal(a, b)


def test_gradients_under_autocast_come_back_in_single_precision() -> None:
    query, key, value = qkv(1, TOTAL, heads=2, head_dim=8, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(query, key, value, Segments(RAGGED, inner=Causal()), backend="batched")
        out.float().sum().backward()  # autocast must not round what the backward does in single precision
    rounded = [t.detach().bfloat16() for t in (query, key, value)]
    mask = visible(segments(RAGGED, inner=top_left()))
    expected = attend_with_gradients(*rounded, torch.ones_like(out), visible=mask)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        assert tensor.grad is not None and tensor.grad.dtype == torch.float32
        assert_agrees(tensor.grad, expected[name], f"gradient of {name}", torch.bfloat16)
