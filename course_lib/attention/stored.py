"""Biases that somebody holds as a tensor: a dense one, and the padding mask of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .bias import NEG_INF, AttentionBias, Grid, sum_to


class KeyPadding(AttentionBias):
    """Hides the padding of a batch: ``attention_mask`` [batch, k_len] holds 1 for a real token, 0 for a pad.

    Left-padded, right-padded or with holes. Raises ValueError for another shape or other values.
    """

    adds_scores = False

    def __init__(self, attention_mask: Tensor) -> None:
        if not isinstance(attention_mask, Tensor):
            raise TypeError(
                f"attention_mask: expected a tensor [batch, k_len] of 0 and 1, got {type(attention_mask).__name__}. "
                "Wrap it in torch.tensor(...)."
            )
        if attention_mask.dim() != 2:
            raise ValueError(
                f"attention_mask: expected two dimensions [batch, k_len], got shape {list(attention_mask.shape)}. "
                "A mask that differs between queries is a dense bias: pass it to attention() as it is."
            )
        if attention_mask.dtype != torch.bool:
            wrong = attention_mask[(attention_mask != 0) & (attention_mask != 1)]
            if wrong.numel():
                raise ValueError(
                    f"attention_mask: expected only 1 (a real token) and 0 (padding), got {wrong[0].item()!r}. "
                    "An additive mask of 0 and -inf is a dense bias: pass it to attention() as it is."
                )
        self.real = attention_mask.bool().clone()
        self.batch_size = self.real.shape[0]
        # Kept on the host, so that asking about a tile never waits for a GPU: how many of the keys before
        # position j are hidden from some sequence, and the run of keys that some sequence sees.
        hidden = (~self.real).any(0).int().cumsum(0).tolist()
        self._hidden_before = [0, *hidden]
        seen = self.real.any(0).nonzero().flatten().tolist()
        self._seen = range(seen[0], seen[-1] + 1) if seen else range(0)

    def __repr__(self) -> str:
        return f"KeyPadding(attention_mask {list(self.real.shape)})"

    def check(self, grid: Grid) -> None:
        batch, k_len = self.real.shape
        if k_len != grid.k_len or batch != grid.batch:
            raise ValueError(
                f"bias: this KeyPadding was made for {batch} sequences of {k_len} keys, got {grid.batch} sequences "
                f"of {grid.k_len} keys. Its attention_mask must be [batch, k_len] of the keys, not of the queries."
            )

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        real = self.real[:, keys.start : keys.stop].to(grid.device)
        tile = torch.zeros(real.shape, dtype=grid.dtype, device=grid.device).masked_fill_(~real, NEG_INF)
        return tile[:, None, None, :]

    def visible_keys(self, queries: range, grid: Grid) -> range:
        return self._seen

    def is_zero(self, queries: range, keys: range, grid: Grid) -> bool:
        return self._hidden_before[keys.stop] == self._hidden_before[keys.start]

    def stored(self, grid: Grid) -> Tensor | None:
        return self.real[:, None, None, :].to(grid.device)


class Dense(AttentionBias):
    """A bias that somebody holds as a tensor: bool (True = may attend) or float, [q_len, k_len] or 4-D."""

    def __init__(self, tensor: Tensor) -> None:
        shape = list(tensor.shape)
        if tensor.dim() == 3:
            raise ValueError(
                f"bias: three dimensions {shape} are ambiguous (batch or heads?). Expected [q_len, k_len], or 4-D "
                "[batch, heads, q_len, k_len] with each size 1 or full: use bias[:, None] for one bias a sequence, "
                "bias[None] for one a head."
            )
        if tensor.dim() not in (2, 4):
            raise ValueError(
                f"bias: expected [q_len, k_len], or 4-D [batch, heads, q_len, k_len] with each size 1 or full, "
                f"got shape {shape}."
            )
        if tensor.layout != torch.strided:
            raise ValueError(
                f"bias: expected a dense tensor, got layout {tensor.layout}. Use bias.to_dense()."
            )
        if tensor.dtype != torch.bool and not tensor.is_floating_point():
            raise ValueError(
                f"bias: expected a bool mask (True = may attend) or floating-point scores to add, got "
                f"{tensor.dtype}. For a 0/1 mask use bias.bool(); for padding use KeyPadding(attention_mask)."
            )
        self._source = tensor
        self.adds_scores = tensor.dtype != torch.bool
        self.batch_size = self.tensor.shape[0] if self.tensor.shape[0] > 1 else None
        self.per_head = self.tensor.shape[1] > 1

    @property
    def tensor(self) -> Tensor:
        """4-D. Viewed anew each time: a kept view, made under no_grad or copied, would give its source no gradient."""
        return self._source if self._source.dim() == 4 else self._source[None, None]

    def __repr__(self) -> str:
        return f"dense bias {list(self._source.shape)} {str(self._source.dtype).removeprefix('torch.')}"

    def check(self, grid: Grid) -> None:
        if self.tensor.device != grid.device:
            raise ValueError(
                f"bias: expected the device of query, {grid.device}, got a tensor on {self.tensor.device}. Move it "
                "with bias.to(query.device)."
            )
        full = (grid.batch, grid.num_heads, grid.q_len, grid.k_len)
        exact = self._source.dim() == 2
        fits = all(
            have == want or (have == 1 and not (exact and d > 1))
            for d, (have, want) in enumerate(zip(self.tensor.shape, full, strict=True))
        )
        if not fits:
            raise ValueError(
                f"bias: expected [q_len, k_len] = {list(full[2:])}, or 4-D [batch, heads, q_len, k_len] = {list(full)} "
                f"with each size 1 or full, got shape {list(self._source.shape)}. Its sizes are those of the queries "
                "and keys that it is added for."
            )

    def _crop(self, tensor: Tensor, queries: range, keys: range) -> Tensor:
        # A size of 1 stands for every query (or key), so it is never sliced.
        if tensor.shape[2] > 1:
            tensor = tensor[:, :, queries.start : queries.stop]
        if tensor.shape[3] > 1:
            tensor = tensor[..., keys.start : keys.stop]
        return tensor

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        part = self._crop(self.tensor, queries, keys)
        if part.dtype == torch.bool:
            part = torch.zeros(part.shape, dtype=grid.dtype, device=part.device).masked_fill_(~part, NEG_INF)
        return part.to(device=grid.device, dtype=grid.dtype)

    def stored(self, grid: Grid) -> Tensor | None:
        return self.tensor

    def learnable(self) -> tuple[Tensor, ...]:
        return (self._source,) if self._source.requires_grad else ()

    def sources(self) -> tuple[Tensor, ...]:
        return (self._source,)

    def add_gradient(
        self, into: Sequence[Tensor], grad_tile: Tensor, queries: range, keys: range, grid: Grid
    ) -> None:
        if into:
            total = into[0] if into[0].dim() == 4 else into[0][None, None]
            part = self._crop(total, queries, keys)
            part.add_(sum_to(grad_tile, part.shape))
