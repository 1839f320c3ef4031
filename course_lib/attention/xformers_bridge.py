"""All that the course knows of xFormers: its kernels, and its mask objects in both directions.

Written for xFormers 0.0.35. It is imported on first use only, with its log silenced: it warns at import on a
machine without a GPU, where its mask objects work and its kernels do not.
"""

from __future__ import annotations

import functools
import logging
import warnings
from typing import Any

import torch
from torch import Tensor

from .bias import BOTTOM_RIGHT, NEG_INF, TOP_LEFT, AttentionBias, Band, Causal, Grid, four_dims
from .call import Call
from .combine import Sum
from .layout import cut
from .segments import Segments
from .stored import Dense

DENSE_ROWS = 256
"""How many rows of a dense bias are made at a time."""


@functools.cache
def xformers_ops() -> Any:
    """The module ``xformers.ops``, or None where xFormers is not installed or does not load."""
    logger = logging.getLogger("xformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import xformers.ops

        return xformers.ops
    except (ImportError, OSError):
        return None
    finally:
        logger.setLevel(level)


# --- from xFormers' masks to ours -------------------------------------------------------------------------------


def from_xformers(mask: Any) -> AttentionBias:
    """The bias of ours that means the same as a mask object of xFormers.

    Raises TypeError for a class of xFormers' that is not known here.
    """
    name = type(mask).__name__
    if name in _WHOLE:
        return _WHOLE[name](mask)
    if name in _INNER:
        return _segments(mask, _INNER[name](mask))
    raise TypeError(
        f"bias: xFormers' {name} is not known here. Known are {', '.join(sorted([*_WHOLE, *_INNER]))}; any other "
        "can be passed as a dense tensor, mask.materialize(shape)."
    )


def _with_tensor(mask: Any) -> AttentionBias:
    tensor = mask._bias
    # xFormers' five-dimensional layout has groups and heads apart.
    return Sum.of(Causal(TOP_LEFT), Dense(tensor.flatten(1, 2) if tensor.dim() == 5 else tensor))


_WHOLE = {
    "LowerTriangularMask": lambda mask: Causal(TOP_LEFT),
    "LowerTriangularFromBottomRightMask": lambda mask: Causal(BOTTOM_RIGHT),
    "LowerTriangularFromBottomRightLocalAttentionMask": lambda mask: Causal(BOTTOM_RIGHT, mask._window_size),
    "LocalAttentionFromBottomRightMask": lambda mask: Band(mask.window_left, mask.window_right, BOTTOM_RIGHT),
    "LowerTriangularMaskWithTensorBias": _with_tensor,
}

_INNER = {
    "BlockDiagonalMask": lambda mask: None,
    "BlockDiagonalCausalMask": lambda mask: Causal(TOP_LEFT),
    "BlockDiagonalCausalFromBottomRightMask": lambda mask: Causal(BOTTOM_RIGHT),
    "BlockDiagonalCausalLocalAttentionMask": lambda mask: Causal(TOP_LEFT, mask._window_size),
    "BlockDiagonalCausalLocalAttentionFromBottomRightMask": lambda mask: Causal(
        BOTTOM_RIGHT, mask._window_size
    ),
    "BlockDiagonalPaddedKeysMask": lambda mask: None,
    "BlockDiagonalCausalWithOffsetPaddedKeysMask": lambda mask: Causal(BOTTOM_RIGHT),
    "BlockDiagonalLocalAttentionPaddedKeysMask": lambda mask: Band(
        mask.window_left, mask.window_right, BOTTOM_RIGHT
    ),
    "BlockDiagonalCausalLocalAttentionPaddedKeysMask": lambda mask: Causal(BOTTOM_RIGHT, mask._window_size),
    "BlockDiagonalGappyKeysMask": lambda mask: None,
    "BlockDiagonalCausalWithOffsetGappyKeysMask": lambda mask: Causal(BOTTOM_RIGHT),
    "PagedBlockDiagonalPaddedKeysMask": lambda mask: None,
    "PagedBlockDiagonalCausalWithOffsetPaddedKeysMask": lambda mask: Causal(BOTTOM_RIGHT),
    "PagedBlockDiagonalGappyKeysMask": lambda mask: None,
    "PagedBlockDiagonalCausalWithOffsetGappyKeysMask": lambda mask: Causal(BOTTOM_RIGHT),
}


def _segments(mask: Any, inner: AttentionBias | None) -> Segments:
    q_lengths = [stop - start for start, stop in mask.q_seqinfo.intervals()]
    if hasattr(mask, "block_tables"):
        return Segments.with_keys_at(q_lengths, _paged_keys(mask), inner, k_total=None)
    keys = [range(start, stop) for start, stop in mask.k_seqinfo.intervals()]
    return Segments.with_keys_at(q_lengths, keys, inner, k_total=mask.k_seqinfo.seqstart_py[-1])


def _paged_keys(mask: Any) -> list[Tensor]:
    """Where each segment's keys lie in the cache: position p is in page table[p // page_size]."""
    info, page_size = mask.k_seqinfo, mask.page_size
    if type(mask).__name__.endswith("GappyKeysMask"):
        # Here xFormers' seqlen is the end of the run, not its length.
        runs = list(zip(info.seqstart_py, info.seqlen_py, strict=False))
    else:
        runs = [(0, length) for length in info.seqlen_py]
    tables = mask.block_tables.cpu().long()
    keys = []
    for table, (start, stop) in zip(tables, runs, strict=True):
        positions = torch.arange(start, stop)
        keys.append(table[positions // page_size] * page_size + positions % page_size)
    return keys


# --- from ours to xFormers' -------------------------------------------------------------------------------------


def to_xformers(call: Call) -> Any:
    """xFormers' object that means the call's bias: a mask object where it has one, else an aligned dense tensor
    [batch, heads, q_len, k_len] in the query's dtype (with any causal mask baked in, so that it can train).

    A batch of packed rows becomes one row: see :func:`run`.
    """
    masks = xformers_ops().fmha.attn_bias
    grid, bias = call.grid, call.bias
    if bias is None:
        return None
    band = bias.as_band(grid)
    if band is not None:
        found = _band_to_xformers(masks, band, square=grid.q_len == grid.k_len)
        if found is not None:
            return found
    segments = packed_lengths(call)
    if segments is not None:
        q_lengths, k_lengths, inner = segments
        packed = masks.BlockDiagonalMask.from_seqlens(q_lengths * grid.batch, k_lengths * grid.batch)
        if inner is None:
            return packed
        square = q_lengths == k_lengths
        top_left = inner.align == TOP_LEFT or square
        if inner.left is not None:
            return packed.make_local_attention_from_bottomright(inner.left + 1)
        return packed.make_causal() if top_left else packed.make_causal_from_bottomright()
    return _dense(bias, grid, call.query.dtype)


def _dense(bias: AttentionBias, grid: Grid, dtype: torch.dtype) -> Tensor:
    """[batch, heads, q_len, k_len], all masks in it: xFormers has no backward for a causal mask plus a tensor."""
    # Kernels read the bias in rows of 16 bytes: allocate whole ones, and show the part that counts.
    width = -(-grid.k_len // 8) * 8
    shape = (grid.batch, grid.num_heads, grid.q_len, width)
    dense = torch.empty(shape, dtype=dtype, device=grid.device)[..., : grid.k_len]
    # Some rows at a time: tiles are float32, and made with as much again.
    for rows in cut(range(grid.q_len), DENSE_ROWS):
        dense[:, :, rows.start : rows.stop] = four_dims(bias.tile(rows, range(grid.k_len), grid))
    return dense


def _band_to_xformers(masks: Any, band: Band, *, square: bool) -> Any:
    bottom_right = square or band.align == BOTTOM_RIGHT
    if band.left is None and band.right == 0:
        return (
            masks.LowerTriangularFromBottomRightMask()
            if bottom_right and not square
            else masks.LowerTriangularMask()
        )
    if band.left is not None and band.right == 0 and bottom_right:
        return masks.LowerTriangularFromBottomRightLocalAttentionMask(band.left + 1)
    if band.left is not None and band.right is not None and bottom_right:
        return masks.LocalAttentionFromBottomRightMask(band.left, band.right)
    return None


def packed_lengths(call: Call) -> tuple[list[int], list[int], Band | None] | None:
    """(q_lengths, k_lengths, inner) if the bias is a block-diagonal mask that xFormers has a class for."""
    grid = call.grid
    blocks = None if call.bias is None or call.bias.adds_scores else call.bias.blocks(grid)
    if not blocks:
        return None
    row = column = 0
    inners: set[tuple[int | None, int | None, str | None] | None] = set()
    inner: Band | None = None
    for block in blocks:
        keys = block.keys
        if not isinstance(keys, range) or (block.queries.start, keys.start) != (row, column):
            return None
        row, column = block.queries.stop, keys.stop
        inner = None if block.bias is None else block.bias.as_band(grid.crop(len(block.queries), block.k_len))
        if block.bias is not None and inner is None:
            return None
        inners.add(None if inner is None else (inner.left, inner.right, inner.align))
    if (row, column) != (grid.q_len, grid.k_len) or len(inners) != 1:
        return None
    q_lengths, k_lengths = [len(b.queries) for b in blocks], [b.k_len for b in blocks]
    if inner is not None:
        bottom_right = inner.align == BOTTOM_RIGHT or q_lengths == k_lengths
        longer = any(q > k for q, k in zip(q_lengths, k_lengths, strict=True))
        if inner.right != 0 or (bottom_right and longer) or (inner.left is not None and not bottom_right):
            return None
    return q_lengths, k_lengths, inner


# --- kernels ----------------------------------------------------------------------------------------------------


def why_not(call: Call) -> str | None:
    """Why xFormers' kernels cannot run this call, or None if they can."""
    device = call.query.device
    if device.type != "cuda":
        return (
            f"xFormers' kernels run on CUDA only, and these tensors are on {device.type!r}; its mask objects work with "
            "the other backends"
        )
    ops = xformers_ops()
    if ops is None:
        return "xFormers is not installed or does not load: python -m course_lib doctor says why"
    if not torch.ops.xformers or not _built_with_cuda():
        return (
            "this xFormers was built for another CUDA than this PyTorch: use a CUDA-12.8 build of PyTorch (its wheels "
            "need libcudart.so.12)"
        )
    if call.return_lse:
        return "the log-sum-exp is taken from the other backends"
    return refusal(torch.cuda.get_device_capability(device), call)


@functools.cache
def _built_with_cuda() -> bool:
    try:
        from xformers import _cpp_lib

        return bool(_cpp_lib._built_with_cuda)
    except (ImportError, AttributeError):
        return False


def refusal(capability: tuple[int, int], call: Call) -> str | None:
    """What xFormers 0.0.35 lacks for this call on a GPU of this compute capability, or None."""
    dtype, head_dim = call.query.dtype, call.query.shape[-1]
    name = str(dtype).removeprefix("torch.")
    flash_only = capability >= (12, 0)
    if dtype == torch.float64:
        return "xFormers has no float64 kernel"
    if dtype == torch.bfloat16 and capability < (8, 0):
        return (
            f"a GPU of compute capability {capability[0]}.{capability[1]} has no bfloat16 kernel; use float16"
        )
    if dtype == torch.float32 and flash_only:
        return "xFormers has no float32 kernel for this GPU; use float16 or bfloat16"
    if dtype != torch.float32 and head_dim % 8:
        return f"xFormers' {name} kernels need a head_dim that is a multiple of 8, got {head_dim}"
    if flash_only and (head_dim > 256 or call.value.shape[-1] != head_dim):
        return "this GPU has only FlashAttention kernels: head_dim up to 256, and values as wide"
    if call.bias is None:
        return None
    if call.bias.learnable():
        return "the course takes a bias's gradient from the tiled backend"
    grid = call.grid
    band = call.bias.as_band(grid)
    packed = packed_lengths(call)
    if packed is not None:
        band = packed[2]
    elif band is None or _band_is_dense(band, grid.q_len == grid.k_len):
        if flash_only:
            return "this GPU has only FlashAttention kernels, which take no dense bias"
        return None
    if band is not None and band.left is not None and (capability < (8, 0) or dtype == torch.float32):
        return "a local window needs a FlashAttention kernel: compute capability 8.0 and half precision"
    return None


def _band_is_dense(band: Band, square: bool) -> bool:
    bottom_right = square or band.align == BOTTOM_RIGHT
    return not (band.right == 0 and band.left is None) and not (
        bottom_right and None not in (band.left, band.right)
    )


def run(call: Call) -> Tensor:
    """The output. Grouped queries are expanded to all heads where a backward follows (its grouped kernels have
    none); for inference they go in as xFormers' five-dimensional views, with nothing copied."""
    ops = xformers_ops()
    call = call.with_positive_scale()
    bias = to_xformers(call)
    query, key, value = call.query, call.key, call.value
    batch, q_len, num_heads, _ = query.shape
    kv_heads = key.shape[2]
    packed = packed_lengths(call) is not None
    if packed:
        # xFormers packs one row only: the batch's rows follow each other, as more segments.
        query, key, value = (t.flatten(0, 1)[None] for t in (query, key, value))
    if call.groups > 1:
        grouped = [t.unsqueeze(3).expand(-1, -1, -1, call.groups, -1) for t in (key, value)]
        if call.training or isinstance(bias, Tensor):
            key, value = (t.flatten(2, 3) for t in grouped)
        else:
            query, (key, value) = query.unflatten(2, (kv_heads, call.groups)), grouped
    blind = _blind_rows(call, bias)
    if blind is not None and isinstance(bias, Tensor):
        # Such a row may see what it likes: what it makes of it is dropped below, and sends no gradient back.
        bias.masked_fill_(blind.transpose(1, 2), 0)
    out = ops.memory_efficient_attention(query, key, value, attn_bias=bias, scale=call.scale)
    out = out.reshape(batch, q_len, num_heads, call.value.shape[-1])
    return out if blind is None else out.masked_fill(blind, 0)


def _blind_rows(call: Call, bias: Any) -> Tensor | None:
    """[batch or 1, q_len, heads or 1, 1], True where a row sees nothing, for which xFormers' kernels promise no zeros.
    None if there is no such row."""
    if isinstance(bias, Tensor):
        if not call.grid.k_len:
            return None
        blind = (bias.detach().amax(-1, keepdim=True) == NEG_INF).transpose(1, 2)
        return blind if bool(blind.any()) else None
    band = None if call.bias is None else call.bias.as_band(call.grid)
    if band is None or band.align != BOTTOM_RIGHT or call.grid.q_len <= call.grid.k_len:
        return None
    rows = torch.arange(call.grid.q_len, device=call.query.device)
    return (rows < call.grid.q_len - call.grid.k_len)[None, :, None, None]
