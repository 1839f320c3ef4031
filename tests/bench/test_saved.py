"""Bytes kept for the backward: what counts, what counts once, and what does not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_lib.bench.saved import saved_bytes, saved_tensors


def learning(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def test_a_linear_layer_keeps_its_input_and_its_weight_does_not_count() -> None:
    layer, x = nn.Linear(6, 8), torch.randn(5, 6)
    (saved,) = saved_tensors(lambda: layer(x))
    assert (saved.shape, saved.dtype, saved.bytes) == ((5, 6), torch.float32, 4 * 5 * 6)


def test_frozen_parameters_and_views_of_parameters_do_not_count() -> None:
    weight, scale = nn.Parameter(torch.randn(8, 6), requires_grad=False), nn.Parameter(torch.randn(2, 8))
    x = learning(5, 6)
    assert saved_bytes(lambda: F.linear(x, weight[2:4])) == 0
    assert saved_bytes(lambda: F.linear(x, weight) * scale[0]) == 4 * 5 * 8


def test_a_copy_of_a_parameter_counts() -> None:
    layer, x = nn.Linear(6, 8, bias=False), learning(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert saved_bytes(lambda: layer(x)) == 2 * 5 * 6 + 2 * 8 * 6


def test_a_tensor_kept_by_two_functions_counts_once() -> None:
    x = learning(10)
    assert saved_bytes(lambda: x * x) == 40
    assert saved_bytes(lambda: (x.sin(), x.cos(), x * 2)) == 40


def test_a_view_counts_as_the_memory_that_it_keeps_and_two_views_of_one_once() -> None:
    x = learning(4, 10)

    def halves() -> Tensor:
        first, second = (2 * x).chunk(2, dim=-1)
        return first * second

    assert [saved.bytes for saved in saved_tensors(halves)] == [4 * 4 * 10]
    assert saved_bytes(lambda: (2 * x)[0].sin()) == 4 * 4 * 10


def test_an_expanded_tensor_counts_as_what_it_takes() -> None:
    x = learning(1, 10)
    assert saved_bytes(lambda: x.expand(100, 10).sin()) == 40


def test_memory_that_is_freed_and_used_again_counts_for_both() -> None:
    """Each step drops its tensors before the next makes its own, often at the same address."""

    def steps() -> None:
        for _ in range(5):
            learning(1000).sin()

    assert saved_bytes(steps) == 5 * 4000


def test_what_an_own_function_gives_to_save_for_backward_counts() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, x + 1)
            return x * x

    assert saved_bytes(lambda: Square.apply(learning(10))) == 80


def test_a_checkpoint_keeps_its_input() -> None:
    layer, x = nn.Sequential(nn.Linear(6, 60), nn.Tanh()), learning(5, 6)
    assert saved_bytes(lambda: layer(x)) == 4 * 5 * (6 + 60)
    assert saved_bytes(lambda: checkpoint(layer, x, use_reentrant=False)) == 4 * 5 * 6


def test_without_gradients_nothing_is_kept() -> None:
    layer, x = nn.Linear(6, 8), torch.randn(5, 6)
    with torch.no_grad():
        assert saved_tensors(lambda: layer(x)) == []


def test_tensors_without_memory_are_counted_as_they_would_be() -> None:
    layer, x = nn.Sequential(nn.Linear(6, 60), nn.Tanh()).to("meta"), torch.empty(5, 6, device="meta")
    assert saved_bytes(lambda: layer(x)) == 4 * 5 * (6 + 60)


def test_the_backward_runs_as_before_after_counting() -> None:
    layer, x = nn.Sequential(nn.Linear(6, 7), nn.GELU()), learning(5, 6)
    outs = []
    saved_bytes(lambda: outs.append(layer(x).sum()))
    outs[0].backward()
    assert torch.equal(x.grad, torch.autograd.grad(layer(x).sum(), x)[0])
