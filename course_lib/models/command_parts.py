"""What the commands `generate` and `chat` share: flags, loading, UTF-8 streams, errors as sentences."""

from __future__ import annotations

import argparse
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

DTYPES = ("fp32", "bf16", "fp16")
MAX_NEW_TOKENS = 100


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog.split()[-1]}: {message}. --help lists the flags.", file=sys.stderr)
        raise SystemExit(2)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Which model, on what, and how it draws."""
    parser.add_argument("model", help="a model's folder, or its id on the hub: facebook/opt-125m")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help=f"at most ({MAX_NEW_TOKENS})")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1: likelier tokens (1)")
    parser.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest")
    parser.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest that make up P")
    parser.add_argument("--seed", type=int, help="the same one draws the same tokens")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help=r"end at this text; \n is a line's end"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="(as stored; fp32 for fp16 on a CPU)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, … (cpu)")
    parser.add_argument("--revision", help="branch, tag or commit of a hub model")


def utf8_streams() -> None:
    """Text goes in and out as UTF-8, whatever the locale is: Bangla has no other encoding."""
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors)


def typed(text: str) -> str:
    """A flag's text, which a locale that is not UTF-8 has read byte by byte."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise ValueError(f"expected text in UTF-8, got {text!r}.") from None


def stop_of(flags: argparse.Namespace, model: Any, tokenizer: Any) -> list[int | str]:
    """The stop strings, and the model's own end tokens."""
    texts = [typed(text).replace("\\n", "\n").replace("\\t", "\t") for text in flags.stop]
    if "" in texts:
        raise ValueError("--stop: expected some text, got none.")
    return [*texts, *(model.config.end_token_ids or tokenizer.end)]


def load(flags: argparse.Namespace) -> tuple[Any, Any, Path]:
    """Model, tokenizer, folder. The tokenizer first: it is small, and without it nothing can be done."""
    import torch

    from .load import load_model
    from .open_checkpoint import checkpoint_folder
    from .tokenizer_files import load_tokenizer_of

    folder = checkpoint_folder(flags.model, revision=flags.revision)
    tokenizer = load_tokenizer_of(folder)
    dtypes = dict(zip(DTYPES, (torch.float32, torch.bfloat16, torch.float16), strict=True))
    model = load_model(folder, device=flags.device, dtype=dtypes.get(flags.dtype))
    if flags.dtype is None and flags.device == "cpu" and model.embed.weight.dtype == torch.float16:
        model = model.float()  # processors multiply float16 slowly, and many not at all
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"path: expected a tokenizer of at most {model.config.vocab_size:,} tokens beside this model, got "
            f"{tokenizer.vocab_size:,}. It belongs to another model."
        )
    return model, tokenizer, folder


def writer(stream: Any) -> Callable[[str], None]:
    """Writes text at once. Control characters, which could repaint a terminal, do not reach one."""
    terminal = stream.isatty()

    def write(text: str) -> None:
        if terminal:
            text = "".join(sign for sign in text if sign in "\n\t" or unicodedata.category(sign) != "Cc")
        if text:
            stream.write(text)
            stream.flush()

    return write


def licence_line(name: str, folder: Path, course: bool) -> str | None:
    """What a restricted licence means, by the folder's card or else by the name of a known family."""
    card = folder / "README.md"
    header = ""
    if card.is_file():
        parts = card.read_text(encoding="utf-8", errors="replace").split("---", 2)
        header = parts[1].lower() if len(parts) == 3 and not parts[0].strip() else ""
    said = " ".join(re.findall(r"^license(?:_name)?:\s*(.+)$", header, re.MULTILINE))
    called = "" if course else f"{name} {folder}".lower()
    if "rail" in said or (not said and re.search(r"bloom", called)):
        return "licence: BLOOM's weights are under a RAIL licence: free to use, but not for the purposes it forbids."
    if not course and re.search(r"(^|[/ -])opt-", called) and said in ("", "other"):
        return "licence: OPT's weights are for research only, not for commerce, paid work included."
    return None


def guarded(name: str, command: Callable[[], int]) -> int:
    """Run ``command``: errors are a sentence and exit code 2; a reader that has gone away is no error."""
    utf8_streams()
    try:
        return command()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError) as error:
        text = (
            f"{error.strerror}: {error.filename}"
            if isinstance(error, OSError) and error.strerror
            else str(error)
        )
    except (MemoryError, RuntimeError) as error:
        text = str(error).splitlines()[0] if str(error) else "the memory does not suffice."
    print(f"{name}: {' '.join(text.split())}", file=sys.stderr)
    return 2
