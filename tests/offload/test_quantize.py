"""Four bits a number: held against the definition in float64, number by number."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.offload.quantize import QuantizedTensor, dequantize, quantize

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def counts_of(quantized: QuantizedTensor) -> torch.Tensor:
    """The counts [*others, groups, group_size], one by one out of their bytes."""
    size, groups = quantized.group_size, quantized.step.shape[-1]
    data = quantized.data.view(*quantized.step.shape, size * quantized.bits // 8)
    counts = torch.zeros(*data.shape[:-1], size, dtype=torch.int64)
    for number in range(size):
        if quantized.bits == 8:
            byte = data[..., number].long()
            counts[..., number] = torch.where(byte > 127, byte - 256, byte) if quantized.symmetric else byte
        else:
            byte = data[..., number % (size // 2)].long()
            counts[..., number] = byte % 16 if number < size // 2 else byte // 16
            if quantized.symmetric:
                counts[..., number] -= 8
    assert counts.shape[-2] == groups
    return counts


def defined(quantized: QuantizedTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(numbers, step of each) in float64, where ``minimum + step * count`` is exact."""
    counts = counts_of(quantized).double()
    step = quantized.step.double().unsqueeze(-1)
    lowest = 0 if quantized.minimum is None else quantized.minimum.double().unsqueeze(-1)
    length = quantized.shape[quantized.axis]
    numbers = (lowest + step * counts).flatten(-2)[..., :length].movedim(-1, quantized.axis)
    return numbers, step.expand_as(counts).flatten(-2)[..., :length].movedim(-1, quantized.axis)


def check(tensor: torch.Tensor, **how) -> QuantizedTensor:
    quantized = quantize(tensor, **how)
    numbers, step = defined(quantized)
    off = (numbers - tensor.double()).abs()
    # Half a step, but for what is lost where a float32 number less a minimum is rounded to float32.
    assert bool((off <= step * (0.5 + 2**-15)).all()), (off / step).max()
    for dtype in (None, *DTYPES):
        wanted = numbers.float().to(dtype or tensor.dtype)
        assert dequantize(quantized, dtype).equal(wanted)
        assert dequantize(quantized, dtype).dtype == wanted.dtype
    return quantized


shapes = st.lists(st.integers(1, 9), min_size=0, max_size=2)
sizes = st.one_of(st.none(), st.integers(1, 40).map(lambda n: 2 * n))


@st.composite
def tensors(draw) -> tuple[torch.Tensor, int]:
    """A tensor, and one of its axes; rows of very different magnitude, and some numbers that agree."""
    others, length = draw(shapes), draw(st.integers(1, 150))
    axis = draw(st.integers(-len(others) - 1, len(others)))
    shape = list(others)
    shape.insert(axis % (len(others) + 1), length)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    tensor = torch.randn(shape, generator=generator, dtype=torch.float64) + draw(st.sampled_from([0, 3, -40]))
    tensor *= 10 ** draw(st.floats(-9, 2))
    if draw(st.booleans()):
        tensor = torch.where(torch.rand(shape, generator=generator) < 0.5, 0.3, tensor)
    return tensor.to(draw(st.sampled_from(DTYPES))), axis


@given(tensors(), st.sampled_from([4, 8]), sizes, st.booleans())
def test_what_comes_back_is_the_definition_and_off_by_half_a_stored_step_at_most(
    drawn, bits, size, symmetric
):
    tensor, axis = drawn
    check(tensor, bits=bits, group_size=size, axis=axis, symmetric=symmetric)


numbers = st.floats(-65504, 65504, width=32)


@given(st.lists(numbers, min_size=1, max_size=20), st.sampled_from([4, 8]), st.booleans())
def test_the_bound_holds_for_whatever_float16_can_reach(found, bits, symmetric):
    check(torch.tensor(found), bits=bits, group_size=8, symmetric=symmetric)


