"""What lesson 09 measures: a model's prefill and decode, and two numbers of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from course_lib.gqa import KVCache
from course_lib.lessons.lesson_08_measure import quickest
from course_lib.models import OPT, NewToken, OPTConfig, generate
from course_lib.models.few_rows import few_rows


def opt_of_shape(size: str = "125m") -> OPT:
    """An OPT as large as a published one, with random weights: to be timed, not to be read."""
    return OPT(OPTConfig.of_size(size), seed=0).eval()


def decode_weights(model: Any) -> int:
    """How many weights a decode step reads: all of the layers and of the head.

    Of the tables of tokens and of positions it takes one row each, unless the first is the head as well.
    """
    read = sum(parameter.numel() for parameter in model.layers.parameters())
    return read + model.head.weight.numel()


def measured_step(model: Any, batch: int, *, prompt: int = 8, steps: int = 6) -> float:
    """The shortest time of a decode step of ``generate`` with so many rows."""
    tokens = torch.arange(batch * prompt).view(batch, prompt) % model.config.vocab_size
    ended = [0.0] * (steps + 1)

    def note(new: NewToken) -> None:
        ended[new.step] = max(ended[new.step], new.seconds)

    generate(model, tokens, max_new_tokens=steps + 1, stop=(), on_token=note)
    return min(after - before for before, after in pairwise(ended))


@torch.no_grad()
def seconds_a_token(model: Any, lengths: Sequence[int], *, seconds: float = 0.3) -> list[float]:
    """The shortest time that reading so many tokens at once takes, divided by their number, for each length.

    One token is read as ``generate`` does in decode, more of them as it reads a prompt: into an empty cache, with
    logits for the last alone.
    """
    vocabulary = model.config.vocab_size

    def read(length: int) -> None:
        cache = [KVCache(max_length=length) for _ in model.layers]
        tokens = torch.arange(length)[None] % vocabulary
        model.head(model.hidden(tokens, cache=cache)[:, -1])

    return [
        measured_step(model, 1) if length == 1 else quickest(partial(read, length), seconds) / length
        for length in lengths
    ]


def memory_speed(*, megabytes: int = 256, seconds: float = 0.3) -> float:
    """Bytes a second that a sum reads, of a tensor that no cache of a CPU holds."""
    numbers = torch.ones(megabytes * 2**20 // 4)
    return numbers.numel() * numbers.element_size() / quickest(numbers.sum, seconds)


@torch.no_grad()
def product_speed(*, rows: int = 64, width: int = 1024, seconds: float = 0.3) -> float:
    """Operations a second (FLOP/s) in fp32, of a product with a weight that stays in the cache: what the processor can
    do if it is fed. By the products that ``generate`` uses."""
    layer, x = nn.Linear(width, width, bias=False), torch.ones(rows, width)
    with few_rows(layer, rows, steps=1):
        return 2 * rows * width * width / quickest(partial(layer, x), seconds)
