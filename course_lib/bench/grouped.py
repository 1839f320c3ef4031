"""What lesson 04 claims of grouped queries: the memory of training, and the time of a decode step."""

from __future__ import annotations

from collections.abc import Callable
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


def decode_steps(kv_heads: int, *, length: int, device: str, dtype: torch.dtype = torch.float32) -> Step:
    """``STEPS`` tokens, each appended to a cache that then holds ``length`` and is read whole."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(tokens: int, heads: int) -> Tensor:
        shape = (1, tokens, heads, DECODED_HEAD_DIM)
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    caches = [KVCache(max_length=length) for _ in range(HEADS // kv_heads)]
    for cache in caches:
        cache.append(drawn(length - 1, kv_heads), drawn(length - 1, kv_heads))
    query, key, value = drawn(1, HEADS), drawn(1, kv_heads), drawn(1, kv_heads)

    @torch.no_grad()
    def run() -> list[Tensor]:
        outs = []
        for step in range(STEPS):
            cache = caches[step % len(caches)]
            cache.truncate(length - 1)
            outs.append(attention(query, *cache.append(key, value)))
        return outs

    return run


def sdpa_decode_steps(*, length: int, device: str, dtype: torch.dtype = torch.float32) -> Step:
    """The same with 32 kv heads and nothing of ours: tensors that are written to, and PyTorch's kernel on them."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(tokens: int) -> Tensor:
        shape = (1, tokens, HEADS, DECODED_HEAD_DIM)
        return torch.randn(shape, generator=generator, device=device).to(dtype).transpose(1, 2)

    keys, values = (F.pad(drawn(length - 1), (0, 0, 0, 1)).contiguous() for _ in range(2))
    query, key, value = (drawn(1) for _ in range(3))

    @torch.no_grad()
    def run() -> list[Tensor]:
        outs = []
        for _ in range(STEPS):
            keys[:, :, -1:], values[:, :, -1:] = key, value
            outs.append(F.scaled_dot_product_attention(query, keys, values).transpose(1, 2))
        return outs

    return run


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
        many = decode_steps(HEADS, length=cache_length, device=bench.device, dtype=dtype)
        few = decode_steps(KV_HEADS, length=cache_length, device=bench.device, dtype=dtype)
        times = bench.time("decode, 32 kv heads", many, "4 kv heads", few, **facts)
        if dtype == torch.float32:
            bench.claim("gqa.decode", times.ratio, ">= 4")
        del few
        sdpa = sdpa_decode_steps(length=cache_length, device=bench.device, dtype=dtype)
        times = bench.time("decode, 32 kv heads", many, "sdpa", sdpa, **facts)
        if dtype == torch.float32:
            bench.claim("gqa.decode.peer", times.ratio, "<= 1.05")
