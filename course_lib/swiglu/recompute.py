"""A gated feed-forward that keeps its input for the backward, and nothing else.

Eager PyTorch keeps what each step of ``w3(act(gate) * up)`` will need again: gate and up (one product, 2 ``hidden``
numbers a token), act(gate) and its product with up (another 2), beside the input. All of that follows from the input
by one matrix product, and feed-forwards are the cheapest part of a model to compute twice: of three products the
backward repeats one, 11 units of work in place of 9 (Chen et al. 2016, "Training deep nets with sublinear memory
cost", for one layer). With h = act(gate) * up and dH = dO W3:

    dW3 = dOᵀ h        d(up) = dH * act(gate)        d(gate) = dH * up * act'(gate)
    dX  = [d(gate), d(up)] W12                       dW12 = [d(gate), d(up)]ᵀ X

Both directions go through the tokens some at a time, so what is in between is never whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from .activation import Activation

Weights = tuple[Tensor, Tensor | None, Tensor, Tensor | None]
"""w12, b12, w3, b3."""

TOKENS_AT_ONCE = 2048
"""On a CPU. Fewer save memory, but threads wait for each other at the end of every piece."""
TOKENS_AT_ONCE_ON_A_GPU = 16384


def recomputed(
    x: Float[Tensor, "*tokens in_features"],
    w12: Float[Tensor, "twice_hidden in_features"],
    b12: Float[Tensor, "twice_hidden"] | None,
    w3: Float[Tensor, "out_features hidden"],
    b3: Float[Tensor, "out_features"] | None,
    activation: Activation,
    dtype: torch.dtype,
) -> Float[Tensor, "*tokens out_features"]:
    """``w3(act(gate) * up)``, where gate and up are the halves of ``w12(x)``; computed and returned in ``dtype``."""
    return _Recomputed.apply(x, w12, b12, w3, b3, activation, dtype)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(x, w12, b12, w3, b3, activation, dtype):
        with _no_autocast(x.device):
            weights = _cast((w12, b12, w3, b3), dtype)
            out = x.new_empty(*x.shape[:-1], len(w3), dtype=dtype)
            for rows, out_rows in zip(_some_at_once(x), _some_at_once(out), strict=True):
                out_rows.copy_(_gated(rows.to(dtype), weights, activation))
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.activation, ctx.dtype = inputs
        # The tensors as they came, not as autocast has them: weights are kept anyway, and an input often is.
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, grad_out):
        x, *weights = ctx.saved_tensors
        gradients = _gradients
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            gradients = _differentiable_gradients  # backward(create_graph=True)
        # Autograd runs this outside of the forward's autocast, or a user inside of another: dtype says what it was.
        with _no_autocast(grad_out.device):
            found = gradients(x, tuple(weights), ctx.needs_input_grad, grad_out, ctx.activation, ctx.dtype)
        return *found, None, None


def _gated(x: Tensor, weights: Weights, activation: Activation) -> Tensor:
    w12, b12, w3, b3 = weights
    gate, up = F.linear(x, w12, b12).chunk(2, dim=-1)
    return F.linear(activation.function(gate) * up, w3, b3)


def _gradients(
    x: Tensor,
    weights: Weights,
    needed: Sequence[bool],
    grad_out: Tensor,
    activation: Activation,
    dtype: torch.dtype,
) -> list[Tensor | None]:
    """Those of (x, w12, b12, w3, b3) that are needed, None for the others."""
    w12, b12, w3, _ = _cast(weights, dtype)
    # Gradients of weights are sums over many tokens, so half ones are summed in single precision.
    sum_dtype = torch.promote_types(dtype, torch.float32)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device) if needed[0] else None
    grad_w12, grad_b12, grad_w3, grad_b3 = (
        torch.zeros(weight.shape, dtype=sum_dtype, device=weight.device)
        if weight is not None and need
        else None
        for weight, need in zip(weights, needed[1:5], strict=True)
    )
    for number, (rows, grad_rows) in enumerate(zip(_some_at_once(x), _some_at_once(grad_out), strict=True)):
        if grad_b3 is not None:
            grad_b3 += grad_rows.sum(0, dtype=sum_dtype)
        if not any(needed[:4]):
            continue
        rows = rows.to(dtype)
        gate, up = F.linear(rows, w12, b12).chunk(2, dim=-1)
        opened = activation.function(gate)
        if grad_w3 is not None:
            _add_product(grad_w3, grad_rows.T, opened * up)
        if not any(needed[:3]):
            continue
        grad_hidden = grad_rows @ w3
        grad_12 = torch.cat((activation.backward(grad_hidden * up, gate), grad_hidden * opened), dim=-1)
        if grad_w12 is not None:
            _add_product(grad_w12, grad_12.T, rows)
        if grad_b12 is not None:
            grad_b12 += grad_12.sum(0, dtype=sum_dtype)
        if grad_x is not None:
            _some_at_once(grad_x)[number].copy_(grad_12 @ w12)
    of_weights = zip((grad_w12, grad_b12, grad_w3, grad_b3), weights, strict=True)
    return [grad_x, *(None if g is None or w is None else g.to(w.dtype) for g, w in of_weights)]


def _differentiable_gradients(
    x: Tensor,
    weights: Weights,
    needed: Sequence[bool],
    grad_out: Tensor,
    activation: Activation,
    dtype: torch.dtype,
) -> list[Tensor | None]:
    """The same, to be differentiated once more: autograd keeps what it keeps for eager PyTorch."""
    # Where a layer is used twice, its second input depends on its weights. A gradient with respect to an alias stops
    # there; with respect to the tensors it would follow that path too, which autograd does by itself.
    alias = x.view_as(x)
    aliases = _each(lambda weight: weight.view_as(weight), weights)
    out = _gated(alias.to(dtype), _cast(aliases, dtype), activation)
    wanted = [
        tensor
        for tensor, need in zip((alias, *aliases), needed[:5], strict=True)
        if need and tensor is not None
    ]
    found = iter(torch.autograd.grad(out, wanted, grad_out, create_graph=True))
    return [next(found) if need else None for need in needed[:5]]


def _no_autocast(device: torch.device) -> AbstractContextManager[object]:
    known = torch.amp.is_autocast_available(device.type)  # not on "meta", for one
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def _each(function: Callable[[Tensor], Tensor], weights: Weights) -> Weights:
    w12, b12, w3, b3 = weights
    return (
        function(w12),
        None if b12 is None else function(b12),
        function(w3),
        None if b3 is None else function(b3),
    )


def _cast(weights: Weights, dtype: torch.dtype) -> Weights:
    return _each(lambda weight: weight.to(dtype), weights)


def _some_at_once(tensor: Tensor) -> tuple[Tensor, ...]:
    """[*tokens, features] as pieces [some tokens, features]."""
    tokens = TOKENS_AT_ONCE if tensor.device.type == "cpu" else TOKENS_AT_ONCE_ON_A_GPU
    return tensor.reshape(-1, tensor.shape[-1]).split(tokens)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b"""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b
