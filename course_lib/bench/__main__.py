"""``python -m course_lib bench attention [--json FILE] [--plot FILE] [--device cuda] [--quick]``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

BENCHES = {"attention": "memory and time of attention() (lessons 01–02)"}


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
    from . import attention

    report = attention.run(device=options.device, quick=options.quick, progress=_progress)
    _progress_is_over()
    report.print_table()
    if options.json:
        report.write_json(options.json)
        print(f"figures: {options.json}")
    if report.claims:
        plot = options.plot or (options.json or Path("build/bench/attention.json")).with_suffix(".png")
        report.write_plot(plot)
        print(f"picture: {plot}")
    return 0 if report.holds else 1


def _progress(name: str, done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name}: {done}/{of}".ljust(70), end="", file=sys.stderr, flush=True)


def _progress_is_over() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
