"""A model's layers in four or eight bits (lesson 12)."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from .quantize import checked_groups, quantize
from .quantized_linear import QuantizedLinear

Model = TypeVar("Model", bound=nn.Module)


def quantize_model(
    model: Model, bits: int, *, group_size: int | None = 64, symmetric: bool = False, fast: bool = True
) -> Model:
    """``model`` itself, the ``nn.Linear`` of its layers being replaced by ``QuantizedLinear`` of ``bits`` a number.

    Embeddings, norms, biases and the head, which is often the embedding itself, stay as they are: they are read by
    every token, and are a small part of a large model. One weight after another is quantized and let go, so that no
    more than the model and one weight is ever held. The model is then for inference only.

    Raises TypeError or ValueError that names the weight, before any is replaced.
    """
    layers: Any = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise TypeError(
            f"model: expected one whose .layers are an nn.ModuleList, as load_model() returns it, got "
            f"{type(model).__name__}."
        )
    found = [
        (parent, name, f"layers.{place}.{name}".replace("..", "."))
        for place, parent in layers.named_modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not found:
        raise ValueError(
            "model: expected nn.Linear among its layers, got none. Has it been quantized before?"
        )
    for parent, name, full in found:
        _check_weight(full, getattr(parent, name), bits, group_size, symmetric)
    for parent, name, _ in found:
        linear = getattr(parent, name)
        quantized = QuantizedLinear.from_linear(
            linear, bits=bits, group_size=group_size, symmetric=symmetric, fast=fast
        )
        setattr(parent, name, quantized.train(linear.training))
        if hasattr(parent, "recompute"):
            parent.recompute = False  # saves memory of a backward, and reads the weight past the layer
    return model


@torch.no_grad()
def _check_weight(name: str, linear: nn.Linear, bits: int, group_size: int | None, symmetric: bool) -> None:
    checked_groups(bits, group_size, linear.in_features)
    if linear.weight.is_meta:
        raise ValueError(
            f"model: expected weights that have numbers, got {name}.weight on meta. Load the model first."
        )
    try:
        # Two numbers tell as much as all: the smallest and the largest.
        quantize(torch.stack(torch.aminmax(linear.weight.detach())), bits=8, symmetric=symmetric)
    except ValueError as error:
        raise ValueError(f"model: {name}.weight cannot be quantized. {error}") from None
