"""The short way through ``attention()`` for a decode step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .call import DTYPES
from .torch_sdpa import launch

HALVES = (torch.bfloat16, torch.float16)
MANY, AT_ONCE = 2**15, 2**20
"""Numbers in all keys from which on float32 pays, and how many are converted at once, if one sequence has no more."""


def one_query(query: Any, key: Any, value: Any) -> Tensor | None:
    """The attention of one query a sequence over all keys, as decoding asks for it again and again; None where this is
    not such a call, or not a plain one.

    It is what ``torch_sdpa`` computes for the same call, to the bit; in half precision, over many keys, it is computed
    in float32, rounded once, and nearer to the definition. What ``Call.of`` checks with a sentence for each
    fault takes as long as the kernel itself, so here it is one condition; where that fails, the sentences are told.
    """
    if type(query) is not Tensor or type(key) is not Tensor or type(value) is not Tensor:
        return None
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape:
        return None
    batch, q_len, heads, head_dim = query.shape
    plain = (
        q_len == 1
        and batch
        and head_dim
        and key.numel()
        and (batch, heads, head_dim) == (key.shape[0], key.shape[2], key.shape[3])
        and query.dtype == key.dtype == value.dtype
        and query.dtype in DTYPES
        and query.device.type == key.device.type == value.device.type == "cpu"
        and query.layout == key.layout == value.layout == torch.strided
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
    )
    if not plain or torch.is_autocast_enabled("cpu") or torch.is_grad_enabled():
        return None
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    scale = 1 / math.sqrt(head_dim)
    if query.dtype in HALVES and key.numel() >= MANY:
        return _in_float32(query, key, value, scale).transpose(1, 2)
    return launch(query, key, value, False, None, scale)[0].transpose(1, 2)


def _in_float32(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[batch, heads, 1, head_dim]. PyTorch's kernel takes two to three times as long for a single query in half
    precision as it takes for converting all keys and values and computing in float32. As many sequences at once as a
    processor's cache holds."""
    out = torch.empty_like(query)
    together = max(1, AT_ONCE // key[0].numel())
    for start in range(0, len(query), together):
        part = slice(start, start + together)
        q, k, v = (tensor[part].float() for tensor in (query, key, value))
        out[part] = launch(q, k, v, False, None, scale)[0]
    return out
