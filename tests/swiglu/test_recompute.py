"""What recomputing keeps, and that nothing else about a layer changes with it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.bench.saved import saved_bytes, saved_tensors
from course_lib.swiglu import GatedFeedForward, SwiGLU, matched_hidden_features
from course_lib.swiglu import recompute as implementation

from .cases import GATES, assert_close, gradients, randn, randomised, twins


@pytest.fixture(params=["all tokens at once", "some at once"], autouse=True)
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "some at once":
        monkeypatch.setattr(implementation, "TOKENS_AT_ONCE", 4)


def as_function(layer: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
    names = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
    return torch.func.functional_call(layer, names, x)


@pytest.mark.parametrize("gate", GATES)
def test_first_and_second_derivatives_are_those_of_finite_differences(gate: type[GatedFeedForward]) -> None:
    layer = randomised(gate(3, 4, 2, recompute=True))
    inputs = (randn(2, 3, 3, seed=4).requires_grad_(), *layer.parameters())
    assert torch.autograd.gradcheck(lambda *t: as_function(layer, *t), inputs)
    assert torch.autograd.gradgradcheck(lambda *t: as_function(layer, *t), inputs)


def test_second_derivatives_of_a_layer_used_twice_are_eager_ones() -> None:
    """Its second input depends on its weights, which must not count twice."""

    def penalty(layer: nn.Module) -> list[Tensor]:
        x = randn(5, 4, seed=1).requires_grad_()
        out = layer(layer(x)).sin().sum()
        first = torch.autograd.grad(out, [x, *layer.parameters()], create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), [x, *layer.parameters()])
        return [*first, *second]

    eager, lean = twins(randomised(SwiGLU(4, 6)))
    assert_close(penalty(lean), penalty(eager), 1e-12)


def test_second_derivatives_where_the_input_makes_the_weights_are_eager_ones() -> None:
    def penalty(layer: nn.Module) -> list[Tensor]:
        x = randn(5, 4, seed=1).requires_grad_()
        out = as_function(layer, x, *(p.detach() * x.mean() for p in layer.parameters()))
        (first,) = torch.autograd.grad(out.sin().sum(), x, create_graph=True)
        return [first, *torch.autograd.grad(first.square().sum(), x)]

    eager, lean = twins(randomised(SwiGLU(4, 6)))
    assert_close(penalty(lean), penalty(eager), 1e-12)


@pytest.mark.parametrize("frozen", [("w12",), ("w3",), ("bias",), ("weight",), ("w12.bias", "w3"), ("w",)])
@pytest.mark.parametrize("input_learns", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(
    frozen: tuple[str, ...], input_learns: bool, create_graph: bool
) -> None:
    eager, lean = twins(randomised(SwiGLU(4, 6, 3)))
    for layer in (eager, lean):
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(not any(part in name for part in frozen))
    outs, found = [], []
    for layer in (eager, lean):
        x = randn(9, 4).requires_grad_(input_learns)
        out = layer(x)
        outs.append(out)
        if not out.requires_grad:
            assert frozen == ("w",) and not input_learns
            continue
        leaves = [t for t in (x, *layer.parameters()) if t.requires_grad]
        found.append(torch.autograd.grad(out, leaves, randn(*out.shape, seed=2), create_graph=create_graph))
    torch.testing.assert_close(*outs)
    if found:
        assert_close(list(found[1]), list(found[0]), 1e-12)


def test_it_keeps_its_input_and_nothing_else() -> None:
    layer = SwiGLU(16, 24, recompute=True)
    x = torch.randn(3, 5, 16)
    (saved,) = saved_tensors(lambda: layer(x))
    assert (saved.shape, saved.bytes) == ((3, 5, 16), 4 * x.numel())


def test_it_keeps_a_twelfth_of_eager_bytes_at_width_512() -> None:
    eager, lean = twins(SwiGLU(512, matched_hidden_features(512)))
    x = torch.randn(64, 512)
    assert saved_bytes(lambda: eager(x)) == 4 * 64 * (512 + 4 * 1368)
    assert saved_bytes(lambda: lean(x)) == 4 * 64 * 512


def test_under_autocast_too_it_keeps_its_input_as_it_came() -> None:
    layer = SwiGLU(16, 24, recompute=True)
    x = torch.randn(5, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (saved,) = saved_tensors(lambda: layer(x))
    assert (saved.shape, saved.dtype) == ((5, 16), torch.float32)


def test_without_gradients_nothing_is_kept() -> None:
    layer = SwiGLU(16, 24, recompute=True)
    x = torch.randn(5, 16)
    with torch.no_grad():
        assert saved_bytes(lambda: layer(x)) == 0
        assert not layer(x).requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), twins(layer)[0](x))
    layer.requires_grad_(False)
    assert saved_bytes(lambda: layer(x)) == 0


@pytest.mark.parametrize("changed", ["x", "w12.weight", "w12.bias", "w3.weight"])
def test_what_changes_in_place_before_the_backward_is_noticed(changed: str) -> None:
    layer = randomised(SwiGLU(4, 6, recompute=True))
    x = randn(3, 4)
    out = layer(x).sum()
    with torch.no_grad():
        {"x": x, **dict(layer.named_parameters())}[changed].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("create_graph", [False, True])
def test_autocast_gives_eager_outputs_and_gradients_in_the_dtypes_of_the_leaves(
    dtype: torch.dtype, input_dtype: torch.dtype, create_graph: bool
) -> None:
    results = []
    for layer in twins(randomised(SwiGLU(16, 24), dtype=torch.float32)):
        x = randn(11, 16, dtype=input_dtype).requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            out = layer(x)
        assert out.dtype == dtype
        leaves = [x, *layer.parameters()]
        weight = randn(*out.shape, seed=2, dtype=dtype)
        results.append([out, *torch.autograd.grad(out, leaves, weight, create_graph=create_graph)])
    assert_close(results[1], results[0], 8 * torch.finfo(dtype).eps)
    assert torch.equal(results[1][0], results[0][0])


def test_gradients_of_half_weights_are_summed_in_single_precision() -> None:
    """Every token's share of b3's gradient is 1, and 1024 + 4 is 1024 in bfloat16."""
    layer = SwiGLU(2, 3, recompute=True).bfloat16()
    layer(torch.ones(4000, 2, dtype=torch.bfloat16)).sum().backward()
    assert layer.w3.bias.grad.tolist() == [4000.0, 4000.0]


def test_pieces_of_a_half_bias_gradient_are_rounded_once_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,991 becomes 3,984 in bfloat16; in two pieces, 2,048 and 1,943, the second would first become 1,944."""
    monkeypatch.setattr(implementation, "TOKENS_AT_ONCE", 2048)
    layer = SwiGLU(2, 3, recompute=True).bfloat16()
    layer(torch.ones(3991, 2, dtype=torch.bfloat16)).sum().backward()
    assert layer.w3.bias.grad.tolist() == [3984.0, 3984.0]


