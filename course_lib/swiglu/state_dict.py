"""State dicts of gated feed-forwards: other names for the same weights, and shapes that do not fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

APART = (("w1", "w2", "w3"), ("gate_proj", "up_proj", "down_proj"))
"""Names of gate, up and the last projection where gate and up are kept apart: xFormers' and Llama's."""


def fuse(state_dict: dict[str, Any], prefix: str) -> None:
    """Join gate and up into ``w12`` in place, where the state dict has them apart under ``prefix``."""
    for gate, up, down in APART:
        if f"{prefix}{gate}.weight" not in state_dict or f"{prefix}{up}.weight" not in state_dict:
            continue
        for kind in ("weight", "bias"):
            halves = [f"{prefix}{name}.{kind}" for name in (gate, up)]
            if all(isinstance(state_dict.get(half), Tensor) for half in halves):
                first, second = (state_dict.pop(half) for half in halves)
                if first.shape != second.shape:
                    raise ValueError(
                        f"{halves[0]}, {halves[1]}: expected gate and up of one shape, got {list(first.shape)} and "
                        f"{list(second.shape)}. They are the two halves of w12."
                    )
                state_dict[f"{prefix}w12.{kind}"] = torch.cat((first, second))
            last = f"{prefix}{down}.{kind}"
            if last in state_dict:
                state_dict[f"{prefix}w3.{kind}"] = state_dict.pop(last)


def check_shapes(state_dict: dict[str, Any], prefix: str, module: nn.Module) -> None:
    """Raise ValueError at the first tensor whose shape is not that of the module's parameter of its name."""
    for name, parameter in module.named_parameters():
        given = state_dict.get(prefix + name)
        if isinstance(given, Tensor) and given.shape != parameter.shape:
            raise ValueError(
                f"{prefix}{name}: expected shape {list(parameter.shape)}, as {_sizes(module)} has it, got "
                f"{list(given.shape)} in the state dict. Make the module with the sizes that were saved: w12.weight is "
                "[2 * hidden_features, in_features], w3.weight [out_features, hidden_features]."
            )


def _sizes(module: Any) -> str:
    return f"{type(module).__name__}({module.in_features}, {module.hidden_features}, {module.out_features})"
