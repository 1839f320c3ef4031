"""The documents of a run, and which of them it is not trained on, so that there is an honest loss to look at.

A document is held out, or not, by a hash of its own text and the seed: whole, with all of its parts; a copy of it goes
the same way; and text that is added to a corpus moves none that was there before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from course_lib.text import load_corpus, read_documents, stories

from .config import COURSE, files_of
from .stream import checked_documents

STORIES = 4000
"""How many go with the corpus in the data called "course"."""
SUFFIXES = (".txt", ".jsonl")


@dataclass(frozen=True)
class Split:
    """``training()`` opens what is trained on. ``held_out`` is the rest, in the order of its hashes. ``documents``,
    their number, and ``checksum`` are of both together, ``languages`` those that the documents name."""

    opened: Callable[[], Iterable[Any]]
    is_held_out: Callable[[Any], bool]
    held_out: tuple[Any, ...]
    documents: int
    checksum: str
    languages: tuple[str, ...]

    def training(self) -> Iterator[Any]:
        """The documents to train on, opened anew."""
        return (document for document in self.opened() if not self.is_held_out(document))

    def names(self, numbers: Iterable[int]) -> list[str]:
        """What to call these documents of ``training()``: their id, or where they stand in the data."""
        wanted = set(numbers)
        trained = ((place, d) for place, d in enumerate(self.opened()) if not self.is_held_out(d))
        return [
            getattr(document, "id", f"documents[{place}]")
            for number, (place, document) in enumerate(trained)
            if number in wanted
        ]


def split_documents(data: Any, share: float, *, seed: int = 0) -> Split:
    """Hold out about ``share`` of the documents of ``data`` (as in ``TrainConfig``), one at least unless it is 0.

    Reads them once. Raises ValueError where there is none, or none is left to train on, and whatever reading raises.
    """
    opened = open_documents(data)
    total, running = 0, hashlib.blake2b(digest_size=8)
    held: list[tuple[int, Any]] = []
    lowest: list[tuple[int, Any]] = []
    languages: set[str] = set()
    for document in opened():
        total += 1
        place = _place(document, seed)
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
    held.sort(key=itemgetter(0))
    bound = held[-1][0] if held else -1
    return Split(
        opened=opened,
        is_held_out=lambda document: _place(document, seed) <= bound,
        held_out=tuple(document for _, document in held),
        documents=total,
        checksum=running.hexdigest(),
        languages=tuple(sorted(languages)),
    )


def open_documents(data: Any) -> Callable[[], Iterable[Any]]:
    """A function that opens the documents of ``data`` anew. Paths are checked now."""
    if isinstance(data, str) and data == COURSE:
        return course_documents
    paths = files_of(data)
    if paths is not None:
        files = [file for path in paths for file in _files_in(path.expanduser())]
        read_documents(*files)
        return lambda: read_documents(*files)
    source = checked_documents(data)
    return source if callable(source) else lambda: source


def course_documents() -> Iterator[Any]:
    """The corpus and ``STORIES`` stories, both in Bangla and English, mixed evenly: always the same."""
    corpus = list(load_corpus())
    random.Random("course").shuffle(corpus)
    between = STORIES // len(corpus)
    for number, story in enumerate(stories(STORIES)):
        if number % between == 0 and corpus:
            yield corpus.pop()
        yield story
    yield from corpus


def _files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"data: expected .txt or .jsonl files in the folder {path}, got none.")
    return files


def _place(document: Any, seed: int) -> int:
    """Where a document falls between 0 and 2**64: the same for the same text or ids."""
    text = getattr(document, "text", document)
    content = text if isinstance(text, str) else f"ids {[int(token) for token in text]}"
    key = f"held out {seed} {content}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
