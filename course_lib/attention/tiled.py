"""Exact attention in O(n) memory: one tile of scores at a time, forward and backward, in plain PyTorch.

The softmax of a row needs the row's maximum and sum, which seem to need the whole row. They do not (Milakov and
Gimelshein 2018, "Online normalizer calculation for softmax"): keep the maximum ``m`` and the sum ``l`` of what
has been seen, and when a new tile brings a larger maximum, scale what is there by ``exp(m_old - m_new)``. Rabe and
Staats 2021 and FlashAttention (Dao et al. 2022) build attention on it. The backward stores no scores either: from
the two numbers of each row it makes every tile of weights again,

    P  = exp(scale * Q Kᵀ + bias - m) / l        dV = Pᵀ dO
    dS = P * (dO Vᵀ - delta + dlse)              delta = rowsum(dO * O)
    dQ = scale * dS K      dK = scale * dSᵀ Q    dbias = dS

(``m`` and ``l`` are kept apart because their sum ``lse = m + log l`` forgets ``l`` where ``m`` is -1e9, as in rows
of masks that are meant to hide everything.)

Tiles in which nothing is visible are never touched, and a bias that is zero in a tile is never made there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Block, Grid, four_dims
from .call import innermost_blocks, take_keys
from .layout import cut, heads_first, put_back, rows_of
from .reference import accumulation_dtype, finite, seen_nonfinite, zero_nonfinite

SCORES_PER_TILE = 2**19
"""How many scores a tile of up to 8 heads holds, together: 2 MiB of float32, which stays in a core's cache. A tile of
more heads holds more, up to four times as many: products of less than 256 by 256 a head cost more than a smaller tile
saves."""
LOG2_E = math.log2(math.e)
LONGEST_TILE = 512
SHORTEST_TILE = 64


def tiled_attention(
    query: Float[Tensor, "batch q_len heads head_dim"],
    key: Float[Tensor, "batch k_len kv_heads head_dim"],
    value: Float[Tensor, "batch k_len kv_heads value_dim"],
    bias: AttentionBias | None,
    scale: float,
    return_lse: bool,
) -> tuple[Float[Tensor, "batch q_len heads value_dim"], Float[Tensor, "batch heads q_len"] | None]:
    """The output, and the log-sum-exp of each row's scores if asked for (-inf where a row sees nothing)."""
    learnable = () if bias is None else bias.learnable()
    out, lse = _TiledAttention.apply(bias, scale, query, key, value, *learnable)
    return out, lse if return_lse else None


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, bias, scale, query, key, value, *learnable):
        batch, q_len, num_heads, _ = query.shape
        dtype = accumulation_dtype(query.dtype)
        problem = _Problem.of(
            query, key, bias, scale, hides=bias is not None and not finite(query, key, value)
        )
        out = query.new_empty(batch, q_len, num_heads, value.shape[-1])
        top = query.new_empty(batch, num_heads, q_len, dtype=dtype)
        total = torch.empty_like(top)
        blocks = innermost_blocks(bias, problem.grid)
        if sum(len(block.queries) for block in blocks) < q_len:
            # Rows outside of all blocks see nothing.
            out.zero_()
            top.fill_(NEG_INF)
            total.fill_(1)
        for block in blocks:
            rows, keys = block.queries, block.keys
            _forward_block(
                problem.inside(block),
                query[:, rows.start : rows.stop],
                take_keys(key, keys),
                take_keys(value, keys),
                out[:, rows.start : rows.stop],
                top[:, :, rows.start : rows.stop],
                total[:, :, rows.start : rows.stop],
            )
        ctx.problem = problem
        ctx.num_learnable = len(learnable)
        # Inference tensors count no changes, so autograd cannot watch them.
        sources = [] if bias is None else [t for t in bias.sources() if not t.is_inference()]
        ctx.save_for_backward(query, key, value, out, top, total, *learnable, *sources)
        return out, total.log().add_(top)

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        saved = ctx.saved_tensors  # refuses if any of them, the bias's sources too, has changed since
        needed = saved[: 6 + ctx.num_learnable]
        with torch.autocast(grad_out.device.type, enabled=False):
            return (None, None, *_TiledBackward.apply(ctx.problem, grad_out, grad_lse, *needed))


