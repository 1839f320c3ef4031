"""Gated feed-forwards written a second time, one token at a time, and layers with every parameter random."""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from course_lib.swiglu import GLU, Bilinear, GatedFeedForward, GeGLU, ReGLU, SwiGLU

GATES = [SwiGLU, GeGLU, ReGLU, GLU, Bilinear]

ACTIVATIONS = {
    SwiGLU: lambda z: z / (1 + torch.exp(-z)),
    GeGLU: lambda z: z * (1 + torch.erf(z / math.sqrt(2))) / 2,
    ReGLU: lambda z: torch.where(z > 0, z, torch.zeros_like(z)),
    GLU: lambda z: 1 / (1 + torch.exp(-z)),
    Bilinear: lambda z: z,
}

Module = TypeVar("Module", bound=nn.Module)


def randomised(module: Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> Module:
    """Every parameter random: default initialisation hides missing terms."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
    return module.to(dtype)


def twins(layer: GatedFeedForward) -> tuple[GatedFeedForward, GatedFeedForward]:
    """The layer and a copy of it that recomputes."""
    again = copy.deepcopy(layer)
    again.recompute = True
    return layer, again


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def one_token(layer: GatedFeedForward, token: Tensor) -> Tensor:
    """[in_features] to [out_features], number by number of the hidden layer."""
    w12, b12, w3, b3 = (layer.w12.weight, layer.w12.bias, layer.w3.weight, layer.w3.bias)
    hidden = layer.hidden_features
    out = torch.zeros(layer.out_features, dtype=token.dtype) if b3 is None else b3
    for i in range(hidden):
        gate, up = (w12[i] * token).sum(), (w12[hidden + i] * token).sum()
        if b12 is not None:
            gate, up = gate + b12[i], up + b12[hidden + i]
        out = out + w3[:, i] * ACTIVATIONS[type(layer)](gate) * up
    return out


def gradients(layer: nn.Module, x: Tensor, seed: int = 9) -> list[Tensor]:
    """Of a random weighting of the output, with respect to x and every parameter that asks for it."""
    leaves = [t for t in (x, *layer.parameters()) if t.requires_grad]
    out = layer(x)
    return list(torch.autograd.grad(out, leaves, randn(*out.shape, seed=seed).to(out.dtype)))


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for got, want in zip(found, expected, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        assert (got - want).double().norm() <= tolerance * want.double().norm() + tolerance * 1e-3
