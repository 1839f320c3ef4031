"""The GPT that lessons 01 to 06 lead up to: every part is one that a lesson built (lesson 07).

    config = GPTConfig(vocab_size=4096, dim=384, num_layers=6, num_heads=6, num_kv_heads=2)
    model = GPT(config, seed=0)
    logits = model(batch.tokens, positions=batch.positions, bias=Packed(batch.lengths, inner=model.attention_bias))

A layer normalises before attention and before the feed-forward, and adds what they return (Radford et al. 2019,
"GPT-2"; with RMSNorm, rotary positions and SwiGLU it is Llama, Touvron et al. 2023).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from course_lib.gqa import GroupedQueryAttention, KVCache
from course_lib.swiglu import SwiGLU
from course_lib.tiny_gpt import FeedForward
from course_lib.tiny_gpt.positions import angles_of

from .causal_lm import CausalLM
from .checkpoint import read_config, read_weights
from .gpt_config import GPTConfig
from .rms_norm import RMSNorm

MODEL_TYPE = "lean-gpt"
"""What config.json calls this family."""


class GPT(CausalLM):
    """A causal language model as its :class:`GPTConfig` describes it.

    ``embed``, ``layers``, ``norm`` and ``head`` are its parts; ``position_embed`` is there with learned positions. With
    a tied head, ``head.weight`` is ``embed.weight``. ``attention_bias`` is what may attend to what within a document,
    ALiBi's slopes included: the ``inner`` of a packed row. ``seed`` decides the initial weights; the global generator
    is left as it was.
    """

    config_class = GPTConfig
    model_type = MODEL_TYPE

    def __init__(self, config: GPTConfig, *, seed: int = 0) -> None:
        super().__init__(config)
        # The parts draw weights as they are made, before initialise() draws its own.
        with torch.random.fork_rng(devices=[]):
            self.embed = nn.Embedding(config.vocab_size, config.dim)
            if config.positions == "learned":
                self.position_embed = nn.Embedding(config.max_length, config.dim)
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
            self.norm = _norm(config)
            self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.tie()
        self.initialise(seed)

    def begin(
        self, tokens: Int64[Tensor, "batch length"], positions: Int64[Tensor, "rows length"]
    ) -> Float[Tensor, "batch length dim"]:
        x = self.embed(tokens)
        return x + self.position_embed(positions) if self.config.positions == "learned" else x

    def rotary(
        self, positions: Int64[Tensor, "rows length"], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor] | None:
        if self.config.positions != "rotary":
            return None
        angles = angles_of(positions, self.config.head_width, self.config.rope_theta).repeat(1, 1, 2)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def finish(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        return self.norm(x)

    @classmethod
    def load(
        cls, folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> GPT:
        """The model that ``save`` wrote, ready to use (``eval()``); ``dtype`` None: as stored.

        Raises FileNotFoundError for a file that is missing, ValueError for one that is damaged, of another model or of
        another config. Pickles are never read.
        """
        config = GPTConfig.from_dict(read_config(folder, MODEL_TYPE))
        with torch.device("meta"):
            model = cls(config)
        read_weights(folder, model, aliases=model._aliases, device=device, dtype=dtype)
        model.tie()
        return model.eval()


class Layer(nn.Module):
    """Attention, then feed-forward, each normalised before and added after."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        dim, heads, kv_heads = config.dim, config.num_heads, config.kv_heads
        self.attention_norm = _norm(config)
        self.attention = GroupedQueryAttention(
            dim, heads, kv_heads, head_dim=config.head_width, bias=config.bias
        )
        self.feed_forward_norm = _norm(config)
        self.feed_forward: nn.Module
        if config.feed_forward == "swiglu":
            self.feed_forward = SwiGLU(dim, config.hidden_width, bias=config.bias, recompute=config.recompute)
        else:
            self.feed_forward = FeedForward(dim, config.hidden_width, bias=config.bias)

    def forward(
        self,
        x: Float[Tensor, "batch length dim"],
        bias: Any = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        x = x + self.attention(self.attention_norm(x), bias, cache, rotary, attention_mask=attention_mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


def _norm(config: GPTConfig) -> nn.Module:
    if config.norm == "rmsnorm":
        return RMSNorm(config.dim, eps=config.norm_eps)
    return nn.LayerNorm(config.dim, eps=config.norm_eps, bias=config.bias)
