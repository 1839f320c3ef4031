"""All that a run needs, made from its config: whatever does not fit is found out here, before anything is written."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from course_lib.packing import PackedBatch
from course_lib.text import Tokenizer, load_tokenizer

from .config import TrainConfig
from .evaluate import HELD_OUT_TOKENS, rows_of
from .family import build
from .held_out import Split, split_documents
from .optimizer import adamw
from .parallel import Processes, wrap
from .precision import NAMES, Precision, choose_precision
from .result import StepRecord
from .row_loss import RowLoss
from .stream import TokenStream

PADDING = 128
"""So many rows of a vocabulary beyond the tokenizer's are more than a round number explains."""


@dataclass(eq=False)
class Run:
    """A run between two steps. ``wrapped`` is ``row_loss`` as the engine of several processes calls it."""

    config: TrainConfig
    group: Processes
    tokenizer: Tokenizer
    split: Split
    held_out_rows: list[PackedBatch]
    precision: Precision
    stream: TokenStream
    model: Any
    row_loss: RowLoss
    wrapped: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    """Steps done."""
    records: list[StepRecord] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)


def check_device(name: str) -> None:
    """Raises ValueError for a GPU that this machine has not, or another device that does not compute here."""
    if name == "auto":
        return
    if torch.device(name).type != "cuda":
        try:
            torch.zeros(1, device=name).item()
        except (RuntimeError, ImportError, AssertionError) as error:
            reason = re.split(r"\.?\s*\n|\. ", str(error).strip())[0]
            raise ValueError(
                f"device: expected one that computes here, got {name} ({reason}). Take 'cpu', or 'auto'."
            ) from None
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (torch.device(name).index or 0) >= count:
        found = f"{count} GPUs, from cuda:0 on" if count else "no GPU. Take 'cpu'"
        raise ValueError(f"device: expected one of this machine, got {name}, and PyTorch finds {found}.")


def set_up(config: TrainConfig, group: Processes) -> Run:
    """Read the documents once, choose the precision, build the model. Raises what is said of them."""
    if config.rows_per_step % group.world_size:
        raise ValueError(
            f"rows_per_step: expected a multiple of the {group.world_size} processes, which share the rows of a step, "
            f"got {config.rows_per_step}. Start another number of processes, or set it to "
            f"{-(-config.rows_per_step // group.world_size) * group.world_size}."
        )
    tokenizer = config.tokenizer
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_tokenizer() if tokenizer is None else Tokenizer.load(tokenizer)
    precision = precision_of(config.precision, group)
    split = split_documents(
        config.data, config.held_out, seed=config.seed, vocab_size=config.model.vocab_size
    )
    cut: dict[str, Any] = {
        "batch_tokens": config.batch_tokens,
        "context": config.context_length,
        "tokenizer": tokenizer,
        "vocab_size": config.model.vocab_size,
    }
    stream = TokenStream(
        split.training, seed=config.seed, rank=group.rank, world_size=group.world_size, **cut
    )
    unused = config.model.vocab_size - tokenizer.vocab_size
    if unused >= PADDING and not split.has_ids and group.first:
        warnings.warn(
            f"model: its vocab_size is {config.model.vocab_size}, and the tokenizer has {tokenizer.vocab_size} ids: "
            f"{unused} rows of the embedding are never learned. Was the model meant for another tokenizer?",
            stacklevel=4,
        )
    with warnings.catch_warnings(record=True) as notices, in_words_of_data(split):
        warnings.simplefilter("always")
        start = stream.state_dict()
        next(stream)  # a corpus smaller than a row shows now
        stream.load_state_dict(start)
    for notice in notices:  # a document was split: said once, to whoever called train
        warnings.warn(_of_data(str(notice.message), split), notice.category, stacklevel=4)
    with warnings.catch_warnings(), in_words_of_data(split):
        warnings.simplefilter("ignore")
        held_out_rows = rows_of(split.held_out, most_tokens=HELD_OUT_TOKENS, **cut) if split.held_out else []

    model = build(config.model, seed=config.seed).to(group.device)
    row_loss = RowLoss(model, chunked=config.chunked_loss)
    if config.compile:
        # Layer by layer: they are alike, so that one compilation serves all.
        for layer in model.layers:
            layer.compile()
    wrapped = wrap(row_loss, config.engine, group)
    optimizer = adamw(
        model,
        config.learning_rate,
        weight_decay=config.weight_decay,
        decay_embeddings=config.decay_embeddings,
        betas=config.betas,
        fused=config.fused,
    )
    return Run(
        config, group, tokenizer, split, held_out_rows, precision, stream, model, row_loss, wrapped, optimizer
    )


@contextmanager
def in_words_of_data(split: Split) -> Iterator[None]:
    """An error of the stream's speaks of documents, by their number among those trained on; here they are data."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError):
            raise
        raise type(error)(_of_data(str(error), split)) from None


def _of_data(message: str, split: Split) -> str:
    message = re.sub("^documents:", "data:", message)
    return re.sub(r"^documents\[(\d+)\]", lambda found: split.names([int(found[1])])[0], message)


def precision_of(requested: str, group: Processes) -> Precision:
    """The same on all processes: what is measured of a device may differ from one to the next."""
    try:
        found = choose_precision(group.device, requested)
    except ValueError as error:
        raise ValueError(str(error).replace("requested:", "precision:", 1)) from None
    first = group.gather(name_of(found))[0]
    return found if first == name_of(found) else choose_precision(group.device, first)


def name_of(precision: Precision) -> str:
    """ "fp32", "bf16" or "fp16"."""
    return next(name for name, dtype in NAMES.items() if dtype == precision.dtype)
