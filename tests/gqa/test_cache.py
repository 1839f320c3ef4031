"""The cache: whatever comes in whatever pieces, each sequence attends as if it had been read alone and at once."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from course_lib.attention import Causal, Grid, KeyPadding
from course_lib.gqa import CausalAt, KVCache

from .oracle import assert_close, attend_alone, layer, padded, randn, read


@pytest.mark.parametrize("chunks", [[1] * 9, [9], [4, 1, 1, 3], [1, 0, 8]])
@pytest.mark.parametrize("block_size", [1, 4, 256])
def test_reading_in_pieces_equals_reading_at_once(chunks: list[int], block_size: int) -> None:
    gqa, x, cache = layer(), randn(2, 9, 12), KVCache(block_size=block_size)
    got = torch.cat([read(gqa, cache, part) for part in x.split(chunks, dim=1)], dim=1)
    assert_close(got, torch.stack([attend_alone(gqa, row, rotary=True) for row in x]))
    assert cache.lengths.tolist() == [9, 9]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("extra", [0, 2])
def test_decoding_after_a_padded_prompt_equals_each_sequence_alone(side: str, extra: int) -> None:
    gqa, cache = layer(), KVCache(block_size=4)
    rows = [randn(n + 5, 12, seed=n) for n in (3, 7, 1, 5)]
    prompts = [row[:-5] for row in rows]
    x, real = padded(prompts, side, extra)
    out = read(gqa, cache, x, real)
    expected = [attend_alone(gqa, row, rotary=True) for row in rows]
    for i, prompt in enumerate(prompts):
        assert_close(out[i, real[i].bool()], expected[i][: len(prompt)])
    assert cache.lengths.tolist() == [3, 7, 1, 5]
    for step in range(5):
        token = torch.stack([row[len(row) - 5 + step] for row in rows])[:, None]
        assert_close(read(gqa, cache, token)[:, 0], torch.stack([e[len(e) - 5 + step] for e in expected]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_kept_as_columns_stays_hidden_under_the_mask_of_all_columns(side: str) -> None:
    """The way of a plain bias: padding is kept, and every step says again which columns are real."""
    gqa, cache = layer(), KVCache()
    rows = [randn(n + 2, 12, seed=n) for n in (3, 5)]
    x, real = padded([row[:-2] for row in rows], side)
    with torch.no_grad():
        gqa(x, KeyPadding(real), cache)
        for step in range(2):
            real = torch.cat((real, torch.ones_like(real[:, :1])), 1)
            token = torch.stack([row[len(row) - 2 + step] for row in rows])[:, None]
            out = gqa(token, KeyPadding(real), cache)
            expected = [attend_alone(gqa, row)[len(row) - 2 + step] for row in rows]
            assert_close(out[:, 0], torch.stack(expected))
    assert cache.lengths.tolist() == [7, 7]


COUNTS = st.integers(1, 3).flatmap(
    lambda batch: st.lists(
        st.lists(st.integers(0, 4), min_size=batch, max_size=batch), min_size=1, max_size=5
    )
)


@given(COUNTS, st.sampled_from(["left", "right"]), st.integers(1, 5))
def test_ragged_pieces_equal_each_sequence_alone(counts: list[list[int]], side: str, block_size: int) -> None:
    """In every piece, every sequence grows by a number of its own."""
    gqa, cache, batch = layer(), KVCache(block_size=block_size), len(counts[0])
    rows = [randn(sum(piece[i] for piece in counts), 12, seed=i) for i in range(batch)]
    expected = [attend_alone(gqa, row, rotary=True) for row in rows]
    done = [0] * batch
    for piece in counts:
        x, real = padded([row[d : d + n] for row, d, n in zip(rows, done, piece, strict=True)], side, extra=1)
        out = read(gqa, cache, x, real)
        for i, n in enumerate(piece):
            assert_close(out[i, real[i].bool()], expected[i][done[i] : done[i] + n])
            done[i] += n
    assert cache.lengths.tolist() == done


def test_padding_between_tokens_takes_no_room() -> None:
    gqa, cache, x = layer(), KVCache(), randn(1, 5, 12)
    real = torch.tensor([[1, 0, 1, 0, 1]])
    out = read(gqa, cache, x, real)
    assert cache.lengths.tolist() == [3]
    assert_close(out[0, ::2], attend_alone(gqa, x[0, ::2], rotary=True))


@given(st.lists(st.integers(0, 6), min_size=3, max_size=3), st.integers(0, 3))
def test_what_is_appended_after_a_truncation_continues_the_shortened_sequences(
    keep: list[int], new: int
) -> None:
    gqa, cache, x = layer(), KVCache(block_size=4), randn(3, 6, 12)
    read(gqa, cache, x)
    cache.truncate(keep)
    assert cache.lengths.tolist() == keep
    more = randn(3, new, 12, seed=1)
    out = read(gqa, cache, more)
    for i, n in enumerate(keep):
        assert_close(out[i], attend_alone(gqa, torch.cat((x[i, :n], more[i])), rotary=True)[n:])


def test_truncating_to_one_number_shortens_what_is_longer() -> None:
    cache = KVCache()
    x, real = padded([randn(5, 12), randn(2, 12)], "left")
    read(layer(), cache, x, real)
    cache.truncate(3)
    assert cache.lengths.tolist() == [3, 2]
    cache.truncate(0)
    assert cache.lengths.tolist() == [0, 0]


def test_forgotten_nan_reaches_nothing() -> None:
    gqa, cache, x = layer(), KVCache(), randn(2, 6, 12)
    spoiled = x.clone()
    spoiled[0, 4:] = float("nan")
    read(gqa, cache, spoiled)
    cache.truncate([4, 6])
    out = read(gqa, cache, x[:, 4:5])
    assert_close(out[0, 0], attend_alone(gqa, x[0, :5], rotary=True)[4])
    assert out.isfinite().all()


@pytest.mark.parametrize("indices", [[1, 0, 2], [2, 2, 0], [1], [0, 0, 1, 1, 2, 2], []])
def test_reordered_sequences_go_on_from_what_they_had_read(indices: list[int]) -> None:
    """Beam search: beams change places, die, and fork."""
    gqa, cache = layer(), KVCache(block_size=4)
    rows = [randn(n, 12, seed=n) for n in (4, 2, 6)]
    read(gqa, cache, *padded(rows, "right"))
    cache.reorder(torch.tensor(indices, dtype=torch.int64))
    assert cache.lengths.tolist() == [len(rows[i]) for i in indices]
    more = randn(len(indices), 3, 12, seed=9)
    out = read(gqa, cache, more)
    for got, i, new in zip(out, indices, more, strict=True):
        assert_close(got, attend_alone(gqa, torch.cat((rows[i], new)), rotary=True)[-3:])


def test_a_fork_does_not_write_into_its_sister() -> None:
    gqa, cache, x = layer(), KVCache(), randn(1, 4, 12)
    read(gqa, cache, x)
    cache.reorder([0, 0])
    more = randn(2, 2, 12, seed=1)
    out = read(gqa, cache, more)
    for got, new in zip(out, more, strict=True):
        assert_close(got, attend_alone(gqa, torch.cat((x[0], new)), rotary=True)[-2:])


@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_flow_through_every_append(ragged: bool) -> None:
    gqa, cache, x = layer(), KVCache(block_size=2), randn(1, 7, 12).requires_grad_()
    weight = randn(1, 7, 12, seed=1)
    outs = []
    for start, stop in ((0, 3), (3, 4), (4, 7)):
        piece = x[:, start:stop]
        mask = None
        if ragged:
            piece, mask = (
                torch.cat((torch.zeros_like(piece[:, :1]), piece), 1),
                torch.ones(1, stop - start + 1),
            )
            mask[0, 0] = 0
        outs.append(gqa(piece, cache=cache, attention_mask=mask)[:, -(stop - start) :])
    out = torch.cat(outs, 1)
    expected = attend_alone(gqa, x[0])[None]
    assert_close(out, expected)
    leaves = [x, *gqa.parameters()]
    found = torch.autograd.grad((out * weight).sum(), leaves)
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want)


def test_values_may_be_wider_than_keys() -> None:
    keys, values, _ = KVCache().append(randn(1, 3, 2, 4), randn(1, 3, 2, 6))
    assert keys.shape == (1, 3, 2, 4) and values.shape == (1, 3, 2, 6)


def test_positions_go_on_where_each_sequence_ends() -> None:
    cache = KVCache()
    real = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert cache.next_positions(real).tolist() == [[0, 0, 1], [0, 1, 2]]
    cache.append(randn(2, 3, 2, 4), randn(2, 3, 2, 4), real)
    assert cache.next_positions(torch.ones(2, 2)).tolist() == [[2, 3], [3, 4]]


def test_no_query_stands_beyond_its_bottom_right_place() -> None:
    """So a bias of distances from there (ALiBi) is off by one number a row, which the softmax does not feel."""
    cache = KVCache()
    for counts in ((5, 2), (1, 3), (0, 2), (2, 2)):
        x, real = padded([randn(n, 8) for n in counts], "right", extra=1)
        key = x.unflatten(-1, (2, 4)).nan_to_num()
        keys, _, bias = cache.append(key, key, real)
        assert isinstance(bias, CausalAt)
        place = torch.arange(x.shape[1]) + keys.shape[1] - x.shape[1]
        assert (bias.positions <= place).all()


def test_a_window_comes_on_top_of_the_cache() -> None:
    gqa, cache, x = layer(), KVCache(), randn(2, 7, 12)
    pieces = [
        gqa(part, bias=Causal("bottom-right", window=3), cache=cache) for part in x.split([3, 1, 3], dim=1)
    ]
    assert_close(torch.cat(pieces, 1), gqa(x, bias=Causal(window=3)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_bias_of_distances_is_right_in_sequences_of_different_lengths(side: str) -> None:
    """ALiBi's scores, measured from the bottom-right place of each query as a dense bias over the cache's keys."""
    gqa, cache = layer(), KVCache()
    rows = [randn(n + 3, 12, seed=n) for n in (4, 1, 6)]

    def distances(q_len: int, k_len: int) -> Tensor:
        return -0.7 * (torch.arange(q_len)[:, None] + k_len - q_len - torch.arange(k_len)).abs().double()

    x, real = padded([row[:-3] for row in rows], side, extra=2)
    width = int(real.sum(1).max()) if side == "left" else x.shape[1]
    gqa(x, bias=distances(x.shape[1], width), cache=cache, attention_mask=real)
    for step in range(3):
        token = torch.stack([row[len(row) - 3 + step] for row in rows])[:, None]
        out = gqa(token, bias=distances(1, 6 + step + 1), cache=cache)
        for got, row in zip(out[:, 0], rows, strict=True):
            n = len(row) - 2 + step
            assert_close(got, gqa(row[None, :n], bias=Causal() + distances(n, n))[0, -1])


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), min_size=1, max_size=3))
def test_what_is_said_of_a_tile_is_true_of_its_numbers(positions: list[list[int]]) -> None:
    """A tile said to be zero is added to nothing, and keys beyond the visible ones are never looked at."""
    bias = CausalAt(torch.tensor(positions))
    grid = Grid(len(positions), 1, 3, 6, torch.float32, torch.device("cpu"))
    at = torch.tensor(positions)[:, None, :, None]
    for queries, keys in itertools.product(ranges(3), ranges(6)):
        tile = bias.tile(queries, keys, grid)
        hidden = torch.arange(keys.start, keys.stop) > at[:, :, queries.start : queries.stop]
        assert torch.equal(tile, torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf))
        assert bias.is_zero(queries, keys, grid) == bool((tile == 0).all())
        beyond = [key not in bias.visible_keys(queries, grid) for key in keys]
        assert tile[..., torch.tensor(beyond, dtype=torch.bool)].isinf().all()


def ranges(length: int) -> list[range]:
    return [range(start, stop) for start in range(length) for stop in range(start + 1, length + 1)]
