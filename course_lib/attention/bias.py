"""What may attend to what.

A bias is added to the scores before the softmax: 0 where a query may look, -inf where it may not, any other
number to prefer some keys. Held as one tensor it has ``q_len * k_len`` entries, which is what makes attention
take O(n²) memory. So a bias here is not a tensor but an object that makes any *tile* of itself on demand, and
that can say of a tile, without making it, that nothing in it is visible or that nothing in it is masked.

Backends ask a bias only the questions below, never which class it is. To write your own, subclass
:class:`AttentionBias` and define :meth:`~AttentionBias.tile`, and :meth:`~AttentionBias.learnable` if it trains;
everything else has a correct default, and each further answer only makes attention faster.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

NEG_INF = float("-inf")
TOP_LEFT, BOTTOM_RIGHT = "top-left", "bottom-right"


def as_whole_number(name: str, value: Any, at_least: int | None = None) -> int:
    """``value`` (an int, or NumPy's or a tensor's) as an int. Raises TypeError that names ``name`` if it is none, and
    ValueError if it is below ``at_least``."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__} {value!r}.")
    if at_least is not None and number < at_least:
        raise ValueError(f"{name}: expected a whole number of at least {at_least}, got {number}.")
    return number


@dataclass(frozen=True)
class Grid:
    """The score matrix that a bias is asked about: its sizes, and the dtype and device of its tiles."""

    batch: int
    num_heads: int
    q_len: int
    k_len: int
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def crop(self, q_len: int, k_len: int) -> Grid:
        """The grid of a part of this one, ``q_len`` queries by ``k_len`` keys."""
        return replace(self, q_len=q_len, k_len=k_len)


@dataclass(frozen=True)
class Block:
    """A part of the score matrix that is attention of its own: outside its blocks, nothing is visible."""

    queries: range
    keys: range | Tensor
    """A run of keys, or their indices [n] where they lie scattered (the pages of a cache)."""
    bias: AttentionBias | None

    @property
    def k_len(self) -> int:
        return len(self.keys)


