"""The user's own text: ``.txt`` and ``.jsonl`` files of any size, read as a stream.

    >>> for document in shuffled(read_documents("diary.txt"), buffer_size=1000, seed=0):
    ...     print(document.title, len(document.text))

A file of a gigabyte is read in blocks; no more than a document is held at a time. Whatever cannot be read
correctly is refused, with the file, the line and what to do about it.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .bijoy import BIJOY_ADVICE, BijoyEvidence, bijoy_evidence
from .cutting import bounded_pieces
from .decoding import TWICE_ENCODED, TWICE_ENCODED_ADVICE, refuse, text_blocks
from .documents import Document
from .normalize import normalize_bangla
from .script import script_language
from .tokenizer import refuse_lone_surrogate

Split = Literal["paragraph", "line", "file"]

# A line of JSON has to be held whole to be understood.
_LONGEST_JSON_LINE: Final = 16 << 20
# Bijoy is judged over this many words at a time, so that a short line of odd names is not enough.
_JUDGED_WORDS: Final = 30
_LET_THROUGH: Final = "If it is something else, pass check_encoding=False"


class _Raw(NamedTuple):
    line: int
    text: str
    fields: dict[str, str]


def read_documents(
    path: str | os.PathLike[str],
    *more_paths: str | os.PathLike[str],
    split: Split = "paragraph",
    text_key: str = "text",
    longest: int = 100_000,
    normalize: bool = True,
    check_encoding: bool = True,
) -> Iterator[Document]:
    """Yield the documents of one or several UTF-8 files, in order, without holding any file in memory.

    ``.txt``: documents are what blank lines separate (``split="paragraph"``), each line (``"line"``) or all
    of it (``"file"``). ``.jsonl``: one JSON object a line, its text under ``text_key``; ``id``, ``language``,
    ``topic`` and ``title`` are taken over where they are strings. Blank lines and the space around a document
    are dropped; a byte order mark and ``\\r\\n`` are understood. A document over ``longest`` code points
    comes in several pieces, cut after a paragraph, sentence or word, never inside a grapheme. Text passes
    ``normalize_bangla`` unless ``normalize`` is False. Where a file does not name the language, its script
    does: "bn", "en" (any Latin), "mixed" or "other".

    Paths are checked at the call: FileNotFoundError, IsADirectoryError, or ValueError for another suffix.
    Reading raises ValueError, with file and line, for: an empty file, an encoding other than UTF-8, a NUL, a
    line that is no JSON object or lacks ``text_key``, a lone surrogate, Bangla in the encoding of a Bijoy font,
    Bangla that was encoded twice. ``check_encoding=False`` lets text pass that is wrongly taken for these two.
    """
    if split not in ("paragraph", "line", "file"):
        raise ValueError(f'split: expected "paragraph", "line" or "file", got {split!r}')
    if longest < 1:
        raise ValueError(f"longest: expected at least 1 code point, got {longest}")
    read: dict[str, Callable[[Path], Iterator[_Raw]]] = {
        ".txt": lambda file: _read_text(file, split, longest),
        ".jsonl": lambda file: _read_json_lines(file, text_key, longest),
    }
    files = [_checked_path(name, read) for name in (path, *more_paths)]

    def documents(file: Path) -> Iterator[Document]:
        found = False
        raws = read[file.suffix.lower()](file)
        for number, raw in enumerate(_rightly_encoded(file, raws) if check_encoding else raws, start=1):
            found = True
            yield _document(file.stem, number, raw, normalize)
        if not found:
            refuse(file, None, "the file is empty, or holds nothing but space; is it the one you meant?")

    return chain.from_iterable(map(documents, files))


def _checked_path(name: str | os.PathLike[str], suffixes: Iterable[str]) -> Path:
    path = Path(name)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: this is a folder; name the .txt or .jsonl files in it, one by one")
    if path.suffix.lower() not in suffixes:
        hint = (
            "; a .json file can be written as .jsonl, one object a line"
            if path.suffix.lower() == ".json"
            else ""
        )
        raise ValueError(
            f"{path}: expected a .txt or .jsonl file, got the suffix {path.suffix!r}; "
            f"save it as plain text{hint}"
        )
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; the current folder is {Path.cwd()}")
    return path


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, fragment). Only the last fragment of a line ends in ``\\n``; a long line has
    several."""
    number = 1
    for block in text_blocks(path):
        *whole, rest = block.split("\n")
        for line in whole:
            yield number, line + "\n"
            number += 1
        if rest:
            yield number, rest


def _read_text(path: Path, split: Split, longest: int) -> Iterator[_Raw]:
    for _, group in groupby(_by_document(path, split), key=itemgetter(0)):
        _, line, first = next(group)
        for piece in bounded_pieces(chain([first], (fragment for _, _, fragment in group)), longest):
            if text := piece.strip():
                yield _Raw(line + _leading_lines(piece), text, {})
            line += piece.count("\n")


