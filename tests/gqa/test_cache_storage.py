"""The cache: what it takes of memory, what it copies and shares, and what autograd and the compiler see of it."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.attention import Causal, Grid, attention
from course_lib.gqa import KVCache, kv_cache_bytes

from .oracle import assert_close, attend_alone, layer, randn, read


def test_reading_on_without_autograd_leaves_what_autograd_has_seen() -> None:
    """The step under no_grad must not write into the keys that the backward of the step before still needs."""
    gqa, x = layer(), randn(1, 5, 12)
    cache = KVCache()
    out = gqa(x[:, :4], cache=cache)
    with torch.no_grad():
        gqa(x[:, 4:], cache=cache)
    leaves = list(gqa.parameters())
    found = torch.autograd.grad(out.sum(), leaves)
    wanted = torch.autograd.grad(attend_alone(gqa, x[0, :4]).sum(), leaves)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want)


def test_without_autograd_tokens_are_written_in_place_and_read_as_views() -> None:
    cache, key = KVCache(block_size=8), randn(2, 1, 2, 4)
    places = set()
    for _ in range(8):
        keys, values, _ = cache.append(key, key)
        places.add((keys.data_ptr(), values.data_ptr()))
    assert len(places) == 1
    cache.append(key, key)
    assert cache.nbytes == kv_cache_bytes(
        batch=2, length=16, num_layers=1, num_kv_heads=2, head_dim=4, dtype=torch.float64
    )


def test_a_cache_with_a_maximum_takes_its_memory_once() -> None:
    cache = KVCache(max_length=5)
    places = {cache.append(randn(1, n, 2, 4), randn(1, n, 2, 4))[0].data_ptr() for n in (1, 3, 1)}
    assert len(places) == 1
    assert cache.nbytes == 2 * 5 * 2 * 4 * 8


def test_grouped_heads_are_stored_as_they_came() -> None:
    """Four kv heads instead of 32: an eighth of the memory, and no copy for the query heads."""
    caches = {}
    for kv_heads in (32, 4):
        gqa, caches[kv_heads] = layer(64, 32, kv_heads), KVCache()
        with torch.no_grad():
            gqa(randn(1, 3, 64), cache=caches[kv_heads])
    assert caches[32].nbytes == 8 * caches[4].nbytes


def test_a_cache_filled_in_inference_mode_goes_on_outside_of_it() -> None:
    gqa, cache, x = layer(), KVCache(), randn(2, 5, 12)
    with torch.inference_mode():
        gqa(x[:, :3], cache=cache)
    with torch.no_grad():
        out = torch.cat([gqa(x[:, at : at + 1], cache=cache) for at in (3, 4)], dim=1)
    assert_close(out, torch.stack([attend_alone(gqa, row)[3:] for row in x]))


def test_inference_mode_goes_on_in_a_cache_filled_outside_of_it() -> None:
    gqa, cache, x = layer(), KVCache(), randn(2, 5, 12)
    with torch.no_grad():
        gqa(x[:, :3], cache=cache)
    with torch.inference_mode():
        out = gqa(x[:, 3:], cache=cache)
    assert_close(out, torch.stack([attend_alone(gqa, row)[3:] for row in x]))


@pytest.mark.slow  # the compiler takes ten seconds and more
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="the compiler needs a C++ compiler"
)
def test_a_compiled_layer_reads_the_token_that_it_has_just_cached() -> None:
    """From the fifth step on, where lengths are symbols to the compiler, it once read the cache as it was before."""
    gqa, cache, x = layer(), KVCache(), randn(2, 7, 12)
    torch._dynamo.reset()
    compiled = torch.compile(gqa)
    with torch.no_grad():
        out = torch.cat([compiled(part, cache=cache) for part in x.split(1, dim=1)], dim=1)
    assert_close(out, torch.stack([attend_alone(gqa, row) for row in x]))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_of_a_cache_goes_its_own_way(copied: Callable[[KVCache], KVCache]) -> None:
    """One prompt read once, several continuations."""
    gqa, cache, x = layer(), KVCache(), randn(1, 4, 12)
    read(gqa, cache, x)
    other = copied(cache)
    for held, more in ((cache, randn(1, 2, 12, seed=1)), (other, randn(1, 2, 12, seed=2))):
        assert_close(read(gqa, held, more)[0], attend_alone(gqa, torch.cat((x[0], more[0])), rotary=True)[4:])


@pytest.mark.error_messages  # the shape checks take int at its word, and would refuse NumPy's
def test_sizes_and_lengths_may_be_numpy_numbers_or_tensors() -> None:
    cache = KVCache(block_size=np.int64(4), max_length=torch.tensor(8))
    cache.append(randn(2, 3, 2, 4), randn(2, 3, 2, 4))
    cache.truncate(np.int64(2))
    assert cache.lengths.tolist() == [2, 2]
    cache.truncate(torch.tensor(1))
    cache.reorder(np.array([1, 1, 0]))
    assert cache.lengths.tolist() == [1, 1, 1]
    number = kv_cache_bytes(
        batch=np.int64(1),
        length=np.int32(2**30),
        num_layers=96,
        num_kv_heads=96,
        head_dim=128,
        dtype=torch.int8,
    )
    assert type(number) is int and number == 2 * 2**30 * 96 * 96 * 128


def test_append_returns_what_it_holds() -> None:
    cache = KVCache()
    first, second = (randn(2, 3, 2, 4, seed=s) for s in (0, 1))
    cache.append(first, first + 1)
    keys, values, bias = cache.append(second, second + 1)
    assert torch.equal(keys, torch.cat((first, second), 1)) and torch.equal(values, keys + 1)
    assert torch.equal(bias.materialize(3, 6), Causal("bottom-right").materialize(3, 6))


def test_the_sizes_of_published_caches() -> None:
    """OPT-175B keeps 4.5 MiB a token in half precision, Llama-2-70B with 8 kv heads 320 KiB."""
    opt = kv_cache_bytes(batch=1, length=1, num_layers=96, num_kv_heads=96, head_dim=128, dtype=torch.float16)
    llama = kv_cache_bytes(
        batch=1, length=1, num_layers=80, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16
    )
    assert (opt, llama) == (4_718_592, 327_680)
    assert (
        kv_cache_bytes(batch=0, length=9, num_layers=1, num_kv_heads=1, head_dim=1, dtype=torch.float32) == 0
    )


class LargestTensor(TorchDispatchMode):
    """The most numbers that any operation made room for; views make none."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                owned = tensor.untyped_storage().nbytes() // tensor.element_size()
                given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, Tensor)}
                if tensor.untyped_storage().data_ptr() not in given:
                    self.numbers = max(self.numbers, owned)
        return made


