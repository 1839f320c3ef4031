"""Many short segments at once: those of like length become one batch of small, dense problems.

A kernel that is launched for each of 64 documents spends more time on being launched, and on tiles that are mostly
empty, than on arithmetic. So documents of about the same length are gathered, each filled up to the next of few sizes,
and computed together, as a padded batch would be: the same few large products, with little padding in them. Few sizes,
because oneDNN compiles a kernel for every shape of a product and keeps some thousand of them: over rows of documents of
any length, a fifth to a third of the time went into compiling, and 0.9 GiB into what was kept.

Tokens of a document see a few hundred keys at most, so whole rows of scores are at hand, and the softmax needs no
running maximum as in ``tiled``. The backward keeps the inputs alone and makes the scores again:

    P  = softmax(scale * Q Kᵀ + bias)            dV = Pᵀ dO
    dP = dO Vᵀ                                   dS = P * (dP - rowsum(P * dP))
    dQ = scale * dS K                            dK = scale * dSᵀ Q

Only some of the documents, and some of their rows, are at hand at a time: the workspace does not grow with the row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Block, Grid, four_dims
from .call import Call, innermost_blocks
from .layout import cut, heads_first, put_back
from .reference import accumulation_dtype, finite

SCORES_AT_ONCE = 2**20
"""4 MiB of float32: what a core's cache holds, or nearly."""
ROWS_AT_ONCE = 64
"""Of a document under a causal mask: fewer rows leave out more of what they may not see, in smaller products."""
LONGEST = 1024
"""Keys of a segment, up to which it pays. For longer ones a launch each is little, and a kernel that leaves out more of
what the mask hides is faster."""
SIZES = 4
"""To which lengths are filled up, between a power of two and the next, evenly apart: 320, 384, 448 and 512, say. Below
64 they are 16 apart, where smaller products would not take less time."""


class _Places:
    """Where the tokens of several segments lie, as rows of one length."""

    def __init__(self, runs: list[range], longest: int) -> None:
        self.longest = longest
        starts, lengths = torch.tensor([(run.start, len(run)) for run in runs]).T[..., None]
        column = torch.arange(longest)
        self._filled_up = (starts + torch.minimum(column, lengths - 1)).flatten()
        self.filling = column >= lengths
        """[segments, longest], True where a shorter segment repeats its last token."""
        self._real = (~self.filling).flatten().nonzero().flatten() if bool(self.filling.any()) else None

    def gather(self, tensor: Tensor) -> Tensor:
        """[batch * segments, longest, ...] of a [batch, total, ...]."""
        return tensor.index_select(1, self._filled_up).view(-1, self.longest, *tensor.shape[2:])

    def scatter(self, part: Tensor, into: Tensor) -> None:
        """Write what was gathered back to where it lies, the filling left out."""
        part, to = part.view(into.shape[0], -1, *into.shape[2:]), self._filled_up
        if self._real is not None:
            part, to = part.index_select(1, self._real), to[self._real]
        into.index_copy_(1, to, part)


@dataclass(frozen=True)
class Alike:
    """Segments of like length under one bias, as a batch. ``grid`` is that of the longest."""

    queries: _Places
    keys: _Places
    bias: AttentionBias | None
    grid: Grid


def why_not(call: Call) -> str | None:
    """Why this call does not fall into short segments that can be computed together, or None if it does."""
    if call.query.device.type != "cpu":
        return "batches of short segments were measured on a CPU only"
    if call.return_lse:
        return "the log-sum-exp is taken from the other backends"
    if call.bias is not None and call.training and call.bias.learnable():
        return "the course takes a bias's gradient from the tiled backend"
    plan = _plan(call)
    if isinstance(plan, str):
        return plan
    masks = call.bias is not None and not call.bias.is_zero(*_whole(call.grid), call.grid)
    if masks and not finite(call.query, call.key, call.value):
        return "an input holds NaN or inf, which a product with a weight of 0 would not hide"
    if _multiplies(call.query.dtype) and not _scores_are_finite(call.query, call.key):
        return "query and key hold NaN, inf, or numbers so large that a score need not be finite in half precision"
    return None


def pays(call: Call) -> bool:
    """Whether this is faster than a fused kernel for each segment, where both can run the call: in half precision,
    and where the query heads of a group, which are further rows here, would each take launches of their own."""
    if call.query.device.type != "cpu" or not (_multiplies(call.query.dtype) or call.groups > 1):
        return False
    blocks = innermost_blocks(call.bias, call.grid)
    return len(blocks) > 1 and max(block.k_len for block in blocks) <= LONGEST


def run(call: Call) -> Tensor:
    plan = _plan(call)
    assert not isinstance(plan, str), plan
    sources = [t for t in call.bias.sources() if not t.is_inference()] if call.bias is not None else []
    return _Batched.apply(plan, call.scale, call.query, call.key, call.value, *sources)


def _whole(grid: Grid) -> tuple[range, range]:
    return range(grid.q_len), range(grid.k_len)


