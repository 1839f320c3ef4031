"""What lesson 05 claims of ALiBi: attention that makes its own tiles, against PyTorch's kernel on a dense bias."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..alibi import ALiBi, alibi_slopes
from ..attention import Causal, attention
from .comparison import Comparison, Step

HEADS, HEAD_DIM = 16, 64
TILED, DENSE = "alibi, attention()", "alibi, sdpa, dense bias"
BOUNDS = {torch.float32: ("fp32", "<= 0.67"), torch.bfloat16: ("bf16", "<= 1")}


def dense_bias(length: int, dtype: torch.dtype, device: str) -> Tensor:
    """Slopes times distances, the causal mask baked in: [1, heads, length, length], a number for each pair."""
    positions = torch.arange(length, dtype=torch.float32, device=device)
    distances = positions[None] - positions[:, None]
    bias = (alibi_slopes(HEADS).to(device)[:, None, None] * distances).to(dtype)
    return bias.masked_fill_(distances > 0, float("-inf"))[None]


def training_step(
    way: str,
    length: int,
    device: str,
    dtype: torch.dtype = torch.float32,
    *,
    bias_is_ready: bool = False,
) -> Step:
    """Forward and backward of one causal sequence of 16 heads, ready to run.

    With ``bias_is_ready`` the dense bias is there before, as where a model makes it once for all layers and steps;
    otherwise the step makes it.
    """
    generator = torch.Generator(device).manual_seed(0)
    shape = (1, length, HEADS, HEAD_DIM)
    inputs = [torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(3)]
    grad_out = torch.randn(shape, generator=generator, device=device).to(dtype)
    for tensor in inputs:
        tensor.requires_grad_()
    query, key, value = inputs
    dense = dense_bias(length, dtype, device) if way == DENSE and bias_is_ready else None

    def attend() -> Tensor:
        if way == TILED:
            return attention(query, key, value, Causal() + ALiBi(HEADS))
        mask = dense_bias(length, dtype, device) if dense is None else dense
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)

    def run() -> list[Tensor]:
        out = attend()
        return [out.detach(), *torch.autograd.grad(out, inputs, grad_out)]

    return run


def memory_work(*, way: str, length: int, device: str) -> Step:
    """For :func:`course_lib.bench.memory.workspaces`: the step, after a short one that loads the code."""
    training_step(way, min(length, 64), device)()
    return training_step(way, length, device)


def measure(bench: Comparison, *, length: int, dtypes: list[torch.dtype], claimed: list[torch.dtype]) -> None:
    """``alibi.memory``, where the dense bias counts, and ``alibi.time``, where it is there already.

    Made within the step, as by code that keeps none, the dense bias takes longer: a row in float32. ``claimed``: those
    of ``dtypes`` that are the machine's own. An emulated bf16 gives a row and no claim.
    """
    facts: dict[str, Any] = {"length": length, "dtype": "float32"}
    settings = [{"way": way, "length": length} for way in (TILED, DENSE)]
    ours, peer = bench.workspace("course_lib.bench.alibi:memory_work", settings, **facts)
    bench.claim("alibi.memory", ours / max(peer, 1), "<= 0.05")
    for dtype in dtypes:
        facts["dtype"] = str(dtype).removeprefix("torch.")
        tiled = training_step(TILED, length, bench.device, dtype)
        ready = training_step(DENSE, length, bench.device, dtype, bias_is_ready=True)
        times = bench.time(TILED, tiled, f"{DENSE} at hand", ready, **facts)
        del ready  # a number for each pair is a gigabyte
        if dtype in claimed:
            name, bound = BOUNDS[dtype]
            bench.claim(f"alibi.time.{name}", times.ratio, bound)
        if dtype == torch.float32:
            bench.time(TILED, tiled, f"{DENSE} made", training_step(DENSE, length, bench.device), **facts)
