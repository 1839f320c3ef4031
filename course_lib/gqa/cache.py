"""The keys and values of what has been read, so that a model that writes reads nothing twice.

A causal model's keys and values at a position never change once it has been read: they are appended and kept. The
sequences of a batch may have come differently far. Each keeps its own tokens from column 0 on, without gaps, and
padding is not kept at all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from course_lib.attention import AttentionBias, Causal, KeyPadding

# One check and one wording for lengths, here and in attention.
from course_lib.attention.segments import as_lengths

from .causal_at import CausalAt
from .sizes import checked_sizes

_CAUSAL = Causal("bottom-right")


class KVCache:
    """The keys and values of one layer, of a batch of sequences that grow.

    Memory is taken ``block_size`` tokens at a time, so that not every token moves all that came before; with
    ``max_length`` it is taken once, and a longer sequence is refused. Sizes, dtype and device are those of the first
    tokens appended. Gradients flow through a cache, at the price of a copy for each append: write under
    ``torch.no_grad()``.

    Each head's keys lie together in memory, [batch, kv_heads, room, head_dim], since decoding reads them head by
    head; what is handed out is [batch, length, kv_heads, head_dim] as everywhere, a view.
    """

    def __init__(self, *, block_size: int = 256, max_length: int | None = None) -> None:
        (self.block_size,) = checked_sizes(block_size=block_size)
        self.max_length = None if max_length is None else checked_sizes(max_length=max_length)[0]
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self.host_lengths: tuple[int, ...] = ()
        """``lengths`` as numbers, so that asking never waits for a GPU."""

    def __repr__(self) -> str:
        return f"KVCache(lengths {list(self.host_lengths)}, {self.nbytes} bytes)"

    @property
    def lengths(self) -> Int64[Tensor, " batch"]:
        """How many tokens each sequence holds; [0] before the first append."""
        return torch.tensor(self.host_lengths, dtype=torch.int64, device=self._device)

    @property
    def nbytes(self) -> int:
        """The memory taken, of which up to a block a sequence waits to be filled."""
        return sum(t.numel() * t.element_size() for t in (self._keys, self._values) if t is not None)

    @property
    def _device(self) -> torch.device:
        return torch.device("cpu") if self._keys is None else self._keys.device

    def next_positions(self, attention_mask: Tensor) -> Int64[Tensor, "batch length"]:
        """The positions that further tokens will take: what rotary or learned positions need before the append.

        ``attention_mask`` [batch, length] marks the real ones with 1; padding gets 0.
        """
        real = KeyPadding(attention_mask).real
        if self._keys is not None:
            self._check_batch("attention_mask", len(real))
        return self._positions(real).clamp_(min=0)

    def append(
        self,
        key: Float[Tensor, "batch new kv_heads head_dim"],
        value: Float[Tensor, "batch new kv_heads value_dim"],
        attention_mask: Tensor | None = None,
    ) -> tuple[
        Float[Tensor, "batch length kv_heads head_dim"],
        Float[Tensor, "batch length kv_heads value_dim"],
        AttentionBias,
    ]:
        """Keep further tokens; return all keys and values, and the bias under which the new tokens may see them.

        ``attention_mask`` [batch, new] marks real tokens with 1 and padding, wherever it lies, with 0; None: all are
        real. The bias is causal, hides other sequences' surplus columns, and lets padding see nothing. Another bias
        comes on top by ``+``, over the columns of the cache; where sequences differ in length, one that counts from
        the last column (a window) would not find each sequence's own end.

        Raises ValueError or TypeError, and keeps nothing, for tokens of another batch, size, dtype or device, and
        when ``max_length`` is passed.
        """
        if self._fits(key, value):
            if attention_mask is None and self._writable(key, value):
                return self._append_evenly(key, value)
        else:
            self._check(key, value)
        batch, new = key.shape[:2]
        real = None
        if attention_mask is not None:
            real = KeyPadding(attention_mask).real.to(key.device)
            if real.shape != (batch, new):
                raise ValueError(
                    f"attention_mask: expected [batch, new] = {[batch, new]}, the tokens that are appended, got shape "
                    f"{list(real.shape)}. The cache knows which of the earlier ones were real."
                )
            if bool(real.all()):
                real = None
        before = self.host_lengths or (0,) * batch
        counts = (new,) * batch if real is None else tuple(real.sum(1).tolist())
        after = tuple(have + count for have, count in zip(before, counts, strict=True))
        self._check_room(before, after)
        start = before[0] if before else 0
        positions: Tensor | None
        bias: AttentionBias
        if real is None and len(set(before)) <= 1:
            positions, width, bias = None, start + new, _CAUSAL
        elif real is None:
            inference = torch.is_inference_mode_enabled()
            positions, width, bias = _step_of(before, new, key.device, inference)
        else:
            positions = self._positions(real)
            # Wide enough that no query stands beyond its bottom-right place: a bias of distances (ALiBi) is then
            # right up to a constant a row, which the softmax does not feel.
            ahead = (positions - torch.arange(new, device=positions.device))[positions >= 0]
            width = max(*after, new + int(ahead.max())) if len(ahead) else max(after)
            bias = CausalAt(positions)
        keys = self._keys = _written(self._with_room(self._keys, key, width), key, start, positions)
        values = self._values = _written(self._with_room(self._values, value, width), value, start, positions)
        self.host_lengths = after
        return keys[:, :, :width].transpose(1, 2), values[:, :, :width].transpose(1, 2), bias

    def truncate(self, lengths: Any) -> None:
        """Forget the last tokens: keep the first ``lengths`` of each sequence, or of all at most one whole number.

        For drafts that were not accepted, and to write another continuation of the same prompt. Raises ValueError
        for more tokens than are held.
        """
        if hasattr(lengths, "__index__") and getattr(lengths, "ndim", 0) == 0:
            (at_most,) = checked_sizes(at_least=0, lengths=lengths)
            longest = max(self.host_lengths, default=0)
            if at_most > longest:
                raise ValueError(f"lengths: expected at most the {longest} tokens held, got {at_most}.")
            lengths = tuple(min(at_most, held) for held in self.host_lengths)
        lengths = as_lengths("lengths", lengths)
        self._check_batch("lengths", len(lengths))
        for i, (wanted, held) in enumerate(zip(lengths, self.host_lengths, strict=True)):
            if wanted > held:
                raise ValueError(f"lengths[{i}]: expected at most the {held} tokens held, got {wanted}.")
        self.host_lengths = lengths

    def reorder(self, indices: Any) -> None:
        """Make sequence ``indices[i]`` the new sequence i: what a beam search does when it keeps some beams, drops
        others and lets one go on twice. ``indices`` may be of any length: the batch becomes theirs.
        """
        try:
            chosen = torch.as_tensor(indices, device=self._device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"indices: expected the numbers of sequences, a list or a tensor [new batch] int64, got "
                f"{type(indices).__name__} of which no tensor can be made ({error})."
            ) from None
        if chosen.dim() != 1 or (len(chosen) and chosen.dtype not in (torch.int64, torch.int32)):
            raise ValueError(
                f"indices: expected the numbers of sequences, [new batch] int64, got shape {list(chosen.shape)} "
                f"{str(chosen.dtype).removeprefix('torch.')}. A bool mask becomes such numbers by "
                "mask.nonzero().flatten()."
            )
        numbers = [int(number) for number in chosen.tolist()]
        for i, number in enumerate(numbers):
            if not 0 <= number < len(self.host_lengths):
                raise ValueError(
                    f"indices[{i}]: expected the number of one of the {len(self.host_lengths)} sequences held, counted "
                    f"from 0, got {number}."
                )
        if self._keys is not None and self._values is not None:
            chosen = chosen.long()
            self._keys = self._keys.index_select(0, chosen)
            self._values = self._values.index_select(0, chosen)
        self.host_lengths = tuple(self.host_lengths[number] for number in numbers)

    def _positions(self, real: Bool[Tensor, "batch new"]) -> Int64[Tensor, "batch new"]:
        """The places of new tokens in their sequences, -1 for padding."""
        before = torch.tensor(self.host_lengths or (0,) * len(real), dtype=torch.int64, device=real.device)
        return (before[:, None] + real.cumsum(1) - 1).masked_fill(~real, -1)

    def _with_room(self, room: Tensor | None, tensor: Tensor, width: int) -> Tensor:
        """[batch, kv_heads, at least width, dim] that begins with what ``room`` held."""
        if room is not None and room.shape[2] >= width:
            return room
        batch, _, kv_heads, dim = tensor.shape
        blocks = -(-width // self.block_size)
        length = blocks * self.block_size if self.max_length is None else max(width, self.max_length)
        # Zeros, not whatever lies there: even a hidden NaN would send attention down a slower way.
        larger = tensor.new_zeros(batch, kv_heads, length, dim)
        if room is not None:
            larger[:, :, : room.shape[2]] = room
        return larger

    def _fits(self, key: Any, value: Any) -> bool:
        """Whether these are further tokens like those held: what ``_check`` finds out, in the time that a decode step
        has. Where not, ``_check`` tells why."""
        keys, values = self._keys, self._values
        if keys is None or values is None or type(key) is not Tensor or type(value) is not Tensor:
            return False
        if key.dim() != 4 or key.shape[:3] != value.shape[:3]:
            return False
        batch, _, kv_heads, dim = key.shape
        return (
            batch == len(self.host_lengths)
            and (kv_heads, dim, value.shape[3]) == (keys.shape[1], keys.shape[3], values.shape[3])
            and key.dtype == keys.dtype == value.dtype
            and key.device == keys.device == value.device
        )

    def _writable(self, key: Tensor, value: Tensor) -> bool:
        """Whether all sequences are equally long, and the room that is there may take these tokens as it is."""
        keys, values = self._keys, self._values
        assert keys is not None and values is not None
        before = self.host_lengths
        room = keys.shape[2] if self.max_length is None else min(keys.shape[2], self.max_length)
        return (
            len(before) > 0
            and before.count(before[0]) == len(before)
            and before[0] + key.shape[1] <= room
            and not torch.is_grad_enabled()
            and not (keys.requires_grad or values.requires_grad)
            and keys.is_inference() == values.is_inference() == torch.is_inference_mode_enabled()
        )

    def _append_evenly(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, AttentionBias]:
        """What ``append`` does where nothing stands in the way: a decode step has no time for more."""
        keys, values, new = self._keys, self._values, key.shape[1]
        assert keys is not None and values is not None
        start = self.host_lengths[0]
        keys.narrow(2, start, new).copy_(key.transpose(1, 2))
        values.narrow(2, start, new).copy_(value.transpose(1, 2))
        width = start + new
        self.host_lengths = (width,) * len(self.host_lengths)
        return _first_columns(keys, width), _first_columns(values, width), _CAUSAL

    def _check(self, key: Any, value: Any) -> None:
        for name, tensor, room in (("key", key, self._keys), ("value", value, self._values)):
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"{name}: expected a tensor [batch, new, kv_heads, head_dim], got {type(tensor).__name__}."
                )
            if tensor.dim() != 4:
                raise ValueError(
                    f"{name}: expected 4 dimensions [batch, new, kv_heads, head_dim], got shape {list(tensor.shape)}."
                )
            if room is None:
                continue
            self._check_batch(name, tensor.shape[0])
            _, kv_heads, _, dim = room.shape
            if tensor.shape[2:] != (kv_heads, dim):
                raise ValueError(
                    f"{name}: expected {kv_heads} kv heads of {dim} as this cache holds, got shape "
                    f"{list(tensor.shape)}. Every layer has a cache of its own."
                )
            if (tensor.dtype, tensor.device) != (room.dtype, room.device):
                raise ValueError(
                    f"{name}: expected {room.dtype} on {room.device} as this cache holds, got {tensor.dtype} on "
                    f"{tensor.device}. Fill and use a cache under the same autocast and on the same device."
                )
        if key.shape[:3] != value.shape[:3]:
            raise ValueError(
                f"value: expected [batch, new, kv_heads] = {list(key.shape[:3])} as in key, got shape "
                f"{list(value.shape)}."
            )

    def _check_batch(self, name: str, batch: int) -> None:
        if batch != len(self.host_lengths):
            raise ValueError(
                f"{name}: expected {len(self.host_lengths)} sequences as this cache holds, got {batch}. Another batch "
                "needs a cache of its own; reorder(indices) keeps, drops or repeats sequences of this one."
            )

    def _check_room(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        for i, (held, wanted) in enumerate(zip(before, after, strict=True)):
            if self.max_length is not None and wanted > self.max_length:
                raise ValueError(
                    f"key: expected at most {self.max_length - held} further tokens for sequence {i}, which holds "
                    f"{held} of max_length = {self.max_length}, got {wanted - held}. Make the cache with a larger "
                    "max_length, or none, or truncate it."
                )


@lru_cache(maxsize=2)
def _step_of(
    before: tuple[int, ...], new: int, device: torch.device, inference: bool
) -> tuple[Int64[Tensor, "batch new"], int, CausalAt]:
    """(positions, width, bias) of ``new`` tokens after ``before`` in each sequence. Kept for the other layers of a
    model, whose caches hold as many; for those in inference mode apart, whose tensors autograd may not save."""
    positions = torch.tensor(before, device=device)[:, None] + torch.arange(new, device=device)
    return positions, max(before) + new, CausalAt(positions)


def _first_columns(room: Tensor, width: int) -> Tensor:
    """[batch, width, kv_heads, dim]: ``room[:, :, :width].transpose(1, 2)`` in one step."""
    batch, kv_heads, _, dim = room.shape
    by_batch, by_head, by_column, by_number = room.stride()
    return room.as_strided((batch, width, kv_heads, dim), (by_batch, by_column, by_head, by_number))


def _written(room: Tensor, tensor: Tensor, start: int, positions: Tensor | None) -> Tensor:
    """``room`` [batch, kv_heads, room, dim] with ``tensor`` [batch, new, kv_heads, dim] from ``start`` on in every
    sequence, or at ``positions`` [batch, new] where they are not -1. In place, unless autograd looks on or the room
    was made in inference mode, whose tensors may not be written outside of it."""
    seen = room.requires_grad or (tensor.requires_grad and torch.is_grad_enabled())
    if seen or (room.is_inference() and not torch.is_inference_mode_enabled()):
        room = room.clone()
    if positions is None:
        # Not room[:, :, start:stop] = …: where torch.compile (2.13) breaks its graph soon after, attention would read
        # the room as it was before.
        room.narrow(2, start, tensor.shape[1]).copy_(tensor.transpose(1, 2))
    else:
        sequence, token = (positions >= 0).nonzero(as_tuple=True)
        room.transpose(1, 2)[sequence, positions[sequence, token]] = tensor[sequence, token]
    return room
