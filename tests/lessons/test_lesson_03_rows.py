"""Lesson 03: the exercises on the mask and on the rows of a packed batch know their wrong answers."""

import pytest
import torch

from course_lib.attention import Causal
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_03
from course_lib.lessons import lesson_03_mask_mistakes as masks
from course_lib.packing import Packed, fill_bins

INF = float("inf")


# --- 3.2 ---------------------------------------------------------------------------------------------------------


def mask_by_loop(lengths):
    total = sum(lengths)
    mask, start = torch.full((total, total), -INF), 0
    for n in lengths:
        for i in range(n):
            mask[start + i, start : start + i + 1] = 0
        start += n
    return mask


def mask_by_blocks(lengths):
    total = sum(lengths)
    mask, start = torch.full((total, total), -INF), 0
    for n in lengths:
        mask[start : start + n, start : start + n] = torch.full((n, n), -INF).triu(1)
        start += n
    return mask


def mask_by_block_diag(lengths):
    seen = torch.block_diag(*(torch.ones(n, n).tril() for n in lengths if n))
    return torch.where(seen == 1, 0.0, -INF)


def mask_by_library(lengths):
    total = sum(lengths)
    return Packed(lengths, inner=Causal()).materialize(total, total)[0, 0]


def mask_of_two_masks(lengths):
    total = sum(lengths)
    apart = Packed(lengths).materialize(total, total)[0, 0]
    return apart + torch.full((total, total), -INF).triu(1)


def mask_by_positions(lengths):
    """Two tokens are of one document if they are as far apart in the row as in their documents."""
    own = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
    return torch.zeros(len(own), len(own)).masked_fill(
        (own[:, None] != own).logical_or(~masks._past(lengths)), -INF
    )


def mask_that_leaks_to_the_first(lengths):
    """Everybody also sees token 0, as if it began each document."""
    mask = mask_by_loop(lengths)
    mask[:, 0] = 0
    return mask


def mask_that_leaks_at_the_last_border(lengths):
    mask = mask_by_loop(lengths)
    start = sum(lengths[:-1])
    if start:
        mask[start:, start - 1] = 0
    return mask


def mask_with_and(lengths):
    own = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
    return torch.zeros(len(own), len(own)).masked_fill(own[:, None] != own or ~masks._past(lengths), -INF)


def mask_of_either(lengths):
    own = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
    return torch.zeros(len(own), len(own)).masked_fill(~((own[:, None] == own) | masks._past(lengths)), -INF)


def mask_padded(lengths):
    longest = max(lengths)
    return torch.full((len(lengths), longest, longest), -INF).triu(1)


def mask_with_ones_left(lengths):
    seen = masks.mask_of_ones(lengths)
    return seen.masked_fill(seen == 0, -INF)


