"""Policies: what is accepted, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.offload import OffloadPolicy

pytestmark = pytest.mark.error_messages


def test_everything_is_on_the_device_unless_said_otherwise() -> None:
    policy = OffloadPolicy()
    assert policy.weights == policy.cache == policy.activations == (1, 0, 0)
    assert (policy.block_size, policy.weight_bits, policy.overlap) == (1, None, True)


@pytest.mark.parametrize("given", [(0.2, 0.3, 0.5), [0.2, 0.3, 0.5], (0.1, 0.2, 0.7000000001), (0, 0, 1)])
def test_fractions_may_come_in_any_sequence_and_sum_to_one(given: Any) -> None:
    assert sum(OffloadPolicy(weights=given).weights) == pytest.approx(1)


@pytest.mark.parametrize("name", ["weights", "cache", "activations"])
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ((0.5, 0.2, 0.2), ValueError, "sum to 1, got .* which sum to 0.9"),
        ((20, 0, 80), ValueError, "fractions from 0 to 1, got .* Percentages are divided by 100"),
        ((-0.5, 0.5, 1), ValueError, "fractions from 0 to 1"),
        ((float("nan"), 0, 1), ValueError, "fractions from 0 to 1"),
        ((1, 0), TypeError, "three fractions"),
        ("100", TypeError, "three fractions"),
        (1, TypeError, "three fractions"),
        ((True, 0, 0), TypeError, "three numbers"),
        (("1", 0, 0), TypeError, "three numbers"),
    ],
)
def test_fractions_that_are_none_are_named(name: str, given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"{name}: expected .*{said}"):
        OffloadPolicy(**{name: given})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"num_batches": 1.5}, "num_batches: expected a whole number"),
        ({"batch_size": True}, "batch_size: expected a whole number"),
        ({"weight_bits": 3}, "weight_bits: expected None .* got 3"),
        ({"cache_bits": 16}, "cache_bits: expected None .* got 16"),
        ({"overlap": 1}, "overlap: expected True or False, got 1"),
    ],
)
def test_other_settings_that_are_none_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        OffloadPolicy(**settings)
