"""``python -m course_lib chat MODEL``: a text that you and a model write in turns.

A base model has learned to go on with texts, not to obey. So nothing is put around a line that you type: the text so
far is what the model reads, and its answer is how that text goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from course_lib.classroom.messages import say

from .flags import LARGEST_SEED, MAX_NEW_TOKENS, Parser, add_model_flags, draws, whole
from .streams import decoded, guarded, note, tell, writer

TEMPERATURE = 0.7
"""Unless a flag says how to draw: small models write nonsense at 1."""
CONTEXT = 2048
"""Tokens of history for a model that could read on for ever."""
IMPATIENT = 1.0
"""Seconds after Ctrl-C in which another one is meant for the same answer, and does not leave."""
DESCRIPTION = """\
Write a text in turns with a model. A base model continues, it does not obey:
your line and all before it are the text that it makes longer. When the text
outgrows the model's context, the oldest turns are forgotten."""
EPILOG = """\
while it runs:
  /reset    forget the text so far
  /seed N   draw by the seed N from here on
  /help     say what these are
  /quit     leave; so does Ctrl-D, and Ctrl-C while nothing is being written
  Ctrl-C    during an answer: stop it; what was written stays in the text
A line with a space before its / is text. Notes go to stderr, in Bangla with
COURSE_LANGUAGE=bn.

example:
  python -m course_lib chat lean-opt-5m --top-p 0.9"""


