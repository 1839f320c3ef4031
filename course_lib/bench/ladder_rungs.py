"""The rungs: one GPT, and seven ways to train it, each the one before and one idea more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..gqa import GroupedQueryAttention
from ..models import GPT, GPTConfig
from ..packing import Packed, next_token_targets, pack
from ..training import adamw, choose_precision, chunked_cross_entropy, optimization_step, set_learning_rate
from ..training.precision import Precision
from .ladder_workload import Batch, Workload, real_tokens, vocab_size
from .packed import PaddedBatch

LEARNING_RATE = 1e-3
INIT_STD = 384**-0.5
"""One over the root of the ladder's width. At that width every rung learned more with it than with GPT-2's 0.02, and
differed less from seed to seed."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A way to train: ``adds`` says what it has over the rung below."""

    number: int
    name: str
    adds: str
    dense: bool = False
    """Attention as a tutorial writes it: all scores of a layer at once."""
    packed: bool = False
    amp: bool = False
    grouped: bool = False
    swiglu: bool = False
    chunked_loss: bool = False
    fused: bool = False
    """The optimiser's own kernel, one pass over the weights, in place of PyTorch's default."""

    def config(self, workload: Workload) -> GPTConfig:
        """The model of this rung. All have learned positions and layer norms, as GPT-2. SwiGLU has the parameters of
        the plain feed-forward that it replaces (lesson 06); grouped queries save a tenth of all."""
        return GPTConfig(
            vocab_size=vocab_size(),
            dim=workload.width,
            num_layers=workload.layers,
            num_heads=workload.heads,
            num_kv_heads=workload.kv_heads if self.grouped else None,
            feed_forward="swiglu" if self.swiglu else "gelu",
            recompute=self.swiglu,
            positions="learned",
            norm="layernorm",
            max_length=workload.cut,
            init_std=INIT_STD,
        )


def _rungs() -> tuple[Rung, ...]:
    naive = Rung(
        number=0,
        name="naive",
        adds="padded to the longest document, all scores at once, fp32, multi-head, GELU",
        dense=True,
    )
    efficient = replace(
        naive, number=1, name="efficient attention", adds="no score is ever stored", dense=False
    )
    packed = replace(efficient, number=2, name="packing", adds="no padding", packed=True)
    amp = replace(packed, number=3, name="AMP", adds="products in half precision, where it pays", amp=True)
    grouped = replace(amp, number=4, name="grouped queries", adds="6 query heads on 2 of keys and values")
    grouped = replace(grouped, grouped=True)
    swiglu = replace(
        grouped,
        number=5,
        name="SwiGLU",
        adds="as many parameters as GELU, hidden numbers recomputed",
        swiglu=True,
    )
    top = replace(
        swiglu,
        number=6,
        name="loss and optimiser",
        adds="cross-entropy in chunks, AdamW in one pass",
        chunked_loss=True,
        fused=True,
    )
    return naive, efficient, packed, amp, grouped, swiglu, top


RUNGS = _rungs()


class Step(NamedTuple):
    """``loss`` in nats a token, and the real ``tokens`` that were read: padding is no token."""

    loss: float
    tokens: int


class Trainer:
    """Trains ``model`` with ``optimizer``, a batch a step, from the first again after the last.

    ``loss_of(batch)`` is computed under ``precision.autocast()``. ``tokens`` counts real ones, ``losses`` has that of
    each step.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_of: Callable[[Batch], Float[Tensor, ""]],
        batches: Sequence[Batch],
        precision: Precision,
    ) -> None:
        if not batches:
            raise ValueError("batches: expected at least one, got none. batches(workload, count) makes some.")
        self.name, self.model, self.optimizer, self.precision = name, model, optimizer, precision
        self.tokens = 0
        self.losses: list[float] = []
        self._loss_of, self._following = loss_of, cycle(batches)

    def step(self, lr: float | None = None) -> Step:
        """Forward, backward, clip, update; at the learning rate ``lr``, or at that of the step before."""
        batch = next(self._following)
        if lr is not None:
            set_learning_rate(self.optimizer, lr)
        with self.precision.autocast():
            loss = self._loss_of(batch)
        done = optimization_step(loss, self.optimizer, self.precision)
        tokens = real_tokens(batch)
        self.tokens += tokens
        self.losses.append(done.loss)
        return Step(done.loss, tokens)


def trainer(
    rung: Rung,
    workload: Workload,
    batches: Sequence[Batch],
    seed: int = 0,
    *,
    device: str = "cpu",
    precision: str = "auto",
) -> Trainer:
    """What ``rung`` is, ready for its first step; ``seed`` decides the initial weights.

    ``precision`` is that of the AMP rungs, as ``choose_precision`` names them; "auto" measures the machine anew.
    """
    model = GPT(rung.config(workload), seed=seed)
    if rung.dense:
        for layer in model.layers:
            layer.attention = DenseAttention(layer.attention)  # type: ignore[arg-type]
    model = model.to(device).train()
    optimizer = adamw(model, LEARNING_RATE, fused=True if rung.fused else None)
    chosen = choose_precision(device, precision if rung.amp else "fp32")
    return Trainer(rung.name, model, optimizer, lambda batch: loss_of(rung, model, batch), batches, chosen)


def loss_of(rung: Rung, model: GPT, batch: Batch) -> Float[Tensor, ""]:
    """The mean cross-entropy of the next tokens, in nats a token: on every rung of the same targets."""
    device = model.embed.weight.device
    row = pack(batch).to(device)
    arguments: dict[str, Any] = {}
    if rung.packed:
        tokens, targets = row.tokens, next_token_targets(row)
        arguments = {
            "positions": row.positions,
            "bias": Packed(row.lengths, inner=model.attention_bias),
        }
    else:
        # Padding lies on the right, where the causal mask keeps it from every token: it needs no mask of its own.
        padded = PaddedBatch.of(row)
        tokens, targets = padded.tokens, padded.targets
    if rung.chunked_loss:
        return chunked_cross_entropy(model.hidden(tokens, **arguments), model.head.weight, targets)
    logits = model(tokens, **arguments)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class DenseAttention(nn.Module):
    """Causal attention over [batch, length, dim] as tutorials write it: every score of every head is stored.

    Takes over the projections of ``layer``, under their names. ``scores`` is [batch, heads, length, length].
    """

    def __init__(self, layer: GroupedQueryAttention) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            layer.q_proj,
            layer.k_proj,
            layer.v_proj,
            layer.o_proj,
        )
        self.heads = layer.num_heads

    def forward(self, x: Float[Tensor, "batch length dim"], *_: Any, **__: Any) -> Tensor:
        """What the model passes besides ``x`` says no more than causal here: learned positions, no cache, no mask."""
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        length = x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu_(1)
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.o_proj((weights @ value).transpose(1, 2).flatten(2))
