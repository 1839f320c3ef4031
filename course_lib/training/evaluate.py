"""The loss on text that a model was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.packing import NO_TARGET, PackedBatch, fill_bins, next_token_targets, pack
from course_lib.text import Tokenizer

from .config import context_of
from .parallel import ONE, Processes
from .precision import Precision, choose_precision
from .row_loss import RowLoss
from .stream import TokenStream, checked_documents

HELD_OUT_TOKENS = 2**16
"""What is read of the held-out documents, at most."""


def evaluate(
    model: Any,
    documents: Iterable[Any] | Callable[[], Iterable[Any]],
    precision: Precision | None = None,
    *,
    batch_tokens: int = 4096,
    context: int | None = None,
    tokenizer: Tokenizer | None = None,
) -> float:
    """The mean loss of ``model`` over all targets of ``documents`` (as ``TokenStream`` takes them): nats a token.

    Under ``precision`` (None: fp32). Changes nothing: no weight, no mode, no generator.

    Raises ValueError where none of them has a target, and as ``TokenStream``.
    """
    documents = iter(documents) if isinstance(documents, Iterator) else checked_documents(documents)
    device = model.embed.weight.device
    precision = choose_precision(device, "fp32") if precision is None else precision
    rows = rows_of(
        list(documents() if callable(documents) else documents),
        batch_tokens=batch_tokens,
        context=context_of(model.config, batch_tokens) if context is None else context,
        tokenizer=tokenizer,
        vocab_size=model.config.vocab_size,
    )
    return mean_loss(RowLoss(model), rows, precision)


def rows_of(
    documents: Sequence[Any],
    *,
    batch_tokens: int,
    context: int,
    tokenizer: Tokenizer | None,
    vocab_size: int,
    most_tokens: float = math.inf,
) -> list[PackedBatch]:
    """The documents in as few rows as may be, each document once; the first ``most_tokens`` of them or so."""
    cut = TokenStream(
        documents, batch_tokens=batch_tokens, context=context, tokenizer=tokenizer, vocab_size=vocab_size
    )
    parts: list[Tensor] = []
    tokens = 0
    for number, document in enumerate(documents):
        found = [part.ids for part in cut.parts(number, document)]
        parts += found
        tokens += sum(len(ids) for ids in found)
        if tokens >= most_tokens:
            break
    if not parts:
        raise ValueError(
            f"documents: expected at least one of two tokens or more to evaluate on, got {len(documents)} documents, "
            "none of them so long. Take longer ones; in training, a larger share with held_out, or 0 for none."
        )
    bins = fill_bins([len(ids) for ids in parts], batch_tokens)
    return [pack([parts[i] for i in row]) for row in bins]


@torch.no_grad()
def mean_loss(
    row_loss: nn.Module, rows: Sequence[PackedBatch], precision: Precision, processes: Processes = ONE
) -> float:
    """The mean loss over all targets of ``rows``, which the processes share out; nats a token."""
    was_training = row_loss.training
    row_loss.eval()
    loss = targets = 0.0
    try:
        for row, counts in processes.shares(rows):
            wanted = next_token_targets(row)
            with precision.autocast():
                value = row_loss(
                    row.to(precision.device), wanted.to(precision.device), reduction="sum"
                ).item()
            if counts:
                loss += value
                targets += int((wanted != NO_TARGET).sum())
    finally:
        row_loss.train(was_training)
    loss, targets = processes.total(loss, targets)
    return loss / targets