class _TiledBackward(torch.autograd.Function):
    """A function of its own, so that differentiating it once more meets a sentence and not a wrong zero."""

    @staticmethod
    def forward(ctx, problem, grad_out, grad_lse, query, key, value, out, top, total, *learnable):
        dtype = top.dtype
        # Half gradients are summed over many tiles, so they are summed in single precision.
        grads = [
            torch.zeros(t.shape, dtype=accumulation_dtype(t.dtype), device=t.device)
            for t in (query, key, value)
        ]
        grad_learnable = [torch.zeros_like(t, dtype=dtype) for t in learnable]
        gradients_of = _gradients_by_tensor(problem.bias, grad_learnable)
        for block in innermost_blocks(problem.bias, problem.grid):
            rows, keys = block.queries, block.keys
            at = slice(rows.start, rows.stop)
            grad_key, grad_value = (take_keys(g, keys) for g in grads[1:])
            if isinstance(keys, Tensor):
                grad_key, grad_value = torch.zeros_like(grad_key), torch.zeros_like(grad_value)
            _backward_block(
                problem.inside(block),
                query[:, at],
                take_keys(key, keys),
                take_keys(value, keys),
                out[:, at],
                top[:, :, at],
                total[:, :, at],
                grad_out[:, at],
                None if grad_lse is None else grad_lse[:, :, at],
                grads[0][:, at],
                grad_key,
                grad_value,
                gradients_of(block.bias),
            )
            if isinstance(keys, Tensor):
                grads[1].index_add_(1, keys.to(key.device), grad_key)
                grads[2].index_add_(1, keys.to(key.device), grad_value)
        inputs = (query, key, value, *learnable)
        return tuple(g.to(t.dtype) for g, t in zip([*grads, *grad_learnable], inputs, strict=True))

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "tiled attention has a first derivative only: its backward makes the scores again tile by tile and "
            "keeps nothing that could be differentiated once more. For a second derivative (a gradient penalty, a "
            "Hessian) pass backend='reference', which takes O(n²) memory."
        )


def _gradients_by_tensor(
    bias: AttentionBias | None, gradients: list[Tensor]
) -> Callable[[AttentionBias | None], list[Tensor]]:
    """Finds the gradients of a part of ``bias``. It may hold the same tensors in another order, so they are found by
    who they are."""

    def learnable(part: AttentionBias | None) -> tuple[Tensor, ...]:
        return () if part is None else part.learnable()

    held = learnable(bias)
    gradient_of = dict(zip(map(id, held), gradients, strict=False))

    def find(part: AttentionBias | None) -> list[Tensor]:
        wanted = learnable(part)
        if len(held) != len(gradients) or any(id(t) not in gradient_of for t in wanted):
            raise RuntimeError(
                f"bias: {bias!r} named other learnable tensors in the backward than in the forward. Either one was "
                "frozen in between (requires_grad_(False): freeze after the backward), or its learnable() makes new "
                "tensors at every call: return the same objects each time."
            )
        return [gradient_of[id(t)] for t in wanted]

    return find


