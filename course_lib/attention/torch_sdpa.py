"""PyTorch's fused kernels, wherever they compute exactly this bias without anybody building an n² mask.

On a CPU PyTorch has one such kernel, which knows no bias, the top-left causal mask, and a mask of floats in the
query's dtype. More can be made of it: packed segments are a loop over it, a bottom-right causal mask over more
queries than keys is a top-left one over the last of them, and a mask no larger than the inputs may be built.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Block, Grid, four_dims
from .call import Call, innermost_blocks, take_keys
from .reference import accumulation_dtype, finite

LARGEST_ROW_BIAS = 1000.0
"""Up to here a float32 log-sum-exp still holds the sum of a row's weights to four digits."""


@dataclass(frozen=True)
class _Piece:
    """A part of the call that is one kernel launch: these queries see these keys, all of them, or causally from
    the top-left corner, or as the mask says."""

    queries: range
    keys: range | Tensor
    causal: bool = False
    mask: AttentionBias | None = None
    grid: Grid | None = None
    built: int = 0
    """How many numbers of the mask nobody holds yet."""

    def mask_tensor(self, dtype: torch.dtype) -> Tensor | None:
        """[batch or 1, heads or 1, q_len or 1, k_len or 1]"""
        if self.mask is None or self.grid is None:
            return None
        grid = self.grid
        held = self.mask.stored(grid)
        if held is None or held.dtype != dtype:
            held = self.mask.tile(range(grid.q_len), range(grid.k_len), grid).to(dtype)
        return four_dims(held).to(grid.device)


def why_not(call: Call) -> str | None:
    """Why PyTorch's kernels cannot run this call, or None if they can."""
    device = call.query.device.type
    if device not in ("cpu", "cuda", "mps"):
        return f"no fused kernel of PyTorch's is known for the device {device!r}"
    if call.bias is not None and call.training and call.bias.learnable():
        return "PyTorch's fused kernels give a bias no gradient"
    if device == "cpu":
        if call.value.shape[-1] != call.query.shape[-1]:
            return (
                f"PyTorch's CPU kernel needs values as wide as keys, got {call.value.shape[-1]} and "
                f"{call.query.shape[-1]}; otherwise it falls back to the O(n²) definition"
            )
        if call.return_lse and call.training:
            return "PyTorch's kernel gives the log-sum-exp no gradient"
    elif call.return_lse:
        return f"PyTorch's public interface returns no log-sum-exp on {device!r}"
    pieces = _pieces(call)
    if isinstance(pieces, str):
        return pieces
    if device == "cpu":
        # Without a mask every query sees every key, and a non-finite one may well reach them all.
        masks = any(piece.causal or piece.mask is not None for piece in pieces)
        if masks and not finite(call.query, call.key, call.value):
            return "an input holds NaN or inf, which PyTorch's kernel would let through the mask"
        if call.training and any(_has_extreme_rows(p, call.query.dtype) for p in pieces):
            return (
                f"the bias has rows whose largest entry is beyond {LARGEST_ROW_BIAS:.0f}: PyTorch's backward keeps one "
                "number a row, the log-sum-exp, and loses the softmax's sum in it"
            )
    return None


def _has_extreme_rows(piece: _Piece, dtype: torch.dtype) -> bool:
    mask = piece.mask_tensor(dtype) if piece.mask is not None and piece.mask.adds_scores else None
    if mask is None or not mask.numel():
        return False
    largest = mask.detach().amax(-1).abs()
    return bool(((largest > LARGEST_ROW_BIAS) & largest.isfinite()).any())


