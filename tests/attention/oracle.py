"""What attention is, written a second time and independently of course_lib: the oracle of these tests.

Everything here is float64 and dense. A mask is a Python predicate `can_see(i, j)`: may query i see key j?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Predicate = Callable[[int, int], bool]


def everything(i: int, j: int) -> bool:
    return True


def causal(shift: int = 0, window: int | None = None) -> Predicate:
    """Query i stands on key i + shift (bottom-right: k_len - q_len); a window of w keys includes its own."""

    def can_see(i: int, j: int) -> bool:
        position = i + shift
        return j <= position and (window is None or j > position - window)

    return can_see


def local(left: int, right: int, shift: int = 0) -> Predicate:
    return lambda i, j: -left <= j - (i + shift) <= right


def both(*predicates: Predicate) -> Predicate:
    return lambda i, j: all(p(i, j) for p in predicates)


def blocks(
    q_lengths: Sequence[int],
    k_starts: Sequence[int],
    k_lengths: Sequence[int],
    inner: Callable[[int, int], Predicate] | None = None,
) -> Predicate:
    """Segment s owns the next q_lengths[s] queries, and k_lengths[s] keys from k_starts[s] on.

    Positions restart in every segment: `inner(q_len, k_len)` gives the predicate within one of that size.
    """
    owner = [(s, i) for s, length in enumerate(q_lengths) for i in range(length)]

    def can_see(i: int, j: int) -> bool:
        s, within = owner[i]
        k_within = j - k_starts[s]
        if not 0 <= k_within < k_lengths[s]:
            return False
        return inner is None or inner(q_lengths[s], k_lengths[s])(within, k_within)

    return can_see


def segments(
    q_lengths: Sequence[int],
    k_lengths: Sequence[int] | None = None,
    inner: Callable[[int, int], Predicate] | None = None,
) -> Predicate:
    k_lengths = q_lengths if k_lengths is None else k_lengths
    k_starts = [sum(k_lengths[:s]) for s in range(len(k_lengths))]
    return blocks(q_lengths, k_starts, k_lengths, inner)


def top_left(window: int | None = None) -> Callable[[int, int], Predicate]:
    return lambda q_len, k_len: causal(0, window)


def bottom_right(window: int | None = None) -> Callable[[int, int], Predicate]:
    return lambda q_len, k_len: causal(k_len - q_len, window)


def matrix(can_see: Predicate, q_len: int, k_len: int) -> Tensor:
    """bool [q_len, k_len]"""
    rows = [[bool(can_see(i, j)) for j in range(k_len)] for i in range(q_len)]
    return torch.tensor(rows, dtype=torch.bool).reshape(q_len, k_len)


def picture(visible: Tensor) -> str:
    """A bool [q_len, k_len] in one line: `1` visible, `.` masked, rows separated by `/`."""
    return "/".join("".join("1" if cell else "." for cell in row) for row in visible.tolist())


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(out [B, M, H, V], lse [B, H, M]) in float64, differentiable.

    `visible` (bool) and `bias` (a score) broadcast to [B, H, M, N]. A -inf in `bias` masks like a False.
    """
    batch, q_len, num_heads, head_dim = query.shape
    k_len, num_kv_heads = key.shape[1], key.shape[2]
    query, key, value = query.double(), key.double(), value.double()
    kv_head = [h // (num_heads // num_kv_heads) for h in range(num_heads)]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale

    score = scale * torch.einsum("bmhk,bnhk->bhmn", query, key[:, :, kv_head])
    seen = torch.ones(batch, num_heads, q_len, k_len, dtype=torch.bool)
    if visible is not None:
        seen = seen & visible
    if bias is not None:
        bias = bias.double()
        seen = seen & (bias.detach() != -math.inf)
        score = score + torch.where(bias.detach() == -math.inf, 0.0, bias)

    if k_len == 0:
        return query.new_zeros(batch, q_len, num_heads, value.shape[3]), query.new_full(
            (batch, num_heads, q_len), -math.inf
        )
    highest = torch.where(seen, score.detach(), -math.inf).amax(-1, keepdim=True)
    highest = torch.where(highest == -math.inf, 0.0, highest)
    weight = torch.where(seen, torch.exp(torch.where(seen, score - highest, 0.0)), 0.0)
    total = weight.sum(-1, keepdim=True)
    alive = total > 0
    share = weight / torch.where(alive, total, 1.0)
    out = torch.einsum("bhmn,bnhv->bmhv", share, value[:, :, kv_head])
    lse = torch.where(alive, torch.log(torch.where(alive, total, 1.0)) + highest, -math.inf)
    return out, lse.squeeze(-1)


def attend_with_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_out: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    grad_lse: Tensor | None = None,
) -> dict[str, Tensor]:
    """out, lse and the gradients of sum(out * grad_out) + sum(lse * grad_lse), by name; all float64."""
    leaves = {"query": query, "key": key, "value": value}
    if bias is not None and bias.dtype != torch.bool:
        leaves["bias"] = bias
    leaves = {name: leaf.detach().double().requires_grad_() for name, leaf in leaves.items()}
    if bias is not None and bias.dtype == torch.bool:
        visible = bias if visible is None else visible & bias
    out, lse = attend(
        leaves["query"], leaves["key"], leaves["value"], visible=visible, bias=leaves.get("bias"), scale=scale
    )
    loss = (out * grad_out.double()).sum()
    if grad_lse is not None:
        loss = loss + torch.where(lse == -math.inf, 0.0, lse * grad_lse.double()).sum()
    nothing = [None] * len(leaves)  # of no keys there is no graph either
    found = (
        torch.autograd.grad(loss, list(leaves.values()), allow_unused=True) if loss.requires_grad else nothing
    )
    answer = {"out": out.detach(), "lse": lse.detach()}
    for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
        answer[name] = torch.zeros_like(leaf) if gradient is None else gradient
    return answer


def assert_agrees(got: Tensor, expected: Tensor, what: str, dtype: torch.dtype | None = None) -> None:
    """`got` equals the float64 `expected` as closely as its dtype can hold it.

    float64: 1e-10. Else eps is the dtype's spacing at 1. In half precision the weights, their gradients and
    the result may each be rounded once, which costs about eps / 3 of the tensor's norm each; a float32 sum
    of a few hundred terms loses about sqrt(terms) * eps / 3.
    """
    dtype = got.dtype if dtype is None else dtype
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    assert torch.isfinite(expected).all(), "the oracle itself must be finite here"
    got = got.detach().double()
    assert torch.isfinite(got).all(), f"{what} is not finite"
    if got.numel() == 0:
        return
    error = got - expected
    if dtype == torch.float64:
        assert error.abs().max() <= 1e-10 * max(1.0, expected.abs().max().item()), (
            f"{what}: off by {error.abs().max():.2e}"
        )
        return
    eps = torch.finfo(dtype).eps
    norm_factor, peak_factor = (24, 64) if dtype == torch.float32 else (2, 6)
    floor = eps * eps
    relative = (
        (error.norm() / (expected.norm() + floor)).item() if expected.norm() > 0 else error.norm().item()
    )
    assert relative <= norm_factor * eps, f"{what}: relative error {relative / eps:.1f} eps of {dtype}"
    peak = (error.abs().max() / (expected.abs().max() + floor)).item() if expected.abs().max() > 0 else 0.0
    assert peak <= peak_factor * eps, f"{what}: largest error {peak / eps:.1f} eps of {dtype}"
