"""Rows that see nothing, rows that begin with a long run of -inf, scores too large for a naive softmax."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import AttentionBias, Causal, KeyPadding, Segments, attention

from .oracle import assert_agrees, attend_with_gradients, causal, matrix
from .running import ALWAYS, BACKENDS, check, qkv, randn, run

EMPTY_ROWS: list[tuple[str, object, int, int, list[int]]] = [
    ("bottom-right, more queries than keys", Causal("bottom-right"), 6, 4, [0, 1]),
    ("bottom-right window", Causal("bottom-right", window=2), 6, 4, [0, 1]),
    ("top-left window past the keys", Causal("top-left", window=1), 6, 4, [4, 5]),
    ("segment without keys", Segments([2, 3, 1], [3, 0, 1]), 6, 4, [2, 3, 4]),
    ("bool", torch.tensor([True, False, True, False, False, True])[:, None].expand(6, 4), 6, 4, [1, 3, 4]),
    ("everything false", torch.zeros(6, 4, dtype=torch.bool), 6, 4, [0, 1, 2, 3, 4, 5]),
    ("minus infinity", torch.where(torch.arange(6) < 2, -torch.inf, 0.0)[:, None].expand(6, 4), 6, 4, [0, 1]),
    ("all padding", KeyPadding(torch.zeros(2, 4, dtype=torch.long)), 6, 4, [0, 1, 2, 3, 4, 5]),
    (
        "left padding and causal",
        Causal("top-left") + KeyPadding(torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1]])),
        6,
        4,
        [0, 1],
    ),
    ("masks that never meet", Causal("top-left") + ~matrix(causal(), 6, 4), 6, 4, [0, 1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("bias", "q_len", "k_len", "empty"),
    [case[1:] for case in EMPTY_ROWS],
    ids=[case[0] for case in EMPTY_ROWS],
)
def test_a_fully_masked_row_is_zero_with_zero_gradient(
    backend: str, dtype: torch.dtype, bias: AttentionBias, q_len: int, k_len: int, empty: list[int]
) -> None:
    query, key, value = qkv(2, q_len, k_len, heads=4, kv_heads=2, head_dim=8, dtype=dtype)
    out = run(backend, query, key, value, bias)
    assert torch.isfinite(out).all()
    assert (out[:, empty] == 0).all()
    out.backward(randn(*out.shape, seed=3, dtype=dtype))
    assert torch.isfinite(query.grad).all()
    assert torch.isfinite(key.grad).all()
    assert torch.isfinite(value.grad).all()
    assert (query.grad[:, empty] == 0).all()
    others = [i for i in range(q_len) if i not in empty]
    assert not others or (out[:, others] != 0).any(-1).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fully_masked_row_leaves_no_gradient_in_keys_values_or_bias(backend: str) -> None:
    """Only the masked row gets an output gradient, so nothing may flow anywhere."""
    query, key, value = qkv(1, 3, 5)
    bias = torch.zeros(3, 5, dtype=torch.float64)
    bias[1] = -torch.inf
    bias.requires_grad_()
    out = run(backend, query, key, value, bias)
    grad_out = torch.zeros_like(out)
    grad_out[:, 1] = 1
    out.backward(grad_out)
    for tensor in (query, key, value, bias):
        assert (tensor.grad == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_row_may_begin_with_ten_thousand_masked_keys(backend: str, dtype: torch.dtype) -> None:
    query, key, value = qkv(1, 3, 12_000, heads=1, head_dim=4, dtype=dtype)
    bias = torch.zeros(3, 12_000, dtype=dtype)
    bias[0, :10_000] = -torch.inf
    bias[1, :11_999] = -torch.inf
    bias[2, 5:] = -torch.inf
    bias.requires_grad_()
    check(backend, query, key, value, bias, scores=bias)


@pytest.mark.parametrize("backend", BACKENDS)
def test_left_padding_of_ten_thousand_keys(backend: str) -> None:
    query, key, value = qkv(2, 2, 12_000, heads=1, head_dim=4, dtype=torch.float32)
    mask = torch.ones(2, 12_000, dtype=torch.long)
    mask[0, :11_990] = 0
    check(backend, query, key, value, KeyPadding(mask), visible=mask.bool()[:, None, None])


@pytest.mark.parametrize("backend", ALWAYS)
@pytest.mark.parametrize("k_len", [6, 700])
@pytest.mark.parametrize("level", [1e30, -1e30, -1e9, -1e4, torch.finfo(torch.float32).min])
def test_the_gradients_of_a_row_of_huge_equal_scores_are_those_of_a_mean(
    backend: str, level: float, k_len: int
) -> None:
    """The log-sum-exp of such a row is the level itself, rounded: exp(score - lse) would be 1, not 1 / k_len.

    Not asked of PyTorch's kernels, which keep a rounded log-sum-exp.
    """
    query, key, value = qkv(1, 3, k_len, dtype=torch.float32)
    bias = torch.full((3, k_len), level)
    check(backend, query, key, value, bias, scores=torch.zeros(3, k_len, dtype=torch.float64), scale=0.0)


@pytest.mark.parametrize("backend", ["auto", "tiled"])
@pytest.mark.parametrize("mask", [Causal(), Causal(window=3)], ids=repr)
def test_those_gradients_are_right_behind_a_mask_too(backend: str, mask: Causal) -> None:
    """So small a sum could be given to PyTorch's kernel as one dense mask, which would lose the rows' sums."""
    query, key, value = qkv(1, 6, head_dim=8, dtype=torch.float32)
    visible = mask.materialize(6, 6) == 0
    check(backend, query, key, value, mask + torch.full((6, 6), -1e9), visible=visible, scale=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_past_the_range_of_fp16_do_not_overflow(backend: str, dtype: torch.dtype) -> None:
    """Scores of 80,000 and 80,256 (256 is far: the answer is the key with more); fp16 ends at 65,504."""
    query = torch.tensor([[256.0, 1.0]], dtype=dtype).reshape(1, 1, 1, 2)
    key = torch.tensor([[312.0, 0.0], [313.0, 0.0], [-312.0, 0.0]]).to(torch.float16).to(dtype)
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=dtype)
    out = attention(query, key[None, :, None], value[None, :, None], scale=1.0, backend=backend)
    top = int((key.float()[:, 0]).argmax())
    if key[0, 0] != key[1, 0]:  # bfloat16 rounds both to 312
        torch.testing.assert_close(out.flatten(), value[top])
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_growing_scores_overtake_what_came_before(backend: str) -> None:
    """Each tile's scores dwarf those before: an online softmax must rescale all the way, without overflow."""
    k_len = 2000
    query = torch.ones(1, 2, 1, 1, dtype=torch.float32)
    key = torch.linspace(-3e4, 3e4, k_len).reshape(1, k_len, 1, 1)
    value = randn(1, k_len, 1, 3, seed=2, dtype=torch.float32)
    for k in (key, key.flip(1)):
        expected = value[:, k.argmax(1).flatten()]
        out = run(backend, query, k, value, scale=1.0)
        torch.testing.assert_close(out, expected.expand(1, 2, 1, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_minus_a_billion_masks_like_a_mask(backend: str, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 4, 6, dtype=dtype)
    visible = matrix(causal(2), 4, 6)
    bias = torch.where(visible, 0.0, -1e9).to(dtype)
    check(backend, query, key, value, bias, visible=visible)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "low", [-1e9, -1e30, torch.finfo(torch.float32).min], ids=["-1e9", "-1e30", "finfo.min"]
)
@pytest.mark.parametrize("k_len", [6, 700])
def test_a_row_of_very_low_but_finite_biases_averages_all_its_values(
    backend: str, low: float, k_len: int
) -> None:
    """As transformers' masks have it: finite means visible, and equally low scores share the weight."""
    query, key, value = qkv(1, 3, k_len, heads=2, dtype=torch.float32)
    out = run(backend, query, key, value, torch.full((3, k_len), low), scale=0.0)
    torch.testing.assert_close(out, value.mean(1, keepdim=True).expand_as(out), rtol=0, atol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mask_of_the_dtypes_lowest_number_masks(backend: str, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 4, 6, dtype=dtype)
    visible = matrix(causal(2), 4, 6)
    bias = torch.where(visible, 0.0, torch.finfo(dtype).min).to(dtype)
    check(backend, query, key, value, bias, visible=visible)


@pytest.mark.parametrize("backend", BACKENDS)
def test_low_finite_biases_behind_a_masked_start(backend: str) -> None:
    """-inf for 600 keys, then only -1e30: the row is alive."""
    query, key, value = qkv(1, 2, 900, heads=1, dtype=torch.float32)
    bias = torch.full((2, 900), -1e30)
    bias[:, :600] = -torch.inf
    out = run(backend, query, key, value, bias, scale=0.0)
    torch.testing.assert_close(out, value[:, 600:].mean(1, keepdim=True).expand_as(out), rtol=0, atol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_survive_a_saturated_softmax(backend: str) -> None:
    query, key, value = qkv(1, 5, 9, dtype=torch.float64)
    grad_out = randn(1, 5, 3, 5, seed=4)
    out = run(backend, query, key, value, scale=1e4)
    expected = attend_with_gradients(query, key, value, grad_out, scale=1e4)
    assert_agrees(out, expected["out"], "out")
    found = torch.autograd.grad(out, [query, key, value], grad_out)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        torch.testing.assert_close(gradient, expected[name], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("bias", "q_len", "k_len", "empty"), [c[1:] for c in EMPTY_ROWS], ids=[c[0] for c in EMPTY_ROWS]
)
def test_a_nan_gradient_from_above_stops_at_a_fully_masked_row(
    backend: str, bias: object, q_len: int, k_len: int, empty: list[int]
) -> None:
    """As a norm of the zeros gives it: the row has no part in any gradient."""
    query, key, value = qkv(2, q_len, k_len, heads=2, kv_heads=1)
    grad_out = randn(2, q_len, 2, 5, seed=3)
    expected = attention(query, key, value, bias, backend="reference")
    expected = torch.autograd.grad(expected, [query, key, value], grad_out)
    out = run(backend, query, key, value, bias)
    grad_out[:, empty] = torch.nan
    for got, wanted in zip(torch.autograd.grad(out, [query, key, value], grad_out), expected, strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ALWAYS)
def test_a_nan_gradient_of_its_lse_stops_there_too(backend: str) -> None:
    query, key, value = qkv(2, 6, 4)
    _, lse = attention(query, key, value, Causal("bottom-right"), backend=backend, return_lse=True)
    grad_lse = torch.ones_like(lse)
    grad_lse[:, :, :2] = torch.nan
    for got in torch.autograd.grad(lse, [query, key], grad_lse):
        assert got.isfinite().all()
