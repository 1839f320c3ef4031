"""What the commands read and write: UTF-8 whatever the locale is, notes on stderr, errors as sentences."""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from course_lib.classroom.messages import say

FLAGS = {"path": "MODEL", "folder": "MODEL", "stop": "--stop"}
FLAGS |= {name: f"--{name}" for name in ("revision", "device", "dtype", "temperature", "seed")}
FLAGS |= {"top_k": "--top-k", "top_p": "--top-p", "max_new_tokens": "--max-new-tokens"}
"""What an argument of the library is called by who types a command."""


def note(key: str, /, **values: object) -> None:
    """Say a message of the catalogue on stderr, so that stdout holds nothing but text of the model."""
    tell(say(f"commands.{key}", **values))


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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


def decoded(data: bytes) -> str:
    """Text that came on stdin, without a byte order mark, its lines ending in ``\\n``. Raises ValueError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in UTF-8 on stdin, got the byte 0x{data[error.start]:02X}, which is none. Save the text as "
            "UTF-8 first."
        ) from None
    return text.replace("\r\n", "\n")


def guarded(name: str, command: Callable[[], int]) -> int:
    """Run ``command`` and return its exit code: an error is a sentence and 2; a reader that has gone away is none."""
    _open_streams()
    try:
        return command()
    except BrokenPipeError:
        return 0
    except (ValueError, TypeError, OSError, ImportError) as error:
        text = _sentence(error)
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
            text = "the memory does not suffice. A smaller model needs less, and so does --dtype bf16."
        text = text.splitlines()[0]
    finally:
        for stream in (sys.stdout, sys.stderr):
            _settle(stream)
    with suppress(OSError):  # nobody is left to be told
        tell(f"{name}: {text}")
    return 2


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    else:
        text = str(error)
    named = re.match(r"(\w+):", text)
    if named and named[1] in FLAGS:
        text = FLAGS[named[1]] + text[named.end(1) :]
    return " ".join(text.split())


def _open_streams() -> None:
    # A shell can start a program without one of them (`<&-`).
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (for as long as the program runs)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream, errors in ((sys.stdin, "strict"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        reconfigure = getattr(stream, "reconfigure", None)  # a notebook's streams have none
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors=errors)


def _settle(stream: Any) -> None:
    """Leave nothing that Python would fail to write at its end, with words of its own."""
    try:
        stream.flush()
    except OSError:
        with suppress(io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
