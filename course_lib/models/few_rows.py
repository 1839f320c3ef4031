"""Products of a few rows with large weights, as decoding makes them: one row for each sequence of the batch.

Such a product costs the reading of its weight and little else, if it is computed so. PyTorch's ``F.linear`` hands
float32 to a routine made for many rows, which copies each weight into its own order before it multiplies: with 8 rows
it gets through 10 GB of weights a second on a core that reads a float32 weight at 27 GB/s with one. oneDNN, which
PyTorch brings along, needs no such copy in float32 (15 to 17 GB/s), and in bfloat16 runs 1.7 times as fast as
``F.linear`` on weights that have been put into its order beforehand.

:func:`few_rows` lets a model's ``nn.Linear`` layers use it for a while. Parameters, state dicts and gradients are
untouched: with gradients, with more rows, and on other devices the layers compute as ever.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

MOST_ROWS = 16
"""More are a matrix product like any other; measured up to here."""
ORDERED_BYTES = 2**30
"""Weights in an order of their own are a second copy: up to this many bytes of a model's get one, the rest none."""
STEPS_TO_REPAY = 32
"""Putting a weight in order costs as much as some twenty steps save."""


@contextmanager
def few_rows(model: nn.Module, rows: int, *, steps: int) -> Iterator[None]:
    """Inside, ``model``'s linear layers multiply up to 16 rows in the fastest way known; afterwards as before.

    ``rows`` is how many are to be expected, ``steps`` how many times. Weights in bfloat16 get a second copy, in
    oneDNN's order, if that repays itself; it is dropped at the end, so weights must not change inside.
    """
    changed = []
    room = ORDERED_BYTES if steps >= STEPS_TO_REPAY else 0
    try:
        if rows <= MOST_ROWS and not torch.is_grad_enabled():
            for layer in model.modules():
                # Another class, or a forward that somebody put there, may do anything.
                if type(layer) is not nn.Linear or "forward" in vars(layer) or not _is_faster(layer.weight):
                    continue
                ordered = layer.weight.detach()
                if ordered.dtype == torch.bfloat16:
                    if ordered.nbytes > room:
                        continue
                    room -= ordered.nbytes
                    ordered = torch.ops.mkldnn._reorder_linear_weight(ordered, rows)
                vars(layer)["forward"] = _forward(layer, ordered)
                changed.append(layer)
        yield
    finally:
        for layer in changed:
            vars(layer).pop("forward", None)


def _is_faster(weight: Tensor) -> bool:
    """Whether oneDNN is the faster one for this weight, as far as it has been measured: on x86."""
    if weight.device.type != "cpu" or weight.layout != torch.strided or not weight.is_contiguous():
        return False
    if type(weight.data) is not Tensor or not weight.numel() or platform.machine() not in ("x86_64", "AMD64"):
        return False
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    bf16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or bf16


def _forward(layer: nn.Linear, ordered: Tensor) -> Callable[[Tensor], Tensor]:
    weight, bias, product = layer.weight, layer.bias, torch.ops.mkldnn._linear_pointwise
    width, dtype = layer.in_features, weight.dtype

    def forward(x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows out"]:
        few = 0 < x.numel() <= MOST_ROWS * width and x.shape[-1] == width and x.dtype == dtype
        if few and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu"):
            return product(x.contiguous(), ordered, bias, "none", [], "")
        return F.linear(x, weight, bias)

    return forward