@pytest.mark.parametrize("backend", ["torch_sdpa", "tiled"])
@pytest.mark.parametrize("held", [[512, 512], [512, 300]])
def test_decoding_makes_no_copy_of_the_keys_for_the_query_heads(backend: str, held: list[int]) -> None:
    cache, tokens = KVCache(max_length=513), randn(2, 512, 1, 64)
    cache.append(tokens, tokens)
    cache.truncate(held)
    query = randn(2, 1, 16, 64)
    keys, values, bias = cache.append(tokens[:, :1], tokens[:, :1])
    with torch.no_grad(), LargestTensor() as largest:
        attention(query, keys, values, bias, backend=backend)
    assert largest.numbers <= keys.numel() < 16 * keys.numel()


def appended(cache: KVCache, sizes: list[int], heads: int = 2) -> list[tuple[Tensor, Tensor]]:
    """What a cache hands out after each of several appends."""
    generator = torch.Generator().manual_seed(7)
    found = []
    for size in sizes:
        key, value = (torch.randn(3, size, heads, 4, generator=generator) for _ in range(2))
        keys, values, _ = cache.append(key, value)
        found.append((keys.clone(), values.clone()))
    return found


@pytest.mark.parametrize("sizes", [[5, 1, 1, 1], [1, 4, 1], [3, 2, 300, 1, 1]])
@pytest.mark.parametrize("max_length", [None, 400])
def test_the_short_way_to_append_keeps_what_the_long_way_keeps(
    sizes: list[int], max_length: int | None
) -> None:
    with torch.no_grad():
        short = appended(KVCache(max_length=max_length), sizes)
    long = appended(KVCache(max_length=max_length), sizes)  # autograd is on: the long way
    for one, other in zip(short, long, strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


@torch.no_grad()
def test_the_short_way_ends_at_the_maximum() -> None:
    cache = KVCache(max_length=4)
    appended(cache, [3, 1])
    with pytest.raises(ValueError, match="key: expected at most 0 further tokens for sequence 0"):
        appended(cache, [1])
    assert cache.host_lengths == (4, 4, 4)


@torch.no_grad()
def test_layers_of_ragged_sequences_share_their_mask_and_none_spoils_it() -> None:
    caches = [KVCache() for _ in range(3)]
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1]])
    step = torch.randn(3, 1, 2, 4)
    biases = []
    for cache in caches:
        cache.append(torch.randn(3, 3, 2, 4), torch.randn(3, 3, 2, 4), mask)
        biases.append(cache.append(step, step)[2])
    assert biases[0] is biases[1] is biases[2]
    grid = Grid(3, 2, 1, 4, torch.float32, torch.device("cpu"))
    first = biases[0].tile(range(1), range(4), grid)
    expected = first.clone()
    first.fill_(9)
    assert torch.equal(biases[1].tile(range(1), range(4), grid), expected)
    assert (expected == 0).sum((1, 2, 3)).tolist() == [4, 3, 2]
    assert torch.equal(biases[1].tile(range(1), range(2), grid), expected[..., :2])
