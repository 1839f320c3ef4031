"""What lesson 04 claims of grouped queries: the memory of training, and the time of a decode step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention import Causal, attention
from ..gqa import KVCache
from .comparison import Comparison, Step

HEADS, KV_HEADS = 32, 4
TRAINED_HEAD_DIM, DECODED_HEAD_DIM = 64, 128
STEPS = HEADS // KV_HEADS
"""Decode steps a timing. With 4 kv heads they go through as many caches, as through the layers of a model: together
these are as large as the one with 32, so that neither side finds its keys left in the processor's own cache."""


def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Ours: keys and values as they are."""
    return attention(query, key, value, Causal())


def expanded_sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """What most code does: each key and value head repeated for the query heads that share it."""
    groups = query.shape[2] // key.shape[2]
    key, value = (tensor.repeat_interleave(groups, dim=2) for tensor in (key, value))
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def enable_gqa_sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """PyTorch's own way to share heads."""
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2)


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "grouped attention()": grouped,
    "sdpa, repeat_interleave": expanded_sdpa,
    "sdpa, enable_gqa": enable_gqa_sdpa,
}


def training_step(way: str, length: int, device: str, dtype: torch.dtype = torch.float32) -> Step:
    """Forward and backward of one sequence, ready to run: 32 query heads, 4 kv heads."""
    generator = torch.Generator(device).manual_seed(0)
    heads = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    *inputs, grad_out = (
        torch.randn(1, length, n, TRAINED_HEAD_DIM, generator=generator, device=device).to(dtype)
        for n in heads
    )
    for tensor in inputs:
        tensor.requires_grad_()

    def run() -> list[Tensor]:
        out = WAYS[way](*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, grad_out)]

    return run


def memory_work(*, way: str, length: int, device: str) -> Step:
    """For :func:`course_lib.bench.memory.workspaces`: the training step, after a short one that loads the code."""
    training_step(way, min(length, 64), device)()
    return training_step(way, length, device)


def filled_caches(
    kv_heads: int, *, length: int, device: str, dtype: torch.dtype = torch.float32
) -> list[KVCache]:
    """As many caches of ``length`` - 1 tokens as hold 32 kv heads together."""
    caches = [KVCache(max_length=length) for _ in range(HEADS // kv_heads)]
    for seed, cache in enumerate(caches):
        generator = torch.Generator(device).manual_seed(seed)
        cache.append(
            *_drawn((length - 1, kv_heads), (length - 1, kv_heads), generator=generator, dtype=dtype)
        )
    return caches


def decode_steps(caches: list[KVCache], newest: Sequence[Tensor]) -> Step:
    """``STEPS`` tokens, each appended to a cache that is full then and read whole. ``newest``: the query, key and
    value of a token."""
    query, key, value = newest
    held = caches[0].host_lengths[0]

    @torch.no_grad()
    def run() -> list[Tensor]:
        outs = []
        for step in range(STEPS):
            cache = caches[step % len(caches)]
            cache.truncate(held)
            outs.append(attention(query, *cache.append(key, value)))
        return outs

    return run


def sdpa_decode_steps(cache: KVCache, newest: Sequence[Tensor]) -> Step:
    """The same with 32 kv heads and nothing of ours: tensors that are written to, and PyTorch's kernel on them. They
    are the cache's own, since where memory lies makes a difference of some percent."""
    with torch.no_grad():
        keys, values, _ = cache.append(newest[1], newest[2])
    keys, values = keys.transpose(1, 2), values.transpose(1, 2)
    query, key, value = (tensor.transpose(1, 2) for tensor in newest)

    @torch.no_grad()
    def run() -> list[Tensor]:
        outs = []
        for _ in range(STEPS):
            keys[:, :, -1:], values[:, :, -1:] = key, value
            outs.append(F.scaled_dot_product_attention(query, keys, values).transpose(1, 2))
        return outs

    return run


def newest_token(kv_heads: int, *, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query, key and value of one token."""
    generator = torch.Generator(device).manual_seed(HEADS)
    return _drawn((1, HEADS), (1, kv_heads), (1, kv_heads), generator=generator, dtype=dtype)


def _drawn(*sizes: tuple[int, int], generator: torch.Generator, dtype: torch.dtype) -> list[Tensor]:
    """[1, tokens, heads, head_dim] for each (tokens, heads)."""
    return [
        torch.randn(1, *size, DECODED_HEAD_DIM, generator=generator, device=generator.device).to(dtype)
        for size in sizes
    ]


def measure(bench: Comparison, *, length: int, cache_length: int, dtypes: list[torch.dtype]) -> None:
    """``gqa.memory``, ``gqa.decode`` and its condition, that the 32-head step is as fast as PyTorch's."""
    facts: dict[str, Any] = {"length": length, "dtype": "float32"}
    settings = [{"way": way, "length": length} for way in WAYS]
    ours, expanded, _ = bench.workspace("course_lib.bench.grouped:memory_work", settings, **facts)
    bench.claim("gqa.memory", ours / max(expanded, 1), "<= 0.34")
    for dtype in dtypes:
        facts = {"length": length, "dtype": str(dtype).removeprefix("torch.")}
        name, *peers = WAYS
        step = training_step(name, length, bench.device, dtype)
        for peer in peers:
            bench.time(name, step, peer, training_step(peer, length, bench.device, dtype), **facts)
        facts |= {"length": cache_length, "steps": STEPS}
        where: dict[str, Any] = {"device": bench.device, "dtype": dtype}
        caches, newest = filled_caches(HEADS, length=cache_length, **where), newest_token(HEADS, **where)
        many = decode_steps(caches, newest)
        times = bench.time("decode, 32 kv heads", many, "sdpa", sdpa_decode_steps(caches[0], newest), **facts)
        if dtype == torch.float32:
            bench.claim("gqa.decode.peer", times.ratio, "<= 1.05")
        caches, newest = (
            filled_caches(KV_HEADS, length=cache_length, **where),
            newest_token(KV_HEADS, **where),
        )
        times = bench.time("decode, 32 kv heads", many, "4 kv heads", decode_steps(caches, newest), **facts)
        if dtype == torch.float32:
            bench.claim("gqa.decode", times.ratio, ">= 4")
