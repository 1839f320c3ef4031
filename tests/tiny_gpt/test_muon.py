"""The optimiser of the tiny model's matrices."""

from __future__ import annotations

import pytest
import torch

from course_lib.tiny_gpt import TinyGPT
from course_lib.tiny_gpt.fitting import optimizers_of
from course_lib.tiny_gpt.muon import Muon, orthogonalized


def close_to_orthogonal(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, rows, generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=generator, dtype=torch.float64))
    size = min(rows, columns)
    return left[:, :size] @ right[:, :size].T


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (5, 12), (12, 5)])
def test_singular_values_come_near_one(rows: int, columns: int) -> None:
    matrices = torch.randn(3, rows, columns, dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonalized(matrices))
    assert values.max() < 1.25
    # A singular value far below the largest needs more iterations than are made.
    original = torch.linalg.svdvals(matrices)
    assert (values[original > 0.05 * original.amax(1, keepdim=True)] > 0.5).all()


def test_singular_vectors_stay() -> None:
    orthogonal = close_to_orthogonal(6, 9)
    torch.testing.assert_close(
        torch.nn.functional.normalize(orthogonalized(7.0 * orthogonal[None])[0], dim=1),
        torch.nn.functional.normalize(orthogonal, dim=1),
        rtol=0,
        atol=1e-10,
    )


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_a_step_has_the_size_of_one_of_adamw_and_goes_downhill(shape: tuple[int, int]) -> None:
    weight = torch.nn.Parameter(torch.zeros(*shape, dtype=torch.float64))
    gradient = close_to_orthogonal(*shape)
    weight.grad = gradient.clone()
    Muon([weight], lr=0.5).step()
    size = float(weight.detach().square().mean().sqrt())
    assert 0.7 * 0.1 < size < 1.25 * 0.1
    assert float((weight.detach() * gradient).sum()) < 0


def test_steps_follow_the_momentum_of_those_before() -> None:
    """Two gradients; the second step looks ahead from a mean that still remembers the first."""
    weight = torch.nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
    optimizer = Muon([weight], lr=0.5)
    first, second = (torch.randn(4, 6, dtype=torch.float64) for _ in range(2))
    weight.grad = first
    optimizer.step()
    before, weight.grad = weight.detach().clone(), second
    optimizer.step()
    momentum = 0.95 * (0.05 * first) + 0.05 * second
    direction = 0.05 * second + 0.95 * momentum
    expected = -0.5 * 0.2 * 6**0.5 * orthogonalized(direction[None])[0]
    torch.testing.assert_close(weight.detach() - before, expected, rtol=0, atol=1e-12)


def test_weight_decay_shrinks_a_weight_by_its_share_of_the_learning_rate() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 4, dtype=torch.float64))
    weight.grad = torch.zeros_like(weight)
    Muon([weight], lr=0.5, weight_decay=0.1).step()
    torch.testing.assert_close(weight.detach(), torch.full_like(weight, 0.95), rtol=0, atol=1e-12)


def test_norms_and_biases_do_not_decay_and_matrices_learn_faster() -> None:
    model = TinyGPT(30, 16, 1, 2)
    adamw, muon = optimizers_of(model, 1e-3, 0.1)
    for group in adamw.param_groups:
        assert {p.dim() > 1 for p in group["params"]} == {group["weight_decay"] == 0.1}
        assert group["lr"] == group["initial_lr"] == 1e-3
    (matrices,) = muon.param_groups
    assert matrices["lr"] == matrices["initial_lr"] == pytest.approx(3e-3)
    assert matrices["weight_decay"] == 0.1


def test_matrices_of_one_shape_do_not_mix() -> None:
    gradients = [torch.randn(4, 6, dtype=torch.float64) for _ in range(2)]
    together = [torch.nn.Parameter(torch.ones(4, 6, dtype=torch.float64)) for _ in range(2)]
    apart = [torch.nn.Parameter(torch.ones(4, 6, dtype=torch.float64)) for _ in range(2)]
    for one, other, gradient in zip(together, apart, gradients, strict=True):
        one.grad, other.grad = gradient.clone(), gradient.clone()
    Muon(together, lr=0.1, weight_decay=0.1).step()
    for one, other in zip(together, apart, strict=True):
        Muon([other], lr=0.1, weight_decay=0.1).step()
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_gradient_of_zero_and_a_missing_one_leave_the_weight() -> None:
    still, missing = (torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    still.grad = torch.zeros(3, 4)
    Muon([still, missing], lr=0.1).step()
    assert torch.equal(still, torch.ones(3, 4)) and torch.equal(missing, torch.ones(3, 4))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_every_parameter_has_exactly_one_optimizer(positions: str) -> None:
    model = TinyGPT(30, 16, 2, 2, positions=positions)
    groups = [group for optimizer in optimizers_of(model, 1e-3, 0.1) for group in optimizer.param_groups]
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    muon = optimizers_of(model, 1e-3, 0.1)[1]
    assert {id(p) for p in muon.param_groups[0]["params"]} == {
        id(p) for name, p in model.named_parameters() if name.startswith("layers") and p.dim() == 2
    }
