"""Products of few rows: exact, for a while, and nothing else changes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from course_lib.models.few_rows import MOST_ROWS, STEPS_TO_REPAY, few_rows


def layers(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    generator = torch.Generator().manual_seed(3)
    made = nn.Sequential(nn.Linear(40, 72), nn.ReLU(), nn.Linear(72, 33, bias=False))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made.to(dtype)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("shape", [(1, 40), (1, 1, 40), (8, 1, 40), (2, 3, 40), (MOST_ROWS, 40), (40,)])
@pytest.mark.parametrize("steps", [1, STEPS_TO_REPAY])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_few_rows_are_as_exact_as_ever(
    shape: tuple[int, ...], steps: int, dtype: torch.dtype, tolerance: float
) -> None:
    model, x = layers(dtype), drawn(*shape).to(dtype)
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(x.double())
        with few_rows(model, 8, steps=steps):
            found = model(x)
    assert found.dtype == dtype and found.shape == expected.shape
    assert float((found - expected).abs().max() / expected.abs().max()) < tolerance


def test_afterwards_the_layers_are_as_they_were_and_parameters_never_change() -> None:
    model = layers(torch.bfloat16)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad(), pytest.raises(KeyError), few_rows(model, 1, steps=STEPS_TO_REPAY):
        state = model.state_dict()
        assert list(state) == list(before) and all(torch.equal(state[name], before[name]) for name in before)
        raise KeyError
    assert all("forward" not in vars(layer) for layer in model)


@pytest.mark.parametrize("rows", [MOST_ROWS + 1, 0])
def test_many_rows_and_none_are_multiplied_as_ever(rows: int) -> None:
    model, x = layers(), drawn(rows, 40)
    with torch.no_grad(), few_rows(model, 1, steps=1):
        found = model(x)
    assert torch.equal(found, model(x))


def test_gradients_flow_inside_as_outside() -> None:
    model, x = layers(), drawn(2, 40)
    with torch.no_grad(), few_rows(model, 2, steps=1), torch.enable_grad():
        inside = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    outside = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))


def test_with_gradients_on_nothing_is_changed() -> None:
    model = layers()
    with few_rows(model, 2, steps=1):
        assert all("forward" not in vars(layer) for layer in model)


def test_hooks_run_and_other_peoples_forward_stays() -> None:
    model, seen = layers(), []
    model[0].register_forward_hook(lambda *_: seen.append("hook"))
    own = model[2].forward = lambda x: x.sum(-1)  # type: ignore[method-assign]
    with torch.no_grad(), few_rows(model, 1, steps=1):
        model(drawn(1, 40))
        assert model[2].forward is own
    assert seen == ["hook"] and model[2].forward is own


def test_a_wrong_width_is_refused_as_ever() -> None:
    model = layers()
    with torch.no_grad(), few_rows(model, 1, steps=1), pytest.raises(RuntimeError, match="shapes cannot be"):
        model(drawn(1, 20))
