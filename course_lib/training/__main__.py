"""``python -m course_lib train --steps 400 --output my_run``, alone or under ``torchrun --nproc-per-node 2 -m``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import TrainConfig
    from .result import TrainResult


def main(argv: Sequence[str] | None = None) -> int:
    """Train; exit code 0, or 2 for an error, which is a sentence, 130 after Ctrl-C."""
    parser = _parser()
    options = vars(parser.parse_args(argv))
    first = os.environ.get("RANK", "0") == "0"
    alike = True  # what fails so early fails in each process of a machine: one of them says it
    try:
        from .command_config import config_of
        from .parallel import OtherProcessError
        from .set_up import check_device

        with warnings.catch_warnings():
            warnings.showwarning = _as_a_sentence
            config = config_of(options)
            check_device(config.device)
            alike = False
            if options.get("dry_run"):
                return _dry_run(config, options) if first else 0
            return _train(config, quiet=bool(options.get("quiet")) or not first)
    except OtherProcessError:
        return 1  # the process at fault has said why
    except KeyboardInterrupt:
        return 130
    except (ValueError, TypeError, OSError, FloatingPointError, ModuleNotFoundError) as error:
        if not alike or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"train: {_sentence(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _is_want_of_memory(error):
            raise
        print(
            "train: the memory does not suffice. Fewer --batch-tokens with more --rows-per-step, --checkpointing "
            "layers or a smaller model need less; --dry-run shows what takes how much.",
            file=sys.stderr,
        )
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course_lib train",
        description="Train a language model on packed rows in mixed precision. With --output, the same command goes on "
        "where it was stopped.",
        argument_default=argparse.SUPPRESS,
    )
    run = parser.add_argument_group("the run")
    run.add_argument(
        "--output", type=Path, metavar="FOLDER", help="for log, curves, checkpoints and the model"
    )
    run.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="go on with the run in FOLDER, as it was configured"
    )
    run.add_argument(
        "--recipe", type=Path, metavar="FILE", help="a TOML file of all that follows; flags go before it"
    )
    run.add_argument("--steps", type=int, help="(400)")
    run.add_argument("--dry-run", action="store_true", help="show config, memory and time, and train nothing")
    run.add_argument("--quiet", action="store_true", help="show nothing but errors")
    data = parser.add_argument_group("the data")
    data.add_argument(
        "--data", type=Path, nargs="+", metavar="FILE",
        help=".txt or .jsonl files, or folders of them (the course's corpus and stories)",
    )  # fmt: skip
    data.add_argument("--stories", type=int, metavar="N", help="of the course's text (4000)")
    data.add_argument(
        "--stories-together", type=int, metavar="N", help="the most in a document: 1, 2, … N in turn (1)"
    )
    data.add_argument("--corpus-copies", type=int, metavar="N", help="of the course's corpus (1)")
    data.add_argument("--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json (the course's)")
    data.add_argument("--held-out", type=float, metavar="SHARE", help="of documents, for evaluation (0.02)")
    model = parser.add_argument_group("the model")
    model.add_argument("--family", choices=["gpt", "opt"], help="opt: with fixed parts (gpt)")
    model.add_argument("--dim", type=int, help="its width (256)")
    model.add_argument("--layers", type=int, dest="num_layers", metavar="N", help="(4)")
    model.add_argument("--heads", type=int, dest="num_heads", metavar="N", help="(4)")
    model.add_argument(
        "--kv-heads", type=int, dest="num_kv_heads", metavar="N",
        help="of keys and values (half of the heads, or all if they are odd)",
    )  # fmt: skip
    model.add_argument("--max-length", type=int, metavar="TOKENS", help="the context (512)")
    model.add_argument("--positions", choices=["alibi", "rotary", "learned", "none"], help="of a gpt (alibi)")
    model.add_argument("--feed-forward", choices=["swiglu", "gelu"], help="of a gpt (swiglu)")
    model.add_argument(
        "--checkpointing", choices=["none", "layers"], help="layers: less memory, more time (none)"
    )
    pace = parser.add_argument_group("a step")
    pace.add_argument(
        "--batch-tokens", type=int, metavar="TOKENS", help="of a packed row: what memory holds (4096)"
    )
    pace.add_argument("--rows-per-step", type=int, metavar="ROWS", help="whose gradients add up (1)")
    pace.add_argument("--learning-rate", "--lr", type=float, metavar="RATE", help="at its peak (0.001)")
    pace.add_argument("--warm-up", type=int, metavar="STEPS", help="(a twentieth of the steps)")
    pace.add_argument("--weight-decay", type=float, metavar="RATE", help="(0.1)")
    pace.add_argument("--seed", type=int, help="of the weights, the order and the held-out share (0)")
    machine = parser.add_argument_group("the machine")
    machine.add_argument(
        "--precision", choices=["auto", "fp32", "bf16", "fp16"], help="(auto: what pays here)"
    )
    machine.add_argument("--device", help="cpu, cuda, … (auto: a GPU where there is one)")
    machine.add_argument("--compile", action="store_true", help="with torch.compile")
    machine.add_argument(
        "--engine", choices=["ddp", "fsdp"], help="of several processes, under torchrun (ddp)"
    )
    machine.add_argument("--watts", type=float, help="what the machine draws, for --dry-run's electricity")
    machine.add_argument(
        "--price", type=float, metavar="PER_KWH", help="of a kilowatt-hour, for --dry-run's cost"
    )
    written = parser.add_argument_group("what is written")
    written.add_argument("--evaluate-every", type=int, metavar="STEPS", help="(a tenth of the steps)")
    written.add_argument("--checkpoint-every", type=int, metavar="STEPS", help="(a tenth of the steps)")
    written.add_argument("--keep-checkpoints", type=int, metavar="N", help="(2)")
    written.add_argument(
        "--model-folder", type=Path, metavar="FOLDER", help="where a copy of the finished model goes"
    )
    written.add_argument("--stored-as", choices=["fp32", "bf16", "fp16"], help="of the finished model (fp32)")
    written.add_argument("--license", metavar="NAME", help="of the finished model, for its card")
    return parser


def _train(config: TrainConfig, *, quiet: bool) -> int:
    from .run import train

    try:
        result = train(config, progress=not quiet)
    except KeyboardInterrupt:
        if not quiet:
            print(f"\nstopped at once. {_how_to_go_on(config)}", file=sys.stderr)
        return 130
    if not quiet:
        print(_summary(result))
        if result.interrupted:
            print(f"stopped after step {result.steps:,} of {config.steps:,}. {_how_to_go_on(config)}")
        elif config.folder is not None:
            print(f"model: {config.folder / 'model'}; curves: {config.folder / 'curves.png'}")
    return 130 if result.interrupted else 0


def _summary(result: TrainResult) -> str:
    from .estimate import duration_text
    from .progress import bytes_text

    text = (
        f"{result.steps:,} steps, {result.tokens:,} tokens in {duration_text(max(result.seconds, 1e-3))}: "
        f"{result.tokens_per_second:,.0f} tokens/s, at most {bytes_text(result.peak_bytes)}"
    )
    if len(result.held_out) > 1:
        text += f"; held-out loss {result.held_out[0][1]:.3f} before, {result.held_out[-1][1]:.3f} now"
    return text


def _how_to_go_on(config: TrainConfig) -> str:
    if config.folder is None:
        return "Nothing was written: with --output FOLDER a run can go on."
    return f"To go on: python -m course_lib train --resume {shlex.quote(str(config.folder))}"


def _dry_run(config: TrainConfig, options: dict[str, Any]) -> int:
    """Show what would be done. The time is taken of a few steps of a model that is thrown away."""
    from .dry_run import show

    show(config, watts=options.get("watts"), price=options.get("price"))
    return 0


def _is_want_of_memory(error: BaseException) -> bool:
    import torch

    # On a CPU, PyTorch says so in a plain RuntimeError.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _sentence(error: BaseException) -> str:
    """What was said, without the number that an OSError of the system puts first."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _as_a_sentence(message: Warning | str, *_: object, **__: object) -> None:
    """A warning for a reader of a terminal, who is not helped by a line of the source."""
    if os.environ.get("RANK", "0") == "0":
        print(f"note: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
