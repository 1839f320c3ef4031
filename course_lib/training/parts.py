"""What a model is made of, as far as memory is concerned: one description for all families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from .family import build

KEPT_OF_HIDDEN = {"swiglu": 4, "relu": 1}
"""How many times its hidden width a feed-forward keeps; others keep it before and after their function."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The sizes and parts of a model, in the words of ``GPTConfig``."""

    vocab_size: int
    dim: int
    embed_width: int
    """Of the embedding and the head. Where it is not ``dim``, a projection stands after one and before the other."""
    num_layers: int
    num_heads: int
    kv_heads: int
    head_width: int
    hidden_width: int
    hidden_kept: int
    """How many times its hidden width the feed-forward keeps for the backward."""
    positions: str
    position_rows: int
    """Of the table of learned positions."""
    feed_forward: str
    norm: str
    norm_vectors: int
    """Weights of a norm: a gain, a gain and a bias, or none."""
    embedding_norm: bool
    final_norm: bool
    bias: bool
    tied_head: bool
    recompute: bool
    checkpointing: str


def parts_of(config: Any) -> Parts:
    """Those of the model that ``config`` describes. Raises TypeError for what is no config of a known family."""
    with torch.device("meta"):
        model = build(replace(config, num_layers=1) if hasattr(config, "num_layers") else config)
    table = getattr(model, "position_embed", None)
    norms = [
        name
        for name, part in model.named_children()
        if isinstance(part, type(model.layers[0].attention_norm))
    ]
    return Parts(
        vocab_size=config.vocab_size,
        dim=config.dim,
        embed_width=model.embed.embedding_dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        hidden_width=config.hidden_width,
        hidden_kept=KEPT_OF_HIDDEN.get(config.feed_forward, 2),
        positions=config.positions,
        position_rows=table.num_embeddings if isinstance(table, nn.Embedding) else 0,
        feed_forward=config.feed_forward,
        norm=config.norm,
        norm_vectors=len(list(model.layers[0].attention_norm.parameters())),
        embedding_norm=len(norms) > 1 or norms not in ([], ["norm"]),
        final_norm="norm" in norms,
        bias=config.bias,
        tied_head=config.tied_head,
        recompute=getattr(config, "recompute", False),
        checkpointing=config.checkpointing,
    )
