"""A GPT on one screen, with exchangeable parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.attention import AttentionBias, Causal, attention

# One check and one wording for whole numbers, here and in attention.
from course_lib.attention.bias import as_whole_number
from course_lib.attention.combine import as_bias

from .positions import POSITIONS, rotate, sinusoids

INITIAL_SIZE = 0.02
"""The standard deviation of embeddings before training."""


@runtime_checkable
class LayerCache(Protocol):
    """What a layer needs of a cache, such as lesson 04's ``KVCache``."""

    @property
    def lengths(self) -> Tensor:
        """How many tokens each sequence holds, [batch]; empty before the first append."""
        ...

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, AttentionBias]:
        """Keep further tokens; return all keys and values, and the bias under which the new ones see them."""
        ...


class TinyGPT(nn.Module):
    """A causal language model of one or two layers, 1.7 million parameters unless told otherwise.

    - ``attention_bias``: what may attend to what within a document, or a function of ``num_heads`` that makes it.
      ``Causal("bottom-right")`` unless given; lesson 05 passes ``lambda heads: Causal("bottom-right") +
      ALiBi(heads)``.
    - ``positions``: "none", "learned" (up to ``max_length``), "sinusoidal" or "rotary".
    - ``num_kv_heads``: heads of keys and values, a divisor of ``num_heads``, which it is unless given.
    - ``feed_forward``: a function of ``dim`` that makes the module after attention, [..., dim] to [..., dim].
    - ``seed`` decides the initial weights; the global generator is left as it was.

    The embedding is also the output head. Logits are [batch, length, vocab_size].
    """

    def __init__(
        self,
        vocab_size: int = 4096,
        dim: int = 192,
        num_layers: int = 2,
        num_heads: int = 6,
        num_kv_heads: int | None = None,
        *,
        positions: str = "rotary",
        attention_bias: AttentionBias | Callable[[int], AttentionBias] | None = None,
        feed_forward: Callable[[int], nn.Module] | None = None,
        max_length: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_sizes(
            vocab_size=vocab_size,
            dim=dim,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            max_length=max_length,
        )
        _check_heads(dim, num_heads, num_kv_heads)
        _check_positions(positions, dim, dim // num_heads)
        self.vocab_size, self.dim, self.positions, self.max_length = vocab_size, dim, positions, max_length
        self.attention_bias = _as_attention_bias(attention_bias, num_heads)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(as_whole_number("seed", seed))
            self.embed = nn.Embedding(vocab_size, dim)
            nn.init.normal_(self.embed.weight, std=INITIAL_SIZE)
            if positions == "learned":
                self.position_embed = nn.Embedding(max_length, dim)
                nn.init.normal_(self.position_embed.weight, std=INITIAL_SIZE)
            make = _as_maker(feed_forward)
            self.layers = nn.ModuleList(
                Layer(dim, num_heads, num_kv_heads, make(dim)) for _ in range(num_layers)
            )
            self.norm = nn.LayerNorm(dim)
            self.head = nn.Linear(dim, vocab_size, bias=False)
            self.head.weight = self.embed.weight

    def forward(
        self,
        tokens: Int64[Tensor, "batch length"],
        *,
        positions: Int64[Tensor, "rows length"] | None = None,
        bias: Any = None,
        cache: Sequence[LayerCache] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """The logits of the token after each of ``tokens``.

        ``positions`` [batch or 1, length] count from 0, or from what the ``cache`` holds, unless given. ``bias`` takes
        the place of ``attention_bias``; a packed row brings both: ``model(batch.tokens, positions=batch.positions,
        bias=Packed(batch.lengths, inner=model.attention_bias))``. ``cache``: one for each layer, all of them empty
        before the first token.
        """
        check_tokens(tokens, self.vocab_size)
        caches = [None] * len(self.layers) if cache is None else checked_caches(cache, len(self.layers))
        positions = self._checked_positions(tokens, positions, caches[0])
        bias = self.attention_bias if bias is None else bias
        x = self.embed(tokens)
        if self.positions == "learned":
            x = x + self.position_embed(positions)
        elif self.positions == "sinusoidal":
            x = x + INITIAL_SIZE * sinusoids(positions, self.dim, x.dtype)
        # Large at the input, where layers add to it, and small at the output, where logits begin near 0: the one
        # table serves both (Vaswani et al. 2017, section 3.4).
        x = x * math.sqrt(self.dim)
        turning = positions if self.positions == "rotary" else None
        for layer, own_cache in zip(self.layers, caches, strict=True):
            x = layer(x, bias, turning, own_cache)
        return self.head(self.norm(x))

    def _checked_positions(self, tokens: Tensor, positions: Any, cache: LayerCache | None) -> Tensor:
        batch, length = tokens.shape
        if positions is None:
            positions = torch.arange(length, device=tokens.device)[None]
            if cache is not None and len(cache.lengths):
                positions = positions + cache.lengths[:, None].to(tokens.device)
        max_length = self.max_length if self.positions == "learned" else None
        check_token_positions(positions, batch, length, max_length)
        return positions


class Layer(nn.Module):
    """Attention, then feed-forward, each normalised before and added after."""

    def __init__(self, dim: int, num_heads: int, num_kv_heads: int, feed_forward: nn.Module) -> None:
        super().__init__()
        if not isinstance(feed_forward, nn.Module):
            raise TypeError(
                f"feed_forward: expected a function of dim that returns a module, got {_kind(feed_forward)} from it."
            )
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads, num_kv_heads)
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, bias: Any, positions: Tensor | None, cache: LayerCache | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), bias, positions, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class SelfAttention(nn.Module):
    """Queries, keys and values of the same tokens. Parameters are named as lesson 04's ``GroupedQueryAttention`` names
    its own, so state dicts go over.
    """

    def __init__(self, dim: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.q_proj = nn.Linear(dim, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(dim, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(dim, num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, dim, bias=False)

    def forward(self, x: Tensor, bias: Any, positions: Tensor | None, cache: LayerCache | None) -> Tensor:
        # [batch, length, dim] -> [batch, length, heads, head_dim]
        query = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
        key = self.k_proj(x).unflatten(-1, (-1, self.head_dim))
        value = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        if positions is not None:
            query, key = rotate(query, positions), rotate(key, positions)
        if cache is not None:
            key, value, hidden = cache.append(key, value)
            bias = hidden + bias
        return self.o_proj(attention(query, key, value, bias).flatten(2))


class FeedForward(nn.Module):
    """Each token by itself through ``hidden`` numbers (``4 * dim`` unless given) and a GELU."""

    def __init__(self, dim: int, hidden: int | None = None, *, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim if hidden is None else hidden, bias=bias)
        self.down = nn.Linear(self.up.out_features, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        return self.down(F.gelu(self.up(x)))


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    return f"{type(value).__name__} {value!r}"


def _check_sizes(**sizes: Any) -> None:
    for name, size in sizes.items():
        as_whole_number(name, size, 1)


def _check_heads(dim: int, num_heads: int, num_kv_heads: int) -> None:
    if dim % num_heads:
        raise ValueError(f"dim: expected a multiple of num_heads = {num_heads}, got {dim}.")
    if num_heads % num_kv_heads:
        divisors = ", ".join(str(n) for n in range(1, num_heads + 1) if num_heads % n == 0)
        raise ValueError(
            f"num_kv_heads: expected a divisor of num_heads = {num_heads} ({divisors}), got {num_kv_heads}. Each kv "
            "head serves the same number of query heads."
        )


def _check_positions(positions: Any, dim: int, head_dim: int) -> None:
    if positions == "alibi":
        raise ValueError(
            "positions: expected ALiBi as a bias, got 'alibi'. It adds to the scores, not to the tokens: pass "
            "positions='none' and attention_bias=lambda heads: Causal('bottom-right') + ALiBi(heads), with "
            "course_lib.alibi of lesson 05."
        )
    if positions not in POSITIONS:
        raise ValueError(f"positions: expected one of {', '.join(map(repr, POSITIONS))}, got {positions!r}.")
    if positions == "rotary" and head_dim % 2:
        raise ValueError(
            f"dim: expected dim / num_heads to be even for rotary positions, which turn pairs, got {head_dim}."
        )
    if positions == "sinusoidal" and dim % 2:
        raise ValueError(
            f"dim: expected an even number for sinusoidal positions, sine and cosine, got {dim}."
        )


def _as_attention_bias(attention_bias: Any, num_heads: int) -> AttentionBias:
    if attention_bias is None:
        return Causal("bottom-right")
    made = attention_bias
    if callable(attention_bias) and not isinstance(attention_bias, AttentionBias):
        made = attention_bias(num_heads)
    try:
        bias = as_bias(made)
    except TypeError:
        bias = None
    if bias is None:
        raise TypeError(
            f"attention_bias: expected an AttentionBias, or a function of num_heads that makes one, got {_kind(made)}. "
            "A causal model's is Causal('bottom-right'), perhaps with more added to it."
        )
    return bias


def _as_maker(feed_forward: Any) -> Callable[[int], nn.Module]:
    if feed_forward is None:
        return FeedForward
    # A module is callable as well, but one for all layers would share its weights among them.
    if isinstance(feed_forward, nn.Module) or not callable(feed_forward):
        raise TypeError(
            "feed_forward: expected a function of dim that makes a module, such as lambda dim: FeedForward(dim), got "
            f"{_kind(feed_forward)}."
        )
    return feed_forward


def checked_caches(cache: Any, num_layers: int) -> Sequence[LayerCache]:
    """``cache`` if it is one for each layer, all of which have read the same. Raises TypeError or ValueError."""
    advice = "Make them with [KVCache() for _ in model.layers]."
    # One of each kind: to ask an object for a protocol takes longer than all else here, and every step asks.
    kinds = {type(own): own for own in cache} if isinstance(cache, (list, tuple)) else {type(cache): cache}
    if not isinstance(cache, (list, tuple)) or not all(isinstance(own, LayerCache) for own in kinds.values()):
        raise TypeError(f"cache: expected a list of caches, one for each layer, got {_kind(cache)}. {advice}")
    if len(cache) != num_layers:
        raise ValueError(
            f"cache: expected one cache for each of the {num_layers} layers, got {len(cache)}. {advice}"
        )
    if len({id(own) for own in cache}) < num_layers:
        raise ValueError(
            f"cache: expected a cache of its own for each layer, got one that serves several. {advice} "
            "[KVCache()] * 2 is the same cache twice."
        )
    lengths = [_held(own) for own in cache]
    if any(held != lengths[0] for held in lengths):
        raise ValueError(
            f"cache: expected as many tokens in every layer's cache, got lengths {' and '.join(map(str, lengths))}. A "
            f"call that was refused may have reached some layers only: start again with new ones. {advice}"
        )
    return cache


def _held(cache: LayerCache) -> list[int]:
    """``cache.lengths``, from the numbers on the host where it keeps them."""
    lengths = getattr(cache, "host_lengths", None)
    return cache.lengths.tolist() if lengths is None else list(lengths)


def check_tokens(tokens: Any, vocab_size: int) -> None:
    """Raise TypeError or ValueError unless ``tokens`` are int64 [batch, length], ids of the vocabulary."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
        raise TypeError(
            f"tokens: expected an int64 tensor [batch, length] of token ids, got {_kind(tokens)}. "
            "pack([tokenizer.encode(text)]).tokens makes one."
        )
    if tokens.dim() != 2:
        raise ValueError(
            f"tokens: expected [batch, length], got shape {list(tokens.shape)}. A single text needs tokens[None]."
        )
    if tokens.numel():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"tokens: expected ids from 0 to {vocab_size - 1}, the vocabulary of this model, got "
                f"{low if low < 0 else high}. Were they made by another tokenizer?"
            )


def check_token_positions(positions: Any, batch: int, length: int, max_length: int | None = None) -> None:
    """Raise TypeError or ValueError unless ``positions`` are int64 [batch or 1, length], and below ``max_length``,
    where a table of so many is looked up."""
    if not isinstance(positions, Tensor) or positions.dtype != torch.int64:
        raise TypeError(f"positions: expected an int64 tensor [batch, length], got {_kind(positions)}.")
    if positions.dim() != 2 or positions.shape[0] not in (1, batch) or positions.shape[1] != length:
        raise ValueError(
            f"positions: expected [batch or 1, length] = {[batch, length]} as tokens, got shape "
            f"{list(positions.shape)}. pack(...) gives both."
        )
    if max_length is not None and positions.numel():
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= max_length:
            raise ValueError(
                f"positions: expected 0 to {max_length - 1}, those learned by a model of max_length = "
                f"{max_length}, got {low if low < 0 else high}. Cut the text, or make the model with a larger "
                "max_length, or with positions that need no table."
            )
