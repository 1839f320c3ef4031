"""Tensors cut at rows: nothing is lost or doubled, and the shares are those that were asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.models import OPTConfig
from course_lib.offload.placement import TIERS, Placement, Rows, by_tensor

SHARES = [
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
    (0.1, 0.2, 0.7),
    (0.25, 0, 0.75),
    (0, 0.3, 0.7),
    (0.5, 0.5, 0),
    (0.33, 0.33, 0.34),
]


def layer(dim: int, hidden: int) -> list[Rows]:
    """An OPT layer in 16 bits: four projections, two norms, two matrices, and their biases."""
    found = []
    for name in ("q", "k", "v", "o"):
        found += [Rows(f"{name}.weight", dim, 2 * dim), Rows(f"{name}.bias", dim, 2)]
    for name in ("norm_1", "norm_2"):
        found += [Rows(f"{name}.weight", dim, 2), Rows(f"{name}.bias", dim, 2)]
    found += [Rows("up.weight", hidden, 2 * dim), Rows("up.bias", hidden, 2)]
    return [*found, Rows("down.weight", dim, 2 * hidden), Rows("down.bias", dim, 2)]


@pytest.mark.parametrize("fractions", SHARES)
def test_the_placed_shares_of_an_opt_1_3b_are_the_asked_ones_to_a_thousandth(fractions):
    config = OPTConfig.of_size("opt-1.3b")
    placement = Placement(fractions)
    placement.place([Rows("embed", config.vocab_size, 2 * config.dim)])
    for _ in range(config.num_layers):
        placement.place(layer(config.dim, config.hidden_width))
    for placed, asked in zip(placement.shares(), fractions, strict=True):
        assert placed == pytest.approx(asked, abs=1e-3)


@pytest.mark.parametrize("fractions", SHARES)
def test_every_layer_has_its_share_so_that_each_loads_alike(fractions):
    placement = Placement(fractions)
    rows = layer(256, 1024)
    total = sum(own.count * own.nbytes for own in rows)
    for _ in range(6):
        pieces = placement.place(rows)
        for tier, asked in zip(TIERS, fractions, strict=True):
            placed = sum(piece.nbytes for piece in pieces if piece.tier == tier) / total
            assert placed == pytest.approx(asked, abs=0.01)


def test_no_more_than_two_tensors_of_a_layer_are_cut():
    pieces = Placement((0.2, 0.3, 0.5)).place(layer(256, 1024))
    assert sum(len(own) > 1 for own in by_tensor(pieces).values()) <= 2


tensors = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 64)), min_size=1, max_size=8)
fractions = st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)).filter(any)


@given(st.lists(tensors, min_size=1, max_size=5), fractions)
def test_each_row_lies_on_one_tier(groups, weights):
    asked = [weight / sum(weights) for weight in weights]
    placement = Placement(asked)
    largest = total = 0
    for group in groups:
        rows = [Rows(str(i), count, nbytes) for i, (count, nbytes) in enumerate(group)]
        found = by_tensor(placement.place(rows))
        for own in rows:
            places = [place for piece in found.get(own.name, []) for place in range(piece.begin, piece.end)]
            assert places == (list(range(own.count)) if own.nbytes else [])
            total += own.count * own.nbytes
            largest = max(largest, own.nbytes)
    assert sum(placement.nbytes.values()) == total
    for tier, fraction in zip(TIERS, asked, strict=True):
        assert abs(placement.nbytes[tier] - fraction * total) <= 2 * largest