class AttentionBias:
    """Base of every bias. Define ``tile``, and ``learnable`` if it trains; the other methods are what a backend may
    ask to go faster.

    ``queries`` and ``keys`` are ranges of step 1 inside the grid. Biases add: ``a + b`` masks what either masks
    and adds the scores of both; dense tensors and xFormers' bias objects may stand on either side.
    """

    adds_scores: bool = True
    """False if every entry is 0 or -inf."""
    finite: bool = False
    """True if no entry is ever infinite or NaN: what another bias hides is then hidden by adding both."""
    batch_size: int | None = None
    """The batch this bias is made for, or None if it is the same for every sequence of any batch."""
    per_head: bool = False
    """Whether entries differ between heads."""

    def __repr__(self) -> str:
        # Reasons and errors quote a bias, so its default name must not hold an address.
        return f"{type(self).__name__}()"

    def tile(self, queries: range, keys: range, grid: Grid) -> Float[Tensor, "..."]:
        """The entries of these rows and columns: float, broadcastable to [batch, num_heads, rows, columns]."""
        raise NotImplementedError(f"{type(self).__name__} must define tile(queries, keys, grid)")

    def add_to(self, scores: Tensor, sequences: range, queries: range, keys: range, grid: Grid) -> None:
        """Add the tile of these sequences to their ``scores`` [sequences, num_heads, rows, columns], in place and
        outside of autograd. To override where that takes less than making the tile first."""
        tile = four_dims(self.tile(queries, keys, grid))
        scores.add_(tile[sequences.start : sequences.stop] if tile.shape[0] > 1 else tile)

    def check(self, grid: Grid) -> None:
        """Raise ValueError if this bias does not fit the grid; the message says what would."""

    def check_parts(self, parts: Sequence[Block], grid: Grid) -> None:
        """Raise ValueError if this bias, added to one of such parts, would say something else there than inside each:
        beside segments it is asked about the places of the whole grid, within them about those of its segment."""

    def visible_keys(self, queries: range, grid: Grid) -> range:
        """A run of keys outside of which none of these queries sees anything (it may be wider than needed)."""
        return range(grid.k_len)

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        """True only if every entry of the tile is 0, so that it need not be made. False is always correct."""
        return False

    def is_corner(self, small: Grid, large: Grid) -> bool:
        """True only if the entries over the ``small`` grid are the top-left corner of those over the ``large`` one:
        problems of several sizes can then be computed as one size. False is always correct."""
        return False

    def blocks(self, grid: Grid) -> list[Block] | None:
        """Independent parts that together are all that is visible, or None if there is one part only."""
        return None

    def as_band(self, grid: Grid) -> Band | None:
        """The band of keys around each query's position that this bias is, if it is exactly one: fused kernels
        know bands (plain causal masks above all) by name."""
        return None

    def stored(self, grid: Grid) -> Tensor | None:
        """A tensor that holds this whole bias already, each size 1 or full, or None: a bias that would have
        to build one answers None. bool (True = may attend) or float."""
        return None

    def learnable(self) -> tuple[Tensor, ...]:
        """The tensors of this bias that want a gradient: the same objects at every call."""
        return ()

    def sources(self) -> tuple[Tensor, ...]:
        """The tensors of the caller's that the entries are read from. A backend that reads them again in its backward
        has autograd watch them, so that a change in between is an error and not a wrong gradient."""
        return self.learnable()

    def add_gradient(
        self, into: Sequence[Tensor], grad_tile: Tensor, queries: range, keys: range, grid: Grid
    ) -> None:
        """Add to ``into``, one tensor for each of ``learnable()``, what a tile's gradient
        [batch, num_heads, rows, columns] contributes. By default the tile is made again and autograd asked."""
        with torch.enable_grad():
            tile = self.tile(queries, keys, grid)
        if tile.requires_grad:
            found = torch.autograd.grad(
                tile, self.learnable(), sum_to(grad_tile, tile.shape).to(tile.dtype), allow_unused=True
            )
            for total, part in zip(into, found, strict=True):
                if part is not None:
                    total.add_(part)

    def materialize(
        self,
        q_len: int,
        k_len: int,
        *,
        num_heads: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Float[Tensor, "batch heads q_len k_len"]:
        """The whole bias as one tensor [batch or 1, num_heads or 1, q_len, k_len], for looking and for tests.

        The first size is the batch where the bias differs between sequences, else 1; the second is
        ``num_heads`` where it differs between heads, else 1. Raises ValueError if it does not fit the lengths.
        """
        grid = Grid(self.batch_size or 1, num_heads, q_len, k_len, dtype, torch.device(device))
        self.check(grid)
        tile = four_dims(self.tile(range(q_len), range(k_len), grid))
        return tile.to(dtype).expand(-1, -1, q_len, k_len)

    def __add__(self, other: Any) -> AttentionBias:
        # Imported here: a sum is itself a bias, so combine.py stands above this file.
        from .combine import Sum, as_bias

        return Sum.of(self, as_bias(other))

    def __radd__(self, other: Any) -> AttentionBias:
        from .combine import Sum, as_bias

        return Sum.of(as_bias(other), self)


def four_dims(tile: Tensor) -> Tensor:
    """[batch or 1, heads or 1, rows or 1, columns or 1] of a tile that may leave leading sizes out."""
    return tile.reshape((1,) * (4 - tile.dim()) + tuple(tile.shape))


def sum_to(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum over the dimensions along which ``shape`` was broadcast to ``tensor``'s: a broadcast's gradient."""
    while tensor.dim() > len(shape):
        tensor = tensor.sum(0)
    broadcast = [d for d, size in enumerate(shape) if size == 1 and tensor.shape[d] != 1]
    return tensor.sum(broadcast, keepdim=True) if broadcast else tensor


class Band(AttentionBias):
    """Keys within a band around each query's own position.

    Query ``i`` stands on key ``i`` (``top-left``) or on key ``i + k_len - q_len`` (``bottom-right``), and sees
    ``left`` keys before its own and ``right`` keys after it; None is no limit.
    """

    adds_scores = False

    def __init__(self, left: SupportsIndex | None, right: SupportsIndex | None, align: str | None) -> None:
        if align not in (None, TOP_LEFT, BOTTOM_RIGHT):
            raise ValueError(
                f"align: expected 'top-left', 'bottom-right' or None, got {align!r}. "
                "A training batch is square, where both are the same; a KV cache needs 'bottom-right'."
            )
        self.left, self.right = self._limit("left", left), self._limit("right", right)
        self.align = align

    @staticmethod
    def _limit(name: str, keys: SupportsIndex | None) -> int | None:
        limit = None if keys is None else as_whole_number(name, keys)
        if limit is not None and limit < 0:
            raise ValueError(
                f"{name}: expected 0 or more keys beside a query's own, or None for no limit, got {limit}."
            )
        return limit

    def __repr__(self) -> str:
        return f"Band(left={self.left}, right={self.right}, align={self.align!r})"

    def check(self, grid: Grid) -> None:
        if self.align is None and grid.q_len != grid.k_len:
            raise ValueError(
                f"bias: {self!r} needs as many queries as keys, got {grid.q_len} queries and {grid.k_len} keys. "
                "Say where the queries stand: align='top-left' puts query 0 on key 0 (as xFormers' "
                "LowerTriangularMask and PyTorch's is_causal do), align='bottom-right' puts the last query on "
                "the last key (as a KV cache needs)."
            )

    def offset(self, grid: Grid) -> int:
        """The key on which query 0 stands."""
        return grid.k_len - grid.q_len if self.align == BOTTOM_RIGHT else 0

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        # Relative to the tile, row r's own key is column r + shift.
        shift = queries.start + self.offset(grid) - keys.start
        tile = torch.zeros(len(queries), len(keys), dtype=grid.dtype, device=grid.device)
        if self.right is not None:
            tile.fill_(NEG_INF).triu_(shift + self.right + 1)
        if self.left is not None:
            tile.add_(torch.full_like(tile, NEG_INF).tril_(shift - self.left - 1))
        return tile

    def visible_keys(self, queries: range, grid: Grid) -> range:
        offset = self.offset(grid)
        start = 0 if self.left is None else queries.start + offset - self.left
        stop = grid.k_len if self.right is None else queries.stop + offset + self.right
        start = min(max(start, 0), grid.k_len)
        return range(start, max(start, min(stop, grid.k_len)))

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        if not queries or not keys:
            return True
        offset = self.offset(grid)
        first, last = queries.start + offset, queries.stop - 1 + offset
        return (self.right is None or keys.stop - 1 <= first + self.right) and (
            self.left is None or keys.start >= last - self.left
        )

    def is_corner(self, small: Grid, large: Grid) -> bool:
        return self.offset(small) == self.offset(large)

    def as_band(self, grid: Grid) -> Band | None:
        return self


class Causal(Band):
    """A query sees its own position and what lies before it; with ``window``, that many keys, its own included.

    ``align`` says where the queries stand when there are fewer or more of them than keys: ``"top-left"`` puts
    query 0 on key 0, ``"bottom-right"`` the last query on the last key. Without it, a rectangle is refused.
    """

    def __init__(self, align: str | None = None, window: SupportsIndex | None = None) -> None:
        self.window = None if window is None else as_whole_number("window", window)
        if self.window is not None and self.window < 1:
            raise ValueError(
                f"window: expected at least 1 (a query's own key is counted), got {self.window}. "
                "Leave window out to see everything before the query."
            )
        super().__init__(left=None if self.window is None else self.window - 1, right=0, align=align)

    def __repr__(self) -> str:
        window = "" if self.window is None else f"window={self.window}"
        align = "" if self.align is None else repr(self.align)
        return f"Causal({', '.join(filter(None, (align, window)))})"
