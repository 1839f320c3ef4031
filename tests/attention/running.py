"""Calling a backend in a test: a backend may decline a call, but only in the way the contract allows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.attention import attention, available_backends

from .oracle import assert_agrees, attend_with_gradients

BACKENDS = ("reference", "tiled", "batched", "torch_sdpa", "auto")
ALWAYS = ("reference", "tiled")
WITH_LSE = ("reference", "tiled", "torch_sdpa", "auto")


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def qkv(
    batch: int = 2,
    q_len: int = 7,
    k_len: int | None = None,
    heads: int = 3,
    kv_heads: int | None = None,
    head_dim: int = 5,
    value_dim: int | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    grad: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    k_len = q_len if k_len is None else k_len
    kv_heads = heads if kv_heads is None else kv_heads
    value_dim = head_dim if value_dim is None else value_dim
    return (
        randn(batch, q_len, heads, head_dim, seed=3 * seed + 1, dtype=dtype, grad=grad),
        randn(batch, k_len, kv_heads, head_dim, seed=3 * seed + 2, dtype=dtype, grad=grad),
        randn(batch, k_len, kv_heads, value_dim, seed=3 * seed + 3, dtype=dtype, grad=grad),
    )


def assert_is_a_sentence(text: str) -> None:
    assert isinstance(text, str)
    assert len(text.split()) >= 4, f"{text!r} explains nothing"


class Declined(Exception):
    """The backend refused the call with its reason, as the contract allows: the test ends here and has passed."""


def may_decline(backend: str, query: Tensor, key: Tensor, value: Tensor, bias: Any = None) -> None:
    """Ends the test where the backend declines, once it has declined properly. `reference` and `tiled` never may."""
    if backend == "auto":
        return
    training = torch.is_grad_enabled() and any(
        isinstance(t, Tensor) and t.requires_grad for t in (query, key, value, bias)
    )
    answer = available_backends(query, key, value, bias, training=training)[backend]
    if answer == "ok":
        return
    assert backend not in ALWAYS, f"{backend} must run every call, and says: {answer}"
    assert_is_a_sentence(answer)
    with pytest.raises(ValueError, match=re.escape(answer)):
        attention(query, key, value, bias, backend=backend)
    raise Declined(answer)


def run(backend: str, query: Tensor, key: Tensor, value: Tensor, bias: Any = None, **kwargs: Any) -> Any:
    may_decline(backend, query, key, value, bias)
    return attention(query, key, value, bias, backend=backend, **kwargs)


def check(
    backend: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Any = None,
    *,
    visible: Tensor | None = None,
    scores: Tensor | None = None,
    scale: float | None = None,
    grad_out: Tensor | None = None,
) -> None:
    """Output and gradients of `attention` against the oracle.

    `visible` and `scores` say in the oracle's terms what `bias` means. Where `scores` wants a gradient,
    it is a part of `bias`, and its gradient is compared too.
    """
    leaves = {"query": query, "key": key, "value": value}
    if scores is not None and scores.requires_grad:
        leaves["bias"] = scores
    for leaf in leaves.values():
        leaf.grad = None
    out = run(backend, query, key, value, bias, scale=scale)
    shape = (query.shape[0], query.shape[1], query.shape[2], value.shape[3])
    assert out.shape == shape
    assert out.dtype == query.dtype
    if grad_out is None:
        grad_out = randn(*shape, seed=99, dtype=query.dtype)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible, bias=scores, scale=scale)
    assert_agrees(out, expected["out"], "out")
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if not wanted:
        return
    found = torch.autograd.grad(out, list(wanted.values()), grad_out)
    for (name, leaf), gradient in zip(wanted.items(), found, strict=True):
        assert gradient.dtype == leaf.dtype, (
            f"gradient of {name} is {gradient.dtype}, the tensor {leaf.dtype}"
        )
        assert_agrees(gradient, expected[name], f"gradient of {name}", query.dtype)
