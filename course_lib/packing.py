"""Packing: documents of very different lengths side by side in one row, with no padding and no leak (lesson 03).

A padded batch costs ``number of documents * longest`` tokens, a packed row only those that are there. Four things
keep the documents apart: positions that restart, attention within each document (:class:`Packed`), a target that
never lies in the next document, and nothing else, since every other layer looks at one token at a time.

    batch = pack([tokenizer.encode(text) for text in texts])
    bias = Packed(batch.lengths, inner=Causal())
    logits = model(batch.tokens, positions=batch.positions, bias=bias)
    loss = F.cross_entropy(logits.flatten(0, 1), next_token_targets(batch).flatten())
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from course_lib.attention import Grid, Segments

# One check and one wording for lengths, here and in attention.
from course_lib.attention.segments import as_lengths

NO_TARGET = -100
"""A target that ``F.cross_entropy`` leaves out of the loss and of its mean, unless told otherwise."""


class Packed(Segments):
    """The bias of a packed row: each token attends within its own document.

    ``lengths`` are the documents' lengths in order, and must add up to the tokens of the row; ``k_lengths`` are
    those of their keys, where they differ (a cache). ``inner`` holds within each document, where positions restart
    at 0: ``Packed(batch.lengths, inner=Causal())`` for a language model. A document of length 0 has no rows; one
    without keys yields zeros. In a batch of several rows, each is cut at the same places.
    """

    def __init__(self, lengths: Any, k_lengths: Any = None, inner: Any = None) -> None:
        lengths = as_lengths("lengths", lengths)
        if k_lengths is not None:
            k_lengths = as_lengths("k_lengths", k_lengths)
            if len(k_lengths) != len(lengths):
                raise ValueError(
                    f"k_lengths: expected one length a document, {len(lengths)} as in lengths, got {len(k_lengths)}. "
                    "A document without keys has length 0."
                )
        super().__init__(lengths, k_lengths, inner)

    def __repr__(self) -> str:
        keys = "" if self.k_lengths == self.q_lengths else f", k_lengths summing to {sum(self.k_lengths)}"
        inner = "" if self.inner is None else f", inner={self.inner!r}"
        return f"Packed({len(self.q_lengths)} lengths summing to {sum(self.q_lengths)}{keys}{inner})"

    def check(self, grid: Grid) -> None:
        total = sum(self.q_lengths)
        if total != grid.q_len:
            _refuse_sum(self.q_lengths, grid.batch, grid.q_len)
        super().check(grid)


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Documents in one row.

    ``tokens`` [1, total] and ``positions`` [1, total], which count from 0 in each document, are int64 on one
    device; ``lengths`` are the documents' lengths in order, some of them perhaps 0.
    """

    tokens: Int64[Tensor, "1 total"]
    positions: Int64[Tensor, "1 total"]
    lengths: tuple[int, ...]

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on another device."""
        return PackedBatch(self.tokens.to(device), self.positions.to(device), self.lengths)


def pack(sequences: Iterable[Any]) -> PackedBatch:
    """Lay sequences of token ids side by side, in the order given.

    ``sequences``: 1-D tensors of whole numbers on one device, or lists of ints as a tokenizer gives them; any
    number of them, empty ones included. The batch lies on their device (the CPU for lists).

    Raises TypeError or ValueError for anything else: floating-point or bool ids, another number of dimensions, one
    padded tensor in place of a list.
    """
    shape = getattr(sequences, "shape", (0,))
    if isinstance(sequences, Tensor) or len(shape) != 1:
        raise TypeError(
            f"sequences: expected a list of 1-D tensors, a document each, got one {type(sequences).__name__} of shape "
            f"{list(shape)}. The rows of a padded batch go without their padding: pack([row[:n] for row, n "
            "in zip(batch, lengths)])."
        )
    if isinstance(sequences, (str, bytes)) or not hasattr(sequences, "__iter__"):
        raise TypeError(
            f"sequences: expected a list of 1-D tensors of token ids, got {type(sequences).__name__}. Text goes "
            "through tokenizer.encode first."
        )
    checked = [_as_ids(i, sequence) for i, sequence in enumerate(sequences)]
    devices = sorted({str(ids.device) for ids in checked})
    if len(devices) > 1:
        raise ValueError(
            f"sequences: expected all on one device, got {' and '.join(devices)}. Pack on the CPU and move the batch: "
            "pack(...).to(device)."
        )
    lengths = tuple(len(ids) for ids in checked)
    if not checked:
        nothing = torch.empty(1, 0, dtype=torch.int64)
        return PackedBatch(nothing, nothing.clone(), lengths)
    device = checked[0].device
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])
    return PackedBatch(torch.cat(checked)[None], positions[None], lengths)


def unpack(tensor: Shaped[Tensor, "1 total *rest"], lengths: Any) -> list[Tensor]:
    """Cut a packed row into its documents: [n_i, ...] for each length, views of ``tensor`` [1, total, ...].

    Raises ValueError if the tensor is no single row or the lengths do not add up to its tokens.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor: expected a tensor [1, total, ...], got {type(tensor).__name__}.")
    if tensor.dim() < 2 or tensor.shape[0] != 1:
        raise ValueError(
            f"tensor: expected one packed row [1, total, ...], got shape {list(tensor.shape)}. A batch of several rows "
            "is unpacked row by row, as tensor[i : i + 1] with that row's lengths."
        )
    lengths = as_lengths("lengths", lengths)
    if sum(lengths) != tensor.shape[1]:
        _refuse_sum(lengths, 1, tensor.shape[1])
    return list(tensor[0].split(list(lengths)))


