"""The GPT that lessons 01 to 06 lead up to: every part is one that a lesson built (lesson 07).

    config = GPTConfig(vocab_size=4096, dim=384, num_layers=6, num_heads=6, num_kv_heads=2)
    model = GPT(config, seed=0)
    logits = model(batch.tokens, positions=batch.positions, bias=Packed(batch.lengths, inner=model.attention_bias))

A layer normalises before attention and before the feed-forward, and adds what they return (Radford et al. 2019,
"GPT-2"; with RMSNorm, rotary positions and SwiGLU it is Llama, Touvron et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.alibi import ALiBi
from course_lib.attention import AttentionBias, Causal, KeyPadding, Segments
from course_lib.attention.bias import as_whole_number
from course_lib.attention.combine import as_bias
from course_lib.gqa import GroupedQueryAttention, KVCache
from course_lib.swiglu import SwiGLU
from course_lib.tiny_gpt import FeedForward

# One check and one wording for tokens, positions and caches, here and in the tiny model.
from course_lib.tiny_gpt.model import check_token_positions, check_tokens, checked_caches
from course_lib.tiny_gpt.positions import angles_of

from .card import model_card
from .checkpoint import read_config, read_weights, write_model
from .gpt_config import GPTConfig
from .rms_norm import RMSNorm

MODEL_TYPE = "lean-gpt"
"""What config.json calls this family."""


class GPT(nn.Module):
    """A causal language model as its :class:`GPTConfig` describes it.

    ``embed``, ``layers``, ``norm`` and ``head`` are its parts; ``position_embed`` is there with learned positions. With
    a tied head, ``head.weight`` is ``embed.weight``. ``attention_bias`` is what may attend to what within a document,
    ALiBi's slopes included: the ``inner`` of a packed row. ``seed`` decides the initial weights; the global generator
    is left as it was.
    """

    config_class = GPTConfig

    def __init__(self, config: GPTConfig, *, seed: int = 0) -> None:
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise TypeError(f"config: expected a GPTConfig, got {type(config).__name__} {config!r}.")
        self.config = config
        # Slopes are numbers to compute with even while torch.device("meta") lays the weights out without memory.
        with torch.device("cpu"):
            self.alibi = ALiBi(config.num_heads) if config.positions == "alibi" else None
        causal = Causal("bottom-right")
        self.attention_bias: AttentionBias = causal if self.alibi is None else causal + self.alibi
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

    def tie(self) -> None:
        """Make the head's weight the embedding's where the config says so: what a move from "meta" undoes."""
        if self.config.tied_head:
            self.head.weight = self.embed.weight

    @torch.no_grad()
    def initialise(self, seed: int = 0) -> None:
        """Draw all weights anew: normal with ``init_std``, biases 0, norms 1.

        What each layer adds to the stream is scaled by ``1 / sqrt(2 * num_layers)``, the number of such additions
        (Radford et al. 2019, section 2.3). Drawn on the CPU, so a seed means the same weights on every device.
        """
        generator = torch.Generator().manual_seed(as_whole_number("seed", seed))
        std = self.config.init_std
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            elif not parameter.is_meta:
                added = name.endswith(("o_proj.weight", "w3.weight", "down.weight"))
                scale = std / math.sqrt(2 * self.config.num_layers) if added else std
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)

    def forward(
        self,
        tokens: Int64[Tensor, "batch length"],
        *,
        attention_mask: Tensor | None = None,
        positions: Int64[Tensor, "rows length"] | None = None,
        bias: Any = None,
        cache: Sequence[KVCache] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """The logits of the token after each of ``tokens``: ``head(hidden(tokens, ...))``."""
        return self.head(
            self.hidden(tokens, attention_mask=attention_mask, positions=positions, bias=bias, cache=cache)
        )

    def hidden(
        self,
        tokens: Int64[Tensor, "batch length"],
        *,
        attention_mask: Tensor | None = None,
        positions: Int64[Tensor, "rows length"] | None = None,
        bias: Any = None,
        cache: Sequence[KVCache] | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        """What the head reads, [batch, length, dim]: for a loss that never builds all logits at once.

        - ``attention_mask`` [batch, length]: 1 for a real token, 0 for padding, on either side. Rows of padding mean
          nothing.
        - ``positions`` [batch or 1, length] count the real tokens, from 0 or from what the ``cache`` holds, unless
          given. A packed row brings its own.
        - ``bias`` takes the place of ``attention_bias``: ``Packed(lengths, inner=model.attention_bias)``. With a
          ``cache``, which is causal by itself, it takes the place of ALiBi.
        - ``cache``: a ``KVCache`` for each layer, all of them empty before the first token; the mask is then that of
          the new tokens alone.

        Raises TypeError or ValueError for arguments that do not fit.
        """
        config = self.config
        attention_mask, positions, bias, caches = self._checked(
            tokens, attention_mask, positions, bias, cache
        )
        x = self.embed(tokens)
        if config.positions == "learned":
            x = x + self.position_embed(positions)
        rotary = None
        if config.positions == "rotary":
            angles = angles_of(positions, config.head_width, config.rope_theta).repeat(1, 1, 2)
            rotary = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        again = config.checkpointing == "layers" and torch.is_grad_enabled() and cache is None
        for layer, own in zip(self.layers, caches, strict=True):
            if again:
                # Nothing random happens in a layer, so no generator needs to be brought back.
                arguments = (x, bias, rotary, attention_mask, None)
                x = checkpoint(layer, *arguments, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, bias, rotary, attention_mask, own)
        return self.norm(x)

    @torch.compiler.disable  # its questions about the numbers in a tensor would break the graph, with a warning
    def _checked(self, tokens: Any, attention_mask: Any, positions: Any, bias: Any, cache: Any) -> Any:
        """What the layers need: (mask or None, positions, bias, a cache or None for each layer)."""
        check_tokens(tokens, self.config.vocab_size)
        caches = [None] * len(self.layers) if cache is None else checked_caches(cache, len(self.layers))
        attention_mask = _checked_mask(attention_mask, tokens)
        positions = self._checked_positions(tokens, positions, attention_mask, bias, caches[0])
        if bias is None:
            bias = self.attention_bias if cache is None else self.alibi
        if cache is None and attention_mask is not None:
            bias, attention_mask = KeyPadding(attention_mask) + bias, None  # once, for all layers
        return attention_mask, positions, bias, caches

    def _checked_positions(
        self, tokens: Tensor, positions: Any, attention_mask: Tensor | None, bias: Any, cache: Any
    ) -> Tensor:
        batch, length = tokens.shape
        learned = self.config.positions == "learned"
        if positions is None:
            # Rotary positions matter by their differences alone, which are right inside every document.
            if learned and isinstance(as_bias(bias), Segments):
                raise ValueError(
                    "positions: expected those of the packed row, which restart in every document, got none. "
                    "pack(...).positions are they."
                )
            if attention_mask is None and cache is None:
                positions = torch.arange(length, device=tokens.device)[None]
            else:
                real = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask
                positions = (KVCache() if cache is None else cache).next_positions(real)
        check_token_positions(positions, batch, length, self.config.max_length if learned else None)
        return positions

    def num_parameters(self, *, embeddings: bool = True) -> int:
        """The weights, a tied head counted once; without ``embeddings``, those of neither table nor head."""
        outside = () if embeddings else ("embed.", "position_embed.", "head.")
        return sum(p.numel() for name, p in self.named_parameters() if not name.startswith(outside))

    def flops_per_token(self, length: float) -> float:
        """Floating-point operations that training needs for each token of documents of ``length`` tokens.

        ``6 * N + 12 * num_layers * num_heads * head_dim * (length + 1) / 2``: N weights take part in a matrix product
        (the head does, tables that are looked up do not), each by a multiplication and an addition, once forward and
        twice backward; and a token sees (length + 1) / 2 keys on average, with a product of ``head_dim`` numbers to
        score each and another to gather it. After Chowdhery et al. 2022, "PaLM", appendix B, which counts all
        ``length`` keys; norms, softmax and what is computed a second time do not count. For packed documents,
        ``length`` is the mean over tokens: ``sum(n * n) / sum(n)``.
        """
        if isinstance(length, bool) or not isinstance(length, (int, float)):
            raise TypeError(f"length: expected a number of tokens, got {type(length).__name__} {length!r}.")
        if not 1 <= length < math.inf:
            raise ValueError(f"length: expected at least 1 token, got {length}.")
        config = self.config
        in_products = (
            sum(p.numel() for p in self.layers.parameters() if p.dim() == 2) + self.head.weight.numel()
        )
        width = config.num_layers * config.num_heads * config.head_width
        return 6 * in_products + 12 * width * (length + 1) / 2

    def save(
        self, folder: str | Path, *, trained: str = "", license: str = "", languages: Sequence[str] = ()
    ) -> Path:
        """Write model.safetensors, config.json and a model card, README.md; returns the folder, which is made.

        ``trained`` says, as Markdown, on what and how the model was trained, ``license`` which licence it has
        ("cc0-1.0"), ``languages`` are codes ("bn", "en"). A card that is there is kept unless one of these is given.
        Each file is complete before it takes the place of an older one: an interruption or a full disk leaves what was
        there. A tied head is stored once. Raises ValueError for weights of several dtypes, OSError that says where
        nothing could be written.
        """
        tensors = {name: tensor for name, tensor in self.state_dict().items() if name not in self._aliases}
        size = self.num_parameters()
        card = model_card(self.config, size, trained=trained, license=license, languages=languages)
        keep_card = not (trained or license or languages)
        return write_model(folder, MODEL_TYPE, self.config.to_dict(), tensors, card, keep_card=keep_card)

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

    @property
    def _aliases(self) -> tuple[str, ...]:
        """Names in the state dict of tensors that have another name there."""
        return ("head.weight",) if self.config.tied_head else ()


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


def _checked_mask(attention_mask: Any, tokens: Tensor) -> Tensor | None:
    """The mask as bool [batch, length], or None where no token is padding: there is then nothing to hide."""
    if attention_mask is None:
        return None
    real = KeyPadding(attention_mask).real.to(tokens.device)
    if real.shape != tokens.shape:
        raise ValueError(
            f"attention_mask: expected [batch, length] = {list(tokens.shape)} as tokens, got shape {list(real.shape)}. "
            "With a cache it marks the new tokens alone."
        )
    return None if bool(real.all()) else real
