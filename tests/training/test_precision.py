"""The precision follows what was measured, and a scaled step is the step of fp32."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib.training import (
    Capability,
    Precision,
    choose_precision,
    measured_capability,
    optimization_step,
)

NO_BF16 = {"bf16": "its compute capability is 7.5, and bf16 needs 8.0 (it would be emulated)"}
T4 = Capability("Tesla T4", NO_BF16)
A100 = Capability("A100", {})
AMX = Capability("this CPU", {}, bf16_speed=6.0)
OLD_CPU = Capability("this CPU", {}, bf16_speed=0.2)


def fp16(scale: float = 1024.0) -> Precision:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return Precision(torch.float16, scaler, "for a test.", torch.device("cpu"))


def fp32() -> Precision:
    return choose_precision("cpu", "fp32")


def model_and_optimizer(**options: Any) -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    nn.init.normal_(model.bias)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, **options)


def inputs(seed: int = 1, rows: int = 8) -> Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Linear, x: Tensor) -> Tensor:
    return model(x).square().mean()


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize(
    ("device", "capability", "dtype", "words"),
    [
        ("cuda", T4, torch.float16, "Tesla T4.*7.5.*dynamic loss scaling"),
        ("cuda", A100, torch.bfloat16, "A100.*no loss scaling"),
        ("cpu", AMX, torch.bfloat16, "this CPU.*6 times the speed of fp32"),
        ("cpu", OLD_CPU, torch.float32, "this CPU.*0.2 times the speed.*1.3 is needed"),
        ("cpu", Capability("this CPU", {"bf16": "no kernel"}), torch.float32, "does not run.*no kernel"),
        ("mps", Capability("device mps", {}), torch.float32, "not measured.*ask for bf16 or fp16"),
    ],
)
def test_auto_takes_the_best_that_was_measured_and_says_why(device, capability, dtype, words):
    chosen = choose_precision(device, capability=capability)
    assert chosen.dtype == dtype and (chosen.scaler is not None) == (dtype == torch.float16)
    assert re.search(words, chosen.why)


def test_a_slow_dtype_that_is_asked_for_is_taken_and_called_slow():
    chosen = choose_precision("cpu", "bf16", capability=OLD_CPU)
    assert chosen.dtype == torch.bfloat16 and "0.2 times the speed of fp32" in chosen.why


def test_fp32_turns_an_outer_autocast_off_and_needs_none_of_its_own():
    with torch.autocast("cpu", torch.bfloat16), fp32().autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with choose_precision("meta", "fp32").autocast():
        assert torch.ones(2, device="meta").dtype == torch.float32


def test_this_machine_is_measured():
    found = measured_capability("cpu")
    assert "bf16" in found.problems or (found.bf16_speed is not None and found.bf16_speed > 0)
    chosen = choose_precision("cpu")
    with chosen.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == chosen.dtype


def test_a_scaled_step_ends_at_the_weights_of_a_plain_one():
    (plain, plain_optimizer), (scaled, scaled_optimizer) = model_and_optimizer(), model_and_optimizer()
    precision = fp16()
    for seed in range(5):
        one = optimization_step(loss_of(plain, inputs(seed)), plain_optimizer, fp32(), max_norm=0.5)
        two = optimization_step(loss_of(scaled, inputs(seed)), scaled_optimizer, precision, max_norm=0.5)
        assert one.clipped == two.clipped and not two.skipped
        assert two.norm == pytest.approx(one.norm, rel=1e-5) and two.loss == one.loss
    assert (one.loss_scale, two.loss_scale) == (1.0, 1024.0)
    torch.testing.assert_close(scaled.state_dict(), plain.state_dict())


def test_clipping_sees_the_gradient_without_its_scale():
    model, _ = model_and_optimizer()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    report = optimization_step(10 * loss_of(model, inputs()), optimizer, fp16(), max_norm=0.25)
    moved = nn.utils.parameters_to_vector(model.parameters()) - before
    assert report.clipped and report.norm > 0.25
    assert moved.norm().item() == pytest.approx(0.25, rel=1e-4)


def test_a_gradient_within_max_norm_is_not_clipped():
    model, optimizer = model_and_optimizer()
    report = optimization_step(loss_of(model, inputs()) * 1e-3, optimizer, fp16(), max_norm=1.0)
    assert not report.clipped and 0 < report.norm < 1


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_with_inf_halves_the_scale_and_changes_nothing_else(fused):
    model, optimizer = model_and_optimizer(fused=fused)
    precision = fp16(2.0**14)
    assert precision.scaler is not None
    optimization_step(loss_of(model, inputs()), optimizer, precision)
    weights = copy.deepcopy(model.state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    with precision.autocast():
        loss = (model(inputs()).float() * 30).square().mean()  # finite, but not its gradient times 16,384
    report = optimization_step(loss, optimizer, precision)
    assert report.skipped and not report.clipped and report.loss_scale == 2.0**14
    assert precision.scaler.get_scale() == 2.0**13
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)


def test_a_skipped_step_starts_the_count_to_the_next_doubling_anew():
    model, optimizer = model_and_optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    precision = Precision(torch.float16, scaler, "", torch.device("cpu"))
    scales = []
    for number in range(6):
        factor = torch.inf if number == 1 else 1.0
        loss = loss_of(model, inputs())
        loss.register_hook(lambda grad, factor=factor: grad * factor)
        scales.append(optimization_step(loss, optimizer, precision).loss_scale)
    assert scales == [8, 8, 4, 4, 4, 8]


def test_micro_batches_are_differentiated_one_at_a_time_and_sum_to_the_whole():
    (whole, one), (parts, other) = model_and_optimizer(), model_and_optimizer()
    x = inputs(rows=12)
    order: list[bool] = []

    def losses() -> Iterator[Tensor]:
        for rows in x.split([5, 4, 3]):
            order.append(parts.weight.grad is not None)
            yield loss_of(parts, rows) * len(rows) / len(x)

    expected = optimization_step(loss_of(whole, x), one, fp32())
    found = optimization_step(losses(), other, fp32())
    assert order == [False, True, True]
    assert found.loss == pytest.approx(expected.loss) and found.norm == pytest.approx(expected.norm)
    torch.testing.assert_close(parts.state_dict(), whole.state_dict())


def test_gradients_from_before_do_not_enter_the_step():
    (fresh, one), (used, other) = model_and_optimizer(), model_and_optimizer()
    loss_of(used, inputs(9)).backward()
    optimization_step(loss_of(fresh, inputs()), one, fp32())
    optimization_step(loss_of(used, inputs()), other, fp32())
    torch.testing.assert_close(used.state_dict(), fresh.state_dict())


@pytest.mark.parametrize("factor", [torch.inf, torch.nan])
def test_without_a_scaler_a_gradient_that_is_not_finite_stops_before_the_step(factor):
    model, optimizer = model_and_optimizer()
    before = copy.deepcopy(model.state_dict())
    loss = loss_of(model, inputs())
    loss.register_hook(lambda grad: grad * factor)
    with pytest.raises(FloatingPointError):
        optimization_step(loss, optimizer, fp32())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("precision", [fp32, fp16])
def test_a_loss_that_is_not_finite_stops_in_any_precision(precision):
    model, optimizer = model_and_optimizer()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(FloatingPointError):
        optimization_step(loss_of(model, inputs()) * torch.nan, optimizer, precision())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_a_gradient_that_no_scale_mends_stops_the_run():
    model, optimizer = model_and_optimizer()
    precision, skipped = fp16(1.0), 0
    with pytest.raises(FloatingPointError):
        for _ in range(100):
            loss = loss_of(model, inputs())
            loss.register_hook(lambda grad: grad * torch.inf)
            skipped += optimization_step(loss, optimizer, precision).skipped
    assert skipped == 23
