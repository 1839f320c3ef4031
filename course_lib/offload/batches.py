"""Prompts in batches, and batches in blocks: what is computed together, and where each row's answer goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from course_lib.models.generate_rows import NewToken, Rows
from course_lib.models.generate_settings import Settings


class Batch:
    """Some of the prompts, without the columns that are padding in all of them. ``unread`` is what the model reads
    next, ``real`` marks its tokens (None: all are real), ``rows`` chooses and keeps what is written."""

    def __init__(self, tokens: Tensor, settings: Settings, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        tokens, real = tokens[self.numbers], None
        if settings.real is not None:
            real = settings.real[self.numbers]
            columns = real.any(0)
            tokens, real = tokens[:, columns], real[:, columns]
            real = None if bool(real.all()) else real
        own = replace(
            settings,
            real=real,
            prompt_lengths=tuple(settings.prompt_lengths[number] for number in self.numbers),
            seeds=tuple(settings.seeds[number] for number in self.numbers) if settings.seeds else (),
            on_token=None if settings.on_token is None else self._told(settings.on_token),
        )
        self.rows = Rows(tokens, own)
        self.unread, self.real = tokens, real
        self.length = tokens.shape[1]

    def _told(self, on_token: Any) -> Any:
        return lambda new: on_token(_numbered(new, self.numbers))

    def take(self, logits: Tensor) -> None:
        """Choose the next tokens."""
        self.unread, self.real = self.rows.take(logits), None

    def written(self) -> Tensor:
        """[batch, new]"""
        return self.rows.result()[:, self.length :]


def _numbered(new: NewToken, numbers: Sequence[int]) -> NewToken:
    return new._replace(row=numbers[new.row])


def blocks(tokens: Tensor, settings: Settings, batch_size: int, num_batches: int) -> Iterator[list[Batch]]:
    """Blocks of ``num_batches`` batches of ``batch_size`` prompts; the last ones may be smaller.

    Where there are several batches, prompts of like length come together, so that little of a batch is padding.
    """
    numbers = list(range(len(tokens)))
    if len(numbers) > batch_size:
        numbers.sort(
            key=lambda number: settings.prompt_lengths[number]
        )  # stable: equal ones keep their order
    for begin in range(0, len(numbers), batch_size * num_batches):
        block = numbers[begin : begin + batch_size * num_batches]
        yield [
            Batch(tokens, settings, block[first : first + batch_size])
            for first in range(0, len(block), batch_size)
        ]
