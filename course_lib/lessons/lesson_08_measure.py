"""What lesson 08 measures: every rung of the ladder in turn, the memory of a step, and two numbers of this machine."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from course_lib.bench.ladder import RUNGS, Batch, Rung, Trainer, Workload, batches, real_tokens, trainer
from course_lib.bench.measure import paired
from course_lib.bench.memory import workspaces
from course_lib.models import GPT
from course_lib.training import choose_precision
from course_lib.training.memory import MemoryBudget, training_memory
from course_lib.training.precision import NAMES

WORKLOAD = Workload(width=192, layers=2, heads=6, kv_heads=2, documents=8, cut=384, seed=2)
"""Small enough for seven rungs in half a minute on one core. With this seed the batches are alike: each is padded to
two or three times its tokens."""


@dataclass(frozen=True)
class Climb:
    """What ``climb`` saw, by rung and round.

    ``seconds`` leave out the first round, a warm-up; ``losses``, in nats a token on documents not read before, hold it.
    ``tokens`` are the real ones of each timed round.
    """

    seconds: dict[str, list[float]]
    losses: dict[str, list[float]]
    tokens: list[int]
    precision: str

    def speed(self, rung: str) -> float:
        """Real tokens a second, over all timed rounds."""
        return sum(self.tokens) / sum(self.seconds[rung])

    def ratios(self, before: str, after: str) -> list[float]:
        """How many times as fast ``after`` was than ``before``, round by round."""
        return [slow / fast for slow, fast in zip(self.seconds[before], self.seconds[after], strict=True)]


def precision_here() -> str:
    """ "bf16" where that pays on this machine's CPU, else "fp32": measured once for a whole lesson."""
    dtype = choose_precision("cpu").dtype
    return next(name for name, known in NAMES.items() if known == dtype)


def frozen(rung: Rung, workload: Workload, work: Sequence[Batch], *, precision: str) -> Trainer:
    """``rung``, of which only the last layer and the last norm learn: a shortcut to a high speed."""
    ready = trainer(rung, workload, work, precision=precision)
    learns = (f"layers.{workload.layers - 1}.", "norm.")
    for name, parameter in ready.model.named_parameters():
        parameter.requires_grad_(name.startswith(learns))
    return ready


def curve(ready: Trainer, steps: int) -> list[tuple[float, float]]:
    """(seconds since the start, loss) of each step, on documents that the model has not learned from yet.

    A first step is taken beforehand, off the clock.
    """
    ready.step()
    points, began = [], time.perf_counter()
    for _ in range(steps):
        loss = ready.step().loss
        points.append((time.perf_counter() - began, loss))
    return points


def climb(
    rungs: Sequence[Rung] = RUNGS,
    workload: Workload = WORKLOAD,
    *,
    rounds: int = 5,
    seed: int = 0,
    precision: str = "auto",
    progress: bool = True,
) -> Climb:
    """Train a model for every rung, one step each in turn, ``rounds`` times after a first one that warms up.

    Each round is the same documents for all rungs, and every other round goes down the ladder instead of up, so that
    a machine that is slow for a moment is slow for all. ``seed`` decides the initial weights.
    """
    if rounds < 1:
        raise ValueError(f"rounds: expected at least 1, got {rounds}.")
    if precision == "auto":
        precision = precision_here()
    work = batches(workload, rounds + 1)
    trainers = {rung.name: trainer(rung, workload, work, seed, precision=precision) for rung in rungs}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    losses: dict[str, list[float]] = {name: [] for name in trainers}
    for number in tqdm(range(rounds + 1), unit="round", disable=not progress):
        for name in list(trainers) if number % 2 == 0 else reversed(trainers):
            began = time.perf_counter()
            loss = trainers[name].step().loss
            if number:
                seconds[name].append(time.perf_counter() - began)
            losses[name].append(loss)
            trainers[name].optimizer.zero_grad(set_to_none=True)  # seven models are there; one has gradients
    trainers.clear()
    hand_back_memory()
    return Climb(seconds, losses, [real_tokens(batch) for batch in work[1:]], precision)


