"""A bias of a user's own: one method, `tile`, and every backend that takes it gives the right answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from course_lib.attention import (
    AttentionBias,
    Causal,
    KeyPadding,
    Segments,
    attention,
    available_backends,
    tiled,
)

from .cases import HOLES
from .oracle import assert_agrees, attend_with_gradients, causal, matrix, segments
from .running import ALWAYS, BACKENDS, assert_is_a_sentence, check, qkv, randn


class SlopedDistance(AttentionBias):
    """-slope * |i + k_len - q_len - j|, a slope a head: what ALiBi adds, by a reader of one docstring."""

    per_head = True

    def __init__(self, slopes: Sequence[float]) -> None:
        self.slopes = torch.tensor(slopes)

    def tile(self, queries: range, keys: range, grid) -> Tensor:
        i = torch.arange(queries.start, queries.stop, dtype=grid.dtype)[:, None] + (grid.k_len - grid.q_len)
        j = torch.arange(keys.start, keys.stop, dtype=grid.dtype)[None]
        return -self.slopes.to(grid.dtype)[:, None, None] * (i - j).abs()  # [heads, rows, columns]


class EveryOther(AttentionBias):
    """A query sees the keys at an even distance: a mask that answers no question but `tile`."""

    def tile(self, queries: range, keys: range, grid) -> Tensor:
        i = torch.arange(queries.start, queries.stop)[:, None]
        j = torch.arange(keys.start, keys.stop)[None]
        return torch.zeros(len(queries), len(keys), dtype=grid.dtype).masked_fill(
            (i - j) % 2 != 0, -torch.inf
        )


class LearnedDistance(AttentionBias):
    """A trained number for each distance, looked up: a bias with a gradient of its own."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def learnable(self) -> tuple[Tensor, ...]:
        return (self.table,)

    def tile(self, queries: range, keys: range, grid) -> Tensor:
        i = torch.arange(queries.start, queries.stop)[:, None]
        j = torch.arange(keys.start, keys.stop)[None]
        return self.table[(i - j).abs()].to(grid.dtype)


class ForgetsToSay(LearnedDistance):
    """Trains, and does not name what."""

    def learnable(self) -> tuple[Tensor, ...]:
        return ()


class OfEachSequence(AttentionBias):
    """Scores [batch, heads, q_len, k_len] that differ between sequences, and NaN here and there."""

    per_head = True

    def __init__(self, scores: Tensor) -> None:
        self.scores, self.batch_size = scores, len(scores)

    def tile(self, queries: range, keys: range, grid) -> Tensor:
        return self.scores[:, :, queries.start : queries.stop, keys.start : keys.stop].to(grid.dtype)


class SeenByEachSequence(OfEachSequence):
    """The mask of entries that are not NaN."""

    adds_scores = False

    def tile(self, queries: range, keys: range, grid) -> Tensor:
        hidden = super().tile(queries, keys, grid).isnan()
        return torch.zeros(hidden.shape, dtype=grid.dtype).masked_fill_(hidden, -torch.inf)


class Nowhere(AttentionBias):
    """Does not define what it must."""


def sloped(slopes: Sequence[float], q_len: int, k_len: int) -> Tensor:
    i = torch.arange(q_len)[:, None] + k_len - q_len
    distance = (i - torch.arange(k_len)[None]).abs().double()
    return -torch.tensor(slopes, dtype=torch.float64)[None, :, None, None] * distance


SLOPES = [0.5, 0.25, 0.125]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q_len", "k_len"), [(7, 7), (3, 8), (1, 8), (300, 400)])
def test_scores_of_a_users_own(backend: str, q_len: int, k_len: int) -> None:
    query, key, value = qkv(2, q_len, k_len, heads=3)
    check(backend, query, key, value, SlopedDistance(SLOPES), scores=sloped(SLOPES, q_len, k_len))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["causal first", "causal last"])
def test_scores_of_a_users_own_added_to_a_mask(backend: str, order: str) -> None:
    query, key, value = qkv(2, 4, 7, heads=3)
    mask, scores = Causal("bottom-right") + KeyPadding(HOLES), SlopedDistance(SLOPES)
    bias = mask + scores if order == "causal first" else scores + mask
    visible = matrix(causal(3), 4, 7) & HOLES.bool()[:, None, None]
    check(backend, query, key, value, bias, visible=visible, scores=sloped(SLOPES, 4, 7))


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_restart_in_every_segment(backend: str) -> None:
    """Packed sequences with ALiBi: distances are those within the document, whatever comes before it."""
    lengths = [3, 0, 5, 1]
    query, key, value = qkv(1, 9, heads=3)
    bias = Segments(lengths, inner=Causal() + SlopedDistance(SLOPES))
    check(
        backend,
        query,
        key,
        value,
        bias,
        visible=matrix(segments(lengths), 9, 9) & matrix(causal(), 9, 9),
        scores=torch.where(matrix(segments(lengths), 9, 9), sloped(SLOPES, 9, 9), 0.0),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_restart_where_queries_are_the_last_of_each_segment(backend: str) -> None:
    q_lengths, k_lengths = [1, 2], [3, 4]
    query, key, value = qkv(1, 3, 7, heads=3)
    bias = Segments(q_lengths, k_lengths, inner=Causal("bottom-right") + SlopedDistance(SLOPES))
    scores = torch.zeros(1, 3, 3, 7, dtype=torch.float64)
    scores[..., :1, :3] = sloped(SLOPES, 1, 3)
    scores[..., 1:, 3:] = sloped(SLOPES, 2, 4)
    visible = torch.zeros(3, 7, dtype=torch.bool)
    visible[:1, :3] = matrix(causal(2), 1, 3)
    visible[1:, 3:] = matrix(causal(2), 2, 4)
    check(backend, query, key, value, bias, visible=visible, scores=scores)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [7, 200])
