"""Grouped-query attention, and the cache that it makes small (lesson 04).

When a model writes, it reads the keys and values of everything before the new token again. With fewer key and value
heads than query heads there is less to keep and less to read: a group of query heads shares one (Ainslie et al.
2023, "GQA"; with one kv head for all, Shazeer 2019, multi-query attention). Keys and values are never repeated for
the heads of a group: ``attention()`` turns the group into further rows of its kv head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.attention import Causal, Grid, KeyPadding, attention
from course_lib.attention.combine import as_bias

from .cache import KVCache
from .causal_at import CausalAt
from .sizes import check_groups, checked_sizes

Rotary = tuple[Tensor, Tensor] | Callable[[Tensor], Tensor]


class GroupedQueryAttention(nn.Module):
    """Attention with ``num_heads`` query heads and ``num_kv_heads`` key and value heads, projections included.

    Query head h uses kv head ``h // (num_heads // num_kv_heads)``. As many kv heads as heads is multi-head attention,
    one is multi-query attention. The parameters are named as in Llama (``q_proj``, ``k_proj``, ``v_proj``,
    ``o_proj``), so state dicts go over. ``head_dim`` is ``dim // num_heads`` unless given; ``bias`` gives all four
    projections one.
    """

    def __init__(
        self, dim: int, num_heads: int, num_kv_heads: int, *, head_dim: int | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        dim, num_heads, num_kv_heads = checked_sizes(dim=dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_groups(num_heads, num_kv_heads)
        if head_dim is None:
            if dim % num_heads:
                raise ValueError(
                    f"dim: expected a multiple of num_heads = {num_heads}, got {dim}. Pass head_dim=... for heads "
                    "that together are not as wide as the model."
                )
            head_dim = dim // num_heads
        (head_dim,) = checked_sizes(head_dim=head_dim)
        self.dim, self.num_heads, self.num_kv_heads, self.head_dim = dim, num_heads, num_kv_heads, head_dim
        self.q_proj = nn.Linear(dim, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(dim, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(dim, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, dim, bias=bias)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}"

    def forward(
        self,
        x: Float[Tensor, "batch length dim"],
        bias: Any = None,
        cache: KVCache | None = None,
        rotary: Rotary | None = None,
        *,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        """What each token of ``x`` [batch, length, dim] gathers from the others: [batch, length, dim].

        ``bias`` says what may attend to what, as in ``attention()``: without one and without a cache every token sees
        every other, so a language model passes ``Causal()``. With a ``cache``, the tokens of ``x`` follow those it
        holds and are appended to it; each sees what the cache holds up to its own place, and ``bias``, over these
        queries and the cache's keys, comes on top: None suffices for a language model. A call that is refused leaves
        the cache as it was. Where sequences differ in length, a window is refused: it would be counted from the end
        of the longest.

        ``rotary`` turns queries and keys by their positions before they meet: the pair (cos, sin), each [batch or 1,
        length, head_dim] or [length, head_dim], as Llama uses it (the first half of a head's numbers against the
        second), or a function of a tensor [batch, length, heads, head_dim] that returns it turned.

        ``attention_mask`` [batch, length] marks the real tokens of ``x`` with 1 and padding, on either side, with 0:
        padding is seen by no token and takes no room in the cache. Its own rows of the output mean nothing.
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x: expected a tensor [batch, length, {self.dim}], got {type(x).__name__}.")
        if x.dim() != 3 or x.shape[-1] != self.dim:
            raise ValueError(
                f"x: expected [batch, length, dim = {self.dim}], got shape {list(x.shape)}. A single sequence needs "
                "x[None]."
            )
        self._check_dtype(x)
        if cache is not None and not isinstance(cache, KVCache):
            raise TypeError(
                f"cache: expected a KVCache, got {type(cache).__name__}. Every layer has a cache of its own: pass the "
                "one of this layer."
            )
        batch, length, _ = x.shape
        query = self.q_proj(x).view(batch, length, self.num_heads, self.head_dim)
        key = self.k_proj(x).view(batch, length, self.num_kv_heads, self.head_dim)
        value = self.v_proj(x).view(batch, length, self.num_kv_heads, self.head_dim)
        if rotary is not None:
            turn = _checked(rotary) if callable(rotary) else _half_rotation(rotary, query)
            query, key = turn(query), turn(key)
        if cache is None:
            if attention_mask is not None:
                bias = KeyPadding(attention_mask) + bias
            return self.o_proj(attention(query, key, value, bias).flatten(2))
        held = cache.host_lengths or (0,) * len(x)
        key, value, hidden = cache.append(key, value, attention_mask)
        try:
            if isinstance(hidden, CausalAt):
                _refuse_window(bias, query, key)
            # A single query that follows all keys sees them all: no mask, the shortest way through attention().
            alone = length == 1 and type(hidden) is Causal
            out = attention(query, key, value, bias if alone else hidden + bias)
        except (TypeError, ValueError):
            cache.truncate(held)  # a step that was refused has not been read
            raise
        return self.o_proj(out.flatten(2))

    def _check_dtype(self, x: Tensor) -> None:
        weight = self.q_proj.weight
        if (
            x.dtype != weight.dtype
            and weight.is_floating_point()
            and not torch.is_autocast_enabled(x.device.type)
        ):
            raise ValueError(
                f"x: expected {weight.dtype} as the weights of this layer, got {x.dtype}. Convert one of the two with "
                ".to(dtype), or run under torch.autocast."
            )


