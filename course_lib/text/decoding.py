"""Reading a UTF-8 file in blocks, and saying what is wrong when it is something else.

A file saved on Windows may be UTF-16 or the machine's own code page; opened carelessly it raises
``UnicodeDecodeError`` at a byte position that no editor shows, or turns into nonsense without a word.
"""

import codecs
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from .bijoy import BIJOY_ADVICE, looks_like_bijoy

_BLOCK: Final = 1 << 16  # bytes read at a time
_SAVE_AS_UTF8: Final = "save it again as UTF-8 (Notepad: Save as, Encoding: UTF-8)"

# Longest first: the mark of UTF-32 begins with that of UTF-16.
_OTHER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


# The bytes of Bangla letters, E0 A6 … and E0 A7 …, read in a code page and saved as UTF-8.
TWICE_ENCODED: Final = re.compile(r"(?:à[¦§].){3}")
TWICE_ENCODED_ADVICE: Final = (
    "this is Bangla whose UTF-8 was taken for Windows-1252 and encoded once more (à¦¬ for ব); go back to the original "
    "file and open it as UTF-8"
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
    at_start = only_ascii = True
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
                refuse(path, line, _why_not_utf8(error, only_ascii))
            if "\0" in text:
                line += text[: text.index("\0")].count("\n")
                refuse(path, line, _why_nul(block))
            line += text.count("\n")
            only_ascii = only_ascii and text.isascii()
            yield text
            if not block:
                return


def _refuse_other_mark(path: Path, block: bytes) -> None:
    for mark, name in _OTHER_MARKS:
        if block.startswith(mark):
            refuse(path, 1, f"this file begins with the byte order mark of {name}; {_SAVE_AS_UTF8}")


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _why_not_utf8(error: UnicodeDecodeError, only_ascii: bool) -> str:
    data, byte = error.object, error.object[error.start]
    if _looks_like_utf16(data):
        return f"this file is not UTF-8; it looks like UTF-16 without a byte order mark; {_SAVE_AS_UTF8}"
    # After nothing but ASCII the last byte is more likely a letter of a code page, such as é, than a cut character.
    if error.reason == "unexpected end of data" and not only_ascii:
        return "the file ends in the middle of a character; it was cut short, so copy or download it again"
    if byte == 0xED and data[error.start + 1] >= 0xA0:
        return "this line holds a surrogate, half of a UTF-16 pair, written as UTF-8; make the file again"
    if looks_like_bijoy(data[:4096].decode("cp1252", errors="replace")):
        return f"the byte 0x{byte:02X} is not UTF-8; this looks like {BIJOY_ADVICE}"
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
