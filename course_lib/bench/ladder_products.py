"""The matrix products of a model's weights alone, at the speed of the machine: what model FLOP/s are held against."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models import GPT


@dataclass(frozen=True)
class Product:
    """``count`` weights [out, in], the products that one of them takes part in, and room for what comes of them."""

    count: int
    weight: Tensor
    inputs: Tensor
    gradient: Tensor
    outputs: Tensor
    input_gradient: Tensor
    weight_gradient: Tensor


class Products:
    """Forward, and backward to inputs and weights, of every projection, feed-forward and head of ``model``.

    All in ``dtype``, of up to ``tokens`` tokens, into memory that is there: nothing else is timed.
    """

    def __init__(self, model: GPT, tokens: int, dtype: torch.dtype, device: str = "cpu") -> None:
        shapes = Counter(tuple(p.shape) for p in model.layers.parameters() if p.dim() == 2)
        shapes[tuple(model.head.weight.shape)] += 1
        generator = torch.Generator(device).manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=device).to(dtype)

        self.products = [
            Product(
                count,
                drawn(rows, columns),
                drawn(tokens, columns),
                drawn(tokens, rows),
                drawn(tokens, rows),
                drawn(tokens, columns),
                drawn(rows, columns),
            )
            for (rows, columns), count in shapes.items()
        ]

    def flops(self, tokens: int) -> int:
        """Of ``run(tokens)``: a multiplication and an addition for each weight and token, three times."""
        return 6 * tokens * sum(product.count * product.weight.numel() for product in self.products)

    @torch.no_grad()
    def run(self, tokens: int) -> None:
        for product in self.products:
            x, g = product.inputs[:tokens], product.gradient[:tokens]
            for _ in range(product.count):
                torch.mm(x, product.weight.T, out=product.outputs[:tokens])
                torch.mm(g, product.weight, out=product.input_gradient[:tokens])
                torch.mm(g.T, x, out=product.weight_gradient)
