"""The slopes, for any number of heads, as Press et al. published them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.alibi import ALiBi, alibi_slopes

from .oracle import published_slopes


def test_eight_heads_have_the_powers_of_one_half() -> None:
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_slopes_of_12_and_40_heads_are_those_published_in_the_published_order() -> None:
    twelve = [2.0**-i for i in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    forty = [2.0 ** (-i / 4) for i in range(1, 33)] + [2.0 ** (-(2 * i + 1) / 8) for i in range(8)]
    assert torch.equal(alibi_slopes(12), torch.tensor(twelve, dtype=torch.float32))
    assert torch.equal(alibi_slopes(40), torch.tensor(forty, dtype=torch.float32))


def test_slopes_beyond_a_power_of_two_are_appended_and_not_sorted() -> None:
    assert alibi_slopes(6).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]


def test_one_head_has_the_flattest_slope() -> None:
    assert alibi_slopes(1).tolist() == [1 / 256]


@given(st.integers(1, 400))
def test_any_number_of_heads_has_the_published_slopes(num_heads: int) -> None:
    slopes = alibi_slopes(num_heads)
    assert slopes.shape == (num_heads,) and slopes.dtype == torch.float32
    expected = torch.tensor(published_slopes(num_heads), dtype=torch.float64)
    torch.testing.assert_close(slopes.double(), expected, rtol=2.0**-23, atol=0)
    assert len(set(slopes.tolist())) == num_heads


@pytest.mark.parametrize("num_heads", [1, 3, 6, 8, 12, 16, 40, 112])
def test_the_slopes_are_those_of_bloom(num_heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), num_heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(alibi_slopes(num_heads), theirs, rtol=1e-6, atol=0)


def test_a_number_of_heads_is_a_short_word_for_their_slopes() -> None:
    by_count = ALiBi(6).materialize(3, 5, num_heads=6)
    by_slopes = ALiBi(alibi_slopes(6)).materialize(3, 5, num_heads=6)
    assert torch.equal(by_count, by_slopes)


@pytest.mark.parametrize("slopes", [[0.5, 0.25], (0.5, 0.25), torch.tensor([0.5, 0.25]).numpy()])
def test_slopes_may_come_as_a_list_or_an_array(slopes: object) -> None:
    assert ALiBi(slopes).materialize(1, 3, num_heads=2).flatten().tolist() == [-1, -0.5, 0, -0.5, -0.25, 0]


@pytest.mark.parametrize("count", [torch.tensor(4), torch.tensor([1, 2, 3, 4]).numpy().max()])
def test_a_number_of_heads_may_be_a_tensor_or_numpys(count: object) -> None:
    assert repr(ALiBi(count)) == "ALiBi(4)"


def test_no_slope_costs_more_than_its_own_number_a_token() -> None:
    assert all(0 < slope < 1 and math.isfinite(slope) for slope in alibi_slopes(129).tolist())
