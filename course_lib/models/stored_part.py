"""Where a checkpoint keeps what a model calls by another name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StoredPart:
    """The tensor ``own`` of a model's state dict: ``stored`` in a checkpoint, without the prefix that differs."""

    own: str
    stored: str
    take: Callable[[Tensor], Tensor] | None = None
    """What of the stored tensor it is; None: all of it."""
    optional: bool = False
    """Whether checkpoints may leave it out: a tied head's weight is the embedding's."""
