"""What lessons 01 and 02 claim of attention: memory and time, against PyTorch's own kernel called directly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention import AttentionBias, Causal, Segments, attention, available_backends
from .comparison import Comparison, Progress, Step
from .measure import Paired
from .memory import attention_workspaces
from .report import Report, this_machine

HEADS, HEAD_DIM, WINDOW = 8, 64, 256


@dataclass(frozen=True)
class Sizes:
    """Tokens of the usual and of the long sequence, packed documents, pairs of timings (None: as many as it needs)."""

    length: int = 4096
    long_length: int = 8192
    documents: int = 64
    pairs: int | None = None


QUICK = Sizes(length=512, long_length=1024, documents=8, pairs=3)


def packed_lengths(count: int = 64, seed: int = 0) -> list[int]:
    """Document lengths as they come: log-normal (mu 4.5, sigma 1.0), clipped to 8–512 tokens."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(count, dtype=torch.float64).log_normal_(4.5, 1.0, generator=generator)
    return drawn.round().clamp(8, 512).int().tolist()


def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """PyTorch's causal attention, called directly; [batch, length, heads, head_dim] in and out."""
    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def step(
    function: Callable[[Tensor, Tensor, Tensor], Tensor],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: str,
) -> Step:
    """Forward and backward of attention on random inputs of this shape, ready to run."""
    generator = torch.Generator(device).manual_seed(0)
    *inputs, grad_out = (torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(4))
    for tensor in inputs:
        tensor.requires_grad_()

    def run() -> object:
        out = function(*inputs)
        return torch.autograd.grad(out, inputs, grad_out)

    return run


def ours(bias: AttentionBias | None, backend: str = "auto") -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda query, key, value: attention(query, key, value, bias, backend=backend)


