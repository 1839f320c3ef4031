"""The ladder of lesson 08: one GPT trained seven ways on the same documents, beside two peers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..training import choose_precision
from .comparison import Comparison, Progress
from .ladder_losses import Learned, compare_losses, held_out_loss, trained_rung
from .ladder_memory import CHUNKED, WHOLE, started
from .ladder_peers import TEACHING, TRANSFORMERS, peer
from .ladder_picture import Bar, picture
from .ladder_products import Products
from .ladder_profile import shares
from .ladder_rungs import RUNGS, DenseAttention, Rung, Step, Trainer, loss_of, trainer
from .ladder_workload import Batch, Workload, batches, held_out, real_tokens
from .measure import PAIRS, Rounds, interleaved
from .report import Report, this_machine

__all__ = [
    "RUNGS",
    "Batch",
    "DenseAttention",
    "Rung",
    "Step",
    "Trainer",
    "Workload",
    "batches",
    "held_out",
    "held_out_loss",
    "loss_of",
    "peer",
    "real_tokens",
    "run",
    "trained_rung",
    "trainer",
]

NAIVE, TOP = RUNGS[0], RUNGS[-1]
PRODUCTS = "matrix products alone"


@dataclass(frozen=True)
class Sizes:
    """What is trained, and how long. ``rounds`` None: as many as :func:`interleaved` takes."""

    workload: Workload = field(default_factory=Workload)
    rounds: int | None = None
    learned_documents: int = 4
    """Documents a step where losses are compared: more and smaller steps teach more in the same time."""
    learned_steps: int = 128
    agreeing_steps: int = 3
    """Of the rungs below packing, whose whole training would take most of the time: see :func:`compare_losses`."""
    seeds: int = 3
    loss_tokens: int = 4096
    loss_vocabulary: int = 50_272


QUICK = Sizes(
    workload=Workload(width=96, layers=2, documents=8),
    rounds=2,
    learned_documents=4,
    learned_steps=4,
    agreeing_steps=2,
    seeds=2,
    loss_tokens=256,
    loss_vocabulary=8192,
)


def run(
    *, device: str = "cpu", quick: bool = False, progress: Progress = lambda name, done, of: None
) -> Report:
    """Measure everything. ``quick`` trains a small model on a few documents, and shows that it runs, not what holds.

    On CUDA: the same work in the dtype that the GPU trains in; what the claims speak of is a row there.
    """
    report = Report("ladder", this_machine(device), quick=quick)
    sizes = QUICK if quick else Sizes()
    bench = Comparison(report, device, None, progress)
    chosen = choose_precision(device)
    precision = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[_name(chosen.dtype)]
    peaks = _peaks(bench, sizes, precision)
    timings = _timings(bench, sizes, precision)
    learned = compare_losses(
        _replaced(sizes.workload, documents=sizes.learned_documents),
        steps=sizes.learned_steps,
        seeds=sizes.seeds,
        device=device,
        precision=precision,
        agreeing_steps=sizes.agreeing_steps if device == "cpu" else None,
        progress=progress,
    )
    _rows(report, sizes, precision, chosen.why, peaks, timings, learned)
    _claims(bench, sizes, peaks, timings, learned)
    report.pictures["rungs"] = picture(
        [
            Bar(_label(name), timings.tokens_per_second(name), peaks.get(name), name not in _RUNG_OF)
            for name in timings.names
        ]
    )
    return report


@dataclass(frozen=True)
class Timings:
    """Seconds of every rung, peer and of the products, round by round, all on the same batches."""

    rounds: Rounds
    tokens: list[int]
    """Real tokens of each round."""
    flops: list[float]
    """Model FLOP of each round, of the top rung."""
    product_flops: list[int]
    padding: float
    """The share of padding in the padded batches."""
    shares: dict[str, float]
    """Where the time of the top rung goes."""
    parameters: dict[str, int]
    refused: str | None
    """Why the transformers peer did not run."""

    @property
    def names(self) -> list[str]:
        return [name for name in self.rounds.seconds if name != PRODUCTS]

    def tokens_per_second(self, name: str) -> float:
        seconds = self.rounds.seconds[name]
        return statistics.median(n / s for n, s in zip(self.tokens, seconds, strict=False))

    def utilisations(self) -> list[float]:
        """Round by round: the top rung's model FLOP/s over the FLOP/s of the products alone."""
        times = zip(self.rounds.seconds[TOP.name], self.rounds.seconds[PRODUCTS], strict=True)
        work = zip(self.flops, self.product_flops, strict=False)
        return [
            (model / step) / (products / alone)
            for (step, alone), (model, products) in zip(times, work, strict=False)
        ]


_RUNG_OF = {rung.name: rung for rung in RUNGS}


def _label(name: str) -> str:
    return f"{_RUNG_OF[name].number} {name}" if name in _RUNG_OF else name


def _timings(bench: Comparison, sizes: Sizes, precision: str) -> Timings:
    work = sizes.workload
    read = batches(work, (sizes.rounds or PAIRS) + 1)
    trainers, refused = {}, None
    for name in (*_RUNG_OF, TRANSFORMERS, TEACHING):
        try:
            trainers[name] = started(name, work, read, device=bench.device, precision=precision)
        except ImportError as error:
            refused = f"it cannot be imported: {error}"
    top = trainers[TOP.name]
    products = Products(top.model, max(map(real_tokens, read)), top.precision.dtype, bench.device)  # type: ignore[arg-type]
    works: dict[str, Callable[[int], object]] = {
        name: lambda number, training=training: training.step()  # type: ignore[misc]
        for name, training in trainers.items()
    }
    works[PRODUCTS] = lambda number: products.run(real_tokens(read[number]))
    rounds = interleaved(works, device=bench.device, rounds=sizes.rounds, on_work=bench.progress)
    bench.progress("profile of the top rung", 0, 1)
    padded = sum(max(map(len, batch)) * len(batch) for batch in read)
    timed = read[1:]
    return Timings(
        rounds,
        [real_tokens(batch) for batch in timed],
        [_model_flops(top, batch) for batch in timed],
        [products.flops(real_tokens(batch)) for batch in timed],
        1 - sum(map(real_tokens, read)) / padded,
        shares(top),
        {name: sum(p.numel() for p in training.model.parameters()) for name, training in trainers.items()},
        refused,
    )


