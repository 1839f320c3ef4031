"""OPT (Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models"), to the last digit (lesson 09).

    config = OPTConfig.of_size("opt-125m")
    model = OPT(config, seed=0)                 # random weights
    model = load_model("facebook/opt-125m")     # the published ones

Beside the course's GPT: learned positions whose first two rows no token uses, a ReLU between the products of the
feed-forward, biases everywhere, one key and value head for each query head. OPT-350m differs from its siblings: its
norms stand after what is added, and its embedding is narrower than its layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from course_lib.gqa import GroupedQueryAttention, KVCache

from .activations import ACTIVATIONS
from .causal_lm import CausalLM
from .opt_config import OPTConfig
from .stored_part import StoredPart

UNUSED_POSITIONS = 2
"""Rows of the table before that of the first token: fairseq, where OPT was trained, counts from its padding id on."""
STORED_PARTS = {
    "embed": "embed_tokens",
    "position_embed": "embed_positions",
    "norm": "final_layer_norm",
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.o_proj": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
"""What published checkpoints call a part that has another name here."""


class OPT(CausalLM):
    """An OPT as its :class:`OPTConfig` describes it.

    ``embed``, ``position_embed``, ``layers``, ``head`` are its parts, ``norm``, ``project_in`` and ``project_out``
    where it has them. With a tied head, ``head.weight`` is ``embed.weight``. ``seed`` decides the initial weights; the
    global generator is left as it was.
    """

    config_class = OPTConfig
    model_type = "opt"

    def __init__(self, config: OPTConfig, *, seed: int = 0) -> None:
        super().__init__(config)
        dim, width = config.dim, config.embed_width
        # The parts draw weights as they are made, before initialise() draws its own.
        with torch.random.fork_rng(devices=[]):
            self.embed = nn.Embedding(config.vocab_size, width)
            self.position_embed = nn.Embedding(config.max_length + UNUSED_POSITIONS, dim)
            narrow = width != dim
            self.project_in = nn.Linear(width, dim, bias=False) if narrow else None
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
            self.norm = _norm(config) if config.has_final_norm else None
            self.project_out = nn.Linear(dim, width, bias=False) if narrow else None
            self.head = nn.Linear(width, config.vocab_size, bias=False)
        self.tie()
        self.initialise(seed)

    def begin(
        self, tokens: Int64[Tensor, "batch length"], positions: Int64[Tensor, "rows length"]
    ) -> Float[Tensor, "batch length dim"]:
        x = self.embed(tokens)
        x = x if self.project_in is None else self.project_in(x)
        return x + self.position_embed(positions + UNUSED_POSITIONS)

    def finish(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length width"]:
        x = x if self.norm is None else self.norm(x)
        return x if self.project_out is None else self.project_out(x)

    @staticmethod
    def stored_name(own: str) -> str:
        """What a checkpoint calls the tensor ``own`` of the state dict: "layers.0.fc1.bias" for
        "layers.0.feed_forward.up.bias"; "lm_head.weight" for the head's. Prefixes ("model.decoder.") come on top."""
        if own == "head.weight":
            return "lm_head.weight"
        part, kind = own.rsplit(".", 1)
        layer = ""
        if part.startswith("layers."):
            _, number, part = part.split(".", 2)
            layer = f"layers.{number}."
        return f"{layer}{STORED_PARTS.get(part, part)}.{kind}"

    @classmethod
    def stored_parts(cls, config: OPTConfig) -> list[StoredPart]:
        """Where a checkpoint of ``transformers`` keeps each tensor of the state dict; its names may begin with
        "model.decoder." or "decoder."."""
        with torch.device("meta"):
            names = list(cls(config).state_dict())
        tied = ("head.weight",) if config.tied_head else ()
        return [StoredPart(own, cls.stored_name(own), optional=own in tied) for own in names]

    def to_stored(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of ``state``, a state dict or part of one, under the names that ``transformers`` gives them."""
        return {
            name if name == "lm_head.weight" else f"model.decoder.{name}": tensor
            for name, tensor in ((self.stored_name(own), tensor) for own, tensor in state.items())
        }


class Layer(nn.Module):
    """Attention, then feed-forward, each added to what it read; normalised before, or after the addition."""

    def __init__(self, config: OPTConfig) -> None:
        super().__init__()
        dim, heads = config.dim, config.num_heads
        self.norm_first = config.norm_first
        self.attention_norm = _norm(config)
        self.attention = GroupedQueryAttention(dim, heads, heads, bias=config.bias)
        self.feed_forward_norm = _norm(config)
        self.feed_forward = FeedForward(
            dim, config.hidden_width, activation=config.activation, bias=config.bias
        )

    def forward(
        self,
        x: Float[Tensor, "batch length dim"],
        bias: Any = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        if self.norm_first:
            x = x + self.attention(self.attention_norm(x), bias, cache, rotary, attention_mask=attention_mask)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x, bias, cache, rotary, attention_mask=attention_mask))
        return self.feed_forward_norm(x + self.feed_forward(x))


class FeedForward(nn.Module):
    """Each token by itself through ``hidden`` numbers."""

    def __init__(self, dim: int, hidden: int, *, activation: str, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"

    def forward(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


def _norm(config: OPTConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.dim, elementwise_affine=config.norm_affine)
