"""What lesson 03 measures: one attention over some documents, laid out in three ways: scores kept, and seconds."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.attention import Causal, attention
from course_lib.packing import Packed

WAYS = ("padded", "one row", "packed")
HEAD_DIM = 16
"""Below the shortest document, so that a square matrix kept for the backward can only be scores."""


def _inputs(rows: int, length: int, num_heads: int, head_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (rows, length, num_heads, head_dim)
    query, key, value = (torch.randn(shape, generator=generator).requires_grad_() for _ in range(3))
    return query, key, value


def scores_kept(lengths: Sequence[int], way: str, *, backend: str = "reference") -> int:
    """How many scores one head keeps for its backward, counted in what PyTorch saves.

    "padded": the documents as a batch, each as long as the longest. "one row": side by side, under the mask of a
    packed row. "packed": the same row cut at its borders, one document at a time.
    """
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.dim() >= 3 and tensor.shape[-1] == tensor.shape[-2]:
            kept[tensor.data_ptr()] = tensor.numel()  # a view of what is kept already takes nothing more
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        held = []  # until all are counted: a freed address would be given out again
        for rows, length, bias in _calls(lengths, way):
            query, key, value = _inputs(rows, length, 1, HEAD_DIM)
            held.append(attention(query, key, value, bias, backend=backend))
    return sum(kept.values())


def _calls(lengths: Sequence[int], way: str) -> list[tuple[int, int, Any]]:
    if way == "padded":
        return [(len(lengths), max(lengths), Causal())]
    if way == "one row":
        return [(1, sum(lengths), Packed(lengths, inner=Causal()))]
    return [(1, n, Causal()) for n in lengths]


def seconds_of(
    lengths: Sequence[int], *, num_heads: int = 4, head_dim: int = 32, rounds: int = 3
) -> dict[str, float]:
    """Forward and backward in seconds, each way as `attention` runs it; the best of a few rounds taken in turn.

    "padded" is a causal batch, "one row" has its mask as a matrix, "packed" as an object.
    """
    total = sum(lengths)
    packed = Packed(lengths, inner=Causal())
    work = {
        "padded": _step((len(lengths), max(lengths)), Causal(), num_heads, head_dim),
        "one row": _step((1, total), packed.materialize(total, total), num_heads, head_dim),
        "packed": _step((1, total), packed, num_heads, head_dim),
    }
    best = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for way, step in work.items():
            started = time.perf_counter()
            step()
            best[way] = min(best[way], time.perf_counter() - started)
    return best


def _step(shape: tuple[int, int], bias: Any, num_heads: int, head_dim: int) -> Callable[[], None]:
    query, key, value = _inputs(*shape, num_heads, head_dim)

    def step() -> None:
        out = attention(query, key, value, bias)
        assert isinstance(out, Tensor)  # no log-sum-exp was asked for
        torch.autograd.grad(out, (query, key, value), torch.ones_like(out))

    return step
