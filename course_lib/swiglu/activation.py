"""The functions that open and close a gate, each with its derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# PyTorch's own kernels for derivatives: one pass each, and in half precision they round once, not at every step.
aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """A function of single numbers, by name.

    ``function(gate)`` is its value, and ``backward(grad, gate)`` is ``grad`` times its derivative at ``gate``; both
    return tensors of the shape of ``gate``, and neither may change what it is given.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


SIGMOID = Activation("sigmoid", torch.sigmoid, lambda grad, gate: aten.sigmoid_backward(grad, gate.sigmoid()))
"""σ(z) = 1 / (1 + exp(-z)); σ' = σ (1 - σ)."""

SILU = Activation("silu", F.silu, lambda grad, gate: aten.silu_backward(grad, gate))
"""silu(z) = z σ(z), also called Swish; silu' = σ (1 + z (1 - σ))."""

GELU = Activation("gelu", F.gelu, lambda grad, gate: aten.gelu_backward(grad, gate))
"""gelu(z) = z Φ(z), with Φ the normal distribution function and not its tanh approximation; gelu' = Φ + z φ."""

RELU = Activation("relu", F.relu, lambda grad, gate: aten.threshold_backward(grad, gate, 0))
"""relu(z) = max(z, 0); relu' is 1 above 0 and 0 elsewhere."""

IDENTITY = Activation("identity", lambda gate: gate, lambda grad, gate: grad)
"""The gate as it is."""
