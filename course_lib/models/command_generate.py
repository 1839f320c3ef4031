"""``python -m course_lib generate MODEL --prompt "একদিন"``: prompts, and how a model goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .command_parts import MAX_NEW_TOKENS, Parser, add_model_flags, guarded, load, stop_of, typed, writer


def main(argv: Sequence[str] | None = None) -> int:
    """Write; exit code 0, or 2 for an error, which is a sentence."""
    parser = Parser(prog="python -m course_lib generate", description="Continue one prompt or several.")
    add_model_flags(parser)
    parser.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="may be given again")
    parser.add_argument(
        "--prompt-file", type=Path, metavar="FILE", help="one prompt: the whole of a UTF-8 file"
    )
    parser.add_argument("--sample", action="store_true", help="draw tokens instead of taking the likeliest")
    flags = parser.parse_args(argv)
    return guarded("generate", lambda: _run(flags))


def _run(flags: argparse.Namespace) -> int:
    prompts = _prompts(flags)
    sample = flags.sample or flags.temperature != 1.0 or flags.top_k is not None or flags.top_p is not None
    model, tokenizer, _ = load(flags)
    import torch

    from .generate import generate
    from .generate_rows import SpeedMeter
    from .generate_settings import position_limit

    write, limit = writer(sys.stdout), position_limit(model.config)
    stop = stop_of(flags, model, tokenizer)
    rows = [tokenizer.prompt(tokenizer.normal(prompt)) for prompt in prompts]
    for ids in rows:
        if limit is not None and len(ids) >= limit:
            raise ValueError(
                f"--prompt: expected fewer tokens than the model's context of {limit}, got {len(ids)}."
            )
    for i, (prompt, ids) in enumerate(zip(prompts, rows, strict=True)):
        room = MAX_NEW_TOKENS if limit is None else min(MAX_NEW_TOKENS, limit - len(ids))
        write(("\n" if i else "") + tokenizer.normal(prompt))
        meter = SpeedMeter(lambda new: write(new.text))
        try:
            generate(
                model,
                torch.tensor([ids], device=model.embed.weight.device),
                max_new_tokens=room if flags.max_new_tokens is None else flags.max_new_tokens,
                do_sample=sample,
                temperature=flags.temperature,
                top_k=flags.top_k,
                top_p=flags.top_p,
                stop=stop,
                seed=flags.seed,
                tokenizer=tokenizer,
                on_token=meter,
            )
        finally:
            write("\n")
        decode = meter.decode_tokens_per_second
        if meter.prefill_tokens_per_second is not None:
            text = "" if decode is None else f"; decode {meter.decode_tokens} tokens, {decode:,.1f} tokens/s"
            prefill = f"{meter.prompt_tokens} tokens, {meter.prefill_tokens_per_second:,.1f} tokens/s"
            print(f"prefill {prefill}{text}", file=sys.stderr)
    return 0


def _prompts(flags: argparse.Namespace) -> list[str]:
    prompts = [typed(text) for text in flags.prompt]
    if flags.prompt_file is not None:
        try:
            prompts.append(flags.prompt_file.read_text(encoding="utf-8-sig").rstrip("\n"))
        except UnicodeDecodeError:
            raise ValueError(
                f"--prompt-file: expected UTF-8 in {flags.prompt_file}, got other bytes."
            ) from None
    if not prompts:
        if sys.stdin.isatty():
            raise ValueError(
                "expected a prompt, got none: --prompt TEXT, --prompt-file FILE, or text on stdin."
            )
        try:
            prompts.append(sys.stdin.read().rstrip("\n"))
        except UnicodeDecodeError:
            raise ValueError("expected UTF-8 on stdin, got other bytes.") from None
    return prompts
