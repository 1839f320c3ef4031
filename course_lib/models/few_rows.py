"""Products of a few rows with large weights, as decoding makes them: one row for each sequence of the batch.

Such a product costs the reading of its weight and little else, if it is computed so. PyTorch's ``F.linear`` hands
float32 to MKL's ``sgemm``, which is made for many rows: on the AMD EPYC (2 cores, AVX-512) where all this was measured
it copies the weight into an order of its own first, and that takes two thirds of the time of 8 rows (``perf`` shows
``sgemm_scopy``). oneDNN, which PyTorch brings along, copies nothing and is more than twice as fast from 1 row to 64. In
bfloat16 both are the same routine, and 1.4 to 1.6 times as fast at 8 rows on a weight that has been put into oneDNN's
order beforehand. In float32 that order gains as much, but needs twice the memory: taking it for the first time cost
more than a hundred steps save, so that none is made.

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

MOST_ROWS = 64
"""More are a matrix product like any other, bound by arithmetic; measured up to here."""
ORDERED_BYTES = 2**30
"""Weights in an order of their own are a second copy: up to this many bytes of a model's get one, the rest none."""
STEPS_TO_REPAY = 32
"""Putting a weight in order costs as much as some twenty steps save."""


@contextmanager
def few_rows(model: nn.Module, rows: int, *, steps: int) -> Iterator[None]:
    """Inside, ``model``'s linear layers multiply up to ``MOST_ROWS`` rows in the fastest way known, and
    afterwards as before.

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
    """Whether oneDNN is the faster one for this weight, as far as it has been measured: never on ARM."""
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