def test_an_autocast_around_the_backward_changes_nothing() -> None:
    layer = randomised(SwiGLU(6, 8, recompute=True), dtype=torch.float32)
    x = randn(5, 6, dtype=torch.float32).requires_grad_()
    expected = gradients(layer, x)
    out = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.autograd.grad(out, [x, *layer.parameters()], randn(*out.shape, seed=9).float())
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_float64_stays_float64_under_autocast() -> None:
    layer = randomised(SwiGLU(6, 8, recompute=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(randn(5, 6))
    assert torch.equal(out, layer(randn(5, 6)))


LAYOUTS = {
    "turned": lambda: randn(6, 5, 4).permute(2, 1, 0),
    "every second": lambda: randn(5, 12)[:, ::2],
    "expanded": lambda: randn(1, 6).expand(9, 6),
    "part of a larger one": lambda: randn(9, 20)[3:, 7:13],
    "one token": lambda: randn(6),
    "no batch": lambda: randn(0, 7, 6),
    "no tokens": lambda: randn(3, 0, 6),
    "many dimensions": lambda: randn(2, 1, 3, 2, 6),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("summed", [False, True])
def test_any_layout_of_input_and_output_gradient_gives_eager_gradients(layout: str, summed: bool) -> None:
    results = []
    for layer in twins(randomised(SwiGLU(6, 7, 3))):
        x = LAYOUTS[layout]().detach().requires_grad_()
        out = layer(x)
        # The gradient of a sum is one number expanded, that of a transposed product is transposed.
        loss = (
            out.sum()
            if summed
            else (out.mT @ randn(*out.shape, seed=5)).sum()
            if out.dim() > 1
            else out[::2].sum()
        )
        results.append([out, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    for got, want in zip(*reversed(results), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reentrant", [False, True])
def test_it_may_stand_inside_a_checkpoint(reentrant: bool) -> None:
    model = nn.Sequential(nn.LayerNorm(6), SwiGLU(6, 8, recompute=True), nn.Tanh())
    randomised(model)
    x = randn(9, 6).requires_grad_()
    expected = gradients(model, x)
    out = checkpoint(model, x, use_reentrant=reentrant)
    out.backward(randn(*out.shape, seed=9))  # a reentrant checkpoint knows no autograd.grad
    assert_close([t.grad for t in (x, *model.parameters())], expected, 1e-12)


def test_a_backward_can_run_twice_where_its_graph_is_kept() -> None:
    layer = randomised(SwiGLU(4, 6, recompute=True))
    x = randn(5, 4).requires_grad_()
    out = layer(x).sum()
    once = torch.autograd.grad(out, [x, *layer.parameters()], retain_graph=True)
    again = torch.autograd.grad(out, [x, *layer.parameters()])
    for got, want in zip(again, once, strict=True):
        assert torch.equal(got, want)


def test_torch_func_differentiates_through_it() -> None:
    eager, lean = twins(randomised(SwiGLU(4, 6)))
    x = randn(5, 4)
    found, expected = (
        torch.func.grad(lambda p, layer=layer: torch.func.functional_call(layer, p, x).sin().sum())(
            {name: parameter.detach() for name, parameter in layer.named_parameters()}
        )
        for layer in (lean, eager)
    )
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


@pytest.mark.compiled
@pytest.mark.parametrize("autocast", [False, True])
def test_a_compiled_layer_is_one_graph_and_gives_its_gradients(autocast: bool) -> None:
    layer = randomised(SwiGLU(6, 8, recompute=True), dtype=torch.float32)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = randn(9, 6, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found, expected = compiled(x), layer(x)
    torch.testing.assert_close(found, expected)
    weight = randn(*found.shape, seed=2).to(found.dtype)
    leaves = [x, *layer.parameters()]
    got, want = (list(torch.autograd.grad(out, leaves, weight)) for out in (found, expected))
    assert_close(got, want, 0.02 if autocast else 1e-6)


def test_recomputing_may_be_switched_on_later() -> None:
    layer = SwiGLU(4, 6)
    x = torch.randn(5, 4)
    eager = saved_bytes(lambda: layer(x))
    layer.recompute = True
    assert saved_bytes(lambda: layer(x)) < eager


def test_a_layer_on_the_meta_device_has_shapes_only() -> None:
    for layer in twins(SwiGLU(4, 6, 3).to("meta")):
        assert layer(torch.empty(2, 5, 4, device="meta")).shape == (2, 5, 3)
