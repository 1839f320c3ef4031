"""BLOOM (BigScience 2022), a model that speaks Bangla among 46 languages, to the last digit (lesson 09).

    config = BloomConfig.of_size("bloom-560m")
    model = Bloom(config, seed=0)                   # random weights
    model = load_model("bigscience/bloom-560m")     # the published ones

Beside OPT: no positions but lesson 05's ALiBi, a norm right after the embedding, which let so large a model train
without diverging (section 3.2 there), and a GELU in the feed-forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from course_lib.gqa import GroupedQueryAttention, KVCache

from .bloom_config import BloomConfig
from .causal_lm import CausalLM
from .opt import FeedForward
from .stored_part import StoredPart

GELU = "gelu_pytorch_tanh"
"""BLOOM writes the constants of this GELU with eight digits, which is what float32 holds of them."""
STORED_OUTSIDE = {"embed_norm": "word_embeddings_layernorm", "norm": "ln_f"}
STORED_IN_LAYERS = {
    "attention_norm": "input_layernorm",
    "attention.o_proj": "self_attention.dense",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.up": "mlp.dense_h_to_4h",
    "feed_forward.down": "mlp.dense_4h_to_h",
}
"""What published checkpoints call the parts that have a weight and a bias, ``h.<number>.`` before those of a layer."""
FUSED = ("attention.q_proj", "attention.k_proj", "attention.v_proj")
STORED_FUSED = "self_attention.query_key_value"
"""One product for all three."""


class Bloom(CausalLM):
    """A BLOOM as its :class:`BloomConfig` describes it.

    ``embed``, ``embed_norm``, ``layers``, ``norm`` and ``head`` are its parts. With a tied head, ``head.weight`` is
    ``embed.weight``. ``seed`` decides the initial weights; the global generator is left as it was.
    """

    config_class = BloomConfig
    model_type = "bloom"

    def __init__(self, config: BloomConfig, *, seed: int = 0) -> None:
        super().__init__(config)
        # The parts draw weights as they are made, before initialise() draws its own.
        with torch.random.fork_rng(devices=[]):
            self.embed = nn.Embedding(config.vocab_size, config.dim)
            self.embed_norm = _norm(config)
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
            self.norm = _norm(config)
            self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.tie()
        self.initialise(seed)

    def begin(
        self, tokens: Int64[Tensor, "batch length"], positions: Int64[Tensor, "rows length"]
    ) -> Float[Tensor, "batch length dim"]:
        return self.embed_norm(self.embed(tokens))

    def finish(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        return self.norm(x)

    @classmethod
    def stored_parts(cls, config: BloomConfig) -> list[StoredPart]:
        """Where a checkpoint of ``transformers`` keeps each tensor of the state dict; its names may begin with
        "transformer."."""
        kinds = ("weight", "bias")
        parts = [StoredPart("embed.weight", "word_embeddings.weight")]
        parts += [
            StoredPart(f"{own}.{kind}", f"{stored}.{kind}")
            for own, stored in STORED_OUTSIDE.items()
            for kind in kinds
        ]
        for number in range(config.num_layers):
            own_layer, stored_layer = f"layers.{number}.", f"h.{number}."
            for kind in kinds:
                for which, own in enumerate(FUSED):
                    take = partial(_unfused, which=which, num_heads=config.num_heads)
                    stored = f"{stored_layer}{STORED_FUSED}.{kind}"
                    parts.append(StoredPart(f"{own_layer}{own}.{kind}", stored, take))
                parts += [
                    StoredPart(f"{own_layer}{own}.{kind}", f"{stored_layer}{stored}.{kind}")
                    for own, stored in STORED_IN_LAYERS.items()
                ]
        return [*parts, StoredPart("head.weight", "lm_head.weight", optional=config.tied_head)]

    def to_stored(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of ``state``, a state dict or some of its layers, under the names and in the layout that
        ``transformers`` gives them. Raises ValueError for a name that is none of this model's, or for query, key and
        value of a layer that are not together."""
        parts = {part.own: part for part in self.stored_parts(self.config)}
        unknown = [own for own in state if own not in parts]
        if unknown:
            raise ValueError(
                f"state: expected names of this model's state dict, got also {', '.join(unknown)}."
            )
        stored: dict[str, Tensor] = {}
        for own, tensor in state.items():
            part = parts[own]
            name = part.stored if own == "head.weight" else f"transformer.{part.stored}"
            if part.take is None:
                stored[name] = tensor
            elif name not in stored:
                together = [other.own for other in parts.values() if other.stored == part.stored]
                missing = [other for other in together if other not in state]
                if missing:
                    raise ValueError(
                        f"state: expected {', '.join(together)} together, which are one tensor of a checkpoint, got "
                        f"none for {', '.join(missing)}."
                    )
                stored[name] = _fused([state[other] for other in together], self.config.num_heads)
        return stored


class Layer(nn.Module):
    """Attention, then feed-forward, each normalised before, and added to what its norm read, or to what it returned."""

    def __init__(self, config: BloomConfig) -> None:
        super().__init__()
        dim, heads = config.dim, config.num_heads
        self.residual_after_norm = config.residual_after_norm
        self.attention_norm = _norm(config)
        self.attention = GroupedQueryAttention(dim, heads, heads, bias=True)
        self.feed_forward_norm = _norm(config)
        self.feed_forward = FeedForward(dim, config.hidden_width, activation=GELU, bias=True)

    def extra_repr(self) -> str:
        return f"residual_after_norm={self.residual_after_norm}"

    def forward(
        self,
        x: Float[Tensor, "batch length dim"],
        bias: Any = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        normed = self.attention_norm(x)
        stream = normed if self.residual_after_norm else x
        x = stream + self.attention(normed, bias, cache, rotary, attention_mask=attention_mask)
        normed = self.feed_forward_norm(x)
        stream = normed if self.residual_after_norm else x
        return stream + self.feed_forward(normed)


def _norm(config: BloomConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.dim, eps=config.norm_eps)


def _unfused(
    fused: Float[Tensor, "three_times_dim *dim"], *, which: int, num_heads: int
) -> Float[Tensor, "dim *dim"]:
    """Query (0), key (1) or value (2) out of rows that lie [heads, 3, head_dim], as nn.Linear holds them."""
    return fused.unflatten(0, (num_heads, 3, -1))[:, which].flatten(0, 1)


def _fused(parts: Sequence[Tensor], num_heads: int) -> Tensor:
    return torch.stack([part.unflatten(0, (num_heads, -1)) for part in parts], dim=1).flatten(0, 2)