def loop_over(lengths: list[int]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """What one writes without a library: PyTorch's kernel on each segment in turn."""

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = zip(*(tensor.split(lengths, dim=1) for tensor in (query, key, value)), strict=True)
        return torch.cat([sdpa(*part) for part in parts], dim=1)

    return run


def run(
    *, device: str = "cpu", quick: bool = False, progress: Progress = lambda name, done, of: None
) -> Report:
    """Measure everything. ``quick`` takes a few short sequences and shows that it runs, not what holds."""
    report = Report("attention", this_machine(device), quick=quick)
    sizes = QUICK if quick else Sizes()
    return _on_cuda(report, sizes, progress) if device == "cuda" else _on_cpu(report, sizes, progress)


def _on_cpu(report: Report, sizes: Sizes, progress: Progress) -> Report:
    _memory(report, sizes, progress)
    bench = _Bench(report, "cpu", sizes.pairs, progress)
    shape = (1, sizes.length, HEADS, HEAD_DIM)
    single = torch.float32
    times = bench.compare("tiled", ours(Causal(), "tiled"), shape, "sdpa", sdpa, shape, single)
    report.claim("tiled.time.fp32", times.ratio, "<= 1.6")
    if "AMX bf16" in report.machine["cpu"]["features"]:
        half = torch.bfloat16
        times = bench.compare("tiled, bf16", ours(Causal(), "tiled"), shape, "sdpa, bf16", sdpa, shape, half)
        report.claim("tiled.time.bf16", times.ratio, "<= 2.5")
    times = bench.compare("auto", ours(Causal()), shape, "sdpa", sdpa, shape, single)
    report.claim("auto.overhead", times.ratio, "<= 1.05")

    lengths = packed_lengths(sizes.documents)
    packed, bias = (1, sum(lengths), HEADS, HEAD_DIM), Segments(lengths, inner=Causal())
    padded = (len(lengths), max(lengths), HEADS, HEAD_DIM)
    times = bench.compare("padded batch, sdpa", sdpa, padded, "packed", ours(bias), packed, single)
    report.claim("packed.speedup", times.ratio, ">= 3")
    times = bench.compare("loop of sdpa", loop_over(lengths), packed, "packed", ours(bias), packed, single)
    report.claim("packed.over_loop", times.ratio, ">= 0.95")

    long = (1, sizes.long_length, HEADS, HEAD_DIM)
    window = ours(Causal(window=WINDOW))
    times = bench.compare("sdpa, full causal", sdpa, long, "window of 256", window, long, single)
    report.claim("window.speedup", times.ratio, ">= 3.5")
    return report


def _memory(report: Report, sizes: Sizes, progress: Progress) -> None:
    lengths = [sizes.length // 2, sizes.length, sizes.length * 2]
    progress("workspace of tiled", 0, 2)
    tiled = attention_workspaces(lengths, backend="tiled")
    progress("workspace of the reference", 1, 2)
    reference = attention_workspaces(lengths[:2], backend="reference")
    progress("workspace", 2, 2)
    for name, found in (("tiled", tiled), ("reference", reference)):
        for length, workspace in zip(lengths, found, strict=False):
            report.rows.append(
                {
                    "name": f"workspace, {name}",
                    "length": length,
                    "workspace_bytes": workspace,
                    "dtype": "float32",
                }
            )
    report.claim("tiled.memory", tiled[1] / reference[1], "<= 0.04")
    doublings = [after / max(before, 1) for before, after in pairwise(tiled)]
    report.claim("tiled.memory.doubling", max(doublings), "<= 2.3")


class _Bench(Comparison):
    def compare(
        self,
        name: str,
        function: Any,
        shape: Any,
        peer: str,
        peer_function: Any,
        peer_shape: Any,
        dtype: torch.dtype,
    ) -> Paired:
        """Seconds of ``name`` and of ``peer``, forward and backward of attention on inputs of these shapes."""
        return self.time(
            name,
            step(function, shape, dtype, self.device),
            peer,
            step(peer_function, peer_shape, dtype, self.device),
            dtype=str(dtype).removeprefix("torch."),
        )


def _on_cuda(report: Report, sizes: Sizes, progress: Progress) -> Report:
    """Every backend that can, on every workload: figures, no claims (the bounds are those of a CPU)."""
    bench = _Bench(report, "cuda", sizes.pairs, progress)
    lengths = packed_lengths(sizes.documents)
    workloads: list[tuple[str, AttentionBias | None, tuple[int, ...], int]] = [
        ("causal", Causal(), (4, sizes.length, HEADS, HEAD_DIM), HEADS),
        ("grouped queries, causal", Causal(), (4, sizes.length, HEADS, HEAD_DIM), HEADS // 4),
        ("packed", Segments(lengths, inner=Causal()), (1, sum(lengths), HEADS, HEAD_DIM), HEADS),
        ("window of 256", Causal(window=WINDOW), (1, sizes.long_length, HEADS, HEAD_DIM), HEADS),
    ]
    halves = [torch.float16] + (
        [torch.bfloat16] if torch.cuda.is_bf16_supported(including_emulation=False) else []
    )
    for dtype in (*halves, torch.float32):
        for name, bias, shape, kv_heads in workloads:
            probe = torch.empty(shape, dtype=dtype, device="cuda")
            probe_kv = probe[:, :, :kv_heads]
            answers = available_backends(probe, probe_kv, probe_kv, bias, training=True)
            for backend, answer in answers.items():
                if answer != "ok":
                    report.rows.append({"name": f"{name}, {backend}", "dtype": str(dtype), "refused": answer})
                elif backend != "reference":

                    def grouped(
                        q: Tensor, k: Tensor, v: Tensor, bias=bias, backend=backend, kv=kv_heads
                    ) -> Tensor:
                        return attention(q, k[:, :, :kv], v[:, :, :kv], bias, backend=backend)

                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                    bench.compare(f"{name}, {backend}", grouped, shape, "sdpa, causal", sdpa, shape, dtype)
                    report.rows[-1]["peak_bytes"] = torch.cuda.max_memory_allocated() - before
    return report
