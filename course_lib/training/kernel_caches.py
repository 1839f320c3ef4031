"""A bound on the kernels that half precision on a CPU keeps: one for every length that a packed row ever had."""

from __future__ import annotations

import os

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KEPT = 256


def bound_kernel_caches() -> None:
    """Let oneDNN and PyTorch keep at most 256 compiled kernels each, unless the environment says otherwise.

    Both keep one for each of the last 1,024 shapes of a product in half precision on a CPU, and packed rows have all
    lengths. Training the ladder's top rung (lesson 08) for 24 steps, a process grew by 1,076 MiB so, and by 710 with
    256 of each, at the same speed; with 128 it grew less, and was a fifth slower. Both variables
    are needed, and are read at the first such product of the process: ``train`` and ``python -m course_lib train``
    call this before it; a notebook or a measurement that computes in bf16 before it trains does so at its beginning.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, str(KEPT))
