"""One call of attention as a backend gets it: checked, autocast, its bias one of ours."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .bias import AttentionBias, Block, Grid
from .combine import as_bias
from .reference import accumulation_dtype

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Call:
    """Checked arguments. ``training``: a backward will follow; ``scale`` is a number."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: AttentionBias | None
    scale: float
    return_lse: bool
    training: bool
    found: dict[str, Any] = field(default_factory=dict, compare=False)
    """What a backend worked out when asked whether it can run this call, so that running it need not."""

    @cached_property
    def grid(self) -> Grid:
        batch, q_len, num_heads, _ = self.query.shape
        dtype = accumulation_dtype(self.query.dtype)
        return Grid(batch, num_heads, q_len, self.key.shape[1], dtype, self.query.device)

    @property
    def groups(self) -> int:
        """Query heads a kv head."""
        return self.query.shape[2] // self.key.shape[2]

    def with_positive_scale(self) -> Call:
        """The same call for a fused kernel. These put -inf where the causal mask hides *before* they scale: a negative
        scale would make +inf of it and 0 would make NaN, so the query takes the sign (or the 0)."""
        if self.scale > 0:
            return self
        return replace(self, query=self.query * (-1 if self.scale < 0 else 0), scale=-self.scale or 1.0)

    @classmethod
    def of(
        cls,
        query: Any,
        key: Any,
        value: Any,
        bias: Any,
        *,
        scale: Any = None,
        return_lse: bool = False,
        training: bool | None = None,
    ) -> Call:
        """Raises ValueError or TypeError that names the argument, what was expected, what came and what to do."""
        _check_tensors(query, key, value)
        query, key, value = _autocast(query, key, value)
        _check_dtypes(query, key, value)
        _check_shapes(query, key, value)
        own = as_bias(bias)
        head_dim = query.shape[-1]
        wanted = training
        if wanted is None:
            tensors = (query, key, value, *(own.learnable() if own is not None else ()))
            wanted = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        call = cls(query, key, value, own, _check_scale(scale, head_dim), return_lse, wanted)
        if own is not None:
            own.check(call.grid)
            _check_learnable(own, call.grid)
        return call


def _check_tensors(query: Any, key: Any, value: Any) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name}: expected a tensor [batch, sequence, heads, head_dim], got {type(tensor).__name__}."
            )
        if tensor.dim() != 4:
            hint = (
                "xFormers' 5-D grouped layout becomes 4-D by flatten(2, 3), with unrepeated key and value heads."
                if tensor.dim() == 5
                else "Split the heads off with unflatten(-1, (heads, head_dim)); a single sequence needs tensor[None]."
            )
            raise ValueError(
                f"{name}: expected 4 dimensions [batch, sequence, heads, head_dim], got {tensor.dim()}: shape "
                f"{list(tensor.shape)}. {hint}"
            )
        if tensor.layout != torch.strided:
            raise ValueError(
                f"{name}: expected a dense tensor, got layout {tensor.layout}. Sequences of several lengths are packed "
                "in one row, with Segments(lengths) as bias."
            )
        if tensor.dtype not in DTYPES:
            raise ValueError(
                f"{name}: expected dtype float16, bfloat16, float32 or float64, got "
                f"{str(tensor.dtype).removeprefix('torch.')}. Convert it, for example with {name}.float()."
            )
    if not query.device == key.device == value.device:
        raise ValueError(
            f"query, key, value: expected one device, got {query.device}, {key.device} and {value.device}. "
            "Move them with .to(query.device)."
        )


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    # As autocast does for PyTorch's own attention: everything but float64 becomes the autocast dtype.
    dtype = torch.get_autocast_dtype(kind)
    return tuple(t if t.dtype == torch.float64 else t.to(dtype) for t in tensors)


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if not query.dtype == key.dtype == value.dtype:
        names = [str(t.dtype).removeprefix("torch.") for t in (query, key, value)]
        raise ValueError(
            f"query, key, value: expected one dtype outside of autocast, got {names[0]}, {names[1]} and {names[2]}. "
            "A norm that ran in float32 often leaves such a mix: convert with .to(value.dtype), or run under "
            "torch.autocast, which casts all but float64."
        )


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    (batch, _, num_heads, head_dim), k_shape, v_shape = query.shape, key.shape, value.shape
    for name, tensor in (("key", key), ("value", value)):
        if tensor.shape[0] != batch:
            raise ValueError(
                f"{name}: expected batch {batch} as in query, got {tensor.shape[0]} (shape {list(tensor.shape)}). "
                "Nothing is broadcast: use .expand if the sequences do share it."
            )
    if k_shape[1] != v_shape[1]:
        raise ValueError(
            f"value: expected {k_shape[1]} positions as in key, got {v_shape[1]} (shape {list(v_shape)}). The layout "
            "is [batch, sequence, heads, head_dim]: a transposed input has its heads here."
        )
    if k_shape[2] != v_shape[2]:
        raise ValueError(
            f"value: expected {k_shape[2]} heads as in key, got {v_shape[2]} (shape {list(v_shape)})."
        )
    if k_shape[3] != head_dim:
        raise ValueError(
            f"key: expected head_dim {head_dim} as in query, got {k_shape[3]} (shape {list(k_shape)}). Only value may "
            "be of another width."
        )
    if min(num_heads, k_shape[2]) < 1 or head_dim < 1:
        raise ValueError(
            f"query, key: expected at least one head and a head_dim of at least 1, got query {list(query.shape)} and "
            f"key {list(k_shape)}."
        )
    if num_heads % k_shape[2]:
        raise ValueError(
            f"query: expected a number of heads that the {k_shape[2]} key heads divide (grouped queries), got "
            f"{num_heads}. Query head h uses key head h // (heads // key heads)."
        )


