"""Linear layers whose weights are held in four or eight bits (lesson 12).

The plain way unpacks some rows of the weight at a time and multiplies by them, so that a layer never stands unpacked
as a whole. Unpacking takes as long as the product with some 250 rows does: a block of many sequences hardly feels it, a
single one does. For few rows in bfloat16, PyTorch has kernels that unpack inside the product. On the AMD EPYC (2 cores,
AVX-512) where this was measured, 8192 x 2048 numbers in groups of 64 take one row 0.5 ms, where unpacking and
multiplying takes 12 and a bfloat16 weight 1.5; and 0.2 ms for each further one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .quantize import QuantizedTensor, dequantize, quantize

UNPACKED_AT_ONCE = 2**20
"""Numbers of a weight. Less would make products too small, and more would not stay in the cache."""
FUSED_ROWS = 32
"""Up to so many, PyTorch's kernels take less time than unpacking and multiplying."""
FUSED_GROUPS = (32, 64, 128, 256)
"""The group sizes of the 4-bit kernel."""
KERNEL_ROWS = 64
"""Weights come in an order of their own for the 4-bit kernel, in blocks of so many rows at most."""


class QuantizedLinear(nn.Module):
    """``x @ weight.T + bias``, the weight being quantized along its rows.

    Takes the place of an ``nn.Linear`` for inference: gradients reach ``x`` and the bias, the weight gets none. What
    comes out is what ``F.linear`` makes of the unpacked weight, but for rounding.

    With ``fast``, few rows in bfloat16 on a CPU go through PyTorch's kernels where it has them. For 8 bits that takes
    symmetric groups of a whole row (``group_size=None``). For 4 bits it takes groups of 32, 64, 128 or 256, and the
    first such call makes a second copy of the counts, in the kernel's order (``nbytes`` counts it, ``release()`` drops
    it). These kernels have steps and minima in bfloat16.

    ``weight`` is a tensor on "meta": it tells the shape and dtype that the layer computes in, and has no numbers.
    ``unpacked()`` returns them.
    """

    data: Tensor
    step: Tensor
    minimum: Tensor | None

    def __init__(self, quantized: QuantizedTensor, bias: Tensor | None = None, *, fast: bool = True) -> None:
        super().__init__()
        if not isinstance(quantized, QuantizedTensor) or len(quantized.shape) != 2 or quantized.axis != 1:
            raise ValueError(
                "quantized: expected a weight [out_features, in_features] that is quantized along its rows, got "
                f"{quantized!r}. quantize(linear.weight, bits=4) makes one."
            )
        self.out_features, self.in_features = quantized.shape
        if bias is not None and tuple(bias.shape) != (self.out_features,):
            raise ValueError(
                f"bias: expected [out_features] = [{self.out_features}] or None, got shape {list(bias.shape)}."
            )
        self.bits, self.group_size = quantized.bits, quantized.group_size
        self.fast = fast
        self.register_buffer("data", quantized.data)
        self.register_buffer("step", quantized.step)
        self.register_buffer("minimum", quantized.minimum)
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias, False)
        self._set_dtype(quantized.dtype)
        self._fused: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        bits: int,
        group_size: int | None = 64,
        symmetric: bool = False,
        fast: bool = True,
    ) -> QuantizedLinear:
        """A layer with the weight of ``linear`` in ``bits`` a number (see ``quantize``), and with its very bias."""
        return cls(
            quantize(linear.weight, bits=bits, group_size=group_size, symmetric=symmetric),
            linear.bias,
            fast=fast,
        )

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        *,
        bits: int,
        group_size: int,
        in_features: int,
        dtype: str | torch.dtype,
        fast: bool = True,
    ) -> QuantizedLinear:
        """The layer whose ``tensors()`` and ``settings`` these are, on the very tensors."""
        if not {"data", "step"} <= set(tensors) <= {"data", "step", "minimum", "bias"}:
            raise ValueError(
                f"tensors: expected data, step, and perhaps minimum and bias, got {', '.join(sorted(tensors))}."
            )
        data, step = tensors["data"], tensors["step"]
        groups = -(-in_features // group_size)
        wanted = [len(data), groups * group_size * bits // 8], [len(data), groups]
        came = list(data.shape), list(step.shape)
        if came != wanted:
            raise ValueError(
                f"tensors: expected data and step of the shapes {wanted[0]} and {wanted[1]} for {in_features} features "
                f"in groups of {group_size} of {bits} bits, got {came[0]} and {came[1]}."
            )
        quantized = QuantizedTensor(
            data=data,
            step=step,
            minimum=tensors.get("minimum"),
            bits=bits,
            group_size=group_size,
            axis=1,
            shape=(len(data), in_features),
            dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype,
        )
        return cls(quantized, tensors.get("bias"), fast=fast)

    def tensors(self) -> dict[str, Tensor]:
        """All that is to be kept, as plain tensors: data, step, minimum and bias, the last two where there are any."""
        parts = self.quantized.tensors()
        return parts if self.bias is None else {**parts, "bias": self.bias.detach()}

    @property
    def settings(self) -> dict[str, Any]:
        """What ``from_tensors`` needs to know beside the tensors: whole numbers and strings, fit for JSON."""
        return {
            "bits": self.bits,
            "group_size": self.group_size,
            "in_features": self.in_features,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    @property
    def dtype(self) -> torch.dtype:
        """In which it computes; ``.to(dtype)`` changes it, and none of the counts, steps and minima."""
        return self.weight.dtype

    @property
    def quantized(self) -> QuantizedTensor:
        """The weight."""
        return QuantizedTensor(
            data=self.data,
            step=self.step,
            minimum=self.minimum,
            bits=self.bits,
            group_size=self.group_size,
            axis=1,
            shape=(self.out_features, self.in_features),
            dtype=self.dtype,
        )

    @property
    def nbytes(self) -> int:
        """Of the tensors, and of the kernel's copy where there is one."""
        held = (*self.tensors().values(), *(self._fused or ()))
        return sum(tensor.nbytes for tensor in {tensor.data_ptr(): tensor for tensor in held}.values())

    def unpacked(
        self, dtype: torch.dtype | None = None, *, out: Tensor | None = None
    ) -> Float[Tensor, "out_features in_features"]:
        """The weight, in ``dtype`` (None: the layer's)."""
        return dequantize(self.quantized, dtype, out=out)

    def release(self) -> None:
        """Drop the copy for PyTorch's kernel; the next call with few rows makes it anew."""
        self._fused = None

    def extra_repr(self) -> str:
        kind = "symmetric " if self.minimum is None else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"{kind}bits={self.bits}, group_size={self.group_size}"
        )

    def forward(self, x: Float[Tensor, "*rows in_features"]) -> Float[Tensor, "*rows out_features"]:
        dtype, device = self.dtype, x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x = x.to(dtype)
        if x.dtype != dtype or x.shape[-1] != self.in_features:
            raise ValueError(
                f"x: expected [..., in_features = {self.in_features}] {dtype}, as this layer computes, got "
                f"{list(x.shape)} {x.dtype}. Convert one of the two with .to(dtype), or run under torch.autocast."
            )
        bias = None if self.bias is None else self.bias.to(dtype)
        with_gradient = torch.is_grad_enabled() and (
            x.requires_grad or (bias is not None and bias.requires_grad)
        )
        if with_gradient:
            return F.linear(x, self.unpacked(dtype), bias)
        with torch.autocast(device, enabled=False):
            rows = x.reshape(-1, self.in_features)
            product = self._kernel(rows) if self.fast else None
            out = self._plain(rows, bias) if product is None else product(rows)
            if product is not None and bias is not None:
                out += bias
        return out.view(*x.shape[:-1], self.out_features)

    def _plain(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        weight = self.quantized
        at_once = max(1, UNPACKED_AT_ONCE // max(1, self.in_features))
        if at_once >= self.out_features:
            return F.linear(rows, dequantize(weight, rows.dtype), bias)
        out = rows.new_empty(len(rows), self.out_features)
        room = rows.new_empty(at_once, self.in_features)
        for begin in range(0, self.out_features, at_once):
            end = min(begin + at_once, self.out_features)
            part = dequantize(weight.rows(begin, end), out=room[: end - begin])
            out[:, begin:end] = F.linear(rows, part, None if bias is None else bias[begin:end])
        return out

    def _kernel(self, rows: Tensor) -> Callable[[Tensor], Tensor] | None:
        """PyTorch's product for these rows; None where it has none, or where it would be slower."""
        if not 0 < len(rows) <= FUSED_ROWS or rows.dtype != torch.bfloat16 or rows.device.type != "cpu":
            return None
        if self.bits == 8:
            whole = self.minimum is None and self.group_size == self.in_features
            if not whole or not _has_int8_kernel(self.out_features % KERNEL_ROWS, self.in_features):
                return None
            return lambda x: _int8_product(x, self.quantized)
        if self.group_size not in FUSED_GROUPS or self.in_features % self.group_size:
            return None
        if not _has_int4_kernel(self.out_features % KERNEL_ROWS, self.group_size):
            return None
        if self._fused is None:
            self._fused = _in_kernel_order(self.quantized)
        packed, steps = self._fused
        return lambda x: _int4_product(x, packed, steps, self.group_size)

    def _set_dtype(self, dtype: torch.dtype) -> None:
        self.weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device="meta")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedLinear:
        """As of any module, but a dtype is that of the arithmetic: steps and minima stay in float16."""
        held = {name: tensor for name, tensor in self._buffers.items() if tensor is not None}
        super()._apply(fn, recurse)
        for name, before in held.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        self._set_dtype(fn(torch.empty(0, dtype=self.dtype)).dtype)
        self._fused = None
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._fused = None


def _in_kernel_order(weight: QuantizedTensor) -> tuple[Tensor, Tensor]:
    """The counts as the 4-bit kernel reads them, and bfloat16 [groups, out_features, 2]: the steps, and what a count
    of 8 stands for."""
    out_features, in_features = weight.shape
    size = weight.group_size
    groups = in_features // size
    packed = torch.empty(out_features, in_features // 2, dtype=torch.uint8)
    counts = torch.empty(KERNEL_ROWS, groups, size, dtype=torch.int32)
    for begin in range(0, out_features, KERNEL_ROWS):
        data = weight.data[begin : begin + KERNEL_ROWS].view(-1, groups, size // 2)
        part = counts[: len(data)]
        part[..., : size // 2] = data & 15
        part[..., size // 2 :] = data >> 4
        ordered = torch.ops.aten._convert_weight_to_int4pack_for_cpu(part.view(len(data), in_features), 1)
        packed[begin : begin + len(data)] = ordered
    step = weight.step.float()
    middle = torch.zeros_like(step) if weight.minimum is None else weight.minimum.float() + 8 * step
    return packed, torch.stack([step, middle], dim=-1).transpose(0, 1).contiguous().bfloat16()


def _int4_product(x: Tensor, packed: Tensor, steps: Tensor, group_size: int) -> Tensor:
    return torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), packed, group_size, steps)


def _int8_product(x: Tensor, weight: QuantizedTensor) -> Tensor:
    step = weight.step.flatten().to(x.dtype)
    return torch.ops.aten._weight_int8pack_mm(x.contiguous(), weight.data.view(torch.int8), step)


@lru_cache
def _has_int4_kernel(further_rows: int, group_size: int) -> bool:
    """Whether PyTorch has the kernel here, for weights of whole blocks and ``further_rows``, and counts as we do."""
    return _agrees(
        KERNEL_ROWS + further_rows,
        2 * group_size,
        {"bits": 4, "group_size": group_size},
        lambda x, weight: _int4_product(x, *_in_kernel_order(weight), group_size),
    )


@lru_cache
def _has_int8_kernel(further_rows: int, in_features: int) -> bool:
    return _agrees(
        KERNEL_ROWS + further_rows,
        in_features,
        {"bits": 8, "group_size": None, "symmetric": True},
        _int8_product,
    )


@torch.no_grad()
def _agrees(
    out_features: int,
    in_features: int,
    how: dict[str, Any],
    product: Callable[[Tensor, QuantizedTensor], Tensor],
) -> bool:
    """Tried rather than looked up: which shapes a kernel takes is written nowhere, and changes."""
    generator = torch.Generator().manual_seed(0)
    weight = quantize(torch.randn(out_features, in_features, generator=generator), **how)
    x = torch.randn(3, in_features, generator=generator).bfloat16()
    wanted = x.float() @ dequantize(weight).T
    try:
        came = product(x, weight).float()
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return bool((came - wanted).norm() < 0.02 * wanted.norm())
