"""A bound on the kernels that half precision on a CPU keeps: one for every length that a packed row ever had."""

from __future__ import annotations

import os

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KEPT = 128


def bound_kernel_caches() -> None:
    """Let oneDNN and PyTorch keep at most 128 compiled kernels each, unless the environment says otherwise.

    Both keep one for each of the last 1,024 shapes of a product in half precision on a CPU, and packed rows have all
    lengths: some 800 MiB within 60 steps of a tiny model. With 128 it is 120 MiB, at the same speed. Both variables
    are needed, and are read at the first such product of the process: ``train`` and ``python -m course_lib train``
    call this before it; a notebook or a measurement that computes in bf16 before it trains does so at its beginning.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, str(KEPT))
