"""Products of few rows: exact, for a while, and nothing else changes."""

from __future__ import annotations

import copy
import platform
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from course_lib.models import few_rows as module
from course_lib.models import generate
from course_lib.models.few_rows import MOST_ROWS, STEPS_TO_REPAY, few_rows

from .made import small, token_ids

x86_with_onednn = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
    reason="elsewhere the layers compute as ever",
)
bf16_in_hardware = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason="without bfloat16 in hardware the layers compute as ever",
)


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


def test_another_dtype_is_refused_as_ever() -> None:
    model = layers()
    with torch.no_grad(), few_rows(model, 1, steps=1), pytest.raises(RuntimeError, match="same dtype"):
        model(drawn(1, 40).double())


def changed(model: nn.Sequential) -> list[bool]:
    """For each linear layer, whether it multiplies in another way."""
    return ["forward" in vars(layer) for layer in model if isinstance(layer, nn.Linear)]


def operators(run: Callable[[], object]) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return {event.key for event in profile.key_averages()}


@x86_with_onednn
def test_few_rows_go_through_onednn_and_more_do_not() -> None:
    model = layers()
    with torch.no_grad(), few_rows(model, 1, steps=1):
        few = operators(lambda: model(drawn(MOST_ROWS, 40)))
        many = operators(lambda: model(drawn(MOST_ROWS + 1, 40)))
    assert "mkldnn::_linear_pointwise" in few and "aten::linear" not in few
    assert "mkldnn::_linear_pointwise" not in many and "aten::linear" in many


@x86_with_onednn
def test_more_rows_than_pay_leave_the_model_alone() -> None:
    model = layers()
    with torch.no_grad(), few_rows(model, MOST_ROWS, steps=1):
        assert changed(model) == [True, True]
    with torch.no_grad(), few_rows(model, MOST_ROWS + 1, steps=1):
        assert changed(model) == [False, False]


@bf16_in_hardware
@x86_with_onednn
def test_bfloat16_gets_its_copy_when_it_repays_itself_and_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = layers(torch.bfloat16)
    found = []
    first = next(model.parameters()).nbytes
    for steps, room in (
        (STEPS_TO_REPAY - 1, 2**30),
        (STEPS_TO_REPAY, 2**30),
        (STEPS_TO_REPAY, first),
        (STEPS_TO_REPAY, first - 1),
    ):
        monkeypatch.setattr(module, "ORDERED_BYTES", room)
        with torch.no_grad(), few_rows(model, 1, steps=steps):
            found.append(changed(model))
    # The second weight is the smaller one, for which there may still be room.
    assert found == [[False, False], [True, True], [True, False], [False, True]]


@x86_with_onednn
def test_float32_needs_no_copy_and_so_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ORDERED_BYTES", 0)
    model = layers()
    with torch.no_grad(), few_rows(model, 1, steps=1):
        assert changed(model) == [True, True]


def _on_arm(monkeypatch: pytest.MonkeyPatch, model: nn.Sequential) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")


def _built_without_onednn(monkeypatch: pytest.MonkeyPatch, model: nn.Sequential) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)


def _turned(monkeypatch: pytest.MonkeyPatch, model: nn.Sequential) -> None:
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)


def _in_float64(monkeypatch: pytest.MonkeyPatch, model: nn.Sequential) -> None:
    model.double()


@pytest.mark.parametrize("way", [_on_arm, _built_without_onednn, _turned, _in_float64])
def test_where_onednn_is_not_known_to_be_faster_the_layers_compute_as_ever(
    way: Callable[[pytest.MonkeyPatch, nn.Sequential], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = layers()
    way(monkeypatch, model)
    x = drawn(1, 40).to(next(model.parameters()).dtype)
    with torch.no_grad(), few_rows(model, 1, steps=STEPS_TO_REPAY):
        assert changed(model) == [False, False]
        found = model(x)
    assert torch.equal(found, model(x))


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_with_onednn_turned_off_the_layers_compute_as_ever() -> None:
    model, x = layers(), drawn(1, 40)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), few_rows(model, 1, steps=1):
        assert changed(model) == [False, False]
        assert torch.equal(model(x), layers()(x))


def test_under_autocast_the_result_is_autocasts() -> None:
    model, x = layers(), drawn(1, 40)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = model(x)
        with few_rows(model, 1, steps=1):
            found = model(x)
    assert found.dtype == expected.dtype == torch.bfloat16 and torch.equal(found, expected)


def test_a_call_inside_another_leaves_the_layers_to_the_outer_one() -> None:
    model = layers()
    with torch.no_grad(), few_rows(model, 1, steps=1):
        outer = changed(model)
        with few_rows(model, 1, steps=1):
            assert changed(model) == outer
        assert changed(model) == outer
    assert changed(model) == [False, False]


@x86_with_onednn
def test_a_short_prompt_is_read_as_fast_as_what_follows() -> None:
    model = small()
    used = operators(lambda: generate(model, token_ids(2, 5), max_new_tokens=1, stop=()))
    assert "mkldnn::_linear_pointwise" in used and "aten::linear" not in used
    assert not any("forward" in vars(layer) for layer in model.modules())
