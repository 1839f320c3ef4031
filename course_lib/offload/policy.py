"""What lies where, and in which order it is computed: the decisions of an offloaded run."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .placement import TIERS

BITS = (None, 8, 4)


@dataclass(frozen=True)
class OffloadPolicy:
    """Where weights, KV cache and activations lie, and how many prompts share a load of the weights.

    ``weights``, ``cache`` and ``activations`` are fractions of their bytes on (device, host, disk) and sum to 1.
    ``batch_size`` prompts are computed at once, ``num_batches`` such batches share each load of a layer: a *block*.
    ``weight_bits`` and ``cache_bits``: None for the dtype that they have, 8 or 4. ``overlap`` False does one thing
    after another, for comparison.
    """

    weights: tuple[float, float, float] = (1, 0, 0)
    cache: tuple[float, float, float] = (1, 0, 0)
    activations: tuple[float, float, float] = (1, 0, 0)
    batch_size: int = 1
    num_batches: int = 1
    weight_bits: int | None = None
    cache_bits: int | None = None
    overlap: bool = True

    def __post_init__(self) -> None:
        for name in ("weights", "cache", "activations"):
            object.__setattr__(self, name, _fractions(name, getattr(self, name)))
        for name in ("batch_size", "num_batches"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        for name in ("weight_bits", "cache_bits"):
            bits = getattr(self, name)
            if bits not in BITS or isinstance(bits, bool):
                raise ValueError(f"{name}: expected None (as stored), 8 or 4, got {bits!r}.")
        if not isinstance(self.overlap, bool):
            raise TypeError(f"overlap: expected True or False, got {self.overlap!r}.")

    @property
    def block_size(self) -> int:
        """Prompts that share a load of the weights."""
        return self.batch_size * self.num_batches


def _fractions(name: str, value: Any) -> tuple[float, float, float]:
    tiers = ", ".join(TIERS)
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != len(TIERS):
        raise TypeError(f"{name}: expected three fractions ({tiers}), got {value!r}.")
    if not all(isinstance(part, numbers.Real) and not isinstance(part, bool) for part in value):
        raise TypeError(f"{name}: expected three numbers ({tiers}), got {value!r}.")
    parts = [float(part) for part in value]
    if not all(math.isfinite(part) and 0 <= part <= 1 for part in parts):
        hint = " Percentages are divided by 100." if any(part > 1 for part in parts) else ""
        raise ValueError(f"{name}: expected fractions from 0 to 1, got {value!r}.{hint}")
    if not math.isclose(sum(parts), 1, abs_tol=1e-6):
        raise ValueError(
            f"{name}: expected fractions of ({tiers}) that sum to 1, got {value!r}, which sum to {sum(parts):g}. Give "
            "what is missing to one of the tiers."
        )
    return parts[0], parts[1], parts[2]


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: expected a whole number of at least 1, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}.")
    return int(value)
