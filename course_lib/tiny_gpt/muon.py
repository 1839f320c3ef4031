"""Muon: steps that turn a matrix in all of its directions alike (Jordan et al. 2024).

The gradient of a weight matrix is mostly a few strong directions; AdamW, which scales each number by itself, follows
them and learns the weak ones late. Muon makes the update (nearly) orthogonal first. On the stories the tiny model
needs less than half the tokens for the same loss. ``torch.optim.Muon`` does the same in bfloat16, which takes most
of a second a step on a CPU without instructions for it; this one is at home there, in the weights' own precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

MOMENTUM = 0.95
# A polynomial whose fifth iterate takes every singular value from 0.01 to 1 to between 0.7 and 1.2 (Jordan et al.).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """For the matrices inside a model; embeddings, norms and biases go to another optimiser.

    An update has the root mean square of AdamW's, 0.2 * ``lr`` (Liu et al. 2025), so that one ``lr`` suits both.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(list(matrices), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            # Matrices of one shape go through the iteration together: few large products, not many small ones.
            alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.shape].append((weight, self._direction(weight, weight.grad)))
            for shape, pairs in alike.items():
                updates = orthogonalized(torch.stack([direction for _, direction in pairs]))
                size = group["lr"] * 0.2 * max(shape) ** 0.5
                for (weight, _), update in zip(pairs, updates, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=size)

    def _direction(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with the momentum of those before, looking one step ahead (Nesterov)."""
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(state["momentum"], MOMENTUM)


def orthogonalized(matrices: Float[Tensor, "count rows columns"]) -> Float[Tensor, "count rows columns"]:
    """Each matrix with its singular vectors kept and its singular values near 1, by Newton and Schulz."""
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT  # the product below is then the smaller of the two
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-12)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