def test_a_mask_of_a_users_own(backend: str, length: int) -> None:
    query, key, value = qkv(2, length, heads=4, kv_heads=2)
    visible = matrix(lambda i, j: (i - j) % 2 == 0, length, length)
    check(backend, query, key, value, EveryOther(), visible=visible)
    both = visible & matrix(causal(), length, length)
    check(backend, query, key, value, EveryOther() + Causal(), visible=both)
    check(backend, query, key, value, Causal() + EveryOther(), visible=both)


SCATTERED = [torch.tensor([5, 1, 7, 2]), torch.tensor([0, 3]), range(4, 9)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("beside", ["alone", "segments", "scattered keys"])
@pytest.mark.parametrize("many_tiles", [False, True])
def test_scores_that_differ_between_sequences_hold_nothing_where_a_mask_of_each_hides(
    backend: str, beside: str, many_tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles are asked for the whole batch and used for some sequences of it, cropped to a segment or to pages."""
    if many_tiles:
        monkeypatch.setattr(tiled, "SHORTEST_TILE", 3)
        monkeypatch.setattr(tiled, "SCORES_PER_TILE", 2 * 12)
    query, key, value = qkv(3, 8, 9, heads=2)
    scores = randn(3, 2, 8, 9, seed=6)
    seen = randn(3, 2, 8, 9, seed=7) > -0.5
    wild = scores.masked_fill(~seen, torch.nan)
    bias: AttentionBias = SeenByEachSequence(wild) + OfEachSequence(wild)
    if beside == "segments":
        bias = bias + Segments([3, 1, 4], [4, 2, 3])
        seen = seen & matrix(segments([3, 1, 4], [4, 2, 3]), 8, 9)
    elif beside == "scattered keys":
        bias = Segments.with_keys_at([3, 1, 4], SCATTERED, None, 9) + bias
        owner = [0] * 3 + [1] + [2] * 4
        seen = seen & matrix(lambda i, j: j in SCATTERED[owner[i]], 8, 9)
    check(backend, query, key, value, bias, visible=seen, scores=scores)


@pytest.mark.parametrize("backend", ALWAYS)
@pytest.mark.parametrize("length", [7, 150])
def test_a_bias_of_a_users_own_trains(backend: str, length: int) -> None:
    query, key, value = qkv(2, length, heads=2)
    table = randn(length, seed=3, grad=True)
    out = attention(query, key, value, LearnedDistance(table) + Causal(), backend=backend)
    grad_out = randn(*out.shape, seed=4)
    got = torch.autograd.grad(out, [query, table], grad_out)
    table2 = table.detach().requires_grad_()
    index = (torch.arange(length)[:, None] - torch.arange(length)[None]).abs()
    dense = table2[index][None, None]
    expected = attend_with_gradients(
        query, key, value, grad_out, visible=matrix(causal(), length, length), bias=dense.detach()
    )
    assert_agrees(out, expected["out"], "out")
    assert_agrees(got[0], expected["query"], "gradient of query")
    (wanted,) = torch.autograd.grad(dense, table2, expected["bias"])
    assert_agrees(got[1], wanted, "gradient of the table")


def test_a_bias_of_a_users_own_materializes() -> None:
    dense = SlopedDistance(SLOPES).materialize(3, 5, num_heads=3)
    assert dense.shape == (1, 3, 3, 5)
    torch.testing.assert_close(dense.double(), sloped(SLOPES, 3, 5))
    both = (Causal("bottom-right") + SlopedDistance(SLOPES)).materialize(
        3, 5, num_heads=3, dtype=torch.float64
    )
    torch.testing.assert_close(both, torch.where(matrix(causal(2), 3, 5), sloped(SLOPES, 3, 5), -torch.inf))
    assert EveryOther().materialize(3, 5).shape == (1, 1, 3, 5)


def test_auto_prefers_tiled_where_a_fused_kernel_would_need_the_whole_bias() -> None:
    query, key, value = qkv(1, 512, heads=3, dtype=torch.float32)
    for bias in (SlopedDistance(SLOPES), Causal() + SlopedDistance(SLOPES), Causal(window=50), EveryOther()):
        answer = available_backends(query, key, value, bias, training=True)
        assert next(name for name, reason in answer.items() if reason == "ok") == "tiled"
        assert_is_a_sentence(answer["torch_sdpa"])
        with pytest.raises(ValueError, match=re.escape(answer["torch_sdpa"])):
            attention(query, key, value, bias, backend="torch_sdpa")


def test_a_bias_that_defines_no_tile_says_what_is_missing() -> None:
    query, key, value = qkv(1, 4, grad=False)
    with pytest.raises(NotImplementedError, match=r"Nowhere.*tile"):
        attention(query, key, value, Nowhere(), backend="tiled")


@pytest.mark.error_messages
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrap", [lambda b: b, lambda b: b + Causal(), lambda b: Segments([4], inner=b)])
def test_a_bias_that_trains_and_names_no_tensor_loses_no_gradient_in_silence(
    backend: str, wrap: Callable[[AttentionBias], AttentionBias]
) -> None:
    bias = wrap(ForgetsToSay(randn(4, seed=3, grad=True)))
    query, key, value = qkv(1, 4, grad=False)
    with pytest.raises(ValueError, match=r"ForgetsToSay.*learnable\(\)"):
        attention(query, key, value, bias, backend=backend)
    with torch.no_grad():
        attention(query, key, value, bias, backend="auto")