def test_exercise_3_2_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.2",
        wrong={
            "list_of_masks": [lambda lengths: [torch.full((n, n), -INF).triu(1) for n in lengths]],
            "padded_batch": [mask_padded],
            "python_or": [mask_with_and],
            "zero_times_inf": [lambda lengths: (1 - masks.mask_of_ones(lengths)) * -INF],
            "plus_inf": [lambda lengths: -mask_by_loop(lengths)],
            "large_number": [
                lambda lengths: mask_by_loop(lengths).clamp(min=-1e9),
                lambda lengths: mask_by_loop(lengths).clamp(min=torch.finfo(torch.float32).min),
            ],
            "ones_left": [mask_with_ones_left],
            "too_small": [lambda lengths: mask_by_loop(lengths).clamp(min=-1)],
            "ones": [masks.mask_of_ones],
            "inverted": [masks.mask_inverted],
            "other_documents": [masks.mask_of_other_documents, masks.mask_of_earlier_documents],
            "block_diag": [masks.mask_by_block_diag],
            "no_mask": [masks.mask_of_nothing_hidden, masks.mask_by_block_diag_of_zeros],
            "all_hidden": [masks.mask_of_everything_hidden],
            "not_causal": [masks.mask_not_causal],
            "by_document": [masks.mask_by_document, mask_of_either],
            "no_blocks": [masks.mask_without_blocks],
            "keeps_future": [masks.mask_of_the_future, masks.mask_of_the_future_only],
            "hides_own": [masks.mask_without_own],
            "sees_next": [masks.mask_with_the_next, masks.mask_with_the_next_of_all],
            "return_in_loop": [masks.mask_of_the_first_document],
            "never_advances": [masks.mask_that_never_advances],
            "advances_by_one": [masks.mask_that_advances_by_one],
            "own_length": [masks.mask_that_starts_at_own_length],
            "reaches_on": [masks.mask_that_reaches_on, masks.mask_that_reaches_back],
            "ends_early": [masks.mask_that_ends_early, masks.mask_that_starts_late],
            "border_late": [masks.mask_with_borders_late],
            "border_early": [masks.mask_with_borders_early],
            "starts_at_end": [masks.mask_that_starts_at_ends],
            "only_itself": [masks.mask_of_itself_only],
            "stops_at_empty": [masks.mask_that_stops_at_empty],
            "as_if_equal": [masks.mask_as_if_equal, masks.mask_as_if_longest],
            "same_length": [masks.mask_of_lengths],
            "window": [masks.mask_of_a_window],
            "leaks": [mask_that_leaks_to_the_first, mask_that_leaks_at_the_last_border],
            "common.bool_for_float": [lambda lengths: masks.mask_of_ones(lengths).bool()],
            "common.integer_for_float": [
                lambda lengths: masks.mask_of_ones(lengths).long(),
                lambda lengths: masks.mask_of_ones(lengths).long() - 1,
            ],
            "common.wrong_shape": [lambda lengths: mask_by_loop(lengths)[None, None]],
        },
        right=[
            mask_by_loop,
            mask_by_blocks,
            mask_by_block_diag,
            mask_by_library,
            mask_of_two_masks,
            mask_by_positions,
        ],
    )


def test_the_leak_is_named_by_the_tokens_and_their_documents():
    text = lesson_03.LESSON.examine("3.2", mask_that_leaks_at_the_last_border).text
    assert "token 2 of my_packed_mask([2, 3]) may look at token 1" in text
    assert "document 1 and the other to document 0" in text


# --- 3.6 ---------------------------------------------------------------------------------------------------------


def bins_first_fit_decreasing(lengths, capacity):
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        for row in rows:
            if sum(lengths[j] for j in row) + lengths[i] <= capacity:
                row.append(i)
                break
        else:
            rows.append([i])
    return rows


def bins_worst_fit_decreasing(lengths, capacity):
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [row for row in rows if sum(lengths[j] for j in row) + lengths[i] <= capacity]
        if fitting:
            min(fitting, key=lambda row: sum(lengths[j] for j in row)).append(i)
        else:
            rows.append([i])
    return rows


def bins_by_library_as_tuples(lengths, capacity):
    return tuple(tuple(row) for row in fill_bins(lengths, capacity))


def bins_in_order(lengths, capacity, fits=lambda filled, capacity: filled <= capacity):
    rows, filled = [], capacity + 1
    for i, n in enumerate(lengths):
        if not fits(filled + n, capacity):
            rows.append([])
            filled = 0
        rows[-1].append(i)
        filled += n
    return rows


def bins_first_fit_in_order(lengths, capacity):
    rows: list[list[int]] = []
    for i, n in enumerate(lengths):
        for row in rows:
            if sum(lengths[j] for j in row) + n <= capacity:
                row.append(i)
                break
        else:
            rows.append([i])
    return rows


def bins_row_after_row(lengths, capacity):
    """Each row filled to the end before the next is opened, longest first: right."""
    left = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    rows = []
    while left:
        row, room = [], capacity
        for i in list(left):
            if lengths[i] <= room:
                row.append(i)
                left.remove(i)
                room -= lengths[i]
        rows.append(row)
    return rows


def bins_next_fit_decreasing(lengths, capacity):
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return [[order[i] for i in row] for row in bins_in_order([lengths[i] for i in order], capacity)]


