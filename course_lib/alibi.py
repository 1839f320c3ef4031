"""ALiBi: attention that pays for distance, and so reads further than it was trained (lesson 05).

No token is told its position. A score is lowered instead by ``slope * distance``, with a slope of its own for each
head (Press, Smith and Lewis 2021, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation"). A steep head sees its neighbours only, a flat one looks far back.

    bias = Causal("bottom-right") + ALiBi(num_heads)
    out = attention(query, key, value, bias)
    packed = attention(query, key, value, Packed(lengths, inner=bias))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.attention import AttentionBias, Block, Grid

# One check and one wording for whole numbers, here and in attention.
from course_lib.attention.bias import as_whole_number


def alibi_slopes(num_heads: int) -> Float[Tensor, " num_heads"]:
    """The published slopes, [num_heads] float32: for a power of two the geometric series 2^(-8/n), 2^(-16/n), … 2^-8.

    Any other count takes the slopes of the power of two below it, and then, of those of the power of two above,
    every other one from the first on, as many as are missing. They stay in that order, so they do not fall
    throughout: 6 heads have 1/4, 1/16, 1/64, 1/256, 1/2, 1/8. (``get_slopes`` in the code of Press et al.; BLOOM
    trained with the same.) Each is the exact slope, rounded once to float32.

    Raises ValueError for fewer heads than 1, TypeError for what is no whole number.
    """
    return torch.tensor(_slopes(_checked_count("num_heads", num_heads)), dtype=torch.float32)


def _slopes(num_heads: int) -> list[float]:
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2.0 ** (-8 * i / (2 * power)) for i in range(1, 2 * power, 2)]
    return slopes + between[: num_heads - power]


class ALiBi(AttentionBias):
    """Lowers the score of query i and key j by ``slope * |i + k_len - q_len - j|``, each head with its own slope.

    The last query stands on the last key, as behind a cache. It hides nothing: a language model adds
    ``Causal("bottom-right")``. Within segments distances are those within each: ``Packed(lengths, inner=Causal() +
    ALiBi(num_heads))``; beside them, ``Packed(lengths) + ALiBi(num_heads)``, they are the same where every document
    has as many queries as keys, and refused elsewhere.

    ``num_heads_or_slopes``: the number of query heads, which get the published :func:`alibi_slopes`, or slopes of
    your own, a floating-point tensor [num_heads], finite and positive. Where they require a gradient they get it, from
    every backend that trains a bias (``tiled``, ``reference``). Distances are computed in float32 (float64 for float64
    inputs) whatever the dtype of query and slopes: bfloat16 knows 513 of the first 1,024 whole numbers.

    Distances count columns, padding among them. Left- and right-padded batches come out right, since the padding lies
    outside; a hole in the middle of a sequence counts.

    Raises ValueError or TypeError for other slopes, and when ``attention`` is called with another number of heads.
    """

    finite = True

    def __init__(self, num_heads_or_slopes: Any) -> None:
        name = "num_heads_or_slopes"
        if isinstance(num_heads_or_slopes, (list, tuple)) or getattr(num_heads_or_slopes, "ndim", 0) > 0:
            self.slopes = _checked_slopes(name, num_heads_or_slopes)
            self._made_from = f"slopes [{len(self.slopes)}]"
        else:
            self.slopes = alibi_slopes(
                _checked_count(name, num_heads_or_slopes, ", or a tensor of slopes [num_heads]")
            )
            self._made_from = str(len(self.slopes))
        self.per_head = len(self.slopes) > 1

    def __repr__(self) -> str:
        return f"ALiBi({self._made_from})"

    def check(self, grid: Grid) -> None:
        if len(self.slopes) != grid.num_heads:
            raise ValueError(
                f"bias: expected a slope for each of the {grid.num_heads} query heads, got {self!r} with "
                f"{len(self.slopes)}. However few heads key and value have, slopes belong to query heads: make it "
                f"ALiBi({grid.num_heads}). To look at this one, materialize with num_heads={len(self.slopes)}."
            )

    def check_parts(self, parts: Sequence[Block], grid: Grid) -> None:
        for part in parts:
            if grid.q_len == grid.k_len and part.queries == part.keys:
                inner_grid = grid.crop(len(part.queries), part.k_len)
                inner = None if part.bias is None else part.bias.blocks(inner_grid)
                if inner is not None:
                    self.check_parts(inner, inner_grid)
                continue
            queries, keys = part.queries, part.keys
            at = f"keys {keys.start} to {keys.stop - 1}" if isinstance(keys, range) else "scattered keys"
            raise ValueError(
                f"bias: {self!r} beside segments counts distances over all {grid.q_len} queries and {grid.k_len} keys, "
                "so expected as many of each, and segments with as many in the same places, got queries "
                f"{queries.start} to {queries.stop - 1} with {at}. Let distances count within each segment: "
                f"Packed(lengths, k_lengths, inner={self!r})."
            )

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        lowered = self._distances(queries, keys, grid).neg_()
        return lowered * self.slopes.to(lowered)[:, None, None]  # [heads, rows, columns]

    def add_to(self, scores: Tensor, sequences: range, queries: range, keys: range, grid: Grid) -> None:
        # One pass over the scores, where a tile of all heads would be written first and then read.
        distances = self._distances(queries, keys, grid)
        scores.addcmul_(distances, self.slopes.to(distances)[:, None, None], value=-1)

    def is_corner(self, small: Grid, large: Grid) -> bool:
        return small.k_len - small.q_len == large.k_len - large.q_len

    @staticmethod
    def _distances(queries: range, keys: range, grid: Grid) -> Float[Tensor, "rows columns"]:
        # A half-precision grid is rounded to at the end, by whoever asked for it: half numbers cannot count.
        dtype = torch.promote_types(grid.dtype, torch.float32)
        shift = queries.start + grid.k_len - grid.q_len - keys.start
        own = torch.arange(shift, shift + len(queries), dtype=dtype, device=grid.device)
        columns = torch.arange(len(keys), dtype=dtype, device=grid.device)
        return (own[:, None] - columns).abs_()

    def learnable(self) -> tuple[Tensor, ...]:
        return (self.slopes,) if self.slopes.requires_grad else ()

    def sources(self) -> tuple[Tensor, ...]:
        return (self.slopes,)

    def add_gradient(
        self, into: Sequence[Tensor], grad_tile: Tensor, queries: range, keys: range, grid: Grid
    ) -> None:
        if into:
            distances = self._distances(queries, keys, grid)
            per_head = grad_tile.sum(0).flatten(1) @ distances.flatten()
            into[0].sub_(per_head.to(into[0]))


def _checked_count(name: str, num_heads: Any, otherwise: str = "") -> int:
    try:
        count = as_whole_number(name, num_heads)
    except TypeError:
        raise TypeError(
            f"{name}: expected a whole number of heads{otherwise}, got {type(num_heads).__name__} {num_heads!r}."
        ) from None
    if count < 1:
        raise ValueError(f"{name}: expected at least 1 head, got {count}.")
    return count


def _checked_slopes(name: str, slopes: Any) -> Tensor:
    """The slopes as a tensor [num_heads]: the caller's own where they train or may come to, else a copy."""
    try:
        # as_tensor would read the numbers out of a list of tensors, and their gradients would be lost.
        apart = isinstance(slopes, (list, tuple)) and any(isinstance(slope, Tensor) for slope in slopes)
        tensor = torch.stack(tuple(slopes)) if apart else torch.as_tensor(slopes)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name}: expected a number of heads, or slopes as a floating-point tensor [num_heads], got "
            f"{type(slopes).__name__} {slopes!r}."
        ) from None
    if tensor.dim() != 1 or not len(tensor):
        raise ValueError(
            f"{name}: expected slopes [num_heads], one for each query head, got shape {list(tensor.shape)}. "
            "slopes.flatten() makes one of another shape; ALiBi(num_heads) takes the published ones."
        )
    if not tensor.is_floating_point():
        raise ValueError(
            f"{name}: expected floating-point slopes, got {str(tensor.dtype).removeprefix('torch.')}. Convert them "
            "with .float(), or pass a single whole number for the published slopes of so many heads."
        )
    held = tensor.detach().cpu()
    wrong = (~(held.isfinite() & (held > 0))).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"{name}: expected finite slopes above 0, got {held[wrong[0]].item()!r} for head {wrong[0]}. A slope is "
            "what a token of distance costs, and the minus sign is ALiBi's own."
        )
    return tensor if tensor.requires_grad or isinstance(tensor, nn.Parameter) else tensor.detach().clone()
