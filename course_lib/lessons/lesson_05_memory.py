"""What lesson 05 measures in a process of its own: attention with ALiBi, the bias as one tensor or in tiles."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, attention
from course_lib.bench.memory import workspaces

FORMS = ("dense", "tiled")


def alibi_workspaces(lengths: list[int], *, form: str, num_heads: int = 8, head_dim: int = 64) -> list[int]:
    """The workspace in bytes of one causal attention with ALiBi, forward and backward in float32, at each length.

    form: "dense" writes the whole bias out, [num_heads, length, length], and hands it to PyTorch's fused kernel;
    "tiled" is ``attention(…, Causal() + ALiBi(num_heads))`` in tiles. What is above inputs, output and gradients
    counts, a dense bias too.
    """
    if form not in FORMS:
        raise ValueError(f"form: expected one of {', '.join(map(repr, FORMS))}, got {form!r}.")
    settings = [dict(length=n, form=form, num_heads=num_heads, head_dim=head_dim) for n in lengths]
    return workspaces("course_lib.lessons.lesson_05_memory:alibi_work", settings)


def dense_bias(length: int, num_heads: int) -> Tensor:
    """[num_heads, length, length] float32: causal ALiBi as one tensor, made without a second one of its size."""
    positions = torch.arange(length)
    distance = (positions[:, None] - positions).float()
    bias = distance * -alibi_slopes(num_heads)[:, None, None]
    return bias.masked_fill_(distance < 0, -torch.inf)


def alibi_work(*, length: int, form: str, num_heads: int, head_dim: int) -> Callable[[], list[Tensor]]:
    """Inputs of one sequence, and the function that attends and differentiates."""

    def inputs(n: int) -> list[Tensor]:
        shape = (1, n, num_heads, head_dim)
        return [torch.randn(shape, requires_grad=True) for _ in range(3)] + [torch.randn(shape)]

    def step(query: Tensor, key: Tensor, value: Tensor, grad_out: Tensor) -> list[Tensor]:
        if form == "tiled":
            out = attention(query, key, value, Causal() + ALiBi(num_heads), backend="tiled")
        else:
            bias = dense_bias(query.shape[1], num_heads)
            q, k, v = (t.transpose(1, 2) for t in (query, key, value))  # [batch, heads, length, head_dim]
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]).transpose(1, 2)
        return [out.detach(), *torch.autograd.grad(out, (query, key, value), grad_out)]

    step(*inputs(64))  # threads, code and lookup tables are the process's, not the work's
    tensors = inputs(length)
    return lambda: step(*tensors)
