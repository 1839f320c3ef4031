"""``python -m course_lib bench attention|blocks|ladder|decode|all [--json FILE] [--plot FILE] [--device cuda]``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.atomic import write_atomically

if TYPE_CHECKING:
    from .report import Report

BENCHES = {
    "attention": "memory and time of attention() (lessons 01–02)",
    "blocks": "packing, grouped queries, ALiBi and SwiGLU (lessons 03–06)",
    "ladder": "a GPT trained in seven ways, and two peers (lesson 08; some 20 minutes and 12 GB on a CPU)",
    "decode": "an OPT that writes, beside transformers' (lesson 09)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a bench; exit code 0 if every claim holds, 1 if one does not, 2 if it cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m course_lib bench",
        description="Measure what the course claims, side by side with its peers, in one run on this machine.",
        epilog="; ".join(f"{name}: {what}" for name, what in BENCHES.items()),
    )
    parser.add_argument("bench", choices=[*BENCHES, "all"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and claim to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="where the picture goes (PNG)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--quick", action="store_true", help="a few short sequences: shows that it runs, decides nothing"
    )
    options = parser.parse_args(argv)

    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "--device cuda: PyTorch finds no CUDA device here; python -m course_lib doctor says why.",
            file=sys.stderr,
        )
        return 2
    reports = []
    for name in BENCHES if options.bench == "all" else [options.bench]:
        bench = import_module(f"{__package__}.{name}")
        report: Report = bench.run(device=options.device, quick=options.quick, progress=_progress)
        _progress_is_over()
        report.print_table()
        reports.append(report)
    if options.json:
        whole = type(reports[0]).of_all(reports) if options.bench == "all" else reports[0]
        whole.write_json(options.json)
        print(f"figures: {options.json}")
    for report in reports:
        plot = _plot_path(options, report.name)
        if report.claims:
            report.write_plot(plot)
            print(f"picture: {plot}")
        for name, picture in report.pictures.items():
            beside = plot.with_stem(f"{plot.stem}-{name}")
            write_atomically(beside, picture)
            print(f"picture: {beside}")
    return 0 if all(report.holds for report in reports) else 1


def _plot_path(options: argparse.Namespace, name: str) -> Path:
    """Beside the figures unless told otherwise; of all benches, each has a picture, with its name in the file's."""
    given = options.plot or (options.json and options.json.with_suffix(".png"))
    if not given:
        return Path("build/bench") / f"{name}.png"
    return given.with_stem(f"{given.stem}-{name}") if options.bench == "all" else given


def _progress(name: str, done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name}: {done}/{of}".ljust(70), end="", file=sys.stderr, flush=True)


def _progress_is_over() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
