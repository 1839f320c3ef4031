"""``python -m course_lib generate MODEL --prompt "একদিন"``: prompts, and how a model goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .flags import MAX_NEW_TOKENS, Parser, add_model_flags, draws, typed, whole
from .streams import decoded, guarded, note, writer

DESCRIPTION = """\
Continue one text or several. A base model continues, it does not obey: it
makes a text longer, as the texts went on that it was trained on. Give it the
beginning of what you want, not an order."""
EPILOG = """\
The text goes to stdout. Speed, and what the model's licence allows, go to
stderr, in Bangla with COURSE_LANGUAGE=bn.

examples:
  python -m course_lib generate lean-opt-5m --prompt "একদিন সকালে"
  python -m course_lib generate lean-opt-5m --prompt "One day" --top-p 0.9
  python -m course_lib generate facebook/opt-125m --prompt "Rice is" --stop "\\n"
  python -m course_lib generate my_run --prompt-file beginning.txt > story.txt"""


class Prompt(NamedTuple):
    text: str
    source: str
    """Where it came from, in the words of the command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write; exit code 0, or 2 for an error, which is a sentence."""
    parser = Parser("generate", DESCRIPTION, EPILOG, stray='A text to continue is given as --prompt "…"')
    texts = parser.add_argument_group("what is continued (default: what comes on stdin)")
    texts.add_argument(
        "--prompt", type=typed, action="append", default=[], metavar="TEXT", help="may be given again"
    )
    texts.add_argument(
        "--prompt-file", type=Path, metavar="FILE", help="the whole of a UTF-8 file as a prompt; - for stdin"
    )
    add_model_flags(parser)
    parser.add_argument(
        "--max-new-tokens", type=whole(1), metavar="N",
        help=f"at most so many, for each prompt (default: {MAX_NEW_TOKENS}, or fewer where the model has no more room)",
    )  # fmt: skip
    parser.add_argument(
        "--sample", action="store_true",
        help="draw tokens by their probability (default: take the likeliest each time, unless --temperature, --top-k, "
        "--top-p or --seed is given)",
    )  # fmt: skip
    flags = parser.parse_args(argv)
    return guarded("generate", lambda: _run(flags))


def _run(flags: argparse.Namespace) -> int:
    prompts = _prompts(flags)
    import torch

    from course_lib.models import SpeedMeter, generate
    from course_lib.models.generate_settings import checked_settings, position_limit

    from .open_model import open_model, stop_of, warn_of_bijoy

    opened = open_model(flags)
    tokenizer, limit = opened.tokenizer, position_limit(opened.config)
    hows = (flags.temperature, flags.top_k, flags.top_p, flags.seed)
    chosen: dict[str, Any] = draws(flags, sample=flags.sample or any(how is not None for how in hows))
    chosen |= {"stop": stop_of(flags, opened), "seed": flags.seed, "tokenizer": tokenizer}
    asked = []
    for prompt in prompts:
        ids = tokenizer.prompt(tokenizer.normal(prompt.text))
        new = _new_tokens(prompt, len(ids), flags.max_new_tokens, limit)
        tokens = torch.tensor([ids], dtype=torch.int64)
        checked_settings(opened.config, tokens, max_new_tokens=new, **chosen)
        asked.append((tokenizer.normal(prompt.text), tokens, new))
    warn_of_bijoy("\n".join(prompt.text for prompt in prompts))
    model = opened.load(flags)
    write = writer(sys.stdout)
    for i, (text, tokens, new) in enumerate(asked):
        write(("\n" if i else "") + text)
        meter = SpeedMeter(lambda new: write(new.text))
        try:
            generate(model, tokens.to(flags.device), max_new_tokens=new, on_token=meter, **chosen)
        finally:
            write("\n")
        _say_speed(meter)
    return 0


def _new_tokens(prompt: Prompt, length: int, asked: int | None, limit: int | None) -> int:
    """How many tokens may follow a prompt of ``length``. Raises ValueError for a prompt that leaves no room."""
    if not length:
        raise ValueError(
            f"{prompt.source}: expected some text, got none, and texts of this model have no start token to go on from."
        )
    if limit is None:
        return asked or MAX_NEW_TOKENS
    if length >= limit:
        raise ValueError(
            f"{prompt.source}: expected fewer tokens than the model's context of {limit:,}, got {length:,}. Shorten "
            "the text."
        )
    if asked is not None and asked > limit - length:
        raise ValueError(
            f"--max-new-tokens: expected at most {limit - length:,} after the {length:,} tokens of {prompt.source}, as "
            f"the model's context is {limit:,}, got {asked:,}."
        )
    return asked or min(MAX_NEW_TOKENS, limit - length)


def _say_speed(meter: Any) -> None:
    prefill, decode = meter.prefill_tokens_per_second, meter.decode_tokens_per_second
    if prefill is None:
        return
    values = {"tokens": f"{meter.prompt_tokens:,}", "speed": f"{prefill:,.0f}"}
    if decode is None:
        note("speed.prefill", **values)
    else:
        note("speed.both", **values, new=f"{meter.decode_tokens:,}", new_speed=f"{decode:,.1f}")


def _prompts(flags: argparse.Namespace) -> list[Prompt]:
    prompts = [Prompt(text, "--prompt") for text in flags.prompt]
    from_stdin = str(flags.prompt_file) == "-"
    if flags.prompt_file is not None and not from_stdin:
        from course_lib.text.decoding import text_blocks

        prompts.append(Prompt("".join(text_blocks(flags.prompt_file)).rstrip("\n"), "--prompt-file"))
    if prompts and not from_stdin:
        return prompts
    text = "" if sys.stdin.isatty() and not from_stdin else decoded(sys.stdin.buffer.read()).rstrip("\n")
    if not text:
        raise ValueError(
            'expected a prompt, got none: --prompt TEXT, --prompt-file FILE, or text on stdin. --prompt "" begins from '
            "nothing."
        )
    return [*prompts, Prompt(text, "the text on stdin")]