def _check_scale(scale: Any, head_dim: int) -> float:
    if scale is None:
        return 1 / math.sqrt(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise TypeError(
            f"scale: expected a number or None (1/sqrt(head_dim)), got {type(scale).__name__}. A learned scale "
            "multiplies the query, so that it gets its gradient: attention(query * scale, ..., scale=1.0)."
        )
    try:
        number = float(scale)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"scale: expected a finite number or None (1/sqrt(head_dim)), got {number!r}.")
    return number


def _check_learnable(bias: AttentionBias, grid: Grid) -> None:
    """A bias that trains says so. Backends that make tiles outside of autograd would drop its gradient in silence."""
    asked = torch.is_grad_enabled() and grid.q_len and grid.k_len
    # A band has nothing to train, and it is what most calls carry.
    if not asked or bias.learnable() or bias.as_band(grid) is not None:
        return
    if bias.tile(range(1), range(1), grid).requires_grad:
        raise ValueError(
            f"bias: {bias!r} makes entries that want a gradient, but its learnable() names no tensor. Return there the "
            "tensors that its tile() reads and that are to be trained, or detach() what tile() returns."
        )


def innermost_blocks(bias: AttentionBias | None, grid: Grid) -> list[Block]:
    """The independent parts of a call, down to those that have no parts; one that covers all if there are none.

    Query rows outside of all parts see nothing.
    """
    whole = Block(range(grid.q_len), range(grid.k_len), bias)
    parts = None if bias is None else bias.blocks(grid)
    if parts is None:
        return [whole]
    found = []
    for part in parts:
        inner_grid = grid.crop(len(part.queries), part.k_len)
        if part.bias is None or isinstance(part.keys, Tensor) or part.bias.blocks(inner_grid) is None:
            found.append(part)
            continue
        first_row, first_key = part.queries.start, part.keys.start
        for inner in innermost_blocks(part.bias, inner_grid):
            rows = range(inner.queries.start + first_row, inner.queries.stop + first_row)
            keys = inner.keys
            keys = (
                range(keys.start + first_key, keys.stop + first_key)
                if isinstance(keys, range)
                else keys + first_key
            )
            found.append(Block(rows, keys, inner.bias))
    return found


def take_keys(tensor: Tensor, keys: range | Tensor) -> Tensor:
    """[batch, n, heads, dim] of a [batch, k_len, heads, dim]: a view where the keys are a run."""
    if isinstance(keys, range):
        return tensor[:, keys.start : keys.stop]
    return tensor.index_select(1, keys.to(tensor.device))
