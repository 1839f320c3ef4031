"""Wrong answers to exercise 0.6 of lesson 00 that its check knows by name."""

import torch
from torch import Tensor


def _width(x: Tensor, num_heads: int) -> int:
    return x.shape[-1] // num_heads


def reshaped(x, num_heads):
    """The right shape at once; the numbers stay in the order of memory, so heads and words are mixed."""
    return x.reshape(x.shape[0], num_heads, x.shape[1], _width(x, num_heads))


def turned_then_reshaped(x, num_heads):
    return x.transpose(1, 2).reshape(x.shape[0], num_heads, x.shape[1], _width(x, num_heads))


def not_exchanged(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))


def not_exchanged_interleaved(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).transpose(2, 3)


def interleaved(x, num_heads):
    """Head h gets the numbers h, h + num_heads, h + 2 * num_heads …"""
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def heads_for_head_dim(x, num_heads):
    """num_heads taken for the width of a head: what x.split(num_heads, -1) does."""
    return x.unflatten(-1, (-1, num_heads)).transpose(1, 2)


def width_before_words(x, num_heads):
    return x.transpose(1, 2).unflatten(1, (num_heads, -1))


def heads_before_batch(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).permute(2, 0, 1, 3)


def copied(x, num_heads):
    return x[:, None].expand(-1, num_heads, -1, -1)


def first_head(x, num_heads):
    return x[..., : _width(x, num_heads)]


def glued_words(x, num_heads):
    return torch.cat(x.chunk(num_heads, -1), dim=1)


def unchanged(x, num_heads):
    return x


def in_a_list(x, num_heads):
    return [torch.clone(part) for part in x.chunk(num_heads, -1)]
