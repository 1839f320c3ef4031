"""How fast half precision is on a CPU, measured and not looked up: the choice of a precision rests on it, and the
doctor shows it."""

from __future__ import annotations

import statistics
import time

import torch


def half_speed(dtype: torch.dtype, *, size: int = 256, pairs: int = 9, budget: float = 1.0) -> float:
    """How many times as fast as fp32 a matrix product in `dtype` runs on the CPU (0.01 where it is emulated).

    The two are timed in turn and the ratio is taken pair by pair, since a machine's speed swings between
    one moment and the next. Stops early, with what it has, after `budget` seconds.
    """
    wide = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    narrow = wide.to(dtype)
    started, ratios = time.perf_counter(), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # beside other busy programs, a second thread is waited for longer than it helps
    try:
        for _ in range(pairs + 1):
            ratios.append(_product_seconds(wide) / _product_seconds(narrow))
            if time.perf_counter() - started > budget:
                break
    finally:
        torch.set_num_threads(threads)
    return statistics.median(ratios[1:] or ratios)  # the first pair also sets the kernels up


def _product_seconds(matrix: torch.Tensor) -> float:
    """The quickest of three: a small product is easily held up by other programs."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        torch.mm(matrix, matrix)
        seconds.append(time.perf_counter() - begin)
    return max(min(seconds), 1e-9)
