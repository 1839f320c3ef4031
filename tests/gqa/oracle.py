"""Grouped-query attention written a second time: float64, dense, one sequence and one head at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from course_lib.gqa import GroupedQueryAttention, KVCache


def randomised(module: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Every parameter random: default initialisation hides missing terms."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
    return module.to(dtype)


def layer(
    dim: int = 12, heads: int = 6, kv_heads: int = 2, seed: int = 0, **options: object
) -> GroupedQueryAttention:
    made = randomised(GroupedQueryAttention(dim, heads, kv_heads, **options), seed)  # type: ignore[arg-type]
    assert isinstance(made, GroupedQueryAttention)
    return made


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotary_pair(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """(cos, sin), each [*positions, head_dim], as Llama's: the second half repeats the first."""
    frequency = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = positions.double()[..., None] * frequency
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def turned(vectors: Tensor, positions: Tensor) -> Tensor:
    """Each [head_dim] row turned by its position, as complex numbers (i, i + head_dim / 2)."""
    half = vectors.shape[-1] // 2
    numbers = torch.complex(vectors[..., :half], vectors[..., half:])
    angle = positions.double()[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    numbers = numbers * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((numbers.real, numbers.imag), -1)


def attend_alone(
    gqa: GroupedQueryAttention, x: Tensor, *, causal: bool = True, rotary: bool = False
) -> Tensor:
    """What ``gqa`` should make of one sequence [length, dim]."""
    n, size = len(x), gqa.head_dim
    positions = torch.arange(n)

    def heads(projection: nn.Linear, count: int) -> list[Tensor]:
        flat = x @ projection.weight.T + (0 if projection.bias is None else projection.bias)
        return [flat[:, h * size : (h + 1) * size] for h in range(count)]

    queries, keys = heads(gqa.q_proj, gqa.num_heads), heads(gqa.k_proj, gqa.num_kv_heads)
    values = heads(gqa.v_proj, gqa.num_kv_heads)
    if rotary:
        queries = [turned(q, positions) for q in queries]
        keys = [turned(k, positions) for k in keys]
    outs = []
    for h, query in enumerate(queries):
        shared = h * gqa.num_kv_heads // gqa.num_heads
        scores = query @ keys[shared].T / math.sqrt(size)
        if causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        outs.append(scores.softmax(-1) @ values[shared])
    out = torch.cat(outs, -1) @ gqa.o_proj.weight.T
    return out if gqa.o_proj.bias is None else out + gqa.o_proj.bias


def padded(chunks: list[Tensor], side: str, extra: int = 0) -> tuple[Tensor, Tensor]:
    """([batch, longest + extra, dim], attention mask); the padding is NaN, which must reach nothing."""
    width = max(map(len, chunks)) + extra
    x = torch.full((len(chunks), width, chunks[0].shape[-1]), float("nan"), dtype=torch.float64)
    real = torch.zeros(len(chunks), width, dtype=torch.int64)
    for i, chunk in enumerate(chunks):
        at = slice(width - len(chunk), width) if side == "left" else slice(0, len(chunk))
        x[i, at], real[i, at] = chunk, 1
    return x, real


def read(gqa: GroupedQueryAttention, cache: KVCache, x: Tensor, real: Tensor | None = None) -> Tensor:
    ones = torch.ones(x.shape[:2], dtype=torch.bool)
    positions = cache.next_positions(ones if real is None else real)
    with torch.no_grad():
        return gqa(x, cache=cache, rotary=rotary_pair(positions, gqa.head_dim), attention_mask=real)


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
