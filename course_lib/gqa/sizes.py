"""The sizes that heads and caches are made of: what fits, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import torch

# One check and one wording for whole numbers, here and in attention.
from course_lib.attention.bias import as_whole_number


def checked_sizes(at_least: int = 1, **sizes: Any) -> tuple[int, ...]:
    """The sizes as ints. Raises TypeError or ValueError that names the first which is no whole number, or too small."""
    return tuple(as_whole_number(name, size, at_least) for name, size in sizes.items())


def check_groups(num_heads: int, num_kv_heads: int) -> None:
    """Raise ValueError if the query heads cannot share the kv heads evenly."""
    if num_heads % num_kv_heads:
        divisors = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        raise ValueError(
            f"num_kv_heads: expected a divisor of num_heads = {num_heads} ({divisors}), got {num_kv_heads}. Each kv "
            "head serves the same number of query heads."
        )


def kv_cache_bytes(
    *, batch: int, length: int, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> int:
    """Bytes of the keys and values of ``length`` tokens of ``batch`` sequences, over all layers.

    ``2 * batch * length * num_layers * num_kv_heads * head_dim`` numbers, the 2 for keys and values.
    """
    a_token = checked_sizes(num_layers=num_layers, num_kv_heads=num_kv_heads, head_dim=head_dim)
    tokens = checked_sizes(at_least=0, batch=batch, length=length)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype: expected a torch.dtype such as torch.float16, got {dtype!r}.")
    return 2 * math.prod(tokens) * math.prod(a_token) * dtype.itemsize
