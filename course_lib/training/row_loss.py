"""The loss of a packed row, as one module: what is compiled, and wrapped for several processes, is all in here."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.packing import NO_TARGET, Packed, PackedBatch

from .loss import chunked_cross_entropy


class RowLoss(nn.Module):
    """``model``'s cross-entropy over the targets of a packed row, in nats: its mean, or the sum.

    ``chunked``: the logits of some tokens at a time (lesson 07), or of all at once.
    """

    def __init__(self, model: nn.Module, *, chunked: bool = True) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self.chunked = chunked

    def forward(
        self, batch: PackedBatch, targets: Int64[Tensor, "1 total"], reduction: str = "mean"
    ) -> Float[Tensor, ""]:
        model: Any = self.model
        bias = Packed(batch.lengths, inner=model.attention_bias)
        hidden = model.hidden(batch.tokens, positions=batch.positions, bias=bias)
        if self.chunked:
            return chunked_cross_entropy(hidden, model.head.weight, targets, reduction=reduction)
        logits = model.head(hidden).float()
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET, reduction=reduction
        )
