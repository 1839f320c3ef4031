"""The chunked cross-entropy is F.cross_entropy, in value and gradient, without the logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from course_lib.training import chunked_cross_entropy
from tests.attention.test_memory import largest_tensor

TOKENS, DIM, VOCAB = 11, 6, 13


def case(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden, weight, bias, targets, of which two are ignored."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    targets = torch.randint(VOCAB, (1, TOKENS), generator=generator)
    targets[0, [3, TOKENS - 1]] = -100
    return normal(1, TOKENS, DIM), normal(VOCAB, DIM), normal(VOCAB), targets


def eager(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, reduction: str) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction)
    return loss.view(targets.shape) if reduction == "none" else loss


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk", [1, 4, TOKENS, 100, None])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_those_of_eager_pytorch(reduction, chunk, with_bias):
    hidden, weight, bias, targets = case()
    given_bias = bias if with_bias else None
    inputs = [hidden, weight, bias] if with_bias else [hidden, weight]
    expected = eager(hidden, weight, targets, given_bias, reduction)
    loss = chunked_cross_entropy(hidden, weight, targets, bias=given_bias, chunk=chunk, reduction=reduction)
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)
    upstream = torch.randn(expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(loss, inputs, upstream)
    for ours, theirs in zip(found, torch.autograd.grad(expected, inputs, upstream), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_finite_differences_agree_with_the_gradients(reduction):
    hidden, weight, bias, targets = case()
    assert torch.autograd.gradcheck(
        lambda h, w, b: chunked_cross_entropy(h, w, targets, bias=b, chunk=4, reduction=reduction),
        (hidden, weight, bias),
    )


@given(
    lengths=st.lists(st.integers(0, 5), min_size=0, max_size=3),
    chunk=st.integers(1, 40),
    ignored=st.integers(-3, VOCAB - 1),
)
def test_any_shape_chunk_and_ignored_index(lengths, chunk, ignored):
    generator = torch.Generator().manual_seed(len(lengths) + chunk)
    hidden = torch.randn(*lengths, DIM, generator=generator, dtype=torch.float64)
    weight = torch.randn(VOCAB, DIM, generator=generator, dtype=torch.float64)
    targets = torch.randint(VOCAB, lengths, generator=generator)
    loss = chunked_cross_entropy(hidden, weight, targets, chunk=chunk, ignore_index=ignored, reduction="sum")
    logits = (hidden @ weight.T).reshape(-1, VOCAB)
    expected = F.cross_entropy(logits, targets.flatten(), ignore_index=ignored, reduction="sum")
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)


def test_a_loss_scale_scales_every_gradient():
    hidden, weight, bias, targets = case()
    loss = chunked_cross_entropy(hidden, weight, targets, bias=bias, chunk=4)
    plain = torch.autograd.grad(loss, (hidden, weight, bias), retain_graph=True)
    scaled = torch.autograd.grad(loss * 4096, (hidden, weight, bias))
    for one, many in zip(plain, scaled, strict=True):
        torch.testing.assert_close(many, one * 4096)


def test_a_second_backward_gives_the_first_ones_gradient_again():
    hidden, weight, _, targets = case()
    loss = chunked_cross_entropy(hidden, weight, targets, chunk=4)
    first = torch.autograd.grad(loss * 3, hidden, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(loss * 3, hidden)[0], first)


def test_a_tied_head_gathers_both_of_its_gradients():
    _, _, _, targets = case()
    tokens = targets.clamp(min=0)
    table = torch.randn(VOCAB, DIM, dtype=torch.float64, requires_grad=True)
    loss = chunked_cross_entropy(F.embedding(tokens, table), table, targets, chunk=4)
    found = torch.autograd.grad(loss, table)[0]
    expected = torch.autograd.grad(eager(F.embedding(tokens, table), table, targets, None, "mean"), table)[0]
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_a_frozen_head_gets_no_gradient_and_the_hidden_states_theirs():
    hidden, weight, _, targets = case()
    chunked_cross_entropy(hidden, weight.detach(), targets).backward()
    expected = torch.autograd.grad(eager(hidden, weight, targets, None, "mean"), hidden)[0]
    assert weight.grad is None
    torch.testing.assert_close(hidden.grad, expected)


def test_without_gradients_no_gradient_is_computed():
    hidden, weight, _, targets = case(torch.float32)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
        loss = chunked_cross_entropy(hidden, weight, targets)
    assert not loss.requires_grad
    names = {event.key for event in seen.key_averages()}
    assert "aten::mm" in names and not names & {"aten::addmm_", "aten::scatter_add_"}


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_no_tensor_has_the_logits_of_all_tokens(reduction):
    tokens, vocab = 64, 500
    hidden = torch.randn(tokens, 4, requires_grad=True)
    weight = torch.randn(vocab, 4, requires_grad=True)
    targets = torch.randint(vocab, (tokens,))

    def work() -> None:
        loss = chunked_cross_entropy(hidden, weight, targets, chunk=8, reduction=reduction)
        loss.sum().backward()

    entries, operation = largest_tensor(work)
    assert entries <= 8 * vocab, operation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_is_as_near_to_the_truth_as_eager_pytorch(dtype, autocast):
    hidden, weight, _, targets = case(torch.float32 if autocast else dtype)
    exact = [t.detach().double().requires_grad_() for t in (hidden, weight)]
    truth = eager(*exact, targets, None, "mean")
    truths = torch.autograd.grad(truth, exact)
    with torch.autocast("cpu", dtype, enabled=autocast):
        loss = chunked_cross_entropy(hidden, weight, targets, chunk=4)
    assert loss.dtype == torch.float32
    grads = torch.autograd.grad(loss, (hidden, weight))
    eps = torch.finfo(dtype).eps
    assert abs(loss.item() - truth.item()) < 4 * eps * truth.item()
    for found, expected in zip(grads, truths, strict=True):
        assert found.dtype == hidden.dtype
        assert (found.double() - expected).abs().max() < 4 * eps * expected.abs().max()


def test_the_sum_of_exponentials_is_taken_in_single_precision():
    # 4,096 equal logits: a sum in bf16 stops at 256, and the loss would be log(256).
    hidden, weight = torch.ones(1, 1, dtype=torch.bfloat16), torch.ones(4096, 1, dtype=torch.bfloat16)
    loss = chunked_cross_entropy(hidden, weight, torch.tensor([5]))
    assert abs(loss.item() - 8.317766) < 1e-4  # log(4096)


def test_a_gradient_too_small_for_fp16_survives_under_a_loss_scale():
    # 4,096 words of equal probability, 2**-12, and 8,192 tokens of equal share, 2**-13: their product, the gradient of
    # a logit, is 2**-25, and the smallest number of fp16 is 2**-24.
    tokens, vocab = 8192, 4096
    hidden = torch.ones(tokens, 1, dtype=torch.float16, requires_grad=True)
    weight = torch.ones(vocab, 1, dtype=torch.float16, requires_grad=True)
    bias = torch.zeros(vocab, dtype=torch.float16, requires_grad=True)
    targets = torch.zeros(tokens, dtype=torch.long)
    (chunked_cross_entropy(hidden, weight, targets, bias=bias) * 2.0**10).backward()
    assert bias.grad is not None and weight.grad is not None
    torch.testing.assert_close(bias.grad[1:], torch.full((vocab - 1,), 0.25, dtype=torch.float16))
    torch.testing.assert_close(weight.grad[1:], torch.full((vocab - 1, 1), 0.25, dtype=torch.float16))


def test_large_logits_neither_overflow_nor_lose_a_small_loss():
    weight = torch.tensor([[1e4], [1e4 - 20.0], [-1e4]])
    loss = chunked_cross_entropy(torch.ones(2, 1), weight, torch.tensor([0, 2]), reduction="none")
    torch.testing.assert_close(loss, torch.tensor([0.0, 2e4]), atol=1e-6, rtol=1e-6)


def test_a_word_banned_by_its_bias_has_no_probability_and_no_gradient():
    hidden, weight, bias, targets = case()
    banned = bias.detach().clone()
    banned[VOCAB - 1] = -torch.inf
    allowed = targets.clamp(max=VOCAB - 2)
    loss = chunked_cross_entropy(hidden, weight, allowed, bias=banned)
    expected = eager(hidden, weight[: VOCAB - 1], allowed, banned[: VOCAB - 1], "mean")
    torch.testing.assert_close(loss, expected)
    assert torch.autograd.grad(loss, weight)[0][VOCAB - 1].abs().max() == 0


def test_nan_in_a_token_reaches_the_loss_and_in_an_ignored_one_does_not():
    hidden, weight, _, targets = case()
    spoilt = hidden.detach().clone()
    spoilt[0, 3] = torch.nan  # has no target
    assert chunked_cross_entropy(spoilt, weight, targets).isfinite()
    spoilt[0, 4] = torch.nan
    assert chunked_cross_entropy(spoilt, weight, targets).isnan()


def test_targets_that_are_all_ignored_sum_to_nothing():
    hidden, weight, _, targets = case()
    loss = chunked_cross_entropy(hidden, weight, torch.full_like(targets, -100), reduction="sum")
    loss.backward()
    assert loss.item() == 0 and weight.grad is not None and weight.grad.abs().max() == 0


def test_gradients_cannot_be_differentiated_again():
    hidden, weight, _, targets = case()
    loss = chunked_cross_entropy(hidden, weight, targets)
    with pytest.raises(RuntimeError, match=r"differentiated again.*create_graph=True.*F\.cross_entropy"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_inputs_are_left_as_they_were():
    hidden, weight, bias, targets = case()
    before: list[Any] = [t.detach().clone() for t in (hidden, weight, bias, targets)]
    chunked_cross_entropy(hidden, weight, targets, bias=bias).backward()
    assert all(torch.equal(a, b) for a, b in zip((hidden, weight, bias, targets), before, strict=True))
