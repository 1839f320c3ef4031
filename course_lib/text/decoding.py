"""Reading a UTF-8 file in blocks, and saying what is wrong when it is something else.

A file saved on Windows may be UTF-16 or the machine's own code page; opened carelessly it raises
``UnicodeDecodeError`` at a byte position that no editor shows, or turns into nonsense without a word.
"""

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

_BLOCK: Final = 1 << 16  # bytes read at a time
_SAVE_AS_UTF8: Final = "save it again as UTF-8 (Notepad: Save as, Encoding: UTF-8)"

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_OTHER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def refuse(path: Path, line: int | None, problem: str) -> NoReturn:
    """Raise the ValueError that names the file, the line if one is known, and the problem."""
    where = f"{path}" if line is None else f"{path}, line {line}"
    raise ValueError(f"{where}: {problem}")


def text_blocks(path: Path) -> Iterator[str]:
    """Yield the text of ``path`` in blocks of at most 64 KiB, without a byte order mark, every line end as
    ``\\n``.

    Raises ValueError, with the line, where the file is not UTF-8 or holds a NUL, and names the likely
    encoding.
    """
    newlines = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("strict"), translate=True)
    line = 1
    at_start = True
    with path.open("rb") as source:
        while True:
            block = source.read(_BLOCK)
            if at_start:
                _refuse_other_mark(path, block)
                block = block.removeprefix(codecs.BOM_UTF8)
                at_start = False
                if not block:
                    return
            try:
                text = newlines.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += _line_ends(error.object[: error.start])
                refuse(path, line, _why_not_utf8(error))
            if "\0" in text:
                line += text[: text.index("\0")].count("\n")
                refuse(path, line, _why_nul(block))
            line += text.count("\n")
            yield text
            if not block:
                return


def _refuse_other_mark(path: Path, block: bytes) -> None:
    for mark, name in _OTHER_MARKS:
        if block.startswith(mark):
            refuse(path, 1, f"this file begins with the byte order mark of {name}; {_SAVE_AS_UTF8}")


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _why_not_utf8(error: UnicodeDecodeError) -> str:
    data, byte = error.object, error.object[error.start]
    if _looks_like_utf16(data):
        return f"this file is not UTF-8; it looks like UTF-16 without a byte order mark; {_SAVE_AS_UTF8}"
    if error.reason == "unexpected end of data" and error.end == len(data):
        return "the file ends in the middle of a character; it was cut short, so copy or download it again"
    if byte == 0xED and data[error.start + 1] >= 0xA0:
        return "this line holds a surrogate, half of a UTF-16 pair, written as UTF-8; make the file again"
    around = data[max(0, error.start - 12) : error.start + 12].decode("cp1252", errors="replace")
    return (
        f"the byte 0x{byte:02X} is not UTF-8; it looks like Windows-1252 or another code page "
        f"(Notepad calls it ANSI), where it would read …{' '.join(around.split())}…; {_SAVE_AS_UTF8}"
    )


def _why_nul(block: bytes) -> str:
    if _looks_like_utf16(block):
        return f"this file looks like UTF-16 without a byte order mark; {_SAVE_AS_UTF8}"
    return "this line holds a NUL byte, so it is no plain text; is it another program's document, renamed?"


def _looks_like_utf16(data: bytes) -> bool:
    """Every second byte of Latin or Bangla text in UTF-16 is 00 or 09."""
    sample = data[:4096]
    halves = sample[::2], sample[1::2]
    return any(half and (half.count(0) + half.count(9)) >= 0.7 * len(half) for half in halves)