@dataclass(frozen=True)
class _Problem:
    """What is computed, apart from the tensors: the whole call, or one block of it."""

    grid: Grid
    bias: AttentionBias | None
    scale: float
    groups: int
    hides: bool
    """Some key, value or query is NaN or inf, and the mask must keep it from those that may not see it."""

    @classmethod
    def of(
        cls, query: Tensor, key: Tensor, bias: AttentionBias | None, scale: float, *, hides: bool
    ) -> _Problem:
        batch, q_len, num_heads, _ = query.shape
        grid = Grid(batch, num_heads, q_len, key.shape[1], accumulation_dtype(query.dtype), query.device)
        return cls(grid, bias, scale, num_heads // key.shape[2], hides)

    def inside(self, block: Block) -> _Problem:
        grid = self.grid.crop(len(block.queries), block.k_len)
        return _Problem(grid, block.bias, self.scale, self.groups, self.hides)

    def units(self) -> tuple[list[range], int, int]:
        """How the work is cut: runs of sequences, queries a tile, keys a tile."""
        grid = self.grid
        per_row = max(grid.num_heads, 1)
        scores = SCORES_PER_TILE * min(max(per_row, 8), 32) // 8
        side = int((scores / per_row) ** 0.5)
        side = min(max(side // 64 * 64, SHORTEST_TILE), LONGEST_TILE)
        rows = min(side, max(grid.q_len, 1))
        columns = min(max(scores // (per_row * rows) // 64 * 64, side), 2 * LONGEST_TILE, max(grid.k_len, 1))
        together = max(1, scores // (per_row * rows * columns))
        runs = [range(b, min(b + together, grid.batch)) for b in range(0, grid.batch, together)]
        return runs, rows, columns

    def masked(self, queries: range, keys: range) -> bool:
        return self.bias is not None and not self.bias.is_zero(queries, keys, self.grid)

    def visible(self, queries: range) -> range:
        if self.bias is None:
            return range(self.grid.k_len)
        return self.bias.visible_keys(queries, self.grid)

    def bias_tile(self, sequences: range, queries: range, keys: range, num_kv_heads: int) -> Tensor:
        """[run or 1, kv heads or 1, groups or 1, rows or 1, columns or 1]"""
        assert self.bias is not None
        tile = four_dims(self.bias.tile(queries, keys, self.grid))
        if tile.shape[0] > 1:
            tile = tile[sequences.start : sequences.stop]
        return tile.unflatten(1, (num_kv_heads, self.groups) if tile.shape[1] > 1 else (1, 1))


def _exp_(x: Tensor) -> Tensor:
    """exp in place, as a power of 2: where weights vanish, PyTorch's exp on a CPU is thirty times slower."""
    return x.mul_(LOG2_E).exp2_()


def _add_bias(
    problem: _Problem, scores: Tensor, run: range, queries: range, keys: range, kv_heads: int
) -> Tensor | None:
    """Add the bias to a tile of scores in place. Where a hidden NaN would survive an addition, overwrite instead,
    and return which scores are seen."""
    if not problem.hides:
        assert problem.bias is not None
        by_head = scores.view(len(run), -1, len(queries), len(keys))
        problem.bias.add_to(by_head, run, queries, keys, problem.grid)
        return None
    tile = problem.bias_tile(run, queries, keys, kv_heads)
    shaped = scores.view(len(run), kv_heads, problem.groups, len(queries), len(keys))
    hidden = tile == NEG_INF
    shaped.add_(tile).masked_fill_(hidden, NEG_INF)
    return (~hidden).expand(shaped.shape).reshape(scores.shape)


def _forward_block(
    problem: _Problem, query: Tensor, key: Tensor, value: Tensor, out: Tensor, tops: Tensor, totals: Tensor
) -> None:
    """Writes the output, and of each row the largest score and the sum of exp(score - largest)."""
    groups, dtype = problem.groups, problem.grid.dtype
    kv_heads = key.shape[2]
    runs, row_count, column_count = problem.units()
    for run in runs:
        for queries in cut(range(problem.grid.q_len), row_count):
            q = heads_first(query, run, queries, groups, dtype) * problem.scale
            top = q.new_full((*q.shape[:2], 1), NEG_INF)
            total = q.new_zeros(top.shape)
            acc = q.new_zeros(*q.shape[:2], value.shape[-1])
            seen_extremes: Tensor | float = 0.0
            for keys in cut(problem.visible(queries), column_count):
                scores = torch.bmm(q, heads_first(key, run, keys, 1, dtype).mT)
                v = heads_first(value, run, keys, 1, dtype)
                seen = (
                    _add_bias(problem, scores, run, queries, keys, kv_heads)
                    if problem.masked(queries, keys)
                    else None
                )
                new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
                # A row that has seen nothing yet has the maximum -inf, and -inf - -inf is NaN: subtract 0 there.
                shift = new_top.masked_fill(new_top == NEG_INF, 0)
                weights = _exp_(scores.sub_(shift))
                keep = _exp_(top - shift)
                total.mul_(keep).add_(weights.sum(-1, keepdim=True))
                acc.mul_(keep)
                if seen is not None:
                    seen_extremes = seen_extremes + seen_nonfinite(seen.to(dtype), v)
                    v = zero_nonfinite(v)
                acc.baddbmm_(weights, v)
                top = new_top
            total.masked_fill_(top == NEG_INF, 1)
            put_back(out, run, queries, groups, acc.div_(total).add_(seen_extremes))
            for of_rows, part in ((tops, top), (totals, total)):
                of_rows[run.start : run.stop, :, queries.start : queries.stop] = part.view(
                    len(run), -1, len(queries)
                )


def _backward_block(
    problem: _Problem,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    tops: Tensor,
    totals: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    grad_learnable: list[Tensor],
) -> None:
    """Adds to the gradients given."""
    groups, dtype = problem.groups, problem.grid.dtype
    kv_heads = key.shape[2]
    clean = zero_nonfinite if problem.hides else (lambda tensor: tensor)
    runs, row_count, column_count = problem.units()
    for run in runs:
        for queries in cut(range(problem.grid.q_len), row_count):
            q = heads_first(query, run, queries, groups, dtype) * problem.scale
            do = heads_first(grad_out, run, queries, groups, dtype)
            delta = (do * heads_first(out, run, queries, groups, dtype)).sum(-1, keepdim=True)
            if grad_lse is not None:
                delta -= rows_of(grad_lse, run, queries, groups)
            # Every use of the weights is linear in them, so a row's 1/l goes to its output gradient once.
            total = rows_of(totals, run, queries, groups)
            do, delta = do / total, delta / total
            # A row that sees nothing has weights exp(-inf - inf) = 0, not exp(-inf - -inf) = NaN.
            top = rows_of(tops, run, queries, groups)
            if problem.bias is not None:
                blind = top == NEG_INF
                top = top.masked_fill(blind, -NEG_INF)
                # Nor does anything reach it from above: 0 * NaN is NaN.
                do, delta = do.masked_fill(blind, 0), delta.masked_fill(blind, 0)
            clean_q, dq = clean(q), torch.zeros_like(q)
            for keys in cut(problem.visible(queries), column_count):
                k = heads_first(key, run, keys, 1, dtype)
                v = clean(heads_first(value, run, keys, 1, dtype))
                scores = torch.bmm(q, k.mT)
                seen = (
                    _add_bias(problem, scores, run, queries, keys, kv_heads)
                    if problem.masked(queries, keys)
                    else None
                )
                weights = _exp_(scores.sub_(top))
                if seen is not None:
                    weights.masked_fill_(~seen, 0)
                put_back(grad_value, run, keys, 1, torch.bmm(weights.mT, do), add=True)
                grad_scores = torch.bmm(do, v.mT).sub_(delta).mul_(weights)
                if seen is not None:
                    grad_scores.masked_fill_(~seen, 0)
                if grad_learnable:
                    _add_bias_gradient(problem, grad_scores, run, queries, keys, kv_heads, grad_learnable)
                dq.baddbmm_(grad_scores, clean(k))
                put_back(grad_key, run, keys, 1, torch.bmm(grad_scores.mT, clean_q), add=True)
            put_back(grad_query, run, queries, groups, dq.mul_(problem.scale), add=True)


def _add_bias_gradient(
    problem: _Problem,
    grad_scores: Tensor,
    run: range,
    queries: range,
    keys: range,
    kv_heads: int,
    into: list[Tensor],
) -> None:
    assert problem.bias is not None
    grid = problem.grid
    tile = grad_scores.view(len(run), grid.num_heads, len(queries), len(keys))
    if len(run) < grid.batch:
        # A bias speaks of the whole batch: the other sequences of it contribute nothing here.
        whole = tile.new_zeros(grid.batch, *tile.shape[1:])
        whole[run.start : run.stop] = tile
        tile = whole
    problem.bias.add_gradient(into, tile, queries, keys, grid)
