"""Values and gradients of gated feed-forwards: by hand, and against transformers' and xFormers'."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.swiglu import (
    GLU,
    Activation,
    GatedFeedForward,
    GeGLU,
    SwiGLU,
    matched_hidden_features,
)
from course_lib.tiny_gpt import TinyGPT, fit, sample

from .cases import GATES, assert_close, gradients, one_token, randn, randomised, twins

SIZES = st.integers(1, 7)
TOKENS = st.lists(st.integers(0, 3), max_size=3)
PRECISIONS = [(torch.float64, 1e-10), (torch.float32, 1e-5)]


@given(st.sampled_from(GATES), TOKENS, SIZES, SIZES, SIZES, st.booleans(), st.booleans())
def test_output_and_gradients_are_those_of_tokens_computed_one_by_one(
    gate: type[GatedFeedForward],
    tokens: list[int],
    in_features: int,
    hidden: int,
    out_features: int,
    bias: bool,
    recompute: bool,
) -> None:
    layer = randomised(gate(in_features, hidden, out_features, bias, recompute=recompute))
    x = randn(*tokens, in_features).requires_grad_()
    out = layer(x)
    assert out.shape == (*tokens, out_features)
    rows = [one_token(layer, token) for token in x.reshape(-1, in_features)]
    expected = torch.stack(rows).reshape(out.shape) if rows else torch.zeros_like(out)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    weight = randn(*out.shape, seed=3)
    leaves = [x, *layer.parameters()]
    found = torch.autograd.grad((out * weight).sum(), leaves)
    wanted = torch.autograd.grad((expected * weight).sum() + 0 * sum(p.sum() for p in leaves), leaves)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_equals_transformers_llama_mlp_with_its_state_dict(
    dtype: torch.dtype, tolerance: float, bias: bool, recompute: bool
) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, mlp_bias=bias)
    theirs = randomised(LlamaMLP(config), dtype=dtype)
    ours = SwiGLU(64, 128, bias=bias, recompute=recompute).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x = randn(2, 9, 64, dtype=dtype).requires_grad_()
    assert_close([ours(x)], [theirs(x)], tolerance)
    by_name = dict(zip(("x", *dict(theirs.named_parameters())), gradients(theirs, x), strict=True))
    expected = [by_name["x"]]
    for kind in ("weight", "bias") if bias else ("weight",):
        expected.append(torch.cat((by_name[f"gate_proj.{kind}"], by_name[f"up_proj.{kind}"])))
    for kind in ("weight", "bias") if bias else ("weight",):
        expected.append(by_name[f"down_proj.{kind}"])
    assert_close(gradients(ours, x), expected, tolerance)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_equals_xformers_swiglu_with_state_dicts_loaded_both_ways(
    dtype: torch.dtype, tolerance: float, bias: bool, recompute: bool
) -> None:
    xops = pytest.importorskip("xformers.ops")
    theirs = randomised(xops.SwiGLU(24, 40, 16, bias), dtype=dtype)
    ours = SwiGLU(24, 40, 16, bias, recompute=recompute).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x = randn(3, 5, 24, dtype=dtype).requires_grad_()
    assert_close([ours(x)], [theirs(x)], tolerance)
    assert_close(gradients(ours, x), gradients(theirs, x), tolerance)

    randomised(ours, seed=1, dtype=dtype)
    theirs.load_state_dict(ours.state_dict())
    assert_close([ours(x)], [theirs(x)], tolerance)


@pytest.mark.parametrize("bias", [False, True])
def test_xformers_weights_that_are_not_packed_are_joined_when_loaded(bias: bool) -> None:
    xops = pytest.importorskip("xformers.ops")
    theirs = randomised(xops.SwiGLU(6, 10, bias=bias, _pack_weights=False))
    ours = SwiGLU(6, 10, bias=bias).double()
    ours.load_state_dict(theirs.state_dict())
    assert_close([ours(randn(4, 6))], [theirs(randn(4, 6))], 1e-12)


def test_halves_are_joined_inside_a_model_too_and_nothing_is_missing_or_left_over() -> None:
    apart = {f"1.{name}.weight": randn(10, 6, seed=i) for i, name in enumerate(("gate_proj", "up_proj"))}
    apart["1.down_proj.weight"] = randn(6, 10, seed=2)
    given = dict(apart)
    model = nn.Sequential(nn.Identity(), SwiGLU(6, 10, bias=False).double())
    result = model.load_state_dict(apart)
    assert not result.missing_keys and not result.unexpected_keys
    assert apart.keys() == given.keys()
    torch.testing.assert_close(model[1].w12.weight[10:].detach(), given["1.up_proj.weight"])


def test_glu_is_pytorchs_glu_with_the_halves_exchanged() -> None:
    layer = randomised(GLU(5, 4))
    x = randn(3, 5)
    gate, up = layer.w12(x).chunk(2, -1)
    torch.testing.assert_close(layer(x), layer.w3(nn.functional.glu(torch.cat((up, gate), -1))))


def test_geglu_takes_the_gelu_itself_and_not_its_tanh_approximation() -> None:
    layer = randomised(GeGLU(5, 4))
    x = randn(3, 5)
    gate, up = layer.w12(x).chunk(2, -1)
    approximate = layer.w3(nn.functional.gelu(gate, approximate="tanh") * up)
    assert 1e-6 < (layer(x) - approximate).abs().max() < 1e-2


@pytest.mark.parametrize("recompute", [False, True])
def test_a_gate_of_ones_own_needs_a_function_and_its_derivative(recompute: bool) -> None:
    class TanhGate(GatedFeedForward):
        activation = Activation("tanh", torch.tanh, lambda grad, gate: grad * (1 - gate.tanh() ** 2))

    layer = randomised(TanhGate(4, 6, recompute=recompute))
    x = randn(3, 4).requires_grad_()
    gate, up = layer.w12(x).chunk(2, -1)
    expected = layer.w3(gate.tanh() * up)
    torch.testing.assert_close(layer(x), expected)
    weight = randn(*expected.shape, seed=9)
    assert_close(
        gradients(layer, x), list(torch.autograd.grad(expected, [x, *layer.parameters()], weight)), 1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_forwards_agree_to_the_bit_and_gradients_to_its_rounding(dtype: torch.dtype) -> None:
    eager, lean = twins(randomised(SwiGLU(32, 48), dtype=dtype))
    x = randn(40, 32, dtype=dtype).requires_grad_()
    assert torch.equal(eager(x), lean(x))
    assert_close(gradients(lean, x), gradients(eager, x), 4 * torch.finfo(dtype).eps)


def test_matched_hidden_features_gives_a_gated_layer_the_parameters_of_a_plain_one() -> None:
    assert matched_hidden_features(512) == 1368
    assert matched_hidden_features(192) == 512
    for dim in (96, 192, 384, 768):
        gated = SwiGLU(dim, matched_hidden_features(dim), bias=False)
        assert sum(p.numel() for p in gated.parameters()) == 2 * dim * 4 * dim


def test_matched_hidden_features_of_the_smallest_expansion_is_one_multiple() -> None:
    assert matched_hidden_features(4, expansion=1e-9) == 8


def test_matched_hidden_features_are_those_of_llama() -> None:
    assert matched_hidden_features(4096, multiple_of=256) == 11008
    assert matched_hidden_features(8192, expansion=5.2, multiple_of=4096) == 28672


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 12))
def test_matched_hidden_features_is_the_first_multiple_that_is_no_smaller(
    dim: int, multiple_of: int, thirds: int
) -> None:
    hidden = matched_hidden_features(dim, expansion=thirds / 3, multiple_of=multiple_of)
    assert hidden % multiple_of == 0
    assert 9 * hidden >= 2 * thirds * dim > 9 * (hidden - multiple_of)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_tiny_model_trains_and_writes_with_it(recompute: bool) -> None:
    model = TinyGPT(
        dim=24,
        num_layers=2,
        num_heads=2,
        feed_forward=lambda dim: SwiGLU(dim, matched_hidden_features(dim), bias=False, recompute=recompute),
    )
    before = [p.detach().clone() for p in model.parameters()]
    fit(model, ["The river is wide and the boat is small."] * 8, steps=2, progress=False)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert sample(model, "The", max_new_tokens=2).startswith("The")


def test_its_printed_form_says_what_it_is() -> None:
    printed = repr(SwiGLU(4, 6, recompute=True))
    for needle in ("SwiGLU", "silu", "recompute=True", "in_features=4", "out_features=12"):
        assert needle in printed
