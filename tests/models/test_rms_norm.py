"""RMSNorm in few passes: PyTorch's own, number for number, forward and backward."""

from __future__ import annotations

import pytest
import torch
from allocations import peak_bytes
from torch import Tensor, nn

from course_lib.models.rms_norm import RMSNorm

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2}


def pair(dim: int, dtype: torch.dtype, eps: float | None = 1e-5) -> tuple[RMSNorm, nn.RMSNorm]:
    ours, theirs = RMSNorm(dim, eps=eps).to(dtype), nn.RMSNorm(dim, eps=eps).to(dtype)
    weight = torch.randn(dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    for norm in (ours, theirs):
        nn.init.zeros_(norm.weight).data.add_(weight)
    return ours, theirs


def randn(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def results(norm: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = norm(x)
    return [
        out,
        *torch.autograd.grad(out, (x, *norm.parameters()), randn(*out.shape, dtype=out.dtype, seed=2)),
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (1, 7), (2, 3, 7), (2, 0, 7), (3000, 128)])
@pytest.mark.parametrize("eps", [1e-5, None])
def test_it_agrees_with_pytorchs(shape: tuple[int, ...], dtype: torch.dtype, eps: float | None) -> None:
    ours, theirs = pair(shape[-1], dtype, eps)
    x = randn(*shape, dtype=dtype)
    for found, expected in zip(results(ours, x), results(theirs, x), strict=True):
        assert found.dtype == expected.dtype
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_both_derivatives_are_right() -> None:
    norm, _ = pair(5, torch.float64)
    x = randn(2, 3, 5, dtype=torch.float64).requires_grad_()

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(norm, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(normed, (x, norm.weight))
    assert torch.autograd.gradgradcheck(normed, (x, norm.weight))


def test_under_autocast_the_result_is_what_a_product_would_round_it_to() -> None:
    ours, theirs = pair(64, torch.float32)
    x = randn(50, 64, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(x), theirs(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected.float(), rtol=2**-8, atol=0)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen: str) -> None:
    norm, _ = pair(8, torch.float32)
    x = randn(3, 8, dtype=torch.float32).requires_grad_(frozen != "x")
    norm.weight.requires_grad_(frozen != "weight")
    norm(x).sum().backward()
    assert (x.grad is None) == (frozen == "x")
    assert (norm.weight.grad is None) == (frozen == "weight")


def test_without_a_weight_it_is_pytorchs() -> None:
    x = randn(3, 8, dtype=torch.float32)
    ours, theirs = (norm(8, elementwise_affine=False) for norm in (RMSNorm, nn.RMSNorm))
    assert torch.equal(ours(x), theirs(x))


def test_gradients_of_each_sample_by_vmap() -> None:
    ours, theirs = pair(8, torch.float32)
    x = randn(4, 3, 8, dtype=torch.float32)
    found, expected = (
        torch.func.vmap(torch.func.grad(lambda sample, norm=norm: norm(sample).square().sum()))(x)
        for norm in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)


def test_a_row_of_zeros_and_a_nan_stay_in_their_rows() -> None:
    norm, _ = pair(8, torch.float32)
    x = randn(3, 8, dtype=torch.float32)
    x[0], x[1, 3] = 0, float("nan")
    out = norm(x)
    assert torch.equal(out[0], torch.zeros(8))
    assert out[1].isnan().all()
    assert out[2].isfinite().all()


def test_it_keeps_little_more_than_its_input_and_result() -> None:
    norm, theirs = pair(512, torch.float32)
    x = randn(4096, 512, dtype=torch.float32).requires_grad_()
    tensor = x.numel() * 4
    assert peak_bytes(lambda: norm(x).sum().backward()) <= 3 * tensor + 16 * 2**20
    assert peak_bytes(lambda: theirs(x).sum().backward()) > 4 * tensor