@given(st.lists(numbers, min_size=1, max_size=20), st.booleans())
def test_steps_and_minima_are_the_nearest_float16_that_leave_no_number_outside(found, symmetric):
    tensor = torch.tensor(found, dtype=torch.float64)
    quantized = quantize(tensor, bits=4, group_size=None, symmetric=symmetric)
    step = quantized.step.item()
    exact = [Fraction(number) for number in tensor.tolist()]
    if symmetric:
        needed = max(map(abs, exact)) / 7
    else:
        assert quantized.minimum is not None
        minimum = Fraction(quantized.minimum.item())
        assert minimum <= min(exact) < Fraction(next_half(quantized.minimum.item()))
        needed = (max(exact) - minimum) / 15
    slack = Fraction(1, 2**40)  # float64 divides by 7 and by 15 to 53 bits
    assert needed * (1 - slack) <= Fraction(step)
    assert step == 0 or Fraction(next_half(step, up=False)) < needed * (1 + slack)


def next_half(number: float, *, up: bool = True) -> float:
    found = float(np.nextafter(np.float16(number), np.float16(math.inf if up else -math.inf)))
    return found if math.isfinite(found) else 2.0**16


@pytest.mark.parametrize(
    ("bits", "symmetric", "size", "wanted"),
    [(4, False, 64, 4.5), (4, True, 64, 4.25), (4, False, 32, 5), (8, False, 64, 8.5), (8, True, 128, 8.125)],
)
def test_the_bits_of_a_number_are_its_own_and_its_share_of_the_groups(bits, symmetric, size, wanted):
    quantized = quantize(random(6, 256), bits=bits, group_size=size, symmetric=symmetric)
    assert quantized.bits_per_value == wanted
    assert quantized.nbytes == 6 * 256 * wanted / 8 == sum(t.nbytes for t in quantized.tensors().values())
    assert quantized.padding == 0


def test_a_group_that_does_not_fill_up_costs_as_much_as_one_that_does():
    quantized = check(random(3, 70), bits=4, group_size=64)
    assert quantized.padding == 58
    assert quantized.nbytes == 3 * 2 * (32 + 4)
    assert quantized.bits_per_value == 8 * quantized.nbytes / 210


def test_padding_does_not_widen_a_groups_step():
    tensor = torch.linspace(5, 6, 70)[None]
    quantized = quantize(tensor, bits=4)
    assert quantized.step[0, 1].item() == pytest.approx((6 - 5 - 64 / 69) / 15, rel=0.1)


def test_the_smallest_and_largest_number_of_a_group_are_15_steps_apart():
    quantized = quantize(torch.linspace(-1, 2, 64), bits=4)
    assert (counts_of(quantized).min(), counts_of(quantized).max()) == (0, 15)
    assert quantized.step.item() == pytest.approx(3 / 15, rel=2**-10)


@pytest.mark.parametrize(("bits", "most"), [(4, 7), (8, 127)])
def test_symmetric_counts_run_as_far_down_as_up_and_keep_0(bits, most):
    tensor = torch.cat([torch.linspace(-3, 3, 63), torch.zeros(1)])
    quantized = check(tensor, bits=bits, symmetric=True)
    assert (counts_of(quantized).min(), counts_of(quantized).max()) == (-most, most)
    assert dequantize(quantized)[-1] == 0


@pytest.mark.parametrize("value", [0.0, 1.5, -2.0, 0.1, 1e-9, -1e-9, 65504.0, -65504.0])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_group_of_equal_numbers_is_no_division_by_0(value, symmetric, bits):
    tensor = torch.full((2, 64), value)
    quantized = check(tensor, bits=bits, symmetric=symmetric)
    if value in (0.0, 1.5, -2.0) and not symmetric:
        assert dequantize(quantized).equal(tensor)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_an_outlier_spoils_its_own_group_only(bits, symmetric):
    plain = random(1, 256)
    spoilt = plain.clone()
    spoilt[0, 70] = 100
    one, other = (dequantize(quantize(t, bits=bits, symmetric=symmetric)) for t in (plain, spoilt))
    assert one[0, :64].equal(other[0, :64]) and one[0, 128:].equal(other[0, 128:])
    assert not one[0, 64:128].equal(other[0, 64:128])