def bins_of_longest_with_shortest(lengths, capacity):
    """Two pointers: the longest, and as many of the shortest as still fit."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    rows = []
    while order:
        row = [order.pop()]
        while order and sum(lengths[i] for i in row) + lengths[order[0]] <= capacity:
            row.append(order.pop(0))
        rows.append(row)
    return rows


def bins_by_index_of_length(lengths, capacity):
    return [[lengths.index(lengths[i]) for i in row] for row in fill_bins(lengths, capacity)]


def bins_in_one_list_many_times(lengths, capacity):
    rows = [[]] * len(fill_bins(lengths, capacity))
    for i in range(len(lengths)):
        rows[0].append(i)
    return rows


def bins_of_cut_documents(lengths, capacity):
    rows, room = [], 0
    for i, n in enumerate(lengths):
        if room == 0:
            rows.append([])
            room = capacity
        rows[-1].append(i)
        while n > room:
            n -= room
            rows.append([i])
            room = capacity
        room -= n
    return rows


def bins_shortest_first(lengths, capacity):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    return [[order[i] for i in row] for row in bins_in_order([lengths[i] for i in order], capacity)]


def bins_less_than(lengths, capacity):
    return (
        bins_first_fit_decreasing(lengths, capacity - 1)
        if max(lengths, default=0) < capacity
        else [[i] for i in range(len(lengths))]
    )


def bins_strict(lengths, capacity):
    """`<` in place of `<=`, for a document that joins a row."""
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for row in rows:
            if sum(lengths[j] for j in row) + lengths[i] < capacity:
                row.append(i)
                break
        else:
            rows.append([i])
    return rows


def bins_of_everything(lengths, capacity):
    return [list(range(len(lengths)))] if lengths else []


def bins_without_the_last_row(lengths, capacity):
    """A row is put away when it is full, and the one in hand is forgotten at the end."""
    rows, row, filled = [], [], 0
    for i, n in enumerate(lengths):
        if filled + n > capacity:
            rows.append(row)
            row, filled = [], 0
        row.append(i)
        filled += n
    return rows


def bins_without_break(lengths, capacity):
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [row for row in rows if sum(lengths[j] for j in row) + lengths[i] <= capacity]
        for row in fitting:
            row.append(i)
        if not fitting:
            rows.append([i])
    return rows


def bins_of_sorted_lengths(lengths, capacity):
    return fill_bins(sorted(lengths, reverse=True), capacity)


def bins_without_empty(lengths, capacity):
    return [kept for row in fill_bins(lengths, capacity) if (kept := [i for i in row if lengths[i]])]


def bins_with_an_empty_row(lengths, capacity):
    return [[], *fill_bins(lengths, capacity)]


def test_exercise_3_6_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.6",
        wrong={
            "dictionary": [lambda lengths, capacity: dict(enumerate(fill_bins(lengths, capacity)))],
            "flat": [lambda lengths, capacity: list(range(len(lengths)))],
            "pairs": [
                lambda lengths, capacity: [
                    [(i, lengths[i]) for i in row] for row in fill_bins(lengths, capacity)
                ]
            ],
            "lengths": [
                lambda lengths, capacity: [[lengths[i] for i in row] for row in fill_bins(lengths, capacity)]
            ],
            "from_one": [
                lambda lengths, capacity: [[i + 1 for i in row] for row in fill_bins(lengths, capacity)]
            ],
            "unknown": [
                lambda lengths, capacity: [[i + 7 for i in row] for row in fill_bins(lengths, capacity)]
            ],
            "sorted_numbers": [bins_of_sorted_lengths],
            "same_list": [bins_in_one_list_many_times],
            "first_of_equals": [bins_by_index_of_length],
            "cut": [bins_of_cut_documents],
            "twice": [bins_without_break, lambda lengths, capacity: fill_bins(lengths, capacity) * 2],
            "lost_empty": [bins_without_empty],
            "lost": [bins_without_the_last_row, lambda lengths, capacity: []],
            "over": [bins_of_everything],
            "empty_rows": [bins_with_an_empty_row],
            "each_its_own": [lambda lengths, capacity: [[i] for i in range(len(lengths))]],
            "order_given": [bins_in_order],
            "exact": [bins_strict],
            "never_looks_back": [bins_next_fit_decreasing],
            "too_many": [bins_first_fit_in_order, bins_shortest_first, bins_of_longest_with_shortest],
        },
        right=[
            bins_first_fit_decreasing,
            bins_worst_fit_decreasing,
            bins_by_library_as_tuples,
            bins_row_after_row,
            fill_bins,
        ],
    )


@pytest.mark.parametrize("case", lesson_03.LESSON.exercises["3.6"].cases)
def test_the_solution_needs_no_more_rows_than_the_library(case):
    lengths, capacity = case.make_args()
    assert len(lesson_03.filled_bins(lengths, capacity)) == len(fill_bins(lengths, capacity))
