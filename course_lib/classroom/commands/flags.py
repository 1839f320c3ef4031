"""The flags that `generate` and `chat` share. What a flag may be is checked before torch is loaded."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from typing import Any, NoReturn

from .streams import tell

DTYPES = ("fp32", "bf16", "fp16")
MAX_NEW_TOKENS = 100
LARGEST_SEED = 2**63 - 1
ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the list of all flags."""

    def __init__(self, command: str, description: str, epilog: str, *, stray: str) -> None:
        """``stray``: what to say of a text that is no flag's."""
        super().__init__(
            prog=f"python -m course_lib {command}",
            usage=f"python -m course_lib {command} MODEL [flags]",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._stray = stray

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").rstrip(".")
        if message.endswith("expected one argument"):
            message += ". A value that begins with - is given with =, as --prompt=-5"
        if message.startswith("unrecognized arguments") and " -" not in message:
            message += f". {self._stray}"
        tell(f"{self.prog.split()[-1]}: {message}. --help lists the flags.")
        raise SystemExit(2)


def add_model_flags(parser: argparse.ArgumentParser, *, temperature: str = "1") -> None:
    """Which model, how it draws, where it ends, and on what it runs; ``temperature``: its default, in words."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="lean-opt-5m, which comes with the course; the folder of an OPT, a BLOOM or a run of `train`; or an "
        "id on the hub, such as facebook/opt-125m, which is downloaded once",
    )
    drawing = parser.add_argument_group("which token comes next")
    drawing.add_argument(
        "--temperature", type=number(0), metavar="T",
        help=f"below 1 for likelier tokens, above 1 for rarer ones; 0 takes the likeliest (default: {temperature})",
    )  # fmt: skip
    drawing.add_argument(
        "--top-k", type=whole(1), metavar="K", help="draw from the K likeliest tokens (default: from all)"
    )
    drawing.add_argument(
        "--top-p", type=number(0, 1, above=True), metavar="P",
        help="draw from the fewest tokens that together have the probability P (default: 1, from all)",
    )  # fmt: skip
    drawing.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), metavar="N",
        help="the same number draws the same tokens (default: others each time)",
    )  # fmt: skip
    ending = parser.add_argument_group("where it ends")
    ending.add_argument(
        "--stop", type=stop_text, action="append", default=[], metavar="TEXT",
        help=r"end before this text, for which \n is a line's end and \t a tab; may be given again (default: only at "
        "the token that ends a text)",
    )  # fmt: skip
    running = parser.add_argument_group("how it runs")
    running.add_argument(
        "--dtype", choices=DTYPES, help="of the weights (default: as stored; fp32 for stored fp16 on a CPU)"
    )
    running.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps … (default: cpu)")
    running.add_argument(
        "--revision", metavar="NAME", help="branch, tag or commit of a model on the hub (default: its main branch)"
    )  # fmt: skip


def draws(flags: argparse.Namespace, *, sample: bool) -> dict[str, Any]:
    """The arguments of ``generate`` that choose a token; ``sample``: whether to draw if no flag says so."""
    temperature = 1.0 if flags.temperature is None else flags.temperature
    if not sample or not temperature:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_k": flags.top_k, "top_p": flags.top_p}


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A flag's type: a whole number from ``least`` to ``most``."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"expected a whole number {bounds}, got {text!r}")
        return value

    return read


def number(least: float, most: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
    """A flag's type: a finite number from ``least``, or only ``above`` it, to ``most``."""
    bounds = f"above {least}" if above else f"of at least {least}"
    bounds += "" if most == math.inf else f" and at most {most}"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        low = value > least if above else value >= least
        if not (low and value <= most and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"expected a number {bounds}, got {text!r}")
        return value

    return read


def typed(text: str) -> str:
    """A flag's text, which a locale that is not UTF-8 has read byte by byte."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"expected text in UTF-8, got {text!r}") from None


def stop_text(text: str) -> str:
    """What --stop names. A shell hands a line's end on as backslash and n."""
    text = re.sub(r"\\[nt\\]", lambda found: ESCAPES[found[0]], typed(text))
    if not text:
        raise argparse.ArgumentTypeError("expected some text to stop at, got none")
    return text