def test_a_large_tensor_is_worked_on_in_parts_that_fit_together():
    tensor = random(1100, 650)
    quantized = check(tensor, bits=4)
    again = [quantize(row, bits=4) for row in tensor]
    assert quantized.data.equal(torch.stack([q.data for q in again]))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_are_unpacked_into_a_tensor_that_is_there(axis, dtype):
    tensor = random(4, 6, 10)
    quantized = quantize(tensor, bits=4, group_size=4, axis=axis)
    room = torch.full((4, 10, 7), math.nan, dtype=dtype).transpose(1, 2)
    out = room[:, :6]
    assert dequantize(quantized, out=out) is out
    assert out.equal(dequantize(quantized, dtype))
    assert bool(room[:, 6:].isnan().all())


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0), (2, 0, 3)])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_tensor_without_numbers_has_no_groups(shape, bits):
    for size in (None, 8):
        quantized = quantize(torch.zeros(shape), bits=bits, group_size=size)
        assert dequantize(quantized).shape == shape
        assert quantized.bits_per_value == 0


@pytest.mark.parametrize("symmetric", [False, True])
def test_rows_are_parts_without_a_copy(symmetric):
    tensor = random(10, 100)
    quantized = quantize(tensor, bits=4, symmetric=symmetric)
    part = quantized.rows(3, 7)
    assert dequantize(part).equal(dequantize(quantized)[3:7])
    assert part.data.data_ptr() == quantized.data[3].data_ptr()
    with pytest.raises(ValueError, match=r"axis: expected groups along another dimension .* got axis 0"):
        quantize(tensor, bits=4, axis=0).rows(0, 2)


def test_the_tensor_stays_as_it_was_and_gets_no_gradient():
    tensor = random(4, 64).requires_grad_()
    before = tensor.detach().clone()
    quantized = quantize(tensor, bits=4)
    assert tensor.equal(before) and not dequantize(quantized).requires_grad
    assert "4 bits in groups of 64 along axis 1: 4.5 bits" in repr(quantized)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, r"tensor: expected finite numbers, got nan\. .* own dtype"),
        (math.inf, r"tensor: expected finite numbers, got inf\."),
        (-math.inf, r"tensor: expected finite numbers, got -inf\."),
        (-65536.0, r"tensor: expected numbers between -65504 and 65504, .* got -65536\. Divide"),
    ],
)
def test_what_has_no_step_is_refused(value, message, symmetric):
    tensor = random(3, 64)
    tensor[1, 5] = value
    with pytest.raises(ValueError, match=message):
        quantize(tensor, bits=4, symmetric=symmetric)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (ValueError, {"bits": 3}, r"bits: expected 4 or 8, got 3"),
        (TypeError, {"bits": "4"}, r"bits: expected a whole number"),
        (ValueError, {"bits": 4, "group_size": 0}, r"group_size: expected .* got 0"),
        (ValueError, {"bits": 4, "group_size": 7}, r"group_size: expected an even number .* got 7"),
        (
            ValueError,
            {"bits": 4, "axis": 2},
            r"axis: expected one of the tensor's 2 dimensions, -2 to 1, got 2",
        ),
        (TypeError, {"bits": 4, "axis": 0.5}, r"axis: expected a whole number, got float 0.5"),
        (TypeError, {"bits": 4, "tensor": torch.ones(2, 2, dtype=torch.int64)}, r"tensor: .* got int64"),
        (ValueError, {"bits": 4, "tensor": torch.tensor(1.0)}, r"tensor: expected at least one dimension"),
    ],
)
@pytest.mark.error_messages
def test_arguments_that_do_not_fit_are_named(kind, arguments, message):
    with pytest.raises(kind, match=message):
        quantize(**{"tensor": random(2, 2), **arguments})


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (
            TypeError,
            {"dtype": torch.int8},
            r"dtype: expected a floating-point torch.dtype or None, got torch.int8",
        ),
        (TypeError, {"out": torch.zeros(2, 64, dtype=torch.int32)}, r"out: expected .* got int32"),
        (
            ValueError,
            {"out": torch.zeros(64, 2)},
            r"out: expected \[2, 64\] float32 on cpu, got \[64, 2\] float32",
        ),
        (
            ValueError,
            {"out": torch.zeros(2, 64), "dtype": torch.bfloat16},
            r"out: expected \[2, 64\] bfloat16 on cpu, got \[2, 64\] float32 on cpu",
        ),
    ],
)
@pytest.mark.error_messages
def test_a_place_that_does_not_fit_is_named(kind, arguments, message):
    with pytest.raises(kind, match=message):
        dequantize(quantize(random(2, 64), bits=4), **arguments)
