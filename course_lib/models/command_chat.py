"""``python -m course_lib chat MODEL``: a text that you and a model write in turns.

A base model has learned to go on with texts, not to obey. So nothing is put around a line that you type: the text so
far is what the model reads, and its answer is how that text goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Any

from .command_parts import (
    MAX_NEW_TOKENS,
    Parser,
    add_model_flags,
    guarded,
    licence_line,
    load,
    stop_of,
    writer,
)

HELP = "/reset forgets the text so far, /seed N draws by another seed, /quit or Ctrl-D leaves, Ctrl-C stops an answer."


def main(argv: Sequence[str] | None = None) -> int:
    """Talk; exit code 0, or 2 for an error, which is a sentence."""
    parser = Parser(
        prog="python -m course_lib chat", description=f"Write a text in turns with a model. {HELP}"
    )
    add_model_flags(parser)
    parser.add_argument("--greedy", action="store_true", help="take the likeliest token instead of drawing")
    parser.add_argument(
        "--context", type=int, metavar="TOKENS", help="of history, where a model has no limit (2048)"
    )
    flags = parser.parse_args(argv)
    return guarded("chat", lambda: _run(flags))


def _run(flags: argparse.Namespace) -> int:
    from .tokenizer_files import CourseTokenizer

    model, tokenizer, folder = load(flags)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    _tell("This is a base model: it continues your text, it does not obey. " + HELP)
    licence = licence_line(flags.model, folder, isinstance(tokenizer, CourseTokenizer))
    if licence is not None:
        _tell(licence)
    talk = Talk(model, tokenizer, flags)
    while (line := _line()) is not None:
        word, _, rest = line.strip().partition(" ")
        if word == "/quit":
            break
        if word == "/help":
            _tell(HELP)
        elif word == "/reset":
            talk.turns.clear()
            _tell("The text so far is forgotten.")
        elif word == "/seed":
            _seed(talk, rest)
        elif word.startswith("/"):
            _tell(f"There is no command {word}. {HELP}")
        elif line.strip():
            talk.answer(line)
    return 0


def _seed(talk: Talk, text: str) -> None:
    try:
        talk.seed = int(text)
        _tell(f"seed {talk.seed}")
    except ValueError:
        _tell(f"/seed: expected a whole number, got {text!r}.")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _line() -> str | None:
    """What is typed, or None at the end."""
    while True:
        try:
            if sys.stdin.isatty():
                return input("> ")
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        except EOFError:
            return None
        except UnicodeDecodeError:
            raise ValueError("expected UTF-8 on stdin, got other bytes.") from None
        except KeyboardInterrupt:
            _tell("\n/quit or Ctrl-D leaves.")


class Talk:
    """The turns so far, each a line of the reader's and what the model went on with."""

    def __init__(self, model: Any, tokenizer: Any, flags: argparse.Namespace) -> None:
        self.model, self.tokenizer, self.flags = model, tokenizer, flags
        self.turns: list[str] = []
        self.seed: int | None = flags.seed
        self.stop = stop_of(flags, model, tokenizer)
        self.limit = model.config.max_length or flags.context or 2048
        self.new = flags.max_new_tokens
        if self.new is None:
            self.new = min(MAX_NEW_TOKENS, max(1, self.limit // 4))
        if not 0 < self.new < self.limit:
            raise ValueError(
                f"--max-new-tokens: expected 1 to {self.limit - 1}, of a context of {self.limit}."
            )

    def answer(self, line: str) -> None:
        """Show how the text goes on after ``line``; Ctrl-C stops it, and what was shown then stays in the text."""
        import torch

        from .generate import generate

        flags, line = self.flags, self.tokenizer.normal(line)
        ids = self._fitting(line)
        if ids is None:
            return
        write, shown = writer(sys.stdout), []

        def show(new: Any) -> None:
            shown.append(new.text)
            write(new.text)

        try:
            generate(
                self.model,
                torch.tensor([ids], device=self.model.embed.weight.device),
                max_new_tokens=self.new,
                do_sample=not flags.greedy,
                temperature=flags.temperature,
                top_k=flags.top_k,
                top_p=flags.top_p,
                stop=self.stop,
                seed=self.seed,
                tokenizer=self.tokenizer,
                on_token=show,
            )
        except KeyboardInterrupt:
            _tell(" [stopped]")
        write("\n")
        self.turns.append(line + "".join(shown))

    def _fitting(self, line: str) -> list[int] | None:
        """The ids of the text with ``line``; the oldest turns are left out until an answer fits, too."""
        dropped = 0
        while True:
            ids = self.tokenizer.prompt("\n".join([*self.turns, line]))
            if len(ids) + self.new <= self.limit:
                break
            if not self.turns:
                _tell(
                    f"expected a line of fewer than {self.limit - self.new} tokens, which leaves {self.new} of the "
                    f"model's context of {self.limit} for an answer, got {len(ids)}."
                )
                return None
            self.turns.pop(0)
            dropped += 1
        if dropped:
            _tell(
                f"[the context of {self.limit} tokens is full: the oldest {dropped} of the turns were forgotten]"
            )
        return ids
