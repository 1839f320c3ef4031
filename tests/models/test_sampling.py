"""What temperature, top-k and top-p leave of a distribution, and the draw from it."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course_lib.models.sampling import (
    draw,
    keep_top_k,
    keep_top_p,
    next_token_probabilities,
    row_seeds,
    scale_by_temperature,
    uniforms,
)


def logits_of(*shape: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def from_transformers(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    processing = pytest.importorskip("transformers.generation.logits_process")
    warpers: list[Any] = [processing.TemperatureLogitsWarper(temperature)]
    if top_k is not None:
        warpers.append(processing.TopKLogitsWarper(top_k))
    if top_p is not None:
        warpers.append(processing.TopPLogitsWarper(top_p))
    for warper in warpers:
        logits = warper(None, logits)
    return logits.softmax(-1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [None, 1, 7, 200])
@pytest.mark.parametrize("top_p", [None, 0.01, 0.5, 0.93, 1.0])
def test_probabilities_are_those_of_the_processors_of_transformers(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    logits = logits_of(4, 200)
    ours = next_token_probabilities(logits, temperature, top_k, top_p)
    theirs = from_transformers(logits, temperature, top_k, top_p)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    assert keep_top_p(logits, 0.5).isfinite().tolist() == [True, False, False]
    assert keep_top_p(logits, 0.51).isfinite().tolist() == [True, True, False]
    assert keep_top_p(logits, 1e-9).isfinite().tolist() == [True, False, False]


def test_top_p_acts_on_what_top_k_left() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Of the two that are left, the first has 4/7 = 0.57 of the probability.
    kept = next_token_probabilities(logits, top_k=2, top_p=0.5)
    assert kept.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_top_k_keeps_exactly_k_of_equals_and_those_of_the_lowest_ids() -> None:
    assert keep_top_k(torch.zeros(2, 5), 3).isfinite().tolist() == [[True] * 3 + [False] * 2] * 2
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    assert keep_top_k(logits, 4).isfinite().tolist() == [False, True, True, True, True, False]


def test_a_temperature_near_zero_leaves_the_likeliest_and_overflows_nowhere() -> None:
    logits = torch.tensor([[60000.0, -60000.0, 59968.0]], dtype=torch.float16).float()
    for temperature in (1e-300, 5e-324):
        assert next_token_probabilities(logits, temperature).tolist() == [[1.0, 0.0, 0.0]]
        assert draw(logits, torch.tensor([0.999], dtype=torch.float64), temperature).tolist() == [0]


def test_a_temperature_without_end_makes_all_tokens_alike() -> None:
    probabilities = next_token_probabilities(logits_of(11), 1e9)
    torch.testing.assert_close(probabilities, torch.full_like(probabilities, 1 / 11), rtol=1e-6, atol=0)


def test_scaling_moves_a_row_by_a_constant_only() -> None:
    logits = logits_of(3, 9)
    moved = scale_by_temperature(logits, 0.7) - logits / 0.7
    torch.testing.assert_close(moved, moved[:, :1].expand_as(moved))


def test_a_token_that_is_ruled_out_stays_out() -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0, -math.inf]])
    probabilities = next_token_probabilities(logits, 1.0, top_k=3, top_p=0.999)
    assert (probabilities[0, [1, 3]] == 0).all()
    for number in (0.0, 0.5, 1 - 2**-53):
        assert draw(logits, torch.tensor([number], dtype=torch.float64), top_k=4).item() in (0, 2)


@given(
    vocab=st.integers(1, 700),
    seed=st.integers(0, 10**6),
    levels=st.sampled_from([None, 1, 2, 5]),
    temperature=st.sampled_from([0.05, 0.7, 1.0, 30.0]),
    share=st.none() | st.floats(0.0, 1.0),
    top_p=st.none() | st.floats(0.001, 1.0),
)
def test_a_draw_is_the_place_in_the_tokens_laid_end_to_end(
    vocab: int, seed: int, levels: int | None, temperature: float, share: float | None, top_p: float | None
) -> None:
    logits = logits_of(3, vocab, seed=seed)
    if levels is not None:  # equal logits, as half precision makes them
        logits = (logits * levels / 6).round() / levels
    top_k = None if share is None else max(1, round(share * vocab))
    uniform = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    probabilities = next_token_probabilities(logits, temperature, top_k, top_p)
    drawn = draw(logits, uniform, temperature, top_k, top_p)
    ends = probabilities.cumsum(-1)
    for row, token in enumerate(drawn.tolist()):
        start = float(ends[row, token - 1]) if token else 0.0
        assert probabilities[row, token] > 0
        assert start - 1e-12 <= float(uniform[row]) <= float(ends[row, token]) + 1e-12


def test_a_stretch_holds_its_start_and_not_its_end_and_top_p_its_sum() -> None:
    logits = torch.zeros(4, 4)
    uniform = torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=torch.float64)
    assert draw(logits, uniform).tolist() == [0, 1, 2, 3]
    assert draw(logits, uniform, top_p=0.5).tolist() == [0, 0, 1, 1]
    assert draw(logits, uniform, top_p=0.51).tolist() == [0, 0, 1, 2]


@given(vocab=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_the_largest_number_below_one_draws_the_last_token_that_is_probable(vocab: int, seed: int) -> None:
    logits = logits_of(1, vocab + 2, seed=seed)
    logits[0, vocab:] = -math.inf
    assert draw(logits, torch.tensor([1 - 2**-53], dtype=torch.float64), 50.0).item() == vocab - 1


def test_draws_come_as_often_as_they_are_probable() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log().expand(20_000, 4)
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    counts = draw(logits, uniform, 1.0, top_k=3).bincount(minlength=4) / 20_000
    torch.testing.assert_close(counts, torch.tensor([0.5, 0.25, 0.15, 0.0]) / 0.9, atol=0.02, rtol=0)


def test_the_first_row_has_the_seed_itself_and_no_row_the_seed_of_another() -> None:
    seeds = row_seeds(5, 6)
    assert seeds[0] == 5
    assert row_seeds(5, 3) == seeds[:3]
    others = [seed for start in range(100) for seed in row_seeds(start, 6)]
    assert len(set(others)) == len(others)
    assert row_seeds([4, 4], 2) == [4, 4]
    assert row_seeds(None, 1) != row_seeds(None, 1)
    assert row_seeds(3, 0) == []


def test_a_row_gets_its_numbers_whatever_the_other_rows_are() -> None:
    together = torch.stack(list(islice(uniforms([7, 8, 9]), 600)))
    alone = torch.stack(list(islice(uniforms([8]), 600)))
    assert torch.equal(together[:, 1], alone[:, 0])
    assert together.min() >= 0 and together.max() < 1


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draw(logits_of(2, 9), next(uniforms(row_seeds(None, 2))))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_any_number_of_leading_dimensions_is_taken(shape: tuple[int, ...]) -> None:
    assert next_token_probabilities(torch.zeros(shape), 0.5, 3, 0.9).shape == shape


def test_logits_stay_as_they_were() -> None:
    logits = logits_of(2, 9)
    before = logits.clone()
    next_token_probabilities(logits, 0.5, 3, 0.5)
    draw(logits, torch.zeros(2, dtype=torch.float64), 0.5, 3, 0.5)
    assert torch.equal(logits, before)
