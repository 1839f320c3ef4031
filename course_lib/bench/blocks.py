"""What lessons 03 to 06 claim of their building blocks: memory and time, against the usual way to write each."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import alibi, grouped, packed, swiglu
from .comparison import Comparison, Progress
from .report import Report, this_machine

NATIVE_BF16 = {"AVX-512 bf16", "AMX bf16", "Arm bf16"}
"""CPU features without which bf16 is emulated, and its time says nothing."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of a sequence, of a cache and of a training step (the claim is of ``claimed_tokens``), and pairs of
    timings (None: as many as it needs)."""

    length: int = 4096
    cache_length: int = 8192
    batch_tokens: tuple[int, ...] = (1024, 2048, 4096)
    claimed_tokens: int = 2048
    pairs: int | None = None


QUICK = Sizes(length=512, cache_length=512, batch_tokens=(1024,), claimed_tokens=1024, pairs=3)


def run(
    *, device: str = "cpu", quick: bool = False, progress: Progress = lambda name, done, of: None
) -> Report:
    """Measure everything. ``quick`` takes short sequences and shows that it runs, not what holds.

    On CUDA: the same work in every dtype that the GPU has, without claims.
    """
    report = Report("blocks", this_machine(device), quick=quick)
    sizes = QUICK if quick else Sizes()
    bench = Comparison(report, device, sizes.pairs, progress)
    single, half = [torch.float32], [torch.bfloat16]
    if device == "cuda":
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        dtypes = [*single, torch.float16, *(half if bf16 else [])]
        with_alibi, claimed = dtypes, single
    else:
        dtypes, with_alibi = single, single + half
        native = NATIVE_BF16 & set(report.machine["cpu"]["features"])
        claimed = with_alibi if native else single
    grouped.measure(bench, length=sizes.length, cache_length=sizes.cache_length, dtypes=dtypes)
    packed.measure(bench, batch_tokens=sizes.batch_tokens, claimed=sizes.claimed_tokens)
    alibi.measure(bench, length=sizes.length, dtypes=with_alibi, claimed=claimed)
    swiglu.measure(bench, tokens=sizes.length, dtypes=dtypes)
    return report
