"""The fixed work of the ladder: which documents, in which batches, for a model of which size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as numbers
from itertools import islice
from random import Random

import torch
from torch import Tensor

from ..attention.bias import as_whole_number
from ..text import load_corpus, load_tokenizer, normalize_bangla, stories

HELD_OUT_EVERY = 10
"""Of every so many documents, the first is never trained on."""

Batch = list[Tensor]
"""The documents of a step: int64 [n] each, token ids between two end-of-text tokens."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model's size, and batches of ``documents`` documents, each cut off after ``cut`` tokens.

    Half of the documents are the course's own, in Bangla and English, half are stories; ``seed`` shuffles them. Raises
    ValueError for numbers that fit no model or no batch.
    """

    width: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    """Heads of keys and values from the rung of grouped queries on."""
    documents: int = 64
    cut: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "layers", "heads", "kv_heads", "documents"):
            as_whole_number(name, getattr(self, name), 1)
        as_whole_number("cut", self.cut, 2)
        as_whole_number("seed", self.seed)
        if self.width % self.heads:
            raise ValueError(f"width: expected a multiple of heads = {self.heads}, got {self.width}.")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: expected a divisor of heads = {self.heads}, got {self.kv_heads}.")


def batches(workload: Workload, count: int) -> list[Batch]:
    """The first ``count`` batches: pass after pass over the documents, each in another order.

    Raises ValueError where a batch asks for more documents than there are.
    """
    pool = [ids for number, ids in _numbered(workload.cut) if number % HELD_OUT_EVERY]
    if workload.documents > len(pool):
        raise ValueError(
            f"documents: expected at most the {len(pool)} that there are to train on, got {workload.documents} a batch."
        )

    def drawn() -> Iterator[Tensor]:
        for passed in numbers():
            # A seed of text is hashed with SHA-512: the same on every Python and platform.
            yield from Random(f"ladder {workload.seed} {passed}").sample(pool, len(pool))

    following = drawn()
    return [list(islice(following, workload.documents)) for _ in range(as_whole_number("count", count))]


def held_out(workload: Workload) -> Batch:
    """The documents that no batch holds, the same for every seed."""
    return [ids for number, ids in _numbered(workload.cut) if number % HELD_OUT_EVERY == 0]


def vocab_size() -> int:
    """That of the course's tokenizer."""
    return load_tokenizer().vocab_size


def real_tokens(batch: Batch) -> int:
    """Tokens that are there, however a batch is laid out."""
    return sum(len(ids) for ids in batch)


@lru_cache(maxsize=2)
def _numbered(cut: int) -> tuple[tuple[int, Tensor], ...]:
    """Every document's number among its kind, and its ids: the corpus, then as many stories."""
    tokenizer = load_tokenizer()
    end = tokenizer.end_of_text
    corpus = load_corpus()
    found = []
    for documents in (corpus, stories(len(corpus), seed=0)):
        for number, document in enumerate(documents):
            ids = [end, *tokenizer.encode(normalize_bangla(document.text)), end]
            found.append((number, torch.tensor(ids[:cut])))
    return tuple(found)
