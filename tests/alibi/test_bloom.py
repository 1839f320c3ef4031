"""BLOOM adds ``slope * position of the key``. Under the softmax that is the same: a row's constant cancels."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, KeyPadding, attention

from .oracle import attend, qkv, seen

bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")

MASKS = {
    "no padding": [[1] * 9, [1] * 9],
    "left": [[0, 0, 0, 0, 1, 1, 1, 1, 1], [1] * 9],
    "right": [[1, 1, 1, 0, 0, 0, 0, 0, 0], [1] * 9],
}


def by_key_position(mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    """[batch, heads, 1, k_len], made by transformers."""
    alibi = bloom.build_alibi_tensor(mask, num_heads, dtype)
    return alibi.view(len(mask), num_heads, 1, -1)


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("num_heads", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("padding", MASKS)
def test_distances_and_blooms_key_positions_give_the_same_output_and_gradients(
    num_heads: int, padding: str, backend: str
) -> None:
    mask = torch.tensor(MASKS[padding])
    leaves = qkv(2, 9, 9, num_heads, num_heads)
    # A row of padding is read by nobody, and what stands in it means nothing.
    grad_out = torch.randn_like(leaves[0]) * mask[:, :, None, None]
    out, _ = attend(
        *leaves,
        by_key_position(mask, num_heads, torch.float64),
        seen(lambda i, j: j <= i, 9, 9) & mask.bool()[:, None, None],
    )
    expected = out, *torch.autograd.grad(out, leaves, grad_out)
    bias = Causal("bottom-right") + ALiBi(num_heads) + KeyPadding(mask)
    got = attention(*leaves, bias, backend=backend)
    for mine, theirs in zip((got, *torch.autograd.grad(got, leaves, grad_out)), expected, strict=True):
        real = mask.bool()
        torch.testing.assert_close(mine[real], theirs[real], rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_heads", [8, 12, 40])
def test_in_float32_they_agree_to_a_hundred_thousandth_for_12_and_40_heads_too(num_heads: int) -> None:
    mask = torch.ones(1, 64, dtype=torch.int64)
    query, key, value = (t.detach() for t in qkv(1, 64, 64, num_heads, num_heads, torch.float32))
    theirs = attention(query, key, value, Causal() + by_key_position(mask, num_heads, torch.float32))
    ours = attention(query, key, value, Causal() + ALiBi(num_heads))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_what_differs_is_one_number_a_row_slope_times_position() -> None:
    query, key, value = (t.detach() for t in qkv(1, 9, 9, 8, 8))
    positions = by_key_position(torch.ones(1, 9, dtype=torch.int64), 8, torch.float64)
    _, theirs = attention(query, key, value, Causal() + positions, return_lse=True)
    _, ours = attention(query, key, value, Causal() + ALiBi(8), return_lse=True)
    expected = alibi_slopes(8).double()[:, None] * torch.arange(9)
    torch.testing.assert_close((theirs - ours)[0], expected, rtol=0, atol=1e-10)


def test_without_a_causal_mask_they_differ() -> None:
    query, key, value = (t.detach() for t in qkv(1, 9, 9, 8, 8))
    positions = by_key_position(torch.ones(1, 9, dtype=torch.int64), 8, torch.float64)
    assert not torch.allclose(
        attention(query, key, value, ALiBi(8)), attention(query, key, value, positions), atol=1e-2
    )


@torch.no_grad()
def test_an_attention_layer_of_blooms_is_this_attention() -> None:
    """The whole of transformers' BloomAttention, behind its own projections, with 6 heads and left padding. It takes
    its softmax in float32 even for float64."""
    from transformers import BloomConfig

    config = BloomConfig(hidden_size=48, n_head=6, n_layer=1, hidden_dropout=0.0, attention_dropout=0.0)
    layer = bloom.BloomAttention(config, layer_idx=0).double().eval()
    generator = torch.Generator().manual_seed(4)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4)
    mask = torch.tensor(MASKS["left"])
    x = torch.randn(2, 9, 48, generator=generator, dtype=torch.float64)
    future = torch.zeros(2, 1, 9, 9, dtype=torch.float64)
    hidden = ~(seen(lambda i, j: j <= i, 9, 9) & mask.bool()[:, None, None])
    future = future.masked_fill(hidden, torch.finfo(torch.float64).min)
    alibi = bloom.build_alibi_tensor(mask, 6, torch.float64)
    theirs = layer(x, torch.zeros_like(x), alibi=alibi, attention_mask=future)[0]
    query, key, value = layer.query_key_value(x).view(2, 9, 6, 3, 8).unbind(3)
    bias = KeyPadding(mask) + Causal() + ALiBi(6)
    ours = layer.dense(attention(query, key, value, bias, scale=1 / math.sqrt(8)).flatten(2))
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], rtol=0, atol=1e-5)
