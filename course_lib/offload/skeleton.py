"""A model without weights, whose layers get theirs for as long as they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from .staged_weights import StagedWeights

TABLES = ("embed.weight", "position_embed.weight")
"""Tensors of which a step reads rows, not all."""


class Skeleton:
    """A model of any family on "meta", and what its tensors are: ``layers``, ``tables``, ``head``, ``small``."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.config = model.config
        names = [name for name, _ in model.named_parameters()]
        self.layers = [
            tuple(name for name in names if name.startswith(f"layers.{number}."))
            for number in range(len(model.layers))
        ]
        self.tables = tuple(name for name in TABLES if name in names)
        self.head = "embed.weight" if self.config.tied_head else "head.weight"
        placed = {*self.tables, self.head, *(name for layer in self.layers for name in layer)}
        self.small = tuple(name for name in names if name not in placed)
        """Norms and projections outside the layers: always in memory."""

    @property
    def outside(self) -> tuple[str, ...]:
        """The tables and the head: a tied head is a table."""
        return tuple(dict.fromkeys((*self.tables, self.head)))

    @property
    def in_order(self) -> list[str]:
        """All tensors as they lie in a file: a layer's are neighbours."""
        return [*(name for layer in self.layers for name in layer), *self.outside, *self.small]

    def set_small(self, tensors: Mapping[str, Tensor]) -> None:
        for name in self.small:
            set_weight(self.model, name, tensors[name])

    def set_tables(self, weights: StagedWeights) -> None:
        for name in self.tables:
            owner, _ = name.rsplit(".", 1)
            setattr(self.model, owner, Table(weights, name))

    @contextmanager
    def layer(self, number: int, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Layer ``number`` with its ``tensors``, inside the context only: afterwards it has none."""
        for name in self.layers[number]:
            set_weight(self.model, name, tensors[name])
        try:
            yield self.model.layers[number]
        finally:
            for name in self.layers[number]:
                set_weight(self.model, name, torch.empty(0))


class Table(nn.Module):
    """An embedding whose rows may be on disk: those that are looked up are read, each once."""

    def __init__(self, weights: StagedWeights, name: str) -> None:
        super().__init__()
        self._weights, self._name = weights, name

    def forward(self, ids: Int64[Tensor, "*places"]) -> Float[Tensor, "*places width"]:
        wanted, places = ids.unique(return_inverse=True)
        return self._weights.rows(self._name, wanted)[places]


def set_weight(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Make ``tensor`` the parameter ``name`` of ``model``: no copy is made."""
    owner, own = name.rsplit(".", 1)
    setattr(model.get_submodule(owner), own, nn.Parameter(tensor, requires_grad=False))
