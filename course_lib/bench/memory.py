"""How much memory a piece of work needs above what goes in and what comes out: its *workspace*.

On Linux it is what a child process's resident memory rises to, less the pages of files (code that is loaded on first
use): the kernel keeps that high-water mark, and ``clear_refs`` sets it back, so that no peak is too short to be seen.
Where it cannot be set back, and on other systems, the parent samples while the child works. The work runs in a child
of its own because an allocator that has once been full gives little back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.0005


def resident_bytes(pid: int) -> int:
    """Memory that a process holds and no file does: anonymous pages on Linux, its resident set elsewhere."""
    status = _status(pid)
    if "RssAnon" in status:
        return status["RssAnon"]
    import psutil

    return psutil.Process(pid).memory_info().rss


def _status(pid: int) -> dict[str, int]:
    """Linux's sizes of a process in bytes (RssAnon, RssFile, VmHWM, VmRSS …); empty elsewhere."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
            fields = (line.split() for line in lines if line.endswith(" kB\n"))
            return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}
    except FileNotFoundError:
        return {}


class _PeakOfKernel:
    """The largest resident memory since ``start()``, as the kernel keeps it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def start(self) -> None:
        """Raises OSError where the mark cannot be set back."""
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as marks:
            marks.write("5")
        self._files = _status(self.pid)["RssFile"]

    def stop(self) -> int:
        status = _status(self.pid)
        # The mark counts files' pages too; those that came during the work are code, not its memory.
        return status["VmHWM"] - max(self._files, status["RssFile"]) - status.get("RssShmem", 0)


class _PeakOfSamples(threading.Thread):
    """The largest reading of another process's memory between ``start()`` and ``stop()``."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak = pid, 0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            try:
                self.peak = max(self.peak, resident_bytes(self.pid))
            except Exception:  # the child has ended: its last reading stands
                return
            time.sleep(SAMPLE_SECONDS)

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self.peak


def _watch(pid: int, *, sampled: bool) -> _PeakOfKernel | _PeakOfSamples:
    """A watch on the process's peak, started."""
    if not sampled:
        watch = _PeakOfKernel(pid)
        try:
            watch.start()
            return watch
        except OSError:
            pass  # the mark cannot be set back here
    samples = _PeakOfSamples(pid)
    samples.start()
    return samples


def workspaces(work: str, settings: Iterable[dict[str, Any]], *, maps_files: bool = False) -> list[int]:
    """The workspace in bytes of ``work`` under each of the settings, measured one after the other in one child.

    ``work`` names a function as ``"package.module:function"``. Called with a setting's items it prepares inputs and
    returns a function without arguments, which is what is measured; that one returns the tensors that count as
    results. The workspace is the peak above the memory in use before it ran, less the results' bytes. ``maps_files``:
    the work maps files and lets them go again, which the kernel's mark would count; its anonymous memory is then
    sampled. Raises RuntimeError with the child's error text if it fails.
    """
    # An allocator that maps every large block on its own gives it back at once: readings then mean what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), environment.get("PYTHONPATH")])
    )
    child = subprocess.Popen(
        [sys.executable, "-c", "from course_lib.bench.memory import _child; _child()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    measured = []
    try:
        for setting in settings:
            print(json.dumps([work, setting]), file=child.stdin, flush=True)
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"{work} could not be prepared with {setting}: {_last_words(child)}")
            before = resident_bytes(child.pid)
            watch = _watch(child.pid, sampled=maps_files)
            print("go", file=child.stdin, flush=True)
            results = child.stdout.readline()
            if not results:
                raise RuntimeError(f"{work} failed with {setting}: {_last_words(child)}")
            measured.append(max(0, watch.stop() - before - int(results)))
    finally:
        child.stdin.close()
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    return measured


def _last_words(child: subprocess.Popen[str]) -> str:
    child.kill()
    assert child.stderr is not None
    lines = child.stderr.read().strip().splitlines()
    return lines[-1] if lines else "the process ended without a word (out of memory?)"


def _child() -> None:
    """The other side: prepare, say ready, work when told, say how many bytes the results take."""
    import gc
    import importlib

    stdin, stdout = sys.stdin, sys.stdout
    sys.stdout = sys.stderr
    for line in iter(stdin.readline, ""):
        work, setting = json.loads(line)
        module, function = work.split(":")
        run = getattr(importlib.import_module(module), function)(**setting)
        gc.collect()
        print("ready", file=stdout, flush=True)
        stdin.readline()
        results = run()
        print(sum(tensor.untyped_storage().nbytes() for tensor in results), file=stdout, flush=True)
        del run, results
        gc.collect()


def attention_workspaces(
    lengths: Sequence[int],
    *,
    backend: str,
    num_heads: int = 8,
    head_dim: int = 64,
    bias: str | None = "causal",
    dtype: str = "float32",
    backward: bool = True,
) -> list[int]:
    """The workspace in bytes of one attention, forward and (unless told otherwise) backward, at each length.

    ``bias`` is ``"causal"``, ``"window"`` (256 keys) or None.
    """
    fixed = dict(
        backend=backend, num_heads=num_heads, head_dim=head_dim, bias=bias, dtype=dtype, backward=backward
    )
    return workspaces("course_lib.bench.memory:attention_work", [{"length": n, **fixed} for n in lengths])


def attention_workspace(length: int, *, backend: str, **settings: Any) -> int:
    """As :func:`attention_workspaces`, of one length."""
    return attention_workspaces([length], backend=backend, **settings)[0]


def attention_work(*, length, backend, num_heads, head_dim, bias, dtype, backward):
    """Inputs of one sequence, and the function that attends (and differentiates)."""
    import torch

    from ..attention import Causal, attention

    chosen = {None: None, "causal": Causal(), "window": Causal(window=256)}[bias]
    shape = (1, length, num_heads, head_dim)

    def inputs(shape):
        query, key, value = (
            torch.randn(shape, dtype=getattr(torch, dtype), requires_grad=backward) for _ in range(3)
        )
        return query, key, value, torch.randn(shape, dtype=query.dtype)

    def step(query, key, value, grad_out):
        out = attention(query, key, value, chosen, backend=backend)
        return [out.detach(), *torch.autograd.grad(out, (query, key, value), grad_out)] if backward else [out]

    # Threads, code and lookup tables are the process's, not the work's: a short call brings them in first.
    step(*inputs((1, min(length, 64), num_heads, head_dim)))
    tensors = inputs(shape)
    return lambda: step(*tensors)
