"""Fewer bits a number: groups of neighbours on a scale of their own (lesson 12).

A group of 64 neighbours lies between its smallest and its largest number. Four bits count 15 equal steps from the one
to the other, and each number becomes the nearest count. With the step and the minimum in float16, that is 4 + 32 / 64 =
4.5 bits a number, and what comes back is off by half a step at most. A smaller group has smaller steps, but more of
them to write down; a single outlier widens the steps of its own group only (Sheng et al. 2023, "FlexGen", section 5;
Dettmers & Zettlemoyer 2023, "The case for 4-bit precision").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.bias import as_whole_number

BITS = (4, 8)
CHUNK = 2**18
"""Numbers that are worked on at a time: their float32 stay in the processor's cache, and a large tensor needs no large
room beside it. Unpacking 16.8 million numbers at once takes four times as long."""


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """What :func:`quantize` makes: ``minimum + step * count`` for each number.

    The groups lie along the last dimension of these, whatever the tensor's ``axis``; the other dimensions are its own.

    - ``data`` uint8 [*others, groups * group_size * bits / 8]. With 4 bits, byte j of a group holds number j in its
      lower half and number j + group_size / 2 in its upper one, so that both are runs of neighbours. With 8 bits and
      ``symmetric``, the bytes are int8.
    - ``step`` float16 [*others, groups].
    - ``minimum`` float16 [*others, groups]; None for symmetric groups, whose counts lie around 0.
    """

    data: Tensor
    step: Tensor
    minimum: Tensor | None
    bits: int
    group_size: int
    axis: int
    """Counted from 0."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    """Of the tensor that was quantized, and of what comes back unless another is asked for."""

    def __repr__(self) -> str:
        kind = "symmetric, " if self.symmetric else ""
        return (
            f"QuantizedTensor({list(self.shape)} {_name(self.dtype)}, {kind}{self.bits} bits in groups of "
            f"{self.group_size} along axis {self.axis}: {self.bits_per_value:.3g} bits a number)"
        )

    @property
    def symmetric(self) -> bool:
        return self.minimum is None

    @property
    def padding(self) -> int:
        """How many numbers the last group of each row was filled up with, where groups do not divide the axis."""
        return self.step.shape[-1] * self.group_size - self.shape[self.axis]

    @property
    def nbytes(self) -> int:
        """Of counts, steps and minima; padding takes room like any number."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    @property
    def bits_per_value(self) -> float:
        """``8 * nbytes`` over the numbers of the tensor: 4.5 with 4 bits in groups of 64."""
        return 8 * self.nbytes / max(1, math.prod(self.shape))

    def tensors(self) -> dict[str, Tensor]:
        """The parts by name, as a file of tensors keeps them."""
        parts = {"data": self.data, "step": self.step, "minimum": self.minimum}
        return {name: tensor for name, tensor in parts.items() if tensor is not None}

    def rows(self, begin: int, end: int) -> QuantizedTensor:
        """Numbers ``begin`` to ``end`` of the first dimension, without a copy; groups must lie along another one."""
        if self.axis == 0:
            raise ValueError(
                "axis: expected groups along another dimension than the first, whose rows are asked for, got axis 0. "
                "Quantize with axis=-1."
            )
        return replace(
            self,
            data=self.data[begin:end],
            step=self.step[begin:end],
            minimum=None if self.minimum is None else self.minimum[begin:end],
            shape=(len(range(self.shape[0])[begin:end]), *self.shape[1:]),
        )