def _plan(call: Call) -> list[Alike] | str:
    if "alike" not in call.found:
        call.found["alike"] = _find_alike(call)
    return call.found["alike"]


def _find_alike(call: Call) -> list[Alike] | str:
    grid = call.grid
    blocks = [b for b in innermost_blocks(call.bias, grid) if grid.batch and b.queries and b.k_len]
    runs = [block.keys for block in blocks if isinstance(block.keys, range)]
    if len(runs) < len(blocks):
        return "the keys of a segment lie scattered"
    if any(a.stop > b.start for a, b in pairwise(runs)):
        return "segments share keys, or their keys are in another order than their queries"
    found: dict[tuple[int, int, int], list[Block]] = {}
    for block in blocks:
        found.setdefault((id(block.bias), *_filled_up(block, grid)), []).append(block)
    return [
        _together(part, grid.crop(q_len, k_len))
        for (_, q_len, k_len), alike in found.items()
        for part in _few_at_a_time(alike, grid.crop(q_len, k_len))
    ]


def _few_at_a_time(blocks: list[Block], grid: Grid) -> Iterator[list[Block]]:
    """So few that the scores of some of their rows are not too many, and in numbers that come again."""
    rows = min(grid.q_len, ROWS_AT_ONCE)
    most = max(1, SCORES_AT_ONCE // max(1, grid.batch * grid.num_heads * rows * grid.k_len))
    first = 0
    while first < len(blocks):
        count = 1 << min(most, len(blocks) - first).bit_length() - 1
        yield blocks[first : first + count]
        first += count


def _filled_up(block: Block, grid: Grid) -> tuple[int, int]:
    """The queries and keys of the problem as whose corner a segment is computed: its own numbers, or few that many
    segments share."""
    bias, small = block.bias, grid.crop(len(block.queries), block.k_len)
    q_len = _rounded_up(small.q_len)
    for k_len in (_rounded_up(small.k_len), small.k_len + q_len - small.q_len):
        large = grid.crop(q_len, k_len)
        # What a segment is filled up with must be seen by none of its queries.
        if (
            bias is not None
            and bias.is_corner(small, large)
            and bias.visible_keys(range(small.q_len), large).stop <= small.k_len
        ):
            return q_len, k_len
    return small.q_len, small.k_len


def _rounded_up(length: int) -> int:
    power = 1 << (length - 1).bit_length()
    step = max(power // (2 * SIZES), min(power, 16))
    return -(-length // step) * step


def _together(blocks: list[Block], grid: Grid) -> Alike:
    queries = _Places([block.queries for block in blocks], grid.q_len)
    keys = _Places([block.keys for block in blocks if isinstance(block.keys, range)], grid.k_len)
    return Alike(queries, keys, blocks[0].bias, grid)


class _Batched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan, scale, query, key, value, *sources):
        ctx.plan, ctx.scale = plan, scale
        # The sources are saved so that autograd refuses a backward after one of them has changed.
        ctx.save_for_backward(query, key, value, *sources)
        out = query.new_zeros(*query.shape[:-1], value.shape[-1])
        for alike in plan:
            alike.queries.scatter(_Tiles(alike, scale, query, key, value).output(), out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, *sources = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            grads = _BatchedBackward.apply(ctx.plan, ctx.scale, grad_out, query, key, value)
        return None, None, *grads, *(None for _ in sources)


class _BatchedBackward(torch.autograd.Function):
    """A function of its own, so that differentiating it once more meets a sentence and not a wrong zero."""

    @staticmethod
    def forward(ctx, plan, scale, grad_out, query, key, value):
        grads = [torch.zeros_like(t) for t in (query, key, value)]
        for alike in plan:
            tiles = _Tiles(alike, scale, query, key, value)
            parts = tiles.gradients(alike.queries.gather(grad_out))
            for places, part, grad in zip((alike.queries, alike.keys, alike.keys), parts, grads, strict=True):
                places.scatter(part, grad)
        return tuple(grads)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "batched attention has a first derivative only: its backward makes the scores again and keeps nothing "
            "that could be differentiated once more. For a second derivative (a gradient penalty, a Hessian) pass "
            "backend='reference', which takes O(n²) memory."
        )


class _Tiles:
    """The scores of a batch of segments, some rows at a time.

    Everything that meets a softmax is in ``dtype``. Weights and their gradients are multiplied in ``low``, the dtype
    of half inputs where the CPU multiplies it: a fused kernel rounds them there too.
    """

    def __init__(self, alike: Alike, scale: float, query: Tensor, key: Tensor, value: Tensor) -> None:
        self.alike, self.scale = alike, scale
        self.bias, self.grid = alike.bias, alike.grid
        self.groups = query.shape[2] // key.shape[2]
        self.dtype = accumulation_dtype(query.dtype)
        self.low = query.dtype if _multiplies(query.dtype) else self.dtype
        self.query = alike.queries.gather(query)
        self.all = range(len(self.query))
        self.key, self.value = (
            heads_first(alike.keys.gather(t), self.all, range(self.grid.k_len), 1, self.low)
            for t in (key, value)
        )

    def _rows_of(self, tensor: Tensor, rows: range) -> Tensor:
        return heads_first(tensor, self.all, rows, self.groups, self.low)

    def cut(self) -> Iterator[tuple[range, range]]:
        """Runs of rows, each with the keys outside of which none of them sees anything."""
        grid = self.grid
        most = SCORES_AT_ONCE // max(1, len(self.all) * grid.num_heads * grid.k_len)
        for rows in cut(range(grid.q_len), max(1, min(ROWS_AT_ONCE, most))):
            columns = range(grid.k_len) if self.bias is None else self.bias.visible_keys(rows, grid)
            if columns:
                yield rows, columns

    def weights(self, q: Tensor, rows: range, columns: range) -> tuple[Tensor, Tensor | None]:
        """[segments * kv heads, groups * rows, columns], and which rows see nothing, if there are any."""
        grid = self.grid
        scores = _product(q, self.key[:, columns.start : columns.stop].mT, self.scale)
        if self.bias is None or self.bias.is_zero(rows, columns, grid):
            return torch.softmax(scores, -1), None
        tile = four_dims(self.bias.tile(rows, columns, grid)).detach()
        by_head = scores.view(grid.batch, -1, grid.num_heads, len(rows), len(columns))
        by_head.add_(tile.unsqueeze(1))
        blind = (tile == NEG_INF).all(-1, keepdim=True)
        if not blind.any():
            return torch.softmax(scores, -1), None
        shape = (*by_head.shape[:-1], 1)
        blind = blind.unsqueeze(1).expand(shape).reshape(*scores.shape[:2], 1)
        return torch.softmax(scores.masked_fill_(blind, 0), -1).masked_fill_(blind, 0), blind

    def output(self) -> Tensor:
        """[segments, q_len, heads, value_dim]"""
        grid = self.grid
        out = self.query.new_zeros(len(self.all), grid.q_len, grid.num_heads, self.value.shape[-1])
        for rows, columns in self.cut():
            weights, _ = self.weights(self._rows_of(self.query, rows), rows, columns)
            part = torch.bmm(weights.to(self.low), self.value[:, columns.start : columns.stop])
            put_back(out, self.all, rows, self.groups, part)
        return out

    def gradients(self, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Those of queries, keys and values, each laid out as it is; ``grad_out`` is laid out as the output."""
        grid = self.grid
        # A row that only fills up passes nothing on, not even a NaN.
        filling = self.alike.queries.filling.repeat(grid.batch, 1)
        grad_out = grad_out.masked_fill(filling[..., None, None], 0)
        grad_query = torch.zeros_like(self.query)
        grad_key, grad_value = (torch.zeros_like(t, dtype=self.dtype) for t in (self.key, self.value))
        for rows, columns in self.cut():
            at = slice(columns.start, columns.stop)
            q, do = self._rows_of(self.query, rows), self._rows_of(grad_out, rows)
            weights, blind = self.weights(q, rows, columns)
            if blind is not None:
                do = do.masked_fill(blind, 0)
            _add_product(grad_value[:, at], weights.to(self.low).mT, do)
            # With the scale in it, so that it is in all that follows.
            grad_weights = _product(do, self.value[:, at].mT, self.scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, self.dtype).to(self.low)
            put_back(grad_query, self.all, rows, self.groups, torch.bmm(grad_scores, self.key[:, at]))
            _add_product(grad_key[:, at], grad_scores.mT, q)
        return grad_query, self._by_token(grad_key), self._by_token(grad_value)

    def _by_token(self, part: Tensor) -> Tensor:
        """[segments, k_len, kv heads, dim] of [segments * kv heads, k_len, dim], in the dtype of the inputs."""
        by_head = part.to(self.query.dtype).view(len(self.all), -1, *part.shape[1:])
        return by_head.transpose(1, 2).contiguous()


def _product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale * a @ b, in single precision for half inputs.

    A half product is summed in single precision and rounded once, at the end. What the rounding took is had by a second
    product whose sum starts from minus the first: two of them take less time than one in single precision.
    """
    if a.dtype in (torch.float32, torch.float64):
        return torch.bmm(a * scale, b)
    rounded = torch.bmm(a, b)
    rest = torch.baddbmm(rounded, a, b, beta=-1)
    return rounded.float().add_(rest).mul_(scale)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, summed in the dtype of ``total``."""
    if a.dtype == total.dtype:
        total.baddbmm_(a, b)
    else:
        total += torch.bmm(a, b)


def _scores_are_finite(query: Tensor, key: Tensor) -> bool:
    """Whether no query and key of these can have a product that a half dtype rounds to inf: what is left of the exact
    one would be minus inf, and their sum NaN."""
    if not query.numel() or not key.numel():
        return True
    largest = (torch.linalg.vector_norm(t.detach(), float("inf")).item() for t in (query, key))
    return math.prod(largest) * query.shape[-1] < torch.finfo(query.dtype).max


def _multiplies(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies matrices of a half ``dtype`` faster than after conversion."""
    return dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