def _by_document(path: Path, split: Split) -> Iterator[tuple[int, int, str]]:
    """Yield (document, line number, fragment of the line), counting documents as ``split`` separates them."""
    document = line = 0
    blank = False
    for number, fragment in _lines(path):
        starts_line, line = number != line, number
        if starts_line and (split == "line" or (split == "paragraph" and blank)):
            document += 1
        blank = not fragment.strip() and (starts_line or blank)
        yield document, number, fragment


def _leading_lines(piece: str) -> int:
    return piece[: len(piece) - len(piece.lstrip())].count("\n")


def _read_json_lines(path: Path, text_key: str, longest: int) -> Iterator[_Raw]:
    for number, line in _whole_lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:  # a JSONDecodeError, or an integer of thousands of digits
            why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            example = f'{{"{text_key}": "…"}}'
            refuse(path, number, f"this line is not JSON ({why}); write one object a line, such as {example}")
        except RecursionError:
            refuse(path, number, "this line is nested too deeply to be read")
        if not isinstance(record, dict):
            refuse(
                path, number, f'expected an object such as {{"{text_key}": "…"}}, got {_json_name(record)}'
            )
        if text_key not in record:
            keys = ", ".join(map(repr, list(record)[:8])) or "none"
            refuse(
                path,
                number,
                f"there is no key {text_key!r}; the keys are {keys}; name the right one with text_key=",
            )
        text = record[text_key]
        if not isinstance(text, str):
            refuse(path, number, f"{text_key!r}: expected a string, got {_json_name(text)}")
        if not text.strip():
            refuse(path, number, f"{text_key!r} is empty; remove the line")
        fields = {
            key: record[key]
            for key in ("id", "language", "topic", "title")
            if isinstance(record.get(key), str)
        }
        for key, value in ((text_key, text), *fields.items()):
            try:
                refuse_lone_surrogate(value, repr(key))
            except ValueError as error:
                refuse(path, number, str(error))
        pieces = filter(str.strip, bounded_pieces([text.replace("\r\n", "\n")], longest))
        for count, piece in enumerate(pieces, start=1):
            named = {"id": f"{fields['id']}-{count}"} if "id" in fields and count > 1 else {}
            yield _Raw(number, piece.strip(), fields | named)


def _whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    parts: list[str] = []
    length = 0
    number = 1
    for number, fragment in _lines(path):
        parts.append(fragment)
        length += len(fragment)
        if length > _LONGEST_JSON_LINE:
            problem = f"this line is longer than {_LONGEST_JSON_LINE:,} characters"
            refuse(path, number, f"{problem}; a .jsonl file has one small object a line, unlike a .json file")
        if fragment.endswith("\n"):
            yield number, "".join(parts)
            parts, length = [], 0
    if parts:
        yield number, "".join(parts)


def _json_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _rightly_encoded(path: Path, raws: Iterator[_Raw]) -> Iterator[_Raw]:
    """Pass documents on once the words they stand among are known to be what they say they are."""
    window: list[_Raw] = []
    words = 0
    evidence = BijoyEvidence()
    for raw in raws:
        if TWICE_ENCODED.search(raw.text):
            refuse(path, _line_of(path, raw, TWICE_ENCODED.search), f"{TWICE_ENCODED_ADVICE}. {_LET_THROUGH}")
        window.append(raw)
        words += raw.text.count(" ") + raw.text.count("\n") + 1
        evidence += bijoy_evidence(raw.text)
        if words >= _JUDGED_WORDS:
            _refuse_bijoy(path, window, evidence)
            yield from window
            window, words, evidence = [], 0, BijoyEvidence()
    _refuse_bijoy(path, window, evidence)
    yield from window


def _refuse_bijoy(path: Path, window: list[_Raw], evidence: BijoyEvidence) -> None:
    if evidence.convinces:
        first = next(raw for raw in window if bijoy_evidence(raw.text).hits)
        line = _line_of(path, first, lambda text: bijoy_evidence(text).hits)
        shown = next(text for text in first.text.split("\n") if bijoy_evidence(text).hits)
        refuse(path, line, f"“{shown.strip()[:40]}” looks like {BIJOY_ADVICE}. {_LET_THROUGH}")


def _line_of(path: Path, raw: _Raw, found: Callable[[str], object]) -> int:
    """The line of the file where ``found`` first holds; a document of a .jsonl file has only one."""
    if path.suffix.lower() == ".jsonl":
        return raw.line
    return next(number for number, line in enumerate(raw.text.split("\n"), start=raw.line) if found(line))


def _document(name: str, number: int, raw: _Raw, normalize: bool) -> Document:
    text = normalize_bangla(raw.text) if normalize else raw.text
    return Document(
        id=raw.fields.get("id", f"{name}-{number}"),
        language=raw.fields.get("language", script_language(text)),
        topic=raw.fields.get("topic", "user"),
        title=raw.fields.get("title", name),
        text=text,
    )