def main(argv: Sequence[str] | None = None) -> int:
    """Talk; exit code 0, or 2 for an error, which is a sentence."""
    parser = Parser(
        "chat", DESCRIPTION, EPILOG, stray="What you write is typed when the model has been loaded"
    )
    add_model_flags(parser, temperature=f"{TEMPERATURE}, or 1 with --top-k or --top-p")
    parser.add_argument(
        "--greedy", action="store_true", help="take the likeliest token each time (default: draw by probability)"
    )  # fmt: skip
    parser.add_argument(
        "--max-new-tokens", type=whole(1), metavar="N",
        help=f"of an answer at most (default: {MAX_NEW_TOKENS}, or a quarter of the context if that is less)",
    )  # fmt: skip
    parser.add_argument(
        "--context", type=whole(2), metavar="TOKENS",
        help=f"of text and answer together (default: as many as the model can tell apart; {CONTEXT} without a limit)",
    )  # fmt: skip
    flags = parser.parse_args(argv)
    if flags.greedy:
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(flags, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                parser.error(
                    f"{flag}: has no effect with --greedy, which draws nothing; leave one of them out"
                )
    if (flags.temperature, flags.top_k, flags.top_p) == (None, None, None):
        flags.temperature = TEMPERATURE
    return guarded("chat", lambda: _run(flags))


def _run(flags: argparse.Namespace) -> int:
    from .open_model import open_model, warn_of_bijoy

    talk = Talk(open_model(flags), flags)
    talk.load()
    tell(say("commands.chat.help"))
    with _interrupts():
        while (line := _line(talk.stopped_at)) is not None:
            talk.stopped_at = None
            word, _, rest = line.partition(" ")
            word = word.strip().lower()
            if word in ("/quit", "/exit"):
                break
            if word == "/help":
                note("chat.help")
            elif word == "/reset":
                talk.turns.clear()
                note("chat.reset")
            elif word == "/seed":
                _seed(talk, rest)
            elif word.startswith("/"):
                note("chat.unknown", word=word, help=say("commands.chat.help"))
            elif line.strip():
                warn_of_bijoy(line)
                talk.answer(line)
    return 0


def _seed(talk: Talk, text: str) -> None:
    if not talk.chosen["do_sample"]:
        note("chat.seed_greedy")
        return
    try:
        talk.seed = whole(0, LARGEST_SEED)(text)
        note("chat.seed", seed=str(talk.seed))
    except argparse.ArgumentTypeError:
        note("chat.seed_wrong", most=str(LARGEST_SEED), got=repr(text))


@contextmanager
def _interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where a shell started the program with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _line(stopped_at: float | None) -> str | None:
    """What is typed, or None at the end. Raises ValueError for bytes on a pipe that are no UTF-8."""
    if not sys.stdin.isatty():
        try:
            line = sys.stdin.buffer.readline()
        except KeyboardInterrupt:
            return None
        return decoded(line).rstrip("\n") if line else None
    while True:
        try:
            return _typed_line()
        except UnicodeDecodeError:
            note("chat.not_utf8")
        except (EOFError, KeyboardInterrupt) as end:
            tell("")  # what comes next begins a line of its own
            again = stopped_at is not None and time.monotonic() - stopped_at < IMPATIENT
            if isinstance(end, EOFError) or not again:
                return None


def _typed_line() -> str:
    if sys.stdout.isatty():
        with suppress(ImportError):  # Windows has it built in
            import readline  # noqa: F401 (arrow keys, and lines longer than a terminal's own 4,096 bytes)
        return input("> ")
    # Python would write its prompt among the answers, which go to a file.
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class Talk:
    """The turns so far, each a line of the reader's and what the model went on with."""

    def __init__(self, opened: Any, flags: argparse.Namespace) -> None:
        """``opened`` is an ``Opened``. Raises ValueError for flags that do not fit the model."""
        from course_lib.models.generate_settings import position_limit

        from .open_model import stop_of

        self.opened, self.flags, self.tokenizer = opened, flags, opened.tokenizer
        self.model: Any = None
        self.turns: list[str] = []
        self.seed: int | None = flags.seed
        self.stopped_at: float | None = None
        """When Ctrl-C stopped the answer to the last line, by ``time.monotonic()``."""
        self.stop = stop_of(flags, opened)
        self.chosen = draws(flags, sample=not flags.greedy)
        positions = position_limit(opened.config)
        if positions is not None and flags.context is not None and flags.context > positions:
            raise ValueError(
                f"--context: expected at most {positions:,}, the positions that the model has learned, got "
                f"{flags.context:,}."
            )
        self.limit = flags.context or positions or CONTEXT
        self.new = flags.max_new_tokens or min(MAX_NEW_TOKENS, max(1, self.limit // 4))
        if self.new >= self.limit:
            raise ValueError(
                f"--max-new-tokens: expected at most {self.limit - 1:,}, which leaves room for a text in a context of "
                f"{self.limit:,}, got {self.new:,}."
            )

    def load(self) -> None:
        self.model = self.opened.load(self.flags)

    def answer(self, line: str) -> None:
        """Show how the text goes on after ``line``; Ctrl-C stops it, and what was shown then stays in the text."""
        import torch

        from course_lib.models import generate

        line = self.tokenizer.normal(line)
        ids = self._fitting(line)
        if not ids:
            return
        write, shown = writer(sys.stdout), []

        def show(new: Any) -> None:
            shown.append(new.text)
            write(new.text)

        try:
            generate(
                self.model,
                torch.tensor([ids], device=self.flags.device),
                max_new_tokens=self.new,
                stop=self.stop,
                seed=self.seed,
                tokenizer=self.tokenizer,
                on_token=show,
                **self.chosen,
            )
        except KeyboardInterrupt:
            self.stopped_at = time.monotonic()
        finally:
            write("\n")
        if self.stopped_at is not None:
            note("chat.stopped")
        self.turns.append(line + "".join(shown))

    def _fitting(self, line: str) -> list[int]:
        """The ids to read for ``line``, after which an answer fits; [] where that cannot be. Forgets what it must."""
        most = self.limit - self.new
        kept, ids = kept_turns(self.turns, line, self.tokenizer.prompt, most)
        if len(ids) > most:
            note("chat.too_long", tokens=len(ids), limit=self.limit, new=self.new, most=most)
            return []
        if dropped := len(self.turns) - len(kept):
            note("chat.forgotten", limit=self.limit, turns=dropped)
            self.turns = kept
        return ids


def kept_turns(
    turns: Sequence[str], line: str, prompt: Callable[[str], list[int]], most: int
) -> tuple[list[str], list[int]]:
    """The newest of ``turns``, each of them whole, that with ``line`` make at most ``most`` ids, and these ids.

    If ``line`` alone has more, no turn is kept, and there are more ids.
    """
    kept = list(turns)
    while len(ids := prompt("\n".join([*kept, line]))) > most and kept:
        kept.pop(0)
    return kept, ids
