"""Between the layout of the tensors, [batch, length, heads, head_dim], and that of the tiles that bmm multiplies,
[sequences * kv heads, query heads of a kv head * positions, head_dim]."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def cut(positions: range, size: int) -> Iterator[range]:
    """Even runs of ``size`` positions to nearly twice as many: one long tile beats one and a remainder."""
    count = max(1, len(positions) // size) if positions else 0
    for i in range(count):
        yield positions[len(positions) * i // count : len(positions) * (i + 1) // count]


def heads_first(
    tensor: Tensor, sequences: range, positions: range, groups: int, dtype: torch.dtype
) -> Tensor:
    """[run * kv heads, groups * positions, head_dim] of a [batch, length, heads, head_dim]: what bmm multiplies.

    A view where it can be one (a run of one sequence, no groups, the right dtype).
    """
    part = tensor[sequences.start : sequences.stop, positions.start : positions.stop].to(dtype)
    run, length, heads, dim = part.shape
    part = part.unflatten(2, (heads // groups, groups)).permute(0, 2, 3, 1, 4)
    return part.reshape(run * (heads // groups), groups * length, dim)


def rows_of(tensor: Tensor, sequences: range, queries: range, groups: int) -> Tensor:
    """[run * kv heads, groups * rows, 1] of a [batch, heads, length]."""
    part = tensor[sequences.start : sequences.stop, :, queries.start : queries.stop]
    run, heads, length = part.shape
    return part.reshape(run * (heads // groups), groups * length, 1)


def put_back(
    into: Tensor, sequences: range, positions: range, groups: int, part: Tensor, add: bool = False
) -> None:
    """The inverse of ``heads_first``: write (or add) a tile back into [batch, length, heads, dim]."""
    to = into[sequences.start : sequences.stop, positions.start : positions.stop]
    run, length, heads, dim = to.shape
    part = part.view(run, heads // groups, groups, length, dim).permute(0, 3, 1, 2, 4)
    to = to.unflatten(2, (heads // groups, groups))
    if add:
        to.add_(part)
    else:
        to.copy_(part)
