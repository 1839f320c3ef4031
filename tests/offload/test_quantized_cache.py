"""Keys and values in few bits: a KVCache in all else."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.gqa import KVCache
from course_lib.models import OPT, OPTConfig, generate
from course_lib.offload import QuantizedKVCache, dequantize, quantize


def tokens(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_few_bits(tensor: torch.Tensor, bits: int, size: int) -> torch.Tensor:
    return dequantize(quantize(tensor, bits=bits, group_size=size))


@st.composite
def histories(draw) -> tuple[list, int]:
    """Appends with and without padding, reorders and truncates of a batch, and a seed."""
    batch, steps = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["append", "padded", "reorder", "truncate"]))
        if kind == "append":
            steps.append((kind, batch, draw(st.integers(0, 4)), None))
        elif kind == "padded":
            new = draw(st.integers(1, 4))
            mask = [[draw(st.integers(0, 1)) for _ in range(new)] for _ in range(batch)]
            steps.append(("append", batch, new, mask))
        elif kind == "reorder" and steps:
            chosen = draw(st.lists(st.integers(0, batch - 1), min_size=1, max_size=3))
            steps.append((kind, chosen))
            batch = len(chosen)
        elif steps:
            steps.append(("truncate", draw(st.integers(0, 5))))
    return [("append", steps[0][1], 1, None), *steps] if steps else [("append", batch, 1, None)], batch


@given(histories(), st.sampled_from([4, 8]), st.sampled_from([2, 7, 64, 70]), st.sampled_from([1, 256]))
@settings(max_examples=60)
@torch.no_grad()
def test_it_is_a_cache_of_what_few_bits_make_of_keys_and_values(drawn, bits, width, block_size):
    steps, _ = drawn
    size = min(64, width + width % 2)
    few, plain = QuantizedKVCache(bits=bits, block_size=block_size), KVCache(block_size=block_size)
    for number, (kind, *arguments) in enumerate(steps):
        if kind == "append":
            batch, new, mask = arguments
            key = tokens(batch, new, 2, width, seed=number)
            value = tokens(batch, new, 2, 6, seed=100 + number)
            mask = None if mask is None else torch.tensor(mask)
            came = few.append(key, value, mask)
            wanted = plain.append(in_few_bits(key, bits, size), in_few_bits(value, bits, 6), mask)
            assert came[0].equal(wanted[0]) and came[1].equal(wanted[1])
            assert repr(came[2]) == repr(wanted[2])
        elif kind == "reorder":
            few.reorder(arguments[0])
            plain.reorder(arguments[0])
        else:
            most = min(arguments[0], max(plain.host_lengths))
            few.truncate(most)
            plain.truncate(most)
        assert few.host_lengths == plain.host_lengths
        assert few.lengths.equal(plain.lengths)
    mask = torch.ones(len(plain.host_lengths), 2)
    assert few.next_positions(mask).equal(plain.next_positions(mask))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.no_grad()
def test_what_attention_reads_is_off_by_half_a_step_at_most(bits, dtype):
    key, value = tokens(2, 9, 3, 128, dtype=dtype), tokens(2, 9, 3, 128, seed=1, dtype=dtype)
    came = QuantizedKVCache(bits=bits).append(key, value)
    for few, exact in zip(came[:2], (key, value), strict=True):
        groups = exact.unflatten(-1, (2, 64)).double()
        step = (groups.amax(-1) - groups.amin(-1)) / (2**bits - 1)
        off = (few.unflatten(-1, (2, 64)).double() - groups).abs()
        rounding = groups.abs() * torch.finfo(dtype).eps
        assert few.dtype == dtype
        assert bool((off <= 0.52 * step.unsqueeze(-1) + rounding).all())


@pytest.mark.parametrize(("bits", "share"), [(4, 4.5 / 16), (8, 8.5 / 16)])
@torch.no_grad()
def test_it_takes_its_share_of_the_memory(bits, share):
    key = tokens(2, 5, 4, 64, dtype=torch.bfloat16)
    few, plain = QuantizedKVCache(bits=bits, max_length=32), KVCache(max_length=32)
    few.append(key, key)
    plain.append(key, key)
    assert few.nbytes == share * plain.nbytes
    assert QuantizedKVCache(bits=4).nbytes == 0


@torch.no_grad()
def test_appending_leaves_what_is_held_as_it_is():
    cache = QuantizedKVCache(bits=4)
    first = cache.append(tokens(1, 3, 2, 64), tokens(1, 3, 2, 64))[0].clone()
    later = cache.append(100 * tokens(1, 1, 2, 64, seed=1), tokens(1, 1, 2, 64))[0]
    assert later[:, :3].equal(first)


@torch.no_grad()
def test_the_keys_of_a_head_lie_together():
    keys, values, _ = QuantizedKVCache(bits=4).append(tokens(2, 3, 4, 64), tokens(2, 3, 4, 64))
    assert keys.transpose(1, 2).is_contiguous() and values.transpose(1, 2).is_contiguous()


@torch.no_grad()
def test_padding_may_be_anything():
    key = tokens(2, 3, 2, 64)
    spoilt = key.clone()
    spoilt[0, 0] = torch.nan
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    came = QuantizedKVCache(bits=4).append(spoilt, spoilt, mask)
    assert came[0].equal(QuantizedKVCache(bits=4).append(key, key, mask)[0])


def opt() -> OPT:
    sizes = {"vocab_size": 64, "dim": 128, "num_layers": 2, "num_heads": 2, "max_length": 64}
    return OPT(OPTConfig(**sizes, init_std=0.2)).eval()


@torch.no_grad()
def test_a_model_reads_alike_at_once_and_token_by_token():
    model, prompt = opt(), torch.arange(10)[None] + 5
    whole = model(prompt, cache=[QuantizedKVCache(bits=4) for _ in model.layers])
    cache = [QuantizedKVCache(bits=4) for _ in model.layers]
    parts = [model(prompt[:, i : i + 1], cache=cache) for i in range(10)]
    # Not to the last digit: where products are rounded otherwise, a number may go to the next count.
    assert (torch.cat(parts, dim=1) - whole).norm() < 0.01 * whole.norm()
    exact = model(prompt)
    off = [
        ((model(prompt, cache=[QuantizedKVCache(bits=bits) for _ in model.layers]) - exact).norm())
        for bits in (4, 8)
    ]
    assert 0 < off[1] < 0.2 * off[0] < 0.2 * 0.3 * exact.norm()


@pytest.mark.parametrize("bits", [4, 8])
def test_generate_writes_with_such_caches(bits, monkeypatch):
    model, prompt = opt(), torch.arange(12).reshape(2, 6) + 5
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    wanted = generate(model, prompt, attention_mask=mask, max_new_tokens=12)
    made = []

    def make(**how):
        made.append(QuantizedKVCache(bits=bits, **how))
        return made[-1]

    monkeypatch.setattr(sys.modules["course_lib.models.generate"], "KVCache", make)
    written = generate(model, prompt, attention_mask=mask, max_new_tokens=12)
    assert [cache.host_lengths for cache in made] == [(15, 17)] * 2
    if bits == 8:
        assert written.equal(wanted)


@pytest.mark.error_messages
@torch.no_grad()
def test_what_does_not_fit_is_named_and_not_kept():
    cache = QuantizedKVCache(bits=4, max_length=3)
    key = tokens(1, 2, 2, 64)
    cache.append(key, key)
    wrong = partial(pytest.raises, ValueError)
    with wrong(match=r"key: expected 2 kv heads of 64 in torch.float32 .* got 2 of 32 in"):
        cache.append(tokens(1, 1, 2, 32), tokens(1, 1, 2, 64))
    with wrong(match=r"value: expected 2 kv heads .* got 2 of 64 in torch.bfloat16"):
        cache.append(key, key.bfloat16())
    with wrong(match=r"value: expected \[batch, new, kv_heads\] = \[1, 2, 2\] as in key"):
        cache.append(key, key[:, :1])
    with wrong(match=r"key: expected 1 sequences as this cache holds, got 2"):
        cache.append(tokens(2, 1, 2, 64), tokens(2, 1, 2, 64))
    with wrong(match=r"key: expected at most 1 further tokens"):
        cache.append(key, key)
    with wrong(match=r"value: cannot be held in 4 bits\. tensor: expected finite numbers, got nan"):
        cache.append(key[:, :1], key[:, :1] * torch.nan)
    with pytest.raises(TypeError, match=r"key: expected a floating-point tensor .* got torch.int64"):
        cache.append(key.long(), key)
    with wrong(match=r"bits: expected 4 or 8, got 5"):
        QuantizedKVCache(bits=5)
    assert cache.host_lengths == (2,)
    assert repr(cache).startswith("QuantizedKVCache(4 bits, lengths [2], ")