def mean_pool_kv_heads(
    weight: Float[Tensor, "rows *dim"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "pooled_rows *dim"]:
    """A key or value projection with ``num_kv_heads`` heads out of one with ``num_heads``: the mean of each group.

    ``weight`` [num_heads * head_dim, dim], as ``nn.Linear`` holds it, becomes [num_kv_heads * head_dim, dim]; a bias
    vector [num_heads * head_dim] becomes [num_kv_heads * head_dim]. Averaging beats keeping the first head of a group
    as a start for re-training (Ainslie et al. 2023, section 2.1).
    """
    num_heads, num_kv_heads = checked_sizes(num_heads=num_heads, num_kv_heads=num_kv_heads)
    check_groups(num_heads, num_kv_heads)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        came = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(
            f"weight: expected a floating-point tensor [num_heads * head_dim, dim], got {came}. Pass the weight of the "
            "projection, such as k_proj.weight."
        )
    if weight.dim() not in (1, 2) or weight.shape[0] % num_heads or not weight.shape[0]:
        raise ValueError(
            f"weight: expected [num_heads * head_dim, dim] with num_heads = {num_heads}, got shape "
            f"{list(weight.shape)}. nn.Linear holds a weight as [out, in]; the heads are its rows."
        )
    head_dim = weight.shape[0] // num_heads
    groups = weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, head_dim))
    # In float64 the sum is exact enough that heads which agree come out as they were, bit for bit.
    return groups.mean(1, dtype=torch.float64).to(weight.dtype).flatten(0, 1)


def _refuse_window(bias: Any, query: Tensor, key: Tensor) -> None:
    own = as_bias(bias)
    grid = Grid(query.shape[0], query.shape[2], query.shape[1], key.shape[1], query.dtype, query.device)
    band = None if own is None else own.as_band(grid)
    if band is not None and band.left is not None:
        raise ValueError(
            f"bias: {own!r} counts its window from the last of {grid.k_len} keys, where only the longest sequence of "
            "this cache ends. Expected a bias without a window, or sequences of one length: read the others in caches "
            "of their own."
        )


def _checked(rotary: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def turn(tensor: Tensor) -> Tensor:
        turned = rotary(tensor)
        if not isinstance(turned, Tensor) or turned.shape != tensor.shape:
            came = list(turned.shape) if isinstance(turned, Tensor) else type(turned).__name__
            raise ValueError(
                f"rotary: expected a function that returns the tensor [batch, length, heads, head_dim] = "
                f"{list(tensor.shape)} turned, got {came} from it."
            )
        return turned

    return turn


def _half_rotation(rotary: Any, query: Tensor) -> Callable[[Tensor], Tensor]:
    """Rotary positions as Llama turns them (Su et al. 2021; number i of a head pairs with i + head_dim / 2)."""
    batch, length, _, head_dim = query.shape
    if head_dim % 2:
        raise ValueError(f"rotary: expected an even head_dim, whose halves form pairs, got {head_dim}.")
    pair = isinstance(rotary, (tuple, list)) and len(rotary) == 2
    if not pair or not all(isinstance(part, Tensor) for part in rotary):
        raise TypeError(
            "rotary: expected the pair of tensors (cos, sin) or a function of a tensor [batch, length, heads, "
            f"head_dim], got {type(rotary).__name__}."
        )
    for name, part in zip(("cos", "sin"), rotary, strict=True):
        if list(part.shape) not in ([length, head_dim], [1, length, head_dim], [batch, length, head_dim]):
            raise ValueError(
                f"rotary: expected {name} of shape [batch or 1, length, head_dim] = {[batch, length, head_dim]} or "
                f"{[length, head_dim]}, got {list(part.shape)}. Its rows are the positions of the tokens in x; behind "
                "a cache they begin where it ends."
            )
    cos, sin = (part.unsqueeze(-2).to(query.dtype) for part in rotary)

    def turn(tensor: Tensor) -> Tensor:
        first, second = tensor.chunk(2, dim=-1)
        return tensor * cos + torch.cat((-second, first), dim=-1) * sin

    return turn
