"""No tensor of n² entries is made, hidden tiles are not visited, and the allocator's peak grows with n."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from allocations import LargestTensor, peak_bytes
from torch import Tensor

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, Grid, KeyPadding, Segments, attention, available_backends
from course_lib.packing import Packed

from .oracle import randn

HEADS, WIDTH = 4, 16


def left_padded(n: int) -> KeyPadding:
    mask = torch.ones(1, n, dtype=torch.long)
    mask[0, : n // 3] = 0
    return KeyPadding(mask)


BIASES: dict[str, Callable[[int], Any]] = {
    "alone": lambda n: ALiBi(HEADS),
    "causal": lambda n: Causal() + ALiBi(HEADS),
    "window": lambda n: Causal(window=n // 8) + ALiBi(HEADS),
    "padding": lambda n: Causal() + ALiBi(HEADS) + left_padded(n),
    "packed": lambda n: Packed([n // 4, n // 2, n // 4], inner=Causal() + ALiBi(HEADS)),
    "beside segments": lambda n: Segments([n // 4, n // 2, n // 4]) + Causal() + ALiBi(HEADS),
    "trained slopes": lambda n: Causal() + ALiBi(alibi_slopes(HEADS).requires_grad_()),
    "many documents": lambda n: Packed([n // 32] * 32, inner=Causal() + ALiBi(HEADS)),
}


def step(backend: str, n: int, bias: Any, dtype: torch.dtype = torch.float32) -> Callable[[], None]:
    query, key, value = (randn(1, n, HEADS, WIDTH, seed=i, dtype=dtype).requires_grad_() for i in range(3))

    def work() -> None:
        attention(query, key, value, bias, backend=backend).float().sum().backward()

    return work


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tensor_of_a_score_matrix_is_made_forward_or_backward(
    backend: str, name: str, dtype: torch.dtype
) -> None:
    n = 2048
    work = step(backend, n, BIASES[name](n), dtype)
    with LargestTensor() as watch:
        work()
    numbers = watch.bytes // 4  # of float32, in which tiles are made
    assert numbers <= n * n // 4, f"{watch.operation} made a tensor of {numbers / n / n:.2f} n²"


@pytest.mark.parametrize("name", ["causal", "packed", "padding", "many documents"])
def test_the_peak_of_the_allocator_grows_with_n(name: str) -> None:
    short, long = 1024, 4096
    at_short, at_long = (peak_bytes(step("auto", n, BIASES[name](n))) for n in (short, long))
    assert at_long <= 4 * HEADS * long * long // 8
    tile = 16 * 2**20  # what a tile takes does not grow, and is most of the shorter peak
    assert at_long - at_short <= 6 * at_short + tile


def test_masks_of_many_documents_are_not_built_where_together_they_outgrow_the_inputs() -> None:
    """One document of 100 tokens is cheap to write out for PyTorch's kernel; a row of nothing else is not."""
    query, key, value = (randn(1, 4000, HEADS, WIDTH, seed=i, dtype=torch.float32) for i in range(3))
    for lengths, fits in (([100, *[10] * 390], True), ([100] * 40, False)):
        bias = Packed(lengths, inner=Causal() + ALiBi(HEADS))
        answer = available_backends(query, key, value, bias, training=True)["torch_sdpa"]
        assert (answer == "ok") is fits, answer


class Watched(ALiBi):
    """Notes which tiles are asked for."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.asked: list[tuple[range, range]] = []

    def add_to(self, scores: Tensor, sequences: range, queries: range, keys: range, grid: Grid) -> None:
        self.asked.append((queries, keys))
        super().add_to(scores, sequences, queries, keys, grid)

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        self.asked.append((queries, keys))
        return super().tile(queries, keys, grid)


@pytest.mark.parametrize("window", [None, 300])
def test_tiles_of_which_nothing_is_visible_are_never_made(window: int | None) -> None:
    n, work = 4096, 0
    bias = Watched(HEADS)
    step("tiled", n, Causal("bottom-right", window) + bias)()
    for queries, keys in bias.asked:
        assert keys.start <= queries.stop - 1, "a tile of the future"
        assert window is None or keys.stop - 1 > queries.start - window, "a tile before the window"
        work += len(queries) * len(keys)
    visible = n * (n + 1) // 2 if window is None else n * window
    # Forward and backward, and the tiles across the edges of what is visible.
    assert work <= 2 * visible * (1.2 if window is None else 3.5)


def test_every_tile_it_adds_is_the_tile_it_makes() -> None:
    bias = ALiBi([0.3, 0.7])
    grid = Grid(3, 2, 50, 60)
    for queries, keys in (
        (range(0, 50), range(0, 60)),
        (range(40, 50), range(3, 9)),
        (range(7), range(50, 60)),
    ):
        scores = torch.randn(2, 2, len(queries), len(keys))
        expected = scores + bias.tile(queries, keys, grid)
        bias.add_to(scores, range(1, 3), queries, keys, grid)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
