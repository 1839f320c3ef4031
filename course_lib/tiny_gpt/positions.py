"""Where a token stands, told to the model in one of three ways; without any, order is what a causal mask reveals."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

POSITIONS = ("none", "learned", "sinusoidal", "rotary")
"""What ``TinyGPT(positions=...)`` understands. ALiBi is a bias, and comes as ``attention_bias``."""

BASE = 10_000.0
"""The slowest wave takes about ``2 pi * BASE`` tokens to come round (Vaswani et al. 2017; Su et al. 2021)."""


def sinusoids(
    positions: Int64[Tensor, "batch length"], dim: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "batch length dim"]:
    """Waves of falling frequency, added to the embeddings (Vaswani et al. 2017, section 3.5).

    The sines fill the first half of the ``dim`` numbers and the cosines the second, an even number in all; the paper
    interleaves them, which is the same up to the order of columns.
    """
    angles = angles_of(positions, dim)
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)


def rotate(
    tensor: Float[Tensor, "batch length heads head_dim"], positions: Int64[Tensor, "rows length"]
) -> Float[Tensor, "batch length heads head_dim"]:
    """Queries or keys turned by their positions, so that a score depends on distance only (Su et al. 2021, RoPE).

    Number i of a head forms a pair with number ``i + head_dim / 2``, as in Llama, and the pair turns by an angle that
    grows with the position.
    """
    angles = angles_of(positions, tensor.shape[-1])[:, :, None]  # one head's width, for all heads
    cos, sin = angles.cos().to(tensor.dtype), angles.sin().to(tensor.dtype)
    first, second = tensor.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def angles_of(
    positions: Int64[Tensor, "batch length"], dim: int, base: float = BASE
) -> Float[Tensor, "batch length half"]:
    """The angles, in radians, of the ``dim / 2`` waves at each position, in float64 (float32 where there is none)."""
    # Never in half precision: bfloat16 cannot tell position 257 from 256.
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    exponents = torch.arange(0, dim, 2, dtype=dtype, device=positions.device) / dim
    return positions[..., None].to(dtype) * base**-exponents
