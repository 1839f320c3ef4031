"""ALiBi for any lengths, heads, groups, corner and window, drawn by hypothesis."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.alibi import ALiBi
from course_lib.attention import Causal, attention
from course_lib.packing import Packed

from .oracle import attend, lowered, published_slopes, qkv, randn, seen


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Queries and keys of up to four documents, some of them empty."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
    return [m for m, _ in pairs], [n for _, n in pairs]


@settings(max_examples=60, deadline=None)
@given(
    documents(),
    st.integers(1, 3),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 6)),
    st.sampled_from(["top-left", "bottom-right"]),
    st.sampled_from(["tiled", "auto", "reference"]),
)
def test_any_packed_row_equals_the_dense_definition_forward_and_backward(
    lengths: tuple[list[int], list[int]],
    kv_heads: int,
    groups: int,
    window: int | None,
    corner: str,
    backend: str,
) -> None:
    q_lengths, k_lengths = lengths
    heads = kv_heads * groups
    scores = torch.zeros(heads, sum(q_lengths), sum(k_lengths), dtype=torch.float64)
    visible = torch.zeros(scores.shape[1:], dtype=torch.bool)
    row = column = 0
    for m, n in zip(q_lengths, k_lengths, strict=True):
        shift = n - m if corner == "bottom-right" else 0
        reach = window or m + n
        rows, columns = slice(row, row + m), slice(column, column + n)
        scores[:, rows, columns] = lowered(published_slopes(heads), range(n - m, n), n).float()
        visible[rows, columns] = seen(
            lambda i, j, shift=shift, reach=reach: i + shift - reach < j <= i + shift, m, n
        )
        row, column = row + m, column + n
    leaves = qkv(1, row, column, heads, kv_heads)
    grad_out = randn(*leaves[0].shape, seed=1)
    bias = Packed(q_lengths, k_lengths, inner=Causal(corner, window) + ALiBi(heads))
    got = attention(*leaves, bias, backend=backend)
    expected, _ = attend(*leaves, scores, visible)
    # Slopes are float32: where they are no power of two, so far is the last digit of the definition's.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    for mine, theirs in zip(
        torch.autograd.grad(got, leaves, grad_out, allow_unused=True),
        torch.autograd.grad(expected, leaves, grad_out),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