def hand_back_memory() -> None:
    """Return to the system what this process has freed.

    After seven models glibc keeps hundreds of MiB of it, which would count as used while a child process measures.
    Where the C library is another one, nothing happens.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# --- memory ------------------------------------------------------------------------------------------------------


def memory_budgets(workload: Workload = WORKLOAD, *, precision: str) -> dict[str, MemoryBudget]:
    """What a step of each rung takes on the first batch, by the formulas of ``course_lib.training.memory``."""
    lengths = [len(ids) for ids in batches(workload, 1)[0]]
    found = {}
    for rung in RUNGS:
        rows, length = (1, sum(lengths)) if rung.packed else (len(lengths), max(lengths))
        found[rung.name] = training_memory(
            rung.config(workload),
            rows=rows,
            length=length,
            attention="dense" if rung.dense else "memory-efficient",
            precision=precision if rung.amp else "fp32",
            chunked_loss=rung.chunked_loss,
            fused=True if rung.fused else None,
        )
    return found


def measured_memory(
    rungs: Sequence[Rung] = RUNGS, workload: Workload = WORKLOAD, *, precision: str
) -> dict[str, int]:
    """The peak of a step of each of these rungs in bytes, measured in a process of its own.

    Weights, AdamW's state and all the rest; what Python and PyTorch themselves hold is left out.
    """
    settings = [{"rung": rung.number, "precision": precision, "workload": asdict(workload)} for rung in rungs]
    above = workspaces(f"{__name__}:memory_work", settings)
    found = {}
    for rung, size in zip(rungs, above, strict=True):
        parameters = GPT(rung.config(workload)).num_parameters()
        found[rung.name] = size + 3 * 4 * parameters  # the weight, and AdamW's two averages of it
    return found


def memory_work(*, rung: int, precision: str, workload: dict[str, Any]) -> Callable[[], list[torch.Tensor]]:
    """A step of a rung as ``workspaces`` wants it: with AdamW's state there, and no gradients yet."""
    chosen = Workload(**workload)
    ready = trainer(RUNGS[rung], chosen, batches(chosen, 1), precision=precision)
    ready.step()
    ready.optimizer.zero_grad(set_to_none=True)

    def step() -> list[torch.Tensor]:
        ready.step()
        return []

    return step


# --- two numbers of this machine ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """``products`` and ``half_products``: FLOP/s of a matrix product in fp32 and under AMP; ``memory``: bytes/s."""

    products: float
    half_products: float
    memory: float


def measured_machine(workload: Workload = WORKLOAD, *, precision: str, pairs: int = 15) -> Machine:
    """The speed of the feed-forward's product on this workload's tokens, and of sums of large tensors.

    The two precisions take turns, and half precision is as many times as fast as the median of the pairs says.
    """
    tokens = max(real_tokens(batch) for batch in batches(workload, 2))
    products = []
    for name in ("fp32", precision):
        x = torch.ones(tokens, workload.width, dtype=NAMES[name])
        weight = torch.ones(4 * workload.width, workload.width, dtype=NAMES[name])
        products.append(partial(torch.mm, x, weight.T))
    flop = 2 * tokens * workload.width * 4 * workload.width
    times = paired(*products, pairs=pairs)
    speed = flop / min(times.first)
    large = torch.ones(2**23)  # 32 MiB: no cache of a laptop holds three of them
    out = torch.empty_like(large)
    moved = 3 * large.numel() * large.element_size()
    memory = moved / quickest(partial(torch.add, large, large, out=out), 0.2)
    return Machine(speed, speed if precision == "fp32" else speed * times.ratio, memory)


def quickest(work: Callable[[], object], seconds: float) -> float:
    """The shortest time that ``work`` takes in about ``seconds``: what the machine can do when it is left alone."""
    work()
    best, ends = float("inf"), time.perf_counter() + seconds
    while True:
        began = time.perf_counter()
        work()
        ended = time.perf_counter()
        best = min(best, ended - began)
        if ended >= ends:
            return best


# --- a profile ---------------------------------------------------------------------------------------------------

KINDS = {
    "matrix products": ("mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu"),
    "softmax": ("softmax", "log_softmax", "logsumexp", "exp", "nll_loss", "amax", "log"),
    "copies and casts": (
        "copy",
        "_to_copy",
        "clone",
        "cat",
        "fill",
        "zero",
        "index",
        "index_select",
        "index_copy",
    ),
    "optimiser": ("fused_adamw",),
}
"""Operations of PyTorch by kind, without the marks of their variants; "the rest" is all others."""


class _Stopwatch(TorchDispatchMode):
    """Times every operation that PyTorch's code runs, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.perf_counter()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            name = func.overloadpacket.__name__
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def profile_of(
    rung: Rung, workload: Workload = WORKLOAD, *, precision: str, steps: int = 2
) -> dict[str, float]:
    """Shares of the time that operations take in ``steps`` training steps, by kind, after a first one.

    What runs between operations, Python, is not in it.
    """
    ready = trainer(rung, workload, batches(workload, steps + 1), precision=precision)
    ready.step()
    with _Stopwatch() as watch:
        for _ in range(steps):
            ready.step()
    times = dict.fromkeys([*KINDS, "the rest"], 0.0)
    for name, seconds in watch.seconds.items():
        times[_kind(name)] += seconds
    total = sum(times.values())
    return {kind: spent / total for kind, spent in times.items()}


def _kind(operation: str) -> str:
    plain = operation.strip("_")
    for ending in ("_backward_data", "_backward", "_forward"):
        plain = plain.removesuffix(ending)
    known = ((kind, {name.strip("_") for name in names}) for kind, names in KINDS.items())
    return next((kind for kind, names in known if plain in names), "the rest")