def run(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output, and on a CPU the log-sum-exp of each row if asked for."""
    pieces = _pieces(call)
    assert not isinstance(pieces, str), pieces
    call = call.with_positive_scale()
    if call.query.device.type == "cpu":
        if not call.training and not call.return_lse and len(pieces) == 1:
            out = _in_one_launch(call, pieces[0])
            if out is not None:
                return out, None
        out, lse = _apply_on_cpu(call, pieces)
        return out, _with_blind_rows(lse, pieces) if call.return_lse else None
    return _run_public(call, pieces), None


def _pieces(call: Call) -> list[_Piece] | str:
    """How the call splits into kernel launches, or why it does not."""
    if "pieces" not in call.found:
        call.found["pieces"] = _find_pieces(call)
    return call.found["pieces"]


def _find_pieces(call: Call) -> list[_Piece] | str:
    grid = call.grid
    # All masks are there at once, since the backward needs them: together they may be as large as the inputs.
    room = call.query.numel() + call.key.numel() + call.value.numel()
    pieces = []
    for block in innermost_blocks(call.bias, grid):
        piece = _piece(block, grid.crop(len(block.queries), block.k_len), call.query.dtype, room)
        if isinstance(piece, str):
            return piece
        if piece is not None:
            room -= piece.built
            pieces.append(piece)
    return pieces


def _piece(block: Block, grid: Grid, dtype: torch.dtype, room: int) -> _Piece | str | None:
    """None if nothing in the block is visible. ``room``: how many numbers may be built as a mask."""
    bias, rows, columns = block.bias, range(grid.q_len), range(grid.k_len)
    if not rows or not columns:
        return None
    if bias is None or bias.is_zero(rows, columns, grid):
        return _Piece(block.queries, block.keys)
    band = bias.as_band(grid)
    if band is not None and band.right == 0:
        # Row i stands on key i + offset. Rows before key 0 see nothing, the others form a top-left corner.
        offset = band.offset(grid)
        if offset <= 0 and (band.left is None or band.left >= grid.q_len - 1 + offset):
            first = min(-offset, grid.q_len)
            queries = range(block.queries.start + first, block.queries.stop)
            return _Piece(queries, block.keys, causal=True) if queries else None
    held = bias.stored(grid)
    if bias.adds_scores and grid.dtype != dtype and (held is None or held.dtype != dtype):
        return f"PyTorch's kernel would round the scores of {bias!r} to {str(dtype).removeprefix('torch.')}"
    if held is not None and held.dtype == dtype:
        return _Piece(block.queries, block.keys, mask=bias, grid=grid)
    size = (bias.batch_size or 1) * (grid.num_heads if bias.per_head else 1)
    size *= held.shape[-2] * held.shape[-1] if held is not None else grid.q_len * grid.k_len
    if size <= room:
        return _Piece(block.queries, block.keys, mask=bias, grid=grid, built=size)
    shape = f"{grid.q_len} x {grid.k_len}"
    return f"PyTorch's kernel would need {bias!r} as a mask of {shape} numbers, which is O(n²) memory"


def _with_blind_rows(lse: Tensor, pieces: list[_Piece]) -> Tensor:
    """The kernel says 0 for a row that sees nothing, where the log of an empty sum is -inf."""
    for piece in pieces:
        mask = piece.mask_tensor(lse.dtype)
        if mask is not None:
            rows = slice(piece.queries.start, piece.queries.stop)
            lse[:, :, rows] = lse[:, :, rows].masked_fill(_blind(mask), NEG_INF)
    return lse


def _blind(mask: Tensor) -> Tensor:
    """[batch or 1, heads or 1, q_len or 1]: rows of a mask that see nothing."""
    return (mask == NEG_INF).all(-1)


def _in_one_launch(call: Call, piece: _Piece) -> Tensor | None:
    """The output of a call that is one launch with no mask and no backward, as a decode step is: the kernel's own,
    with nothing kept or copied. None if it takes more than that."""
    groups, q_len = call.groups, call.query.shape[1]
    split = _Split(groups, piece.causal, None, call.key.shape[1])
    if piece.mask is not None or len(piece.queries) < q_len or (groups > 1 and not split.folds):
        return None
    query, key, value = _with_kernel_strides(call.query, call.key, call.value)
    (q,) = split.by_kv_head(query.transpose(1, 2))
    k, v = (take_keys(t, piece.keys).transpose(1, 2) for t in (key, value))
    out, _ = launch(q, k, v, piece.causal, None, call.scale)
    if groups > 1:
        out = out.unflatten(2, (groups, q_len)).flatten(1, 2)
    return out.transpose(1, 2)


def _with_kernel_strides(*tensors: Tensor) -> list[Tensor]:
    # The kernel reads head_dim as if its stride were 1, whatever it is.
    return [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]


def launch(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The kernel's output [batch, heads, rows, head_dim] and log-sum-exp [batch, heads, rows]."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=mask, scale=scale
    )
    if mask is None and not causal:  # those that mask have been asked about NaN before
        lost = _rows_lost_to_nan(query, key, out, lse)
        if lost is not None:
            out = out.masked_fill(lost[..., None], float("nan"))
            lse = lse.masked_fill(lost, float("nan"))
    return out, lse


def _apply_on_cpu(call: Call, pieces: list[_Piece]) -> tuple[Tensor, Tensor]:
    masks = [piece.mask_tensor(call.query.dtype) for piece in pieces]
    if call.training:
        # Autograd saves the masks, and cannot save an inference tensor.
        masks = [mask.clone() if mask is not None and mask.is_inference() else mask for mask in masks]
    return _FlashOnCPU.apply(pieces, masks, call.scale, call.query, call.key, call.value)


class _FlashOnCPU(torch.autograd.Function):
    """The fused CPU kernel over each piece, written straight into one output and one gradient.

    Keys and values are never repeated for the query heads that share them: see ``_Split``.
    """

    @staticmethod
    def forward(ctx, pieces, masks, scale, query, key, value):
        query, key, value = _with_kernel_strides(query, key, value)
        batch, q_len, num_heads, _ = query.shape
        covered = sum(len(p.queries) for p in pieces) == q_len
        out = query.new_empty(query.shape) if covered else query.new_zeros(query.shape)
        lse = torch.full((batch, num_heads, q_len, 1), NEG_INF, dtype=accumulation_dtype(query.dtype))
        for piece, mask in zip(pieces, masks, strict=True):
            rows = slice(piece.queries.start, piece.queries.stop)
            k, v = (take_keys(t, piece.keys).transpose(1, 2) for t in (key, value))
            split = _Split(num_heads // key.shape[2], piece.causal, mask, k.shape[2])
            to_out = split.by_kv_head(out[:, rows].transpose(1, 2), copy=False)
            to_lse = split.by_kv_head(lse[:, :, rows], copy=False)
            for part, q in enumerate(split.by_kv_head(query[:, rows].transpose(1, 2))):
                part_out, part_lse = launch(q, k, v, piece.causal, split.mask(part, q), scale)
                to_out[part].copy_(part_out.view(to_out[part].shape))
                to_lse[part].copy_(part_lse.view(to_lse[part].shape))
        ctx.pieces, ctx.scale = pieces, scale
        lse = lse.squeeze(-1)
        # A mask may be the caller's own: saved, autograd notices if it changes before the backward.
        ctx.save_for_backward(query, key, value, out, lse, *masks)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, _):
        query, key, value, out, lse, *masks = ctx.saved_tensors
        grads = _FlashOnCPUBackward.apply(ctx.pieces, masks, ctx.scale, grad_out, query, key, value, out, lse)
        return (None, None, None, *grads)


class _FlashOnCPUBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, pieces, masks, scale, grad_out, query, key, value, out, lse):
        (grad_out,) = _with_kernel_strides(grad_out)
        groups = query.shape[2] // key.shape[2]
        # Segments do not overlap, so their gradients are written, once; only a cache's pages may be shared.
        runs = [p.keys for p in pieces if isinstance(p.keys, range)]
        apart = len(runs) == len(pieces) and all(a.stop <= b.start for a, b in pairwise(runs))
        all_keys = apart and sum(map(len, runs)) == key.shape[1]
        all_queries = sum(len(p.queries) for p in pieces) == query.shape[1]
        grad_query = torch.empty_like(query) if all_queries else torch.zeros_like(query)
        grad_key, grad_value = ((torch.empty_like if all_keys else torch.zeros_like)(t) for t in (key, value))
        for piece, mask in zip(pieces, masks, strict=True):
            rows = slice(piece.queries.start, piece.queries.stop)
            k, v = (take_keys(t, piece.keys).transpose(1, 2) for t in (key, value))
            split = _Split(groups, piece.causal, mask, k.shape[2])
            to_query = split.by_kv_head(grad_query[:, rows].transpose(1, 2), copy=False)
            from_above, q_rows, out_rows = (t[:, rows].transpose(1, 2) for t in (grad_out, query, out))
            # A row that sees nothing has weights of 0, and 0 * NaN is NaN. Its lse is 0, which is cheaper to look for
            # than a whole row of the mask.
            if mask is not None and (lse[:, :, rows] == 0).any():
                from_above = from_above.masked_fill(_blind(mask)[..., None], 0)
            by_part = [split.by_kv_head(t) for t in (from_above, q_rows, out_rows)]
            for part, (do, q, o) in enumerate(zip(*by_part, strict=True)):
                dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    do,
                    q,
                    k,
                    v,
                    o,
                    split.by_kv_head(lse[:, :, rows, None])[part].squeeze(-1),
                    0.0,
                    piece.causal,
                    attn_mask=split.mask(part, q),
                    scale=scale,
                )
                to_query[part].copy_(dq.view(to_query[part].shape))
                _put_at(grad_key, piece.keys, dk.transpose(1, 2), add=part > 0 or not apart)
                _put_at(grad_value, piece.keys, dv.transpose(1, 2), add=part > 0 or not apart)
        return grad_query, grad_key, grad_value

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "PyTorch's fused attention has a first derivative only. For a second derivative (a gradient penalty, a "
            "Hessian) pass backend='reference', which takes O(n²) memory."
        )


@dataclass(frozen=True)
class _Split:
    """How ``groups`` query heads a kv head become kernel launches of one query head a kv head each.

    Query head h uses kv head ``h // groups``. Where every query sees the same keys, the heads of a group are further
    queries of their kv head and one launch reads the keys once: what makes grouped decoding fast. Otherwise
    there is a launch for each place in the group.
    """

    groups: int
    causal: bool
    held: Tensor | None
    k_len: int

    @property
    def folds(self) -> bool:
        same_keys = self.held is None or self.held.shape[1:3] == (1, 1)
        return self.groups > 1 and not self.causal and same_keys

    def by_kv_head(self, tensor: Tensor, copy: bool = True) -> list[Tensor]:
        """The launches' [batch, kv_heads, rows, dim] of a [batch, heads, q_len, dim]. Without ``copy`` they are views
        to write into, with the group as a dimension of its own where it folds."""
        if self.groups == 1:
            return [tensor]
        grouped = tensor.unflatten(1, (-1, self.groups))
        if self.folds:
            return [grouped.flatten(2, 3) if copy else grouped]
        return list(grouped.unbind(2))

    def mask(self, part: int, query: Tensor) -> Tensor | None:
        """Of a launch: [batch or 1, heads or 1, rows, k_len]."""
        if self.held is None:
            return None
        held = self.held[:, part :: self.groups] if self.held.shape[1] > 1 else self.held
        return held.expand(-1, -1, query.shape[2], self.k_len)


def _rows_lost_to_nan(query: Tensor, key: Tensor, out: Tensor, lse: Tensor) -> Tensor | None:
    """[batch, heads, q_len]: rows whose scores are all NaN. The kernel takes them for rows that see nothing and
    gives zeros, and a model that has diverged would look healthy. None if there are none.

    ``query``, ``key`` and ``out`` are [batch, heads, length, head_dim].
    """
    if lse.all() or finite(query, key):
        return None
    suspect = lse == 0
    bad_query = ~query.isfinite().all(-1)
    no_good_key = ~key.isfinite().all(-1).any(-1, keepdim=True)
    return suspect & (out == 0).all(-1) & (bad_query | no_good_key)


def _put_at(total: Tensor, keys: range | Tensor, part: Tensor, add: bool) -> None:
    if not isinstance(keys, range):
        total.index_add_(1, keys, part)
    elif add:
        total[:, keys.start : keys.stop] += part
    else:
        total[:, keys.start : keys.stop] = part


def _of_shape(piece: _Piece, dtype: torch.dtype) -> Tensor | None:
    mask = piece.mask_tensor(dtype)
    return (
        mask
        if mask is None or piece.grid is None
        else mask.expand(-1, -1, piece.grid.q_len, piece.grid.k_len)
    )


def _run_public(call: Call, pieces: list[_Piece]) -> Tensor:
    """Through PyTorch's public function: it chooses among its own kernels on a GPU."""
    outs = call.query.new_zeros(*call.query.shape[:3], call.value.shape[-1])
    for piece in pieces:
        out = F.scaled_dot_product_attention(
            call.query[:, piece.queries.start : piece.queries.stop].transpose(1, 2),
            take_keys(call.key, piece.keys).transpose(1, 2),
            take_keys(call.value, piece.keys).transpose(1, 2),
            attn_mask=_of_shape(piece, call.query.dtype),
            is_causal=piece.causal,
            scale=call.scale,
            enable_gqa=call.groups > 1,
        ).transpose(1, 2)
        if len(pieces) == 1 and len(piece.queries) == call.query.shape[1]:
            return out
        outs = outs.index_copy(
            1, torch.arange(piece.queries.start, piece.queries.stop, device=out.device), out
        )
    return outs
