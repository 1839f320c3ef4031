"""The documents of a run, and which of them it is not trained on, so that there is an honest loss to look at.

A document is held out, or not, by a hash of its own text and the seed: whole, with all of its parts; a copy of it goes
the same way; and text that is added to a corpus moves none that was there before.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.text import read_documents

from .config import COURSE, files_of
from .course_text import CourseText
from .stream import checked_documents

SUFFIXES = (".txt", ".jsonl")


@dataclass(frozen=True)
class Split:
    """``training()`` opens what is trained on. ``held_out`` is the rest, in the order of its hashes. ``documents``,
    their number, and ``checksum`` are of both together, ``languages`` those that the documents name. ``has_ids``:
    whether any document is token ids."""

    opened: Callable[[], Iterable[Any]]
    is_held_out: Callable[[Any], bool]
    held_out: tuple[Any, ...]
    documents: int
    checksum: str
    languages: tuple[str, ...]
    has_ids: bool

    def training(self) -> Iterator[Any]:
        """The documents to train on, opened anew."""
        return (document for document in self.opened() if not self.is_held_out(document))

    def names(self, numbers: Iterable[int]) -> list[str]:
        """What to call these documents of ``training()``: their id, or where they stand in the data."""
        wanted = set(numbers)
        trained = ((place, d) for place, d in enumerate(self.opened()) if not self.is_held_out(d))
        return [
            getattr(document, "id", f"data[{place}]")
            for number, (place, document) in enumerate(trained)
            if number in wanted
        ]


def split_documents(data: Any, share: float, *, seed: int = 0, vocab_size: int | None = None) -> Split:
    """Hold out about ``share`` of the documents of ``data`` (as in ``TrainConfig``), one at least unless it is 0.

    Reads them once. Raises ValueError where there is none, or none is left to train on, TypeError or ValueError that
    names a document which is neither text nor ids, or has an id outside of ``vocab_size``, and whatever reading raises.
    """
    opened = open_documents(data)
    total, has_ids, running = 0, False, hashlib.blake2b(digest_size=8)
    held: list[tuple[int, Any]] = []
    lowest: list[tuple[int, Any]] = []
    languages: set[str] = set()
    for document in opened():
        place = _hashed(_content(document, f"data[{total}]", vocab_size), seed)
        total += 1
        has_ids |= not isinstance(getattr(document, "text", document), str)
        running.update(place.to_bytes(8, "big"))
        languages.update(filter(None, [getattr(document, "language", None)]))
        if place < share * 2**64:
            held.append((place, document))
        if not lowest or place < lowest[0][0]:
            lowest = []
        if not lowest or place == lowest[0][0]:
            lowest.append((place, document))  # a document and its copies
    if not total:
        raise ValueError("data: expected at least one document, got none.")
    if share and not held:
        held = lowest
    if len(held) == total:
        raise ValueError(
            f"data: expected at least two different documents, one to train on and one to hold out, got {total}. Add "
            "text, or set held_out=0 to train on all of it and see no held-out loss."
        )
    held.sort(key=operator.itemgetter(0))
    bound = held[-1][0] if held else -1
    return Split(
        opened=opened,
        is_held_out=lambda document: _hashed(_content(document, "data"), seed) <= bound,
        held_out=tuple(document for _, document in held),
        documents=total,
        checksum=running.hexdigest(),
        languages=tuple(sorted(languages)),
        has_ids=has_ids,
    )


def open_documents(data: Any) -> Callable[[], Iterable[Any]]:
    """A function that opens the documents of ``data`` anew. Paths are checked now."""
    if isinstance(data, CourseText):
        return data.documents
    if isinstance(data, str) and data == COURSE:
        return CourseText().documents
    paths = files_of(data)
    if paths is not None:
        files = [file for path in paths for file in _files_in(path.expanduser())]
        read_documents(*files)
        return lambda: read_documents(*files)
    if isinstance(data, (Mapping, Set)):
        raise TypeError(
            f"data: expected a list of documents, in an order that stays, got a {type(data).__name__}. Pass a list: "
            f"{'list(data.values())' if isinstance(data, Mapping) else 'sorted(data)'}."
        )
    try:
        source = checked_documents(data)
    except TypeError as error:
        raise TypeError(str(error).replace("documents:", "data:", 1)) from None
    return (lambda: _returned(source())) if callable(source) else lambda: source


def _returned(documents: Any) -> Iterable[Any]:
    if isinstance(documents, (str, bytes, Mapping)) or not hasattr(documents, "__iter__"):
        raise TypeError(
            "data: expected a function that opens documents, got one that returns "
            f"{type(documents).__name__}. It is called once for each pass: lambda: read_documents(path)."
        )
    return documents


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and _is_text_of(path, file)
    )
    if not files:
        raise ValueError(f"data: expected .txt or .jsonl files in the folder {path}, got none.")
    return files


def _is_text_of(folder: Path, file: Path) -> bool:
    """Whether a reader would call it text of theirs: no hidden copy of an editor or a system, and no log of a run,
    which is there from the second call on where the output lies in the folder of the data."""
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and not (file.name == "log.jsonl" and (file.parent / "run.json").exists())


def _content(document: Any, name: str, vocab_size: int | None = None) -> str:
    """What tells a document from others: its text, or its ids as text."""
    text = getattr(document, "text", document)
    if isinstance(text, str):
        return text
    if isinstance(text, (bytes, Mapping, Set)) or not hasattr(text, "__iter__"):
        advice = " Pass its text: [row['text'] for row in data]." if isinstance(text, Mapping) else ""
        raise TypeError(
            f"{name}: expected a text, a Document or token ids, got {type(text).__name__} {repr(text)[:60]}.{advice}"
        )
    try:
        ids = [operator.index(token) for token in text]
    except TypeError:
        raise TypeError(
            f"{name}: expected a text, a Document or token ids in a list or 1-D tensor of whole numbers, got "
            f"{type(text).__name__} {repr(text)[:60]}."
        ) from None
    wrong = [] if vocab_size is None else [token for token in ids if not 0 <= token < vocab_size]
    if vocab_size is not None and wrong:
        raise ValueError(
            f"{name}: expected ids from 0 to {vocab_size - 1}, the vocabulary of the model, got {wrong[0]}. Were they "
            "made by another tokenizer?"
        )
    return f"ids {ids}"


def _hashed(content: str, seed: int) -> int:
    """Where a document falls between 0 and 2**64: the same for the same text or ids."""
    key = f"held out {seed} {content}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
