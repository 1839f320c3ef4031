"""How many bytes a computation keeps for its backward, parameters left out: counted, not sampled.

Autograd hands every tensor that it keeps to ``torch.autograd.graph.saved_tensors_hooks``, those that an
``autograd.Function`` gives to ``ctx.save_for_backward`` too. What a function hides elsewhere (``ctx.x = x``) is not
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Saved:
    """A piece of memory kept for the backward: its size, and the first tensor that is kept in it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int


def saved_bytes(function: Callable[[], object]) -> int:
    """The sum of :func:`saved_tensors`: ``saved_bytes(lambda: layer(x))``."""
    return sum(saved.bytes for saved in saved_tensors(function))


def saved_tensors(function: Callable[[], object]) -> list[Saved]:
    """What ``function()`` keeps for its backward, in the order in which it is kept.

    Memory counts once, however many tensors are kept in it, and whole: a view keeps all of the memory that it looks
    into. So the two halves of one product are one entry. An input counts, be it used elsewhere or not. An
    ``nn.Parameter``, frozen or not, does not count, nor does a view of one; a copy of one does, such as autocast makes.
    """
    kept: list[
        Tensor
    ] = []  # held until the end, so that no memory is used a second time and taken for the first

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with _SeenParameters() as seen, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()
    counted = {_memory(parameter) for parameter in seen.parameters}
    found = []
    for tensor in kept:
        if _memory(tensor) not in counted:
            counted.add(_memory(tensor))
            found.append(Saved(tuple(tensor.shape), tensor.dtype, tensor.untyped_storage().nbytes()))
    del result
    return found


class _SeenParameters(TorchFunctionMode):
    """Collects the parameters that PyTorch's functions are given: the hooks see them as plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters: list[nn.Parameter] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs))
        self.parameters += [leaf for leaf in leaves if isinstance(leaf, nn.Parameter)]
        return func(*args, **(kwargs or {}))


def _memory(tensor: Tensor) -> int:
    """Equal for tensors that share memory, on any device (on "meta" all addresses are 0)."""
    return tensor.untyped_storage()._cdata
