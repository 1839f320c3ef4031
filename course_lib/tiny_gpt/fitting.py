"""Training on packed rows: every token counts, no document sees another."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from course_lib.attention.bias import as_whole_number
from course_lib.packing import Packed, PackedBatch, next_token_targets, pack
from course_lib.text import Tokenizer, normalize_bangla

from .checks import check_model, checked_tokenizer
from .model import TinyGPT
from .muon import Muon

SECONDS = 60.0
WARM_UP = 0.05
"""The share of a run in which the learning rate rises."""
MUON_PACE = 3.0
"""How much faster matrices learn than embeddings, found on the stories."""


@dataclass(frozen=True)
class FitResult:
    """What a run did. ``losses`` are nats a token, one a step; ``tokens`` those read, with repetition;
    ``interrupted`` says that Ctrl-C ended it.
    """

    losses: tuple[float, ...]
    tokens: int
    seconds: float
    interrupted: bool = False

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def final_loss(self) -> float:
        """The mean of the last tenth of the steps, since single ones scatter; NaN if there was none."""
        last = self.losses[-max(1, self.steps // 10) :]
        return sum(last) / len(last) if last else math.nan


@torch.enable_grad()
def fit(
    model: TinyGPT,
    documents: Iterable[Any] | Tensor,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    lr: float = 6e-3,
    batch_tokens: int = 1024,
    context: int | None = None,
    tokenizer: Tokenizer | None = None,
    weight_decay: float = 0.1,
    progress: bool = True,
) -> FitResult:
    """Train ``model`` in place on packed rows of about ``batch_tokens`` tokens, drawn in an order set by ``seed``.

    ``documents``: texts, ``Document`` objects, or token ids (lists or 1-D tensors, taken as they are; one tensor is one
    document). A text is encoded between two end-of-text tokens, so that the model learns how texts begin and end. A
    document longer than ``context`` tokens is cut into parts of that length (``batch_tokens`` unless given, and never
    more than a model with learned positions takes); no token loses its place as a target.

    Training lasts ``seconds`` or ``steps``, whichever ends first; 60 seconds if neither is given. The learning rate
    rises to ``lr`` and falls as a cosine over that time. The same seed, ``steps`` and number of threads give the same
    losses; with ``seconds`` the number of steps is the machine's. Ctrl-C ends the run and keeps what was learned.

    Raises ValueError for an empty corpus or an id outside the vocabulary, and FloatingPointError where the loss or its
    gradient is no longer finite; the weights are then those before that step.
    """
    check_model(model)
    _check_limits(seconds, steps, lr, batch_tokens, context, weight_decay)
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            "model: expected parameters that train, got none that wants a gradient. model.requires_grad_(True) wakes "
            "them."
        )
    rng = random.Random(as_whole_number("seed", seed))
    parts = document_parts(model, documents, tokenizer, batch_tokens, context)
    if seconds is None and steps is None:
        seconds = SECONDS
    optimizers = optimizers_of(model, lr, weight_decay)
    losses: list[float] = []
    tokens, done, interrupted, started = 0, 0.0, False, time.perf_counter()
    model.train()
    bar = tqdm(total=100, unit="%", disable=not progress, bar_format="{l_bar}{bar}| {elapsed}{postfix}")
    try:
        for batch in packed_batches(parts, batch_tokens, rng):
            elapsed = time.perf_counter() - started
            done = max(elapsed / seconds if seconds else 0.0, len(losses) / steps if steps else 0.0)
            if done >= 1:
                break
            for group in (group for optimizer in optimizers for group in optimizer.param_groups):
                group["lr"] = group["initial_lr"] * _schedule(done)
            loss = packed_loss(model, batch.to(model.embed.weight.device))
            losses.append(optimizer_step(model, optimizers, loss, len(losses)))
            tokens += batch.tokens.shape[1]
            bar.set_postfix_str(f"step {len(losses)}, loss {losses[-1]:.2f}", refresh=False)
            bar.update(round(100 * done) - bar.n)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        model.eval()
        model.zero_grad(set_to_none=True)
        if done >= 1:
            bar.n = bar.total
        bar.close()
    return FitResult(tuple(losses), tokens, time.perf_counter() - started, interrupted)


def packed_loss(model: TinyGPT, batch: PackedBatch) -> Float[Tensor, ""]:
    """The mean cross-entropy, in nats a token, of the next tokens of a packed row."""
    bias = Packed(batch.lengths, inner=model.attention_bias)
    logits = model(batch.tokens, positions=batch.positions, bias=bias)
    return F.cross_entropy(logits.flatten(0, 1), next_token_targets(batch).flatten())


@torch.no_grad()
def evaluate(
    model: TinyGPT,
    documents: Iterable[Any] | Tensor,
    *,
    tokenizer: Tokenizer | None = None,
    batch_tokens: int = 1024,
    context: int | None = None,
) -> float:
    """The mean loss of ``model`` on ``documents``, in nats a token; they are read as in :func:`fit`, each once."""
    check_model(model)
    _check_limits(None, None, 1.0, batch_tokens, context)
    parts = document_parts(model, documents, tokenizer, batch_tokens, context)
    total, targets = 0.0, 0
    for batch in _rows(parts, batch_tokens):
        count = batch.tokens.shape[1] - len(batch.lengths)  # all but the last token of each part
        total += float(packed_loss(model, batch.to(model.embed.weight.device))) * count
        targets += count
    return total / targets


def optimizers_of(model: TinyGPT, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and, without decay, for norms and biases."""
    matrices = [p for p in model.layers.parameters() if p.dim() == 2]
    inside = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    tables, vectors = [p for p in rest if p.dim() > 1], [p for p in rest if p.dim() <= 1]
    adamw = torch.optim.AdamW(
        [{"params": tables, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr,
        betas=(0.9, 0.95),
    )
    optimizers: list[torch.optim.Optimizer] = [adamw, Muon(matrices, MUON_PACE * lr, weight_decay)]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def optimizer_step(
    model: TinyGPT, optimizers: Sequence[torch.optim.Optimizer], loss: Float[Tensor, ""], number: int
) -> float:
    """The backward of ``loss``, clipped, and the step; returns the loss. ``number`` is that of the step, for the
    FloatingPointError of a loss or gradient that is not finite."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for name, value in (("loss", loss.item()), ("gradient", norm.item())):
        if not math.isfinite(value):
            raise FloatingPointError(
                f"step {number}: the {name} is {value}, and training stops here. The weights are those before this "
                "step. A lower lr is the usual remedy."
            )
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def _schedule(done: float) -> float:
    """The learning rate's share of its peak after ``done`` of the run: up in a line, down to a tenth as a cosine."""
    if done < WARM_UP:
        return (done + 0.005) / (WARM_UP + 0.005)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def packed_batches(parts: list[Tensor], batch_tokens: int, rng: random.Random) -> Iterator[PackedBatch]:
    """Packed rows without end, each pass over the parts in a new order."""
    while True:
        yield from _rows(rng.sample(parts, len(parts)), batch_tokens)


def _rows(parts: Sequence[Tensor], batch_tokens: int) -> Iterator[PackedBatch]:
    # In the order drawn, until the next one does not fit. fill_bins would fill rows of a fixed size better, but a row
    # here is as long as what lies in it.
    row: list[Tensor] = []
    for part in parts:
        if row and sum(map(len, row)) + len(part) > batch_tokens:
            yield pack(row)
            row = []
        row.append(part)
    if row:
        yield pack(row)


def document_parts(
    model: TinyGPT, documents: Any, tokenizer: Tokenizer | None, batch_tokens: int, context: int | None
) -> list[Tensor]:
    """Every document's ids, cut at ``context``; a part begins with the last token of the one before."""
    if isinstance(documents, (str, bytes)) or not hasattr(documents, "__iter__"):
        raise TypeError(
            f"documents: expected a list of texts, Documents or token ids, got {type(documents).__name__}. A single "
            "text goes in a list: [text]."
        )
    if isinstance(documents, Tensor) and documents.dim() == 1:
        documents = [documents]
    length = batch_tokens if context is None else context
    if model.positions == "learned":
        length = min(length, model.max_length)
    parts = []
    number = -1
    for number, document in enumerate(documents):
        ids = _ids(number, document, tokenizer, model.vocab_size)
        parts += [ids[start : start + length] for start in range(0, len(ids) - 1, length - 1)]
    if not parts:
        came = "none" if number < 0 else f"{number + 1} with less than two tokens each"
        raise ValueError(f"documents: expected at least one of two tokens or more, got {came}.")
    return parts


def _ids(number: int, document: Any, tokenizer: Tokenizer | None, vocab_size: int) -> Tensor:
    text = getattr(document, "text", document)
    if isinstance(text, str):
        tokenizer = checked_tokenizer(tokenizer)
        end = tokenizer.end_of_text
        ids = torch.tensor([end, *tokenizer.encode(normalize_bangla(text)), end])
    else:
        try:
            ids = pack([document]).tokens[0].cpu()
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("sequences[0]", f"documents[{number}]")) from None
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise ValueError(
            f"documents[{number}]: expected ids from 0 to {vocab_size - 1}, the vocabulary of this model, got {wrong}. "
            "Was the model made for another tokenizer? TinyGPT(tokenizer.vocab_size) fits."
        )
    return ids


def _check_limits(
    seconds: Any, steps: Any, lr: Any, batch_tokens: Any, context: Any, weight_decay: Any = 0.0
) -> None:
    for name, number in (("seconds", seconds), ("lr", lr), ("weight_decay", weight_decay)):
        if number is None and name == "seconds":
            continue
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{name}: expected a number, got {type(number).__name__} {number!r}.")
        if not 0 < number < math.inf and not (name == "weight_decay" and number == 0):
            bound = "of at least 0" if name == "weight_decay" else "over 0"
            raise ValueError(f"{name}: expected a number {bound}, got {number}.")
    for name, number, least in (
        ("steps", steps, 1),
        ("batch_tokens", batch_tokens, 2),
        ("context", context, 2),
    ):
        if number is not None:
            as_whole_number(name, number, least)
