"""What lesson 03 claims of packing: the tiny model trained on packed rows, and on the same documents padded.

Both sides take the same documents in the same order, as many a step, and the same optimiser; loss and gradients are
equal. The padded batch is right-padded, where the causal mask already keeps padding from every token: that form
needs no mask, and is the fastest (with a mask: a row of its own). Its loss leaves padding out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..attention import KeyPadding
from ..packing import NO_TARGET, PackedBatch, unpack
from ..text import load_corpus
from ..tiny_gpt import TinyGPT, packed_loss

# fit()'s own parts, so that what is timed is what it does.
from ..tiny_gpt.fitting import document_parts, optimizer_step, optimizers_of, packed_batches
from .comparison import Comparison
from .measure import PAIRS

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.1


@dataclass(frozen=True)
class PaddedBatch:
    """Documents below one another, each filled up on the right to the longest; ``targets`` are -100 at padding."""

    tokens: Int64[Tensor, "documents longest"]
    targets: Int64[Tensor, "documents longest"]
    real: Int64[Tensor, "documents longest"]

    @classmethod
    def of(cls, row: PackedBatch) -> PaddedBatch:
        """The documents of a packed row."""
        documents = unpack(row.tokens, row.lengths)
        targets = [F.pad(ids[1:], (0, 1), value=NO_TARGET) for ids in documents]
        return cls(
            pad_sequence(documents, batch_first=True),
            pad_sequence(targets, batch_first=True, padding_value=NO_TARGET),
            pad_sequence([torch.ones_like(ids) for ids in documents], batch_first=True),
        )


def padded_loss(model: TinyGPT, batch: PaddedBatch, *, masked: bool = False) -> Float[Tensor, ""]:
    """The mean cross-entropy of the next tokens, in nats a token. ``masked`` hides padding from what reads nothing
    of it anyway."""
    bias = KeyPadding(batch.real) + model.attention_bias if masked else None
    logits = model(batch.tokens, bias=bias)
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=NO_TARGET)


def masked_loss(model: TinyGPT, batch: PaddedBatch) -> Float[Tensor, ""]:
    """As people who do not trust the causal mask train."""
    return padded_loss(model, batch, masked=True)


def training_rows(batch_tokens: int, count: int, seed: int = 0, documents: Any = None) -> list[PackedBatch]:
    """The first ``count`` rows that ``fit(..., batch_tokens=batch_tokens, seed=seed)`` trains on."""
    parts = document_parts(
        TinyGPT(), load_corpus() if documents is None else documents, None, batch_tokens, None
    )
    return list(islice(packed_batches(parts, batch_tokens, random.Random(seed)), count))


def trainer(
    batches: Sequence[Any], loss_of: Callable[[TinyGPT, Any], Tensor], *, steps: int = 1, device: str = "cpu"
) -> Callable[[], list[float]]:
    """``steps`` training steps a call, one batch after the other, of a model of its own; returns their losses."""
    model = TinyGPT().to(device).train()
    optimizers = optimizers_of(model, LEARNING_RATE, WEIGHT_DECAY)
    following = enumerate(cycle(batches))

    def step() -> float:
        number, batch = next(following)
        return optimizer_step(model, optimizers, loss_of(model, batch), number)

    return lambda: [step() for _ in range(steps)]


def measure(bench: Comparison, *, batch_tokens: Sequence[int], claimed: int) -> None:
    """``packed.train``, of ``claimed`` tokens a step; the other ``batch_tokens`` show how it grows with the batch."""
    pairs = bench.pairs or PAIRS
    for tokens in batch_tokens:
        steps = max(batch_tokens) // tokens  # all timings read about as much
        rows = [row.to(bench.device) for row in training_rows(tokens, (pairs + 1) * steps)]
        padded = [PaddedBatch.of(row) for row in rows]
        read = sum(row.tokens.shape[1] for row in rows[steps:])
        facts = {
            "dtype": "float32",
            "batch_tokens": tokens,
            "documents": round(sum(len(row.lengths) for row in rows) / len(rows), 1),
            "padding": round(1 - sum(map(_real, padded)) / sum(b.tokens.numel() for b in padded), 3),
            "steps": steps,
        }
        for name, loss_of in (("padded", padded_loss), ("padded, masked", masked_loss)):
            if loss_of is masked_loss and tokens != claimed:
                continue
            times = bench.time(
                f"training, {name}",
                trainer(padded, loss_of, steps=steps, device=bench.device),
                "packed",
                trainer(rows, packed_loss, steps=steps, device=bench.device),
                **facts,
            )
            if len(times.ratios) == pairs:
                bench.report.rows[-1]["tokens_per_second"] = read / sum(times.first)
                bench.report.rows[-1]["peer_tokens_per_second"] = read / sum(times.second)
            if loss_of is padded_loss and tokens == claimed:
                bench.claim("packed.train", times.ratio, ">= 2")


def _real(batch: PaddedBatch) -> int:
    return int(batch.real.sum())
