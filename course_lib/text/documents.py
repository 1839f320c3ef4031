"""The documents of the course: the bilingual corpus, and the English of Python's own documentation.

The corpus (``data/corpus_*.jsonl``, CC0) was written for this course: from one line to a page, in Bangla, in
English, in Bangla with English words, and in Banglish (Bangla in Latin letters, as people type it).
"""

import json
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Final

LANGUAGES: Final = ("bn", "en", "mixed", "banglish")

_CORPUS_FILES: Final = ("corpus_bn.jsonl", "corpus_en.jsonl", "corpus_mixed.jsonl")


@dataclass(frozen=True, slots=True)
class Document:
    """One document. ``text`` is NFC as ``normalize_bangla`` gives it, with ``\\n`` between paragraphs.

    ``language`` is "bn", "en", "mixed" (Bangla with English words) or "banglish" (Bangla in Latin letters); a
    file of the user's own may also hold "other".
    """

    id: str
    language: str
    topic: str
    title: str
    text: str


def load_corpus(language: str | None = None) -> tuple[Document, ...]:
    """Return the corpus, or its documents in one language, always in the same order.

    Raises ValueError if ``language`` is not one of "bn", "en", "mixed", "banglish" or None.
    """
    if language is None:
        return _corpus()
    if language not in LANGUAGES:
        raise ValueError(
            f"language: expected one of {', '.join(map(repr, LANGUAGES))} or None, got {language!r}"
        )
    return tuple(document for document in _corpus() if document.language == language)


@cache
def python_topics() -> tuple[Document, ...]:
    """Return the topics of Python's ``help()`` as English documents, shortest paragraphs and longest pages
    alike.

    They come with every Python (``pydoc_data.topics``), so they cost no download, and they differ a little
    from one Python version to the next: train and play on them, but expect no equal number on another
    version. The course's tokenizer is therefore not trained on them. Topics that stand word for word inside a
    longer one are left out.

    Raises ModuleNotFoundError where a Linux distribution has cut ``pydoc_data`` from its Python.
    """
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this Python comes without pydoc_data, the text of help(); install your system's full Python "
            "package, or use load_corpus() and stories() instead"
        ) from error
    kept: list[Document] = []
    for document in sorted((_python_topic(*topic) for topic in topics.items()), key=_longest_first):
        if not any(document.text in longer.text for longer in kept):
            kept.append(document)
    return tuple(sorted(kept, key=attrgetter("id")))


@cache
def _corpus() -> tuple[Document, ...]:
    folder = Path(__file__).parent / "data"
    documents: list[Document] = []
    for name in _CORPUS_FILES:
        with (folder / name).open(encoding="utf-8") as lines:
            documents.extend(Document(**json.loads(line)) for line in lines)
    return tuple(documents)


def _longest_first(document: Document) -> tuple[int, str]:
    return -len(document.text), document.id


def _python_topic(name: str, page: str) -> Document:
    heading, _, body = page.lstrip().partition("\n")
    title = heading.replace('"', "")
    paragraphs = [_unwrapped(paragraph) for paragraph in re.split(r"\n\s*\n", body)]
    text = "\n\n".join([title, *filter(None, paragraphs)])
    return Document(id=f"python-{name}", language="en", topic="python", title=title, text=text)


def _unwrapped(paragraph: str) -> str:
    """One line for a paragraph of prose; code, grammar and lists keep their lines; rules, tables and links
    go."""
    lines = [line.rstrip() for line in paragraph.strip("\n").split("\n")]
    lines = [line for line in lines if not re.fullmatch(r"([*=\-~^\"#+])\1{2,}", line)]
    if any(re.match(r"\s*\+[-=]{3,}", line) for line in lines):
        return ""
    if not lines or lines[0].startswith(("Related help topics:", "-[ Footnotes ]-")):
        return ""
    is_prose = all(re.match(r"[^\s*|]", line) for line in lines) and not any("::=" in line for line in lines)
    return " ".join(lines) if is_prose else textwrap.dedent("\n".join(lines))
