"""ALiBi and attention written a second time, in float64 and dense, without course_lib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Predicate = Callable[[int, int], bool]


def published_slopes(num_heads: int) -> list[float]:
    """The recursion of Press et al.: powers of the first slope, and beyond a power of two every other slope of the
    next one, appended."""
    power = 2 ** math.floor(math.log2(num_heads))
    if power == num_heads:
        first = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
        return [first * first**i for i in range(num_heads)]
    return published_slopes(power) + published_slopes(2 * power)[0::2][: num_heads - power]


def lowered(slopes: Tensor | Sequence[float], places: Sequence[int], k_len: int) -> Tensor:
    """[heads, queries, k_len] of -slope * |place of the query - place of the key|, one entry after another."""
    slopes = torch.as_tensor(slopes, dtype=torch.float64)
    distance = [[abs(place - j) for j in range(k_len)] for place in places]
    table = torch.tensor(distance, dtype=torch.float64).reshape(len(places), k_len)
    return -slopes[:, None, None] * table


def seen(can_see: Predicate, q_len: int, k_len: int) -> Tensor:
    rows = [[can_see(i, j) for j in range(k_len)] for i in range(q_len)]
    return torch.tensor(rows, dtype=torch.bool).reshape(q_len, k_len)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scores: Tensor, visible: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(out [B, M, H, V], lse [B, H, M]) in float64; ``scores`` and ``visible`` broadcast to [B, H, M, N]."""
    query, key, value = query.double(), key.double(), value.double()
    groups = query.shape[2] // key.shape[2]
    key, value = (t.repeat_interleave(groups, dim=2) for t in (key, value))
    total = torch.einsum("bmhk,bnhk->bhmn", query, key) / math.sqrt(query.shape[-1]) + scores.double()
    if visible is not None:
        total = total.masked_fill(~visible, -math.inf)
    blind = (total == -math.inf).all(-1, keepdim=True)
    weights = total.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return torch.einsum("bhmn,bnhv->bmhv", weights, value), total.logsumexp(-1)


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def qkv(
    batch: int, q_len: int, k_len: int, heads: int, kv_heads: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of head_dim 5 that want gradients."""
    sizes = ((q_len, heads), (k_len, kv_heads), (k_len, kv_heads))
    query, key, value = (
        randn(batch, length, count, 5, seed=11 + i, dtype=dtype).requires_grad_()
        for i, (length, count) in enumerate(sizes)
    )
    return query, key, value
