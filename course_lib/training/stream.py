"""Documents as packed batches without end, shuffled, and resumed at exactly the batch where a run stopped.

    stream = TokenStream(load_corpus(), batch_tokens=4096, context=512, seed=0)
    for batch in stream:
        ...
        state = stream.state_dict()      # plain data for JSON: a few numbers for each document in the buffer

What comes next is set by a few numbers and nothing hidden: the pass, how many documents of it were read, which parts
wait in the buffer, and how many were drawn from it. Draw number n of a pass is made from the seed, the pass and n, so
no generator has a state to save.
"""

from __future__ import annotations

import random
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.attention.bias import as_whole_number
from course_lib.packing import PackedBatch, pack
from course_lib.text import Tokenizer, load_tokenizer, normalize_bangla


class Part(NamedTuple):
    """At most ``context`` tokens of a document: number ``part`` of document number ``document`` of the pass."""

    document: int
    part: int
    ids: Tensor


class TokenStream:
    """Packed rows of at most ``batch_tokens`` tokens, pass after pass over the documents, each in a new order.

    ``documents``: a list of texts, ``Document`` objects or token ids (lists or 1-D tensors, taken as they are), or a
    function that opens them anew for each pass, such as ``lambda: read_documents("my.txt")``; no more than the buffer
    is then held. A text is normalised and encoded between two end-of-text tokens. A document longer than ``context``
    tokens (``batch_tokens`` unless given) is split, with a warning at the first one; a part begins with the token that
    the part before it ended in, so that no target is lost. A document of less than two tokens has no target, and is
    left out.

    Order: parts wait in a buffer of about ``buffer_size`` (over it by what one document has), from which ``seed``
    draws, and go into a row until the next one does not fit. A row never holds parts of two passes.

    Several processes: batch k goes to the process whose ``rank`` is ``k % world_size``. All have read the same
    documents after the same number of batches, so one state serves all of them, a run may resume with another
    ``world_size``, and w processes see together what one sees that accumulates w batches. Each process encodes every
    document, which is little beside a training step.

    ``passes``: after so many the stream ends, with the same number of batches for every rank: the last round is filled
    up from the next pass. None is without end. ``vocab_size`` is the model's vocabulary; no id may lie outside of it.

    Raises TypeError or ValueError for settings that make no sense, a tokenizer with more ids than ``vocab_size``, an
    iterator that can be read only once, and, at the first batch, for an empty corpus or one smaller than a batch.
    """

    _pass: int
    _read: int
    """Documents of this pass that were read."""
    _draws: int
    _buffer: list[Part]
    _next: Part | None
    """Drawn, but did not fit into the row before."""
    _source: Iterator[Any] | None
    """Opened, after the documents read, when it is needed."""

    def __init__(
        self,
        documents: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        batch_tokens: int,
        context: int | None = None,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
        buffer_size: int = 1000,
        seed: int = 0,
        passes: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.batch_tokens = as_whole_number("batch_tokens", batch_tokens, 2)
        self.context = self.batch_tokens if context is None else as_whole_number("context", context, 2)
        if self.context > self.batch_tokens:
            raise ValueError(
                f"context: expected at most batch_tokens, {batch_tokens}, got {context}. A batch holds at least one "
                "part of that length: raise batch_tokens, or shorten the context."
            )
        self.buffer_size = as_whole_number("buffer_size", buffer_size, 1)
        self.seed = as_whole_number("seed", seed)
        self.passes = None if passes is None else as_whole_number("passes", passes, 1)
        self.world_size = as_whole_number("world_size", world_size, 1)
        self.rank = as_whole_number("rank", rank)
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank: expected 0 to {self.world_size - 1}, below world_size, got {rank}.")
        self.tokenizer = load_tokenizer() if tokenizer is None else tokenizer
        self.vocab_size = (
            self.tokenizer.vocab_size if vocab_size is None else as_whole_number("vocab_size", vocab_size, 1)
        )
        if self.tokenizer.vocab_size > self.vocab_size:
            raise ValueError(
                f"vocab_size: expected at least the {self.tokenizer.vocab_size} ids of the tokenizer, got {vocab_size}"
                ": the model would have no row for some of them. Build the model for this tokenizer, or load the one "
                "it was trained with."
            )
        self._documents = checked_documents(documents)
        self._told_of_a_split = False
        self._restart(0)
        self.batches = 0
        """Batches made so far, those of all ranks together."""
        self.documents: tuple[int, ...] = ()
        """The numbers, in their pass, of the documents in the last batch, in its order."""

    def __iter__(self) -> Iterator[PackedBatch]:
        return self

    def __next__(self) -> PackedBatch:
        if self.passes is not None and self._pass >= self.passes:
            raise StopIteration
        before = self._pass, self._read, self._draws, list(self._buffer), self._next, self.batches
        try:
            parts = [self._row() for _ in range(self.world_size)][self.rank]
        except BaseException:
            # Also at Ctrl-C: what was drawn for a batch that nobody got is still to come.
            self._pass, self._read, self._draws, self._buffer, self._next, self.batches = before
            self._source = None
            raise
        self.documents = tuple(part.document for part in parts)
        return pack([part.ids for part in parts])

    @property
    def passes_done(self) -> int:
        """How many times the documents have been read to their end."""
        return self._pass

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as plain data that JSON takes: what follows is what would have followed."""
        held = [*self._buffer, *([self._next] if self._next else [])]
        return {
            "pass": self._pass,
            "documents_read": self._read,
            "draws": self._draws,
            "batches": self.batches,
            "buffer": [[part.document, part.part] for part in self._buffer],
            "next": [self._next.document, self._next.part] if self._next else None,
            "checksum": _checksum(held),
            "settings": self._settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where the ``state`` was taken. The documents up to there are read again, but encoded only if held.

        Raises ValueError, and leaves the stream as it was, if the settings or the documents are not those of the state.
        """
        try:
            settings, checksum, following = state["settings"], state["checksum"], state["next"]
            read, number, draws, batches = (
                as_whole_number(key, state[key]) for key in ("documents_read", "pass", "draws", "batches")
            )
            places = [(int(document), int(part)) for document, part in state["buffer"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"state: expected what state_dict() of a TokenStream gives, got something else ({error!r})."
            ) from None
        for name, value in self._settings().items():
            if settings.get(name) != value:
                raise ValueError(
                    f"state: was taken with {name}={settings.get(name)}, but this stream has {name}={value}. "
                    "The same settings go on with the same batches; without the state the data starts anew."
                )
        wanted = [*places, *([tuple(following)] if following else [])]
        held = self._parts_at(wanted, read)
        if held is None or len(held) < len(wanted) or _checksum(held) != checksum:
            raise ValueError(
                "state: was taken from other documents than this stream reads; they have changed, or stand in another "
                "order. Restore them, or start the data anew without the state."
            )
        self._restart(number)
        self._read, self._draws, self.batches = read, draws, batches
        self._buffer, self._next = held[: len(places)], held[-1] if following else None

    def _settings(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("seed", "batch_tokens", "context", "buffer_size")}

    def _restart(self, number: int) -> None:
        self._pass, self._read, self._draws = number, 0, 0
        self._buffer, self._next, self._source = [], None, None

    def _opened(self) -> Iterator[Any]:
        source = self._documents
        return iter(source() if callable(source) else source)

    def _row(self) -> list[Part]:
        row: list[Part] = []
        tokens = 0
        first = self._draws == 0
        while (part := self._drawn()) is not None:
            if tokens + len(part.ids) > self.batch_tokens:
                self._next = part
                break
            row.append(part)
            tokens += len(part.ids)
        if self._next is None:  # the pass is over
            if first:
                self._refuse_small(tokens)
            self._restart(self._pass + 1)
        self.batches += 1
        return row

    def _drawn(self) -> Part | None:
        """The next part in this pass's order; None at its end."""
        if self._next is not None:
            part, self._next = self._next, None
            return part
        if self._source is None:
            self._source = islice(self._opened(), self._read, None)
        while len(self._buffer) < self.buffer_size:
            document = next(self._source, _END)
            if document is _END:
                break
            self._buffer += self.parts(self._read, document)
            self._read += 1
        if not self._buffer:
            return None
        # A seed of text is hashed with SHA-512: the same on every Python and platform.
        rng = random.Random(f"draw {self.seed} {self._pass} {self._draws}")
        self._draws += 1
        index = rng.randrange(len(self._buffer))
        self._buffer[index], self._buffer[-1] = self._buffer[-1], self._buffer[index]
        return self._buffer.pop()

    def parts(self, number: int, document: Any) -> list[Part]:
        """What of ``document``, which is called ``number``, goes into rows: it, or where it is too long its parts."""
        ids = self._ids(number, document)
        starts = range(0, len(ids) - 1, self.context - 1)
        if len(starts) > 1 and not self._told_of_a_split:
            self._told_of_a_split = True
            warnings.warn(
                f"documents[{number}] has {len(ids)} tokens, more than the context of {self.context}: it is split into "
                f"{len(starts)} parts, and so are others like it. Every token is still learned, but a part does not "
                "see the ones before it. A longer context= keeps documents whole.",
                stacklevel=2,
            )
        return [Part(number, i, ids[start : start + self.context]) for i, start in enumerate(starts)]

    def _ids(self, number: int, document: Any) -> Tensor:
        text = getattr(document, "text", document)
        if isinstance(text, str):
            end = self.tokenizer.end_of_text
            try:
                return torch.tensor([end, *self.tokenizer.encode(normalize_bangla(text)), end])
            except ValueError as error:
                raise ValueError(f"documents[{number}]: {error}") from None
        try:
            ids = pack([document]).tokens[0].cpu()
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("sequences[0]", f"documents[{number}]")) from None
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise ValueError(
                f"documents[{number}]: expected ids from 0 to {self.vocab_size - 1}, the vocabulary, got {wrong}. "
                "Were they made by another tokenizer?"
            )
        return ids

    def _parts_at(self, places: Sequence[tuple[int, ...]], read: int) -> list[Part] | None:
        """The parts at those places, read anew: fewer where some are missing, None where documents are."""
        wanted = {document for document, _ in places}
        found: dict[tuple[int, ...], Part] = {}
        seen = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run that is resumed has told of splits
            told = self._told_of_a_split
            for number, document in enumerate(islice(self._opened(), read)):
                seen += 1
                if number in wanted:
                    found |= {(number, part.part): part for part in self.parts(number, document)}
            self._told_of_a_split = told
        return [found[place] for place in places if place in found] if seen == read else None

    def _refuse_small(self, tokens: int) -> None:
        if not self._read:
            raise ValueError(
                "documents: expected at least one, got none. A function has to open them anew each time it is called."
            )
        if not tokens:
            raise ValueError(
                f"documents: expected at least one of two tokens or more, got {self._read} with less than that each."
            )
        if tokens < self.batch_tokens:
            raise ValueError(
                f"documents: expected at least the {self.batch_tokens} tokens of a batch, got {tokens} in all. "
                f"Set batch_tokens to {tokens} or less, or add text."
            )


_END = object()


def _checksum(parts: Sequence[Part]) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part.ids.numpy().tobytes(), checksum)
    return checksum


def checked_documents(documents: Any) -> Iterable[Any] | Callable[[], Iterable[Any]]:
    if isinstance(documents, (str, bytes)) or getattr(documents, "text", None) is not None:
        raise TypeError(
            f"documents: expected a list of texts, Documents or token ids, got one {type(documents).__name__}. A "
            "single text goes in a list: [text]; a file is read by lambda: read_documents(path)."
        )
    if isinstance(documents, Tensor):
        raise TypeError(
            "documents: expected a list, a document each, got one Tensor. Put it in a list: [ids]."
        )
    if callable(documents):
        return documents
    if not hasattr(documents, "__iter__"):
        raise TypeError(
            f"documents: expected a list of texts, Documents or token ids, or a function that opens them, got "
            f"{type(documents).__name__}."
        )
    if iter(documents) is documents:
        raise TypeError(
            f"documents: expected what can be read again for each pass, got a {type(documents).__name__}, which is "
            "spent after one. Pass list(...) of it, or a function that opens it: lambda: read_documents(path)."
        )
    return documents