def next_token_targets(batch: PackedBatch) -> Int64[Tensor, "1 total"]:
    """What each token should predict: the next one of its own document, and nothing (-100) at its end.

    [1, total], made for ``F.cross_entropy``, which ignores -100. A shift of the whole row instead would ask the
    last token of one document for the first of the next, which nothing before it foretells.
    """
    if not isinstance(batch, PackedBatch):
        raise TypeError(
            f"batch: expected a PackedBatch, as pack(...) gives it, got {type(batch).__name__}. Only it knows where "
            "the documents end."
        )
    total = batch.tokens.shape[1]
    if sum(batch.lengths) != total:
        _refuse_sum(batch.lengths, 1, total)
    targets = batch.tokens.roll(-1, dims=1)
    ends = [end - 1 for end, n in zip(accumulate(batch.lengths), batch.lengths, strict=True) if n]
    targets[:, ends] = NO_TARGET
    return targets


def fill_bins(lengths: Any, capacity: int) -> list[list[int]]:
    """Share documents out over rows of at most ``capacity`` tokens: the indices into ``lengths`` of each row.

    Best-fit decreasing: the longest first, each into the row that it fills best, a new row where none has room. Of
    many documents that never makes more than 11/9 of the fewest rows possible (Johnson et al. 1974), and of real
    texts within a percent or two of ``sum(lengths) / capacity``. Rows come in the order they were opened, the longest
    documents first: shuffle rows before training on them. Indices ascend within a row; a length of 0 takes part like
    any other.

    Raises ValueError for a length over the capacity, TypeError for what is no whole number.
    """
    if isinstance(capacity, bool) or not hasattr(capacity, "__index__"):
        raise TypeError(
            f"capacity: expected a whole number of tokens, got {type(capacity).__name__} {capacity!r}."
        )
    capacity = capacity.__index__()
    if capacity < 1:
        raise ValueError(f"capacity: expected at least 1 token a row, got {capacity}.")
    lengths = as_lengths("lengths", lengths)
    for i, length in enumerate(lengths):
        if length > capacity:
            raise ValueError(
                f"lengths[{i}]: expected at most the capacity, {capacity}, got {length}. Cut that document into parts "
                "of at most the capacity first, or raise the capacity."
            )
    bins: list[list[int]] = []
    # Many rows have the same room left. `rooms` holds each such number once, in order, so that the smallest one
    # that suffices is found by bisection; `with_room` holds the rows that have it.
    rooms: list[int] = []
    with_room: dict[int, list[int]] = {}
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        at = bisect_left(rooms, lengths[i])
        if at < len(rooms):
            room = rooms[at]
            row = with_room[room].pop()
            if not with_room[room]:
                del rooms[at], with_room[room]
        else:
            room, row = capacity, len(bins)
            bins.append([])
        bins[row].append(i)
        left = room - lengths[i]
        if left not in with_room:
            insort(rooms, left)
            with_room[left] = []
        with_room[left].append(row)
    return [sorted(row) for row in bins]


def _as_ids(i: int, sequence: Any) -> Tensor:
    """A document's token ids as int64 [n]."""
    if isinstance(sequence, (str, bytes)):
        raise TypeError(
            f"sequences[{i}]: expected token ids, got {type(sequence).__name__}. Text goes through tokenizer.encode "
            "first."
        )
    try:
        ids = torch.as_tensor(sequence)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(
            f"sequences[{i}]: expected a 1-D tensor or a list of token ids, got {type(sequence).__name__} of which no "
            f"tensor can be made ({error})."
        ) from None
    if ids.dim() != 1:
        hint = "A row of a batch is batch[i], without its padding."
        if ids.dim() == 0:
            hint = "A single document goes in a list: [ids]."
        raise ValueError(
            f"sequences[{i}]: expected one dimension, a token id each, got shape {list(ids.shape)}. {hint}"
        )
    # torch.tensor([]) is floating-point, and yet no wrong id lies in it.
    if len(ids) and (ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex()):
        raise TypeError(
            f"sequences[{i}]: expected token ids, which are whole numbers, got "
            f"{str(ids.dtype).removeprefix('torch.')}. Pack the ids and embed afterwards."
        )
    return ids.to(torch.int64)


def _refuse_sum(lengths: tuple[int, ...], rows: int, tokens: int) -> None:
    hint = "Every token belongs to a document: leave padding out of the row, or count it as a document."
    if rows > 1 and sum(lengths) == rows * tokens:
        hint = (
            f"They are the lengths of all {rows} rows together: put these side by side in one, with "
            "tensor.flatten(0, 1)[None]."
        )
    raise ValueError(
        f"lengths: expected lengths that add up to the {tokens} tokens of a row, got {len(lengths)} lengths for "
        f"{sum(lengths)}. {hint}"
    )
