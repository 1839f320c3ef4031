"""Attention as it is defined, every score at once: O(n²) memory, any float dtype. The oracle of every test.

``out = softmax(scale * query @ keyᵀ + bias) @ value``, after Vaswani et al. 2017, "Attention Is All You Need".
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Grid, four_dims

INF = float("inf")


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for half and single precision, float64 for double."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def reference_attention(
    query: Float[Tensor, "batch q_len heads head_dim"],
    key: Float[Tensor, "batch k_len kv_heads head_dim"],
    value: Float[Tensor, "batch k_len kv_heads value_dim"],
    bias: AttentionBias | None,
    scale: float,
    return_lse: bool,
) -> tuple[Float[Tensor, "batch q_len heads value_dim"], Float[Tensor, "batch heads q_len"] | None]:
    """The output, and the log-sum-exp of each row's scores if asked for (-inf where a row sees nothing)."""
    batch, q_len, num_heads, _ = query.shape
    k_len, num_kv_heads = key.shape[1:3]
    dtype = accumulation_dtype(query.dtype)
    groups = num_heads // num_kv_heads
    # [batch, kv head, query heads of its group, position, head_dim]: grouped heads broadcast, nothing is repeated.
    q = query.to(dtype).transpose(1, 2).unflatten(1, (num_kv_heads, groups)) * scale
    k = key.to(dtype).transpose(1, 2).unsqueeze(2)
    v = value.to(dtype).transpose(1, 2).unsqueeze(2)

    if bias is None:
        scores = q @ k.mT
        out, lse = _softmax_product(scores, v, return_lse)
    else:
        grid = Grid(batch, num_heads, q_len, k_len, dtype, query.device)
        added = four_dims(bias.tile(range(q_len), range(k_len), grid)).expand(-1, -1, q_len, k_len)
        added = added.unflatten(1, (num_kv_heads, groups) if added.shape[1] > 1 else (1, 1))
        hidden = added == NEG_INF
        if finite(query, key, value):
            scores = (q @ k.mT).add_(added)
            blind = hidden.all(-1, keepdim=True)
            # A row that sees nothing: give it any finite scores, and zero its output afterwards.
            out, lse = _softmax_product(scores.masked_fill_(blind, 0), v, return_lse)
            out = out.masked_fill(blind, 0)
            lse = None if lse is None else lse.masked_fill(blind[..., 0], NEG_INF)
        else:
            out, lse = _with_hidden_nonfinite(q, k, v, added, hidden)
    out = out.flatten(1, 2).transpose(1, 2).to(query.dtype)
    return out, None if lse is None else lse.flatten(1, 2)


def finite(*tensors: Tensor) -> bool:
    """Whether no entry is NaN or infinite, in one pass and one number: a sum keeps either. A sum that overflows
    says False too, which costs time and never correctness."""
    return all(bool(tensor.detach().sum(dtype=torch.float32).isfinite()) for tensor in tensors)


def _softmax_product(scores: Tensor, v: Tensor, return_lse: bool) -> tuple[Tensor, Tensor | None]:
    lse = scores.logsumexp(-1) if return_lse else None
    return scores.softmax(-1) @ v, lse


def _with_hidden_nonfinite(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor]:
    """NaN and inf are data: what a query may see reaches its output, what is hidden from it does not.

    A product with a weight of 0 does not hide a NaN (0 * NaN is NaN), so products run on operands without them,
    and what the visible ones would have made of the scores and of the output is put in afterwards.
    """
    shape = torch.broadcast_shapes(hidden.shape, (*q.shape[:-1], k.shape[-2]))
    hidden = hidden.expand(shape)
    visible = (~hidden).to(v.dtype)
    clean_scores = zero_nonfinite(q) @ zero_nonfinite(k).mT
    with torch.no_grad():
        true_scores = q @ k.mT
    scores = torch.where(true_scores.isfinite(), clean_scores, true_scores) + added
    scores = scores.masked_fill(hidden, NEG_INF)
    blind = hidden.all(-1, keepdim=True)
    lse = scores.masked_fill(blind, 0).logsumexp(-1)
    weights = (scores - lse[..., None]).exp().masked_fill(hidden, 0)
    out = weights @ zero_nonfinite(v)
    out = out + seen_nonfinite(visible, v)
    return out.masked_fill(blind, 0), lse.masked_fill(blind[..., 0], NEG_INF)


def zero_nonfinite(tensor: Tensor) -> Tensor:
    """The tensor with NaN and inf replaced by 0; the gradient of a replaced entry is 0."""
    return tensor.masked_fill(~tensor.detach().isfinite(), 0)


@torch.no_grad()
def seen_nonfinite(visible: Tensor, v: Tensor) -> Tensor:
    """What the non-finite values among those that each row sees add to it: NaN, inf, -inf or 0."""
    nan, plus, minus = (visible @ kind.to(visible.dtype) > 0 for kind in (v.isnan(), v == INF, v == NEG_INF))
    total = torch.zeros(nan.shape, dtype=v.dtype, device=v.device)
    total = total.masked_fill(plus, INF).masked_fill(minus, NEG_INF)
    return total.masked_fill(nan | (plus & minus), float("nan"))
