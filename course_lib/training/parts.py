"""What a model is made of, as far as memory is concerned: one description for all families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .family import model_type_of


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The sizes and parts of a model, in the words of ``GPTConfig``."""

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    kv_heads: int
    head_width: int
    hidden_width: int
    positions: str
    position_rows: int
    """Of the table of learned positions."""
    feed_forward: str
    norm: str
    bias: bool
    final_norm: bool = True
    tied_head: bool = True
    recompute: bool = False
    checkpointing: str = "none"


def parts_of(config: Any) -> Parts:
    """Those of the model that ``config`` describes. Raises TypeError or ValueError for one that is not known here."""
    name = model_type_of(config)
    if name not in FAMILIES:
        raise ValueError(f"model: expected one of {', '.join(FAMILIES)}, whose memory is known, got {name}.")
    return FAMILIES[name](config)


def _of_gpt(config: Any) -> Parts:
    return Parts(
        vocab_size=config.vocab_size,
        dim=config.dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        hidden_width=config.hidden_width,
        positions=config.positions,
        position_rows=config.max_length,
        feed_forward=config.feed_forward,
        norm=config.norm,
        bias=config.bias,
        tied_head=config.tied_head,
        recompute=config.recompute,
        checkpointing=config.checkpointing,
    )


FAMILIES: dict[str, Callable[[Any], Parts]] = {"lean-gpt": _of_gpt}
