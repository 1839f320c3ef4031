"""The course's own text as data to train on: its corpus, and as many of its stories as are asked for."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from course_lib.attention.bias import as_whole_number
from course_lib.text import Document, load_corpus, stories


@dataclass(frozen=True, kw_only=True)
class CourseText:
    """``data`` of a ``TrainConfig``: the corpus and stories, both in Bangla and English; ``"course"`` for short.

    The corpus is small and of many kinds, the stories are endless and alike. A model that reads many stories sees
    little of the corpus unless it comes ``corpus_copies`` times; what comes often is learned by heart.
    """

    stories: int = 4000
    corpus_copies: int = 1
    stories_together: int = 1
    """The most stories in a document: 1, 2, 3 … up to so many in turn, all in one language, a blank line between. A
    story is short, and later positions than a document has are never learned."""

    def __post_init__(self) -> None:
        for name, least in (("stories", 0), ("corpus_copies", 0), ("stories_together", 1)):
            object.__setattr__(self, name, as_whole_number(name, getattr(self, name), least))
        if not self.stories and not self.corpus_copies:
            raise ValueError(
                "stories: expected at least 1 without the corpus, got 0: there is nothing to read."
            )

    def documents(self) -> Iterator[Document]:
        """The corpus and the stories, mixed evenly: always the same."""
        corpus: list[Document] = []
        order = random.Random("course")
        for _ in range(self.corpus_copies):
            copy = list(load_corpus())
            order.shuffle(copy)
            corpus = copy + corpus  # taken from the end: the first copy comes first
        in_all = 2 * self.stories // (1 + self.stories_together)
        between = max(1, in_all // max(1, len(corpus)))
        for number, document in enumerate(together(stories(self.stories), self.stories_together)):
            if number % between == 0 and corpus:
                yield corpus.pop()
            yield document
        yield from corpus

    def __str__(self) -> str:
        parts = []
        if self.corpus_copies:
            parts.append(
                "corpus" if self.corpus_copies == 1 else f"corpus, read {self.corpus_copies} times a pass,"
            )
        if self.stories:
            parts.append(f"{self.stories:,} of its stories" if parts else f"{self.stories:,} stories")
        return f"the course's {' and '.join(parts).rstrip(',')}, in Bangla and English"

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CourseText:
        """The text of ``to_dict``. Raises ValueError that names keys which are unknown."""
        known = [field.name for field in fields(cls)]
        unknown = [str(name) for name in values if name not in known]
        if unknown:
            raise ValueError(f"data: expected only {', '.join(known)}, got also {', '.join(unknown)}.")
        return cls(**values)


def together(found: Iterable[Document], most: int) -> Iterator[Document]:
    """Documents of one, two, three … up to ``most`` of the stories, then of one again, for each language by itself."""
    waiting: dict[str, list[Document]] = {}
    made: dict[str, int] = {}
    for story in found:
        own = waiting.setdefault(story.language, [])
        own.append(story)
        number = made.setdefault(story.language, 0)
        if len(own) == 1 + number % most:
            yield _joined(own)
            own.clear()
            made[story.language] = number + 1
    for own in waiting.values():
        if own:
            yield _joined(own)


def _joined(found: list[Document]) -> Document:
    first = found[0]
    if len(found) == 1:
        return first
    text = "\n\n".join(story.text for story in found)
    return Document(f"{first.id} and {len(found) - 1} more", first.language, first.topic, first.title, text)
