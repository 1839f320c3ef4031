"""O(n) memory: no tensor of n² entries is ever made, and the allocator's peak grows with n, not with n²."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from allocations import LargestTensor, peak_bytes
from torch import Tensor

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .running import qkv
from .test_custom_bias import SlopedDistance

HEADS, WIDTH = 2, 16


def largest_tensor(work: Callable[[], object]) -> tuple[int, str]:
    with LargestTensor() as watch:
        work()
    return watch.entries, watch.operation


def naive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.einsum("bmhk,bnhk->bhmn", query, key)
    return torch.einsum("bhmn,bnhv->bmhv", scores.softmax(-1), value)


def _padding(n: int) -> KeyPadding:
    mask = torch.ones(1, n, dtype=torch.long)
    mask[0, : n // 3] = 0
    return KeyPadding(mask)


BIASES: dict[str, Callable[[int], Any]] = {
    "none": lambda n: None,
    "causal": lambda n: Causal(),
    "window": lambda n: Causal(window=n // 8),
    "segments": lambda n: Segments([n // 4, n // 2, n // 4]),
    "causal segments": lambda n: Segments([n // 4, n // 2, n // 4], inner=Causal()),
    "windowed segments": lambda n: Segments([n // 2, n // 2], inner=Causal(window=64)),
    "padding": _padding,
    "causal + padding": lambda n: Causal() + _padding(n),
    "segments + causal": lambda n: Segments([n // 2, n // 2]) + Causal(),
    "a user's own scores": lambda n: SlopedDistance([0.5, 0.25]),
    "causal + a user's own scores": lambda n: Causal() + SlopedDistance([0.5, 0.25]),
    "segments of a user's own scores": lambda n: Segments(
        [n // 2, n // 2], inner=Causal() + SlopedDistance([0.5, 0.25])
    ),
    "one number a key": lambda n: torch.zeros(1, HEADS, 1, n),
    "one trained number a key": lambda n: Causal() + torch.zeros(1, HEADS, 1, n, requires_grad=True),
}


def step(backend: str, n: int, bias: Any, dtype: torch.dtype = torch.float32) -> Callable[[], None]:
    query, key, value = qkv(1, n, heads=HEADS, head_dim=WIDTH, dtype=dtype)

    def work() -> None:
        attention(query, key, value, bias, backend=backend).float().sum().backward()

    return work


def test_the_watch_sees_the_score_matrix_of_naive_attention_in_its_backward_too() -> None:
    n = 512
    query, key, value = qkv(1, n, heads=HEADS, head_dim=WIDTH, dtype=torch.float32)
    forward, _ = largest_tensor(lambda: naive(query, key, value))
    assert forward == HEADS * n * n
    out = naive(query, key, value).sum()
    backward, _ = largest_tensor(lambda: out.backward())
    assert backward == HEADS * n * n
    assert peak_bytes(lambda: naive(query, key, value).sum().backward()) >= 2 * 4 * HEADS * n * n


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@pytest.mark.parametrize("name", BIASES)
def test_no_tensor_of_a_score_matrix_is_made_forward_or_backward(backend: str, name: str) -> None:
    n = 2048
    entries, operation = largest_tensor(step(backend, n, BIASES[name](n)))
    assert entries <= n * n // 4, f"{operation} made a tensor of {entries / n / n:.2f} n²"


@pytest.mark.parametrize("name", BIASES)
def test_no_tensor_of_a_score_matrix_is_made_for_inference(name: str) -> None:
    n = 2048
    query, key, value = qkv(1, n, heads=HEADS, head_dim=WIDTH, dtype=torch.float32, grad=False)
    bias = BIASES[name](n)
    entries, operation = largest_tensor(lambda: attention(query, key, value, bias))
    assert entries <= n * n // 4, f"{operation} made a tensor of {entries / n / n:.2f} n²"


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@pytest.mark.parametrize("case", ["value width", "lse", "nan", "float64", "grouped"])
def test_no_path_that_a_kernel_declines_falls_back_to_a_score_matrix(backend: str, case: str) -> None:
    n = 2048
    query, key, value = qkv(
        1,
        n,
        heads=HEADS,
        kv_heads=1 if case == "grouped" else HEADS,
        head_dim=WIDTH,
        value_dim=24 if case == "value width" else WIDTH,
        dtype=torch.float64 if case == "float64" else torch.float32,
    )
    if case == "nan":
        with torch.no_grad():
            key[:, -1] = float("nan")

    def work() -> None:
        out, lse = attention(query, key, value, Causal(), backend=backend, return_lse=True)
        (out.sum() + (lse.sum() if case == "lse" else 0)).backward()

    entries, operation = largest_tensor(work)
    assert entries <= n * n // 4, f"{operation} made a tensor of {entries / n / n:.2f} n²"


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@pytest.mark.parametrize(
    "name", ["causal", "window", "causal segments", "causal + padding", "causal + a user's own scores"]
)
def test_the_peak_of_the_allocator_grows_with_n(backend: str, name: str) -> None:
    short, long = 1024, 4096
    at_short, at_long = (peak_bytes(step(backend, n, BIASES[name](n))) for n in (short, long))
    score_matrix = 4 * HEADS * long * long
    assert at_long <= score_matrix // 4
    tile = 16 * 2**20  # what a tile takes does not grow, and is most of the shorter peak
    assert at_long - at_short <= 6 * at_short + tile


@pytest.mark.parametrize("backend", ["tiled", "auto"])
def test_what_is_kept_for_the_backward_is_of_the_inputs_size(backend: str) -> None:
    n = 1024
    query, key, value = qkv(1, n, heads=HEADS, head_dim=WIDTH, dtype=torch.float32)
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = attention(query, key, value, Causal(), backend=backend)
    inputs = sum(t.untyped_storage().nbytes() for t in (query, key, value, out))
    assert sum(kept.values()) <= 1.5 * inputs


@pytest.mark.parametrize("name", ["BlockDiagonalCausal", "local", "padded keys", "paged keys"])
@pytest.mark.filterwarnings("ignore")
def test_xformers_masks_take_memory_of_order_n_too(name: str) -> None:
    pytest.importorskip("xformers", reason="xFormers has wheels for Linux and Windows only")
    from xformers.ops.fmha import attn_bias as xf

    n, half = 2048, 1024
    pages = torch.randperm(n // 64, generator=torch.Generator().manual_seed(0)).reshape(2, -1).int()
    bias = {
        "BlockDiagonalCausal": lambda: xf.BlockDiagonalMask.from_seqlens([half, half]).make_causal(),
        "local": lambda: xf.LocalAttentionFromBottomRightMask(100, 100),
        "padded keys": lambda: xf.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
            [half, half], half, [half, half]
        ),
        "paged keys": lambda: xf.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
            [half, half], [half, half], pages, 64
        ),
    }[name]()
    entries, operation = largest_tensor(step("auto", n, bias))
    assert entries <= n * n // 4, f"{operation} made a tensor of {entries / n / n:.2f} n²"
