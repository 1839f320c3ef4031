"""Sharing documents out over rows of a fixed size."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from course_lib.packing import fill_bins
from course_lib.text import load_corpus, load_tokenizer


def straightforward(lengths: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing as its definition says, looking at every row for every document."""
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        rooms = [capacity - sum(lengths[j] for j in row) for row in rows]
        fitting = [r for r, room in enumerate(rooms) if room >= lengths[i]]
        if fitting:
            rows[min(fitting, key=lambda r: rooms[r])].append(i)
        else:
            rows.append([i])
    return rows


CASES = st.integers(1, 30).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(0, c), max_size=40)))


@given(CASES)
def test_every_document_is_in_one_row_and_no_row_overflows(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    rows = fill_bins(lengths, capacity)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(row and row == sorted(row) for row in rows)
    assert all(sum(lengths[i] for i in row) <= capacity for row in rows)


@given(CASES)
def test_as_many_rows_as_the_definition_of_best_fit_decreasing_opens(case: tuple[int, list[int]]) -> None:
    capacity, lengths = case
    fills = sorted(sum(lengths[i] for i in row) for row in fill_bins(lengths, capacity))
    expected = sorted(sum(lengths[i] for i in row) for row in straightforward(lengths, capacity))
    assert fills == expected


def test_the_best_fit_wins_over_the_first() -> None:
    # 7 and 6 open rows with 3 and 4 left; the 3 belongs into the first, the 4 into the second.
    assert fill_bins([3, 7, 4, 6], 10) == [[0, 1], [2, 3]]


def test_no_lengths_need_no_row() -> None:
    assert fill_bins([], 5) == []


def test_lengths_of_zero_are_kept() -> None:
    assert fill_bins([0, 0], 5) == [[0, 1]]
    assert fill_bins([0, 5, 0], 5) == [[0, 1, 2]]


def test_a_document_may_fill_a_row_exactly() -> None:
    assert fill_bins([5, 5], 5) == [[0], [1]]


def test_the_corpus_fits_rows_of_2048_within_three_percent_of_the_least_possible() -> None:
    tokenizer = load_tokenizer()
    lengths = [len(tokenizer.encode(document.text)) for document in load_corpus()]
    least = math.ceil(sum(lengths) / 2048)
    assert len(fill_bins(lengths, 2048)) <= 1.03 * least


def test_a_hundred_thousand_documents_fill_their_rows() -> None:
    generator = random.Random(0)
    lengths = [min(2048, int(generator.lognormvariate(5, 1))) for _ in range(100_000)]
    assert len(fill_bins(lengths, 2048)) <= 1.01 * math.ceil(sum(lengths) / 2048)
