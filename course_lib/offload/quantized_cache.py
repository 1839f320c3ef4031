"""Keys and values in four or eight bits (lesson 12).

A token's key is written once and read at every step after it, so its few bits save room and traffic for as long as the
text grows. Each head's key is cut into groups of its own: quantizing further tokens never touches earlier ones.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention import AttentionBias, KeyPadding
from course_lib.gqa import KVCache

from .quantize import QuantizedTensor, checked_groups, dequantize, quantize


class QuantizedKVCache(KVCache):
    """A ``KVCache`` that holds ``bits`` (4 or 8) a number, in groups of ``group_size`` along each head.

    ``group_size`` None: 64, or the whole head where it is narrower. 64 make 4.5 bits a number, as in ``quantize``. What
    ``append`` returns is unpacked, the new tokens as well: how a text was cut into calls makes no difference to what
    its tokens see. For that time the keys and values of one layer stand in memory at full size.

    No gradient flows through it, and it refuses NaN, infinity and what float16 does not reach (padding may be
    anything). Keys and values of a head may differ in width.
    """

    def __init__(
        self,
        *,
        bits: int,
        group_size: int | None = None,
        block_size: int = 256,
        max_length: int | None = None,
    ) -> None:
        super().__init__(block_size=block_size, max_length=max_length)
        self.bits, _ = checked_groups(bits, group_size, 1)
        self.group_size = group_size
        self._like: dict[str, tuple[int, int, torch.dtype, torch.device]] = {}
        """(kv_heads, head_dim, dtype, device) of the keys and of the values held."""

    def __repr__(self) -> str:
        return f"QuantizedKVCache({self.bits} bits, lengths {list(self.host_lengths)}, {self.nbytes} bytes)"

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
        """As ``KVCache.append``; also raises ValueError, and keeps nothing, for numbers that have no step."""
        tensors = {"key": key, "value": value}
        like = {name: self._checked(name, tensor) for name, tensor in tensors.items()}
        if attention_mask is not None:
            real = KeyPadding(attention_mask).real.to(key.device)
            if real.shape == key.shape[:2] == value.shape[:2]:
                hidden = ~real[:, :, None, None]
                tensors = {name: tensor.masked_fill(hidden, 0) for name, tensor in tensors.items()}
        packed = {name: self._packed(name, tensor) for name, tensor in tensors.items()}
        keys, values, bias = super().append(packed["key"], packed["value"], attention_mask)
        self._like = like
        return self._unpacked("key", keys), self._unpacked("value", values), bias

    def _checked(self, name: str, tensor: Any) -> tuple[int, int, torch.dtype, torch.device]:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(
                f"{name}: expected a floating-point tensor [batch, new, kv_heads, head_dim], got {kind}."
            )
        if tensor.dim() != 4:
            raise ValueError(
                f"{name}: expected 4 dimensions [batch, new, kv_heads, head_dim], got shape {list(tensor.shape)}."
            )
        came = (tensor.shape[2], tensor.shape[3], tensor.dtype, tensor.device)
        held = self._like.get(name, came)
        if held != came:
            raise ValueError(
                f"{name}: expected {held[0]} kv heads of {held[1]} in {held[2]} on {held[3]} as this cache holds, got "
                f"{came[0]} of {came[1]} in {came[2]} on {came[3]}. Every layer has a cache of its own."
            )
        return came

    def _size(self, width: int) -> int:
        """Of the groups of a head that is ``width`` wide."""
        size = min(64, width + width % 2) if self.group_size is None else self.group_size
        return max(size, 8 // self.bits)

    def _packed(self, name: str, tensor: Tensor) -> Tensor:
        """[batch, new, kv_heads, bytes / 2]: the steps of a head, its minima, then its counts, so that a token's lie
        together. They pass for float16, which a cache of keys and values keeps bit by bit, whatever they mean."""
        try:
            found = quantize(tensor, bits=self.bits, group_size=self._size(tensor.shape[-1]))
        except ValueError as error:
            raise ValueError(f"{name}: cannot be held in {self.bits} bits. {error}") from None
        assert found.minimum is not None
        parts = [found.step.view(torch.uint8), found.minimum.view(torch.uint8), found.data]
        if found.data.shape[-1] % 2:
            parts.append(found.data.new_zeros(*found.data.shape[:-1], 1))
        return torch.cat(parts, dim=-1).view(torch.float16)

    def _unpacked(self, name: str, packed: Tensor) -> Tensor:
        """[batch, length, kv_heads, head_dim], each head's tokens together in memory as a ``KVCache`` has them."""
        _, width, dtype, _ = self._like[name]
        packed = packed.view(torch.uint8).transpose(1, 2)
        size = self._size(width)
        groups = -(-width // size)
        counts = groups * size * self.bits // 8
        found = QuantizedTensor(
            data=packed[..., 4 * groups : 4 * groups + counts],
            step=packed[..., : 2 * groups].view(torch.float16),
            minimum=packed[..., 2 * groups : 4 * groups].view(torch.float16),
            bits=self.bits,
            group_size=size,
            axis=3,
            shape=(*packed.shape[:3], width),
            dtype=dtype,
        )
        return dequantize(found).transpose(1, 2)
