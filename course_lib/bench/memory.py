"""How much memory a piece of work needs above what goes in and what comes out: its *workspace*.

On Linux it is read from ``RssAnon`` of a child process, which counts the pages that the process has written and no
files; elsewhere from its resident set. The work runs in a child of its own because an allocator that has once
been full gives little back. The parent samples while the child works, so that what measures takes no part in it.
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
    """Anonymous resident memory of a process, in bytes."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    import psutil

    return psutil.Process(pid).memory_info().rss


class _Sampler(threading.Thread):
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


def workspaces(work: str, settings: Iterable[dict[str, Any]]) -> list[int]:
    """The workspace in bytes of ``work`` under each of the settings, measured one after the other in one child.

    ``work`` names a function as ``"package.module:function"``. Called with a setting's items it prepares inputs and
    returns a function without arguments, which is what is measured; that one returns the tensors that count as
    results. The workspace is the peak above the memory in use before it ran, less the results' bytes. Raises
    RuntimeError with the child's error text if it fails.
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
            sampler = _Sampler(child.pid)
            sampler.start()
            print("go", file=child.stdin, flush=True)
            results = child.stdout.readline()
            peak = sampler.stop()
            if not results:
                raise RuntimeError(f"{work} failed with {setting}: {_last_words(child)}")
            measured.append(max(0, peak - before - int(results)))
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