def quantize(
    tensor: Float[Tensor, "..."],
    *,
    bits: int,
    group_size: int | None = 64,
    axis: int = -1,
    symmetric: bool = False,
) -> QuantizedTensor:
    """``tensor``, of any floating-point dtype, in ``bits`` (4 or 8) a number and what its groups need.

    ``group_size`` neighbours along ``axis`` (None: all of them) share a step: ``(largest - smallest) / (2**bits - 1)``.
    With ``symmetric``, 0 stays 0 and no minimum is kept: counts run from -7 to 7, or -127 to 127, and the step is the
    largest absolute number over that. Where groups do not divide the axis, the last one is filled up with its own last
    number (``padding``).

    A minimum is rounded down to float16 and a step up, so that no number of the group falls outside: what
    :func:`dequantize` gives is off by no more than half the step *as stored*.

    Raises TypeError or ValueError: for NaN, infinity, and numbers beyond the 65504 that float16 reaches.
    """
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        came = _name(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"tensor: expected a tensor of floating-point numbers, got {came}.")
    if tensor.dim() == 0:
        raise ValueError("tensor: expected at least one dimension to form groups along, got a single number.")
    axis = _checked_axis(axis, tensor.dim())
    length = tensor.shape[axis]
    bits, group_size = checked_groups(bits, group_size, length)
    groups = -(-length // group_size)
    rows = tensor.detach().movedim(axis, -1)
    others = rows.shape[:-1]
    count = math.prod(others)
    rows = rows.reshape(count, length)
    data = torch.empty(count, groups, group_size * bits // 8, dtype=torch.uint8, device=tensor.device)
    step = torch.empty(count, groups, dtype=torch.float16, device=tensor.device)
    minimum = None if symmetric else torch.empty_like(step)
    for part in _parts(count, groups * group_size):
        numbers = _grouped(rows[part], groups, group_size)
        smallest, largest = numbers.amin(-1), numbers.amax(-1)
        _check_range(smallest, largest)
        if minimum is None:
            top = 2 ** (bits - 1) - 1
            step[part] = _rounded_up(torch.maximum(-smallest, largest) / top)
        else:
            minimum[part] = _rounded_down(smallest)
            numbers -= minimum[part].to(numbers.dtype).unsqueeze(-1)
            step[part] = _rounded_up((largest - minimum[part].to(numbers.dtype)) / (2**bits - 1))
        own = step[part].to(numbers.dtype).unsqueeze(-1)
        numbers /= own.masked_fill_(own == 0, 1)  # all alike: every count is 0
        numbers.round_()
        if minimum is not None:
            counts = numbers.clamp_(0, 2**bits - 1).to(torch.uint8)
        else:
            counts = numbers.clamp_(-top, top).to(torch.int8)
            counts = counts.view(torch.uint8) if bits == 8 else (counts + 8).to(torch.uint8)
        data[part] = counts if bits == 8 else _two_a_byte(counts)
    return QuantizedTensor(
        data=data.view(*others, groups * group_size * bits // 8),
        step=step.view(*others, groups),
        minimum=None if minimum is None else minimum.view(*others, groups),
        bits=bits,
        group_size=group_size,
        axis=axis,
        shape=tuple(tensor.shape),
        dtype=tensor.dtype,
    )


@torch.no_grad()
def dequantize(
    quantized: QuantizedTensor, dtype: torch.dtype | None = None, *, out: Float[Tensor, "..."] | None = None
) -> Float[Tensor, "..."]:
    """The numbers again, in ``dtype`` (None: that of ``out``, or the one they had), into ``out`` if it is given.

    ``minimum + step * count`` in float32, rounded once to float32 and once more to ``dtype``.
    """
    if not isinstance(quantized, QuantizedTensor):
        raise TypeError(f"quantized: expected what quantize() returns, got {type(quantized).__name__}.")
    out = _checked_out(quantized, dtype, out)
    length, size, groups = quantized.shape[quantized.axis], quantized.group_size, quantized.step.shape[-1]
    if not out.numel():
        return out
    count = out.numel() // length
    place = out.movedim(quantized.axis, -1)
    in_place = place.dim() == 2 or place.is_contiguous()
    target = place if in_place else torch.empty(place.shape, dtype=out.dtype, device=out.device)
    target = target.view(count, length)
    step = quantized.step.reshape(count, groups, 1).float()
    lowest = _lowest(quantized, step)
    data = quantized.data.reshape(count, groups, size * quantized.bits // 8)
    # Arithmetic in float32 is as fast as it gets on a CPU: in bfloat16, torch converts there and back at each step.
    direct = out.dtype == torch.float32 and not quantized.padding and target.is_contiguous()
    spare: Tensor | None = None
    for part in _parts(count, groups * size):
        rows = target[part]
        if direct:
            numbers = rows.view(-1, groups, size)
        else:
            spare = step.new_empty(len(rows), groups, size) if spare is None else spare
            numbers = spare[: len(rows)]
        _counts(data[part], quantized, numbers)
        if lowest is None:
            numbers.mul_(step[part])
        else:
            torch.addcmul(lowest[part], numbers, step[part], out=numbers)
        if not direct:
            rows.copy_(numbers.view(len(rows), groups * size)[:, :length])
    if not in_place:
        place.copy_(target.view(place.shape))
    return out


def _counts(data: Tensor, quantized: QuantizedTensor, numbers: Tensor) -> None:
    """Write the counts of ``data`` [rows, groups, bytes] to ``numbers`` [rows, groups, group_size] float32."""
    if quantized.bits == 8:
        numbers.copy_(data.view(torch.int8) if quantized.symmetric else data)
        return
    half = quantized.group_size // 2
    numbers[..., :half].copy_(data & 15)
    numbers[..., half:].copy_(data >> 4)


def _lowest(quantized: QuantizedTensor, step: Tensor) -> Tensor | None:
    """What a count of 0 stands for, float32 [rows, groups, 1]; None: for 0."""
    if quantized.minimum is not None:
        return quantized.minimum.reshape(step.shape).float()
    return -8 * step if quantized.bits == 4 else None


def _parts(rows: int, width: int) -> Iterator[slice]:
    at_a_time = max(1, CHUNK // max(1, width))
    return (slice(begin, min(begin + at_a_time, rows)) for begin in range(0, rows if width else 0, at_a_time))


def _grouped(rows: Tensor, groups: int, size: int) -> Tensor:
    """A copy [rows, groups, size] in float32 (float64 where the numbers are): padded with each row's last number."""
    length = rows.shape[1]
    wide = torch.promote_types(rows.dtype, torch.float32)
    numbers = torch.empty(len(rows), groups * size, dtype=wide, device=rows.device)
    numbers[:, :length] = rows
    numbers[:, length:] = rows[:, -1:]
    return numbers.view(len(rows), groups, size)


def _two_a_byte(counts: Tensor) -> Tensor:
    lower, upper = counts.chunk(2, dim=-1)
    return lower | (upper << 4)


def _rounded_up(numbers: Tensor) -> Tensor:
    """Numbers >= 0 as float16, none smaller than it was: a step too short would leave the largest number outside."""
    half = numbers.half()
    # The bits of a float16 >= 0, read as a whole number, are in the order of the numbers.
    return (half.view(torch.int16) + (half < numbers)).to(torch.int16).view(torch.float16)


def _rounded_down(numbers: Tensor) -> Tensor:
    half = numbers.half()
    bits = half.view(torch.int16)
    down = torch.where(half > 0, bits - 1, torch.where(half < 0, bits + 1, -(2**15) + 1)).to(torch.int16)
    return torch.where(half > numbers, down, bits).view(torch.float16)


def _check_range(smallest: Tensor, largest: Tensor) -> None:
    most = torch.finfo(torch.float16).max
    # NaN is neither: it fails both.
    if bool((smallest >= -most).all()) and bool((largest <= most).all()):
        return
    worst = next(n for n in (*smallest.flatten().tolist(), *largest.flatten().tolist()) if not abs(n) <= most)
    if math.isfinite(worst):
        raise ValueError(
            f"tensor: expected numbers between -{most:.0f} and {most:.0f}, where the float16 of steps and minima end, "
            f"got {worst:g}. Divide the tensor by a power of two first, and multiply by it afterwards."
        )
    raise ValueError(
        f"tensor: expected finite numbers, got {worst}. A group that holds it has no step: find out where it comes "
        "from (torch.isfinite), or keep this tensor in its own dtype."
    )


def checked_groups(bits: Any, group_size: Any, length: int) -> tuple[int, int]:
    """``bits`` and the size of groups along an axis of ``length``. Raises TypeError or ValueError."""
    bits = as_whole_number("bits", bits)
    if bits not in BITS:
        raise ValueError(f"bits: expected 4 or 8, got {bits}.")
    if group_size is None:
        return bits, max(length + (length % 2 if bits == 4 else 0), 8 // bits)
    group_size = as_whole_number("group_size", group_size, 1)
    if bits == 4 and group_size % 2:
        raise ValueError(
            f"group_size: expected an even number with 4 bits, of which two share a byte, got {group_size}."
        )
    return bits, group_size


def _checked_axis(axis: Any, dims: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"axis: expected a whole number, got {type(axis).__name__} {axis!r}.")
    if not -dims <= axis < dims:
        raise ValueError(
            f"axis: expected one of the tensor's {dims} dimensions, {-dims} to {dims - 1}, got {axis}."
        )
    return axis % dims


def _checked_out(quantized: QuantizedTensor, dtype: torch.dtype | None, out: Tensor | None) -> Tensor:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype: expected a floating-point torch.dtype or None, got {dtype!r}.")
    device = quantized.data.device
    if out is None:
        return torch.empty(quantized.shape, dtype=dtype or quantized.dtype, device=device)
    if not isinstance(out, Tensor) or not out.is_floating_point():
        came = _name(out.dtype) if isinstance(out, Tensor) else type(out).__name__
        raise TypeError(f"out: expected a tensor of floating-point numbers, got {came}.")
    if tuple(out.shape) != quantized.shape or out.device != device or out.dtype != (dtype or out.dtype):
        raise ValueError(
            f"out: expected {list(quantized.shape)} {_name(dtype or out.dtype)} on {device}, got {list(out.shape)} "
            f"{_name(out.dtype)} on {out.device}."
        )
    return out


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