def _model_flops(training: Trainer, batch: Batch) -> float:
    tokens = real_tokens(batch)
    seen = sum(len(ids) ** 2 for ids in batch) / tokens
    return training.model.flops_per_token(seen) * tokens  # type: ignore[operator]


def _peaks(bench: Comparison, sizes: Sizes, precision: str) -> dict[str, int]:
    """Peak memory of each rung and peer, parameters included."""
    ways = [*_RUNG_OF, TEACHING]
    try:
        import transformers  # noqa: F401

        ways.append(TRANSFORMERS)
    except ImportError:
        pass
    fixed = {"workload": asdict(sizes.workload), "precision": precision}
    found = bench.measured_workspaces(
        "course_lib.bench.ladder_memory:training_work", [{"way": way, **fixed} for way in ways]
    )
    return dict(zip(ways, found, strict=True))


def _rows(
    report: Report,
    sizes: Sizes,
    precision: str,
    why: str,
    peaks: dict[str, int],
    timings: Timings,
    learned: list[Learned],
) -> None:
    report.rows.append(
        {
            "name": "work",
            **asdict(sizes.workload),
            "tokens_a_step": round(statistics.mean(timings.tokens)),
            "padding": round(timings.padding, 3),
            "precision": precision,
            "why": why,
        }
    )
    losses = {found.rung.name: found for found in learned}
    report.rows.append(
        {
            "name": "work of the losses",
            "seeds": sizes.seeds,
            "steps": sizes.learned_steps,
            "documents": sizes.learned_documents,
            "tokens": round(learned[0].tokens),
            "steps_of_rungs_0_and_1": sizes.agreeing_steps if report.machine["device"] == "cpu" else None,
        }
    )
    for name in timings.names:
        row: dict[str, Any] = {
            "name": _label(name),
            "adds": _RUNG_OF[name].adds if name in _RUNG_OF else "a peer",
            "dtype": precision if name not in _RUNG_OF or _RUNG_OF[name].amp else "fp32",
            "parameters": timings.parameters[name],
            "seconds": statistics.median(timings.rounds.seconds[name]),
            "tokens_per_second": timings.tokens_per_second(name),
            "ratio": timings.rounds.ratio(name, TOP.name),
            "pairs": len(timings.rounds.ratios(name, TOP.name)),
            "ratios": timings.rounds.ratios(name, TOP.name),
            "peak_bytes": peaks.get(name),
            "loss": None,
        }
        if name in losses:
            row |= {
                "loss": losses[name].mean,
                "losses": list(losses[name].losses),
                "loss_range": losses[name].spread,
            }
            if losses[name].apart is not None:
                row["steps_apart_from_packing"] = losses[name].apart
        report.rows.append(row)
    if timings.refused:
        report.rows.append({"name": TRANSFORMERS, "refused": timings.refused})
    alone = timings.rounds.seconds[PRODUCTS]
    report.rows.append(
        {
            "name": PRODUCTS,
            "dtype": precision,
            "seconds": statistics.median(alone),
            "gflops_per_second": statistics.median(
                flops / seconds / 1e9 for flops, seconds in zip(timings.product_flops, alone, strict=False)
            ),
            "utilisations": timings.utilisations(),
        }
    )
    report.rows += [
        {"name": f"share of rung {TOP.number}'s time: {group}", "share": share}
        for group, share in timings.shares.items()
    ]


def _claims(
    bench: Comparison, sizes: Sizes, peaks: dict[str, int], timings: Timings, learned: list[Learned]
) -> None:
    fixed = {
        "tokens": sizes.loss_tokens,
        "vocab": sizes.loss_vocabulary,
        "width": sizes.workload.width,
    }
    chunked, whole = bench.workspace(
        "course_lib.bench.ladder_memory:loss_work",
        [{"way": way, **fixed} for way in (CHUNKED, WHOLE)],
        **fixed,
        dtype="float32",
    )
    naive, top = learned[0], learned[-1]
    rounds = timings.rounds
    found = {
        "ladder.speedup": (rounds.ratio(NAIVE.name, TOP.name), ">= 4"),
        "ladder.memory": (peaks[NAIVE.name] / max(1, peaks[TOP.name]), ">= 4"),
        "ladder.mfu": (statistics.median(timings.utilisations()), ">= 0.25"),
        "ladder.loss_gap": (top.mean - naive.mean - naive.spread, "<= 0"),
        "chunked_loss.memory": (chunked / max(1, whole), "<= 0.1"),
    }
    if TRANSFORMERS in rounds.seconds:
        found["ladder.over_transformers"] = (rounds.ratio(TRANSFORMERS, TOP.name), ">= 2")
    for name, (value, bound) in found.items():
        bench.claim(name, value, bound)
        if bench.device != "cpu":
            bench.report.rows.append({"name": name, "ratio": value, "asked_of_a_cpu": bound})


def _replaced(workload: Workload, **changes: Any) -> Workload:
    return Workload(**(asdict(workload) | changes))


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
