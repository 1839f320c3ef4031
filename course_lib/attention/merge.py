"""Partial results of attention over different keys, put together exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from .bias import NEG_INF


def merge_attentions(
    outs: Sequence[Float[Tensor, "batch q_len heads value_dim"]],
    lses: Sequence[Float[Tensor, "batch heads q_len"]],
) -> tuple[Float[Tensor, "batch q_len heads value_dim"], Float[Tensor, "batch heads q_len"]]:
    """Attention over all keys, from attention over several disjoint parts of them.

    ``outs`` [batch, q_len, heads, value_dim] and ``lses`` [batch, heads, q_len] are what
    ``attention(…, return_lse=True)`` gave for each part, with the same queries. Each part counts by
    ``exp(its lse - the whole lse)``: the softmax of the lses. A row that saw nothing in any part is zero, with
    an lse of -inf. Gradients flow into both. Raises ValueError if the parts do not fit together.

    Source: the split of the softmax in FlashAttention (Dao et al. 2022), section 3.1.
    """
    outs, lses = list(outs), list(lses)
    if not outs or len(outs) != len(lses):
        raise ValueError(
            f"outs, lses: expected as many log-sum-exps as outputs, and at least one, got {len(outs)} outputs and "
            f"{len(lses)} log-sum-exps. Both come from attention(..., return_lse=True)."
        )
    for i, (out, lse) in enumerate(zip(outs, lses, strict=True)):
        for name, part in ((f"outs[{i}]", out), (f"lses[{i}]", lse)):
            if not isinstance(part, Tensor) or not part.is_floating_point():
                got = f"a tensor of {part.dtype}" if isinstance(part, Tensor) else type(part).__name__
                raise TypeError(
                    f"{name}: expected a floating-point tensor as attention() gives it, got {got}."
                )
        if out.dim() != 4 or out.shape != outs[0].shape:
            raise ValueError(
                f"outs[{i}]: expected shape {list(outs[0].shape)} as outs[0] ([batch, q_len, heads, value_dim]), got "
                f"{list(out.shape)}. Parts differ in their keys, never in their queries."
            )
        if tuple(lse.shape) != (out.shape[0], out.shape[2], out.shape[1]):
            raise ValueError(
                f"lses[{i}]: expected [batch, heads, q_len] = {[out.shape[0], out.shape[2], out.shape[1]]}, got "
                f"{list(lse.shape)}."
            )
    stacked = torch.stack(lses)
    blind = (stacked.detach() == NEG_INF).all(0)
    # A row that saw nothing anywhere: any finite numbers do, its output is zeroed.
    safe = stacked.masked_fill(blind, 0)
    lse = safe.logsumexp(0)
    # The softmax and not exp(safe - lse): shares must sum to 1 even where an lse of 20,000 rounds to 0.002.
    shares = safe.softmax(0).masked_fill(blind, 0)
    total = sum(
        out.to(shares.dtype) * share.transpose(1, 2)[..., None]
        for out, share in zip(outs, shares, strict=True)
    )
    assert isinstance(total, Tensor)
    return total.to(outs[0].dtype), lse.masked_fill(blind, NEG_INF)
