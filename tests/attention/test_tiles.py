"""Where tiles begin and end, and that those in which nothing is visible are never computed.

Many heads make the tiles of `tiled` as small as they get, so that short sequences already have several.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .oracle import assert_agrees, attend, attend_with_gradients
from .running import qkv, randn

MANY = 128


@pytest.mark.parametrize(("q_len", "k_len"), [(128, 128), (64, 192)])
def test_a_window_of_every_width_is_exact_at_every_edge_of_a_tile(q_len: int, k_len: int) -> None:
    query, key, value = qkv(1, q_len, k_len, heads=MANY, kv_heads=1, head_dim=1, grad=False)
    i, j = torch.arange(q_len)[:, None] + k_len - q_len, torch.arange(k_len)[None]
    share = torch.exp(torch.einsum("bmhk,bnk->bhmn", query, key[:, :, 0]))
    for window in range(1, k_len + 2):
        seen = (j <= i) & (j > i - window)
        weights = share * seen
        expected = torch.einsum("bhmn,bnk->bmhk", weights / weights.sum(-1, keepdim=True), value[:, :, 0])
        out = attention(query, key, value, Causal("bottom-right", window), backend="tiled", scale=1.0)
        assert (out - expected).abs().max() < 1e-10, f"window {window}"


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_a_corner_is_exact_wherever_it_falls_in_a_tile(align: str) -> None:
    for q_len, k_len in [(64, n) for n in (1, 63, 64, 65, 127, 128, 129, 200)] + [
        (n, 64) for n in (63, 65, 128, 129)
    ]:
        query, key, value = qkv(1, q_len, k_len, heads=MANY, kv_heads=2, head_dim=2)
        shift = k_len - q_len if align == "bottom-right" else 0
        seen = torch.arange(k_len)[None] <= torch.arange(q_len)[:, None] + shift
        grad_out = randn(1, q_len, MANY, 2, seed=1)
        expected = attend_with_gradients(query, key, value, grad_out, visible=seen)
        out = attention(query, key, value, Causal(align), backend="tiled")
        assert_agrees(out, expected["out"], f"out of {q_len} x {k_len}")
        found = torch.autograd.grad(out, [query, key, value], grad_out)
        for name, gradient in zip(("query", "key", "value"), found, strict=True):
            assert_agrees(gradient, expected[name], f"gradient of {name} of {q_len} x {k_len}")


def test_padding_is_exact_wherever_it_ends_in_a_tile() -> None:
    query, key, value = qkv(2, 3, 192, heads=MANY, kv_heads=1, head_dim=1, grad=False)
    for cut in [0, 1, 62, 63, 64, 65, 66, 127, 128, 129, 190, 191, 192]:
        keep = torch.ones(2, 192, dtype=torch.long)
        keep[0, :cut] = 0
        keep[1, cut:] = 0
        kept = keep.bool()[:, None, None]
        lower = torch.arange(192)[None] <= torch.arange(3)[:, None] + 189
        for bias, seen in [
            (KeyPadding(keep), kept),
            (KeyPadding(keep) + Causal("bottom-right"), kept & lower),
        ]:
            expected, _ = attend(query, key, value, visible=seen)
            assert_agrees(attention(query, key, value, bias, backend="tiled"), expected, f"cut at {cut}")


@pytest.mark.parametrize("length", [63, 64, 65, 128, 129])
def test_segments_are_exact_wherever_they_meet_in_a_tile(length: int) -> None:
    lengths = [length, 1, 0, 130 - length % 64]
    total = sum(lengths)
    owner = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    seen = (owner[:, None] == owner[None]) & (torch.arange(total)[None] <= torch.arange(total)[:, None])
    query, key, value = qkv(1, total, heads=MANY, kv_heads=2, head_dim=1)
    grad_out = randn(1, total, MANY, 1, seed=1)
    expected = attend_with_gradients(query, key, value, grad_out, visible=seen)
    for bias in (
        Segments(lengths, inner=Causal()),
        Segments(lengths) + Causal(),
        Causal() + Segments(lengths),
    ):
        out = attention(query, key, value, bias, backend="tiled")
        assert_agrees(out, expected["out"], "out")
        found = torch.autograd.grad(out, [query, key, value], grad_out)
        for name, gradient in zip(("query", "key", "value"), found, strict=True):
            assert_agrees(gradient, expected[name], f"gradient of {name}")


def _products(n: int, bias: Any) -> int:
    """Floating-point operations of the matrix products, forward and backward."""
    query, key, value = qkv(1, n, heads=8, head_dim=16, dtype=torch.float32)
    with FlopCounterMode(display=False) as counter:
        attention(query, key, value, bias, backend="tiled").sum().backward()
    return counter.get_total_flops()


def _half_padded(n: int, *, left: bool) -> KeyPadding:
    keep = torch.ones(1, n, dtype=torch.long)
    keep[:, slice(0, n // 2) if left else slice(n // 2, n)] = 0
    return KeyPadding(keep)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda n: Causal(), 0.65),
        (lambda n: Causal(window=n // 16), 0.3),
        (lambda n: Segments([n // 8] * 8), 0.15),
        (lambda n: Segments([n // 2, n // 2], inner=Causal()), 0.4),
        (lambda n: Segments([n // 2, n // 2]) + Causal(), 0.4),
        (lambda n: _half_padded(n, left=True), 0.6),
        (lambda n: _half_padded(n, left=False), 0.6),
        (lambda n: _half_padded(n, left=True) + Causal(), 0.25),
        (lambda n: Causal() + _half_padded(n, left=True), 0.25),
        (lambda n: Causal() + torch.zeros(1, 8, 1, n), 0.65),
    ],
    ids=[
        "causal",
        "window",
        "segments",
        "causal segments",
        "segments + causal",
        "left padding",
        "right padding",
        "left padding + causal",
        "causal + left padding",
        "causal + dense",
    ],
)
def test_tiles_in_which_nothing_is_visible_cost_no_products(make: Any, most: float) -> None:
    n = 2048
    share = _products(n, make(n)) / _products(n, None)
    assert share <= most, f"{share:.2f} of the products of full attention"


def test_the_work_of_a_window_grows_with_the_length_and_not_with_its_square() -> None:
    short, long = _products(1024, Causal(window=64)), _products(4096, Causal(window=64))
    assert long <= 4.6 * short
