"""``attention()``: one call, and the choice of what computes it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from . import batched, torch_sdpa, xformers_bridge
from .call import Call
from .one_query import one_query
from .reference import reference_attention
from .tiled import tiled_attention

BACKENDS = ("xformers", "torch_sdpa", "tiled", "batched", "reference")
"""In the order in which ``auto`` tries them: the fastest first, see ``_by_speed``."""


def attention(
    query: Float[Tensor, "batch q_len heads head_dim"],
    key: Float[Tensor, "batch k_len kv_heads head_dim"],
    value: Float[Tensor, "batch k_len kv_heads value_dim"],
    bias=None,
    *,
    scale: float | int | None = None,
    backend: str = "auto",
    return_lse: bool = False,
):
    """``softmax(scale * query @ keyᵀ + bias) @ value`` for every head: [batch, q_len, heads, value_dim].

    ``key`` and ``value`` may have fewer heads than ``query`` (grouped queries): query head h uses kv head
    ``h // (heads // kv_heads)``. ``scale`` is ``1/sqrt(head_dim)`` unless given. ``bias`` is None, an
    :class:`~course_lib.attention.AttentionBias` (``Causal()``, ``Segments(...)``, a sum of several), a dense tensor
    [q_len, k_len] or 4-D with each size 1 or full (bool: True = may attend; float: added), or an xFormers bias.

    With ``return_lse`` the result is ``(out, lse)``: lse [batch, heads, q_len] in float32 (float64 for float64
    inputs) is the log of the sum of the exponentials of each row's scores, -inf where a row sees nothing.

    A query that sees nothing yields zeros and zero gradients. NaN is data: one that a query may see reaches its
    output, one that is hidden from it does not (on CUDA the fused kernels do not promise the latter). Under
    ``torch.autocast`` the three inputs are cast to its dtype. There is no dropout: today's language models are
    trained without it inside attention.

    ``backend`` is ``"auto"`` (the first of ``available_backends`` that can run this call exactly) or the name of
    one. Only ``"reference"`` can be differentiated twice, or by ``torch.func``. Raises ValueError or TypeError that
    names the argument, what was expected, what came and what to do.
    """
    compute = _attend_outside if torch.compiler.is_compiling() else _attend
    out, lse = compute(query, key, value, bias, scale, backend, return_lse)
    return (out, lse) if return_lse else out


def _attend(query, key, value, bias, scale, backend, return_lse) -> tuple[Tensor, Tensor | None]:
    if bias is None and scale is None and backend == "auto" and not return_lse:
        out = one_query(query, key, value)
        if out is not None:
            return out, None
    call = Call.of(query, key, value, bias, scale=scale, return_lse=return_lse)
    if backend == "auto":
        name = next(name for name in _by_speed(call) if _why_not(name, call) is None)
    elif backend in BACKENDS:
        name = backend
        reason = _why_not(name, call)
        if reason is not None:
            raise ValueError(
                f"backend: {name!r} cannot run this call: {reason}. Use backend='auto', or ask available_backends(...) "
                "which can."
            )
    else:
        raise ValueError(
            f"backend: expected 'auto' or one of {', '.join(map(repr, BACKENDS))}, got {backend!r}."
        )
    return _run(name, call)


# torch.compile breaks its graph here and compiles what is around. Traced, a loop over tiles would unroll into an
# endless graph, and every packed batch would be a new one: its lengths are constants of the bias.
_attend_outside = torch.compiler.disable(_attend)


def available_backends(query, key, value, bias=None, *, training: bool = False) -> dict[str, str]:
    """For each backend ``"ok"`` or the reason why it cannot run this call; ``auto`` takes the first that is ok.

    ``training``: whether a backward will follow. A log-sum-exp is not asked for here: with ``return_lse`` fewer
    backends can run the call. Raises as :func:`attention` does for arguments that fit nothing.
    """
    call = Call.of(query, key, value, bias, training=training)
    return {name: _why_not(name, call) or "ok" for name in _by_speed(call)}


def _by_speed(call: Call) -> list[str]:
    names = list(BACKENDS)
    if batched.pays(call):
        names.remove("batched")
        names.insert(names.index("torch_sdpa"), "batched")
    return names


def _why_not(name: str, call: Call) -> str | None:
    if name == "xformers":
        return xformers_bridge.why_not(call)
    if name == "batched":
        return batched.why_not(call)
    return torch_sdpa.why_not(call) if name == "torch_sdpa" else None


def _run(name: str, call: Call) -> tuple[Tensor, Tensor | None]:
    if name == "xformers":
        return xformers_bridge.run(call), None
    if name == "torch_sdpa":
        return torch_sdpa.run(call)
    if name == "batched":
        with torch.autocast(call.query.device.type, enabled=False):
            return batched.run(call), None
    compute = tiled_attention if name == "tiled" else reference_attention
    with torch.autocast(call.query.device.type, enabled=False):
        return compute(call.query, call.key, call.value, call.bias, call.scale, call.return_lse)
