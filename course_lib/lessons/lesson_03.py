"""Exercises of lesson 03, packing: four counts of a text, mask, positions and targets of a packed row, cost, bins.

Pictures and widgets are in `lesson_03_pictures`, `lesson_03_card` and `lesson_03_explorer`, what is measured in
`lesson_03_work`, the wrong answers that the checks know by name in `lesson_03_length_mistakes`,
`lesson_03_mask_mistakes`, `lesson_03_mistakes` and `lesson_03_bins`.
"""

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_01_mask_mistakes as cells
from course_lib.lessons import lesson_03_bins as bins
from course_lib.lessons import lesson_03_length_mistakes as counts
from course_lib.lessons import lesson_03_mask_mistakes as masks
from course_lib.lessons import lesson_03_mistakes as wrong
from course_lib.lessons import lesson_03_score_mistakes as scores
from course_lib.lessons.lesson_03_card import SENTENCE, bill_widget, save_card, token_card
from course_lib.lessons.lesson_03_explorer import packing_explorer, render_packing_explorer
from course_lib.lessons.lesson_03_pictures import (
    bins_figure,
    cost_figure,
    lengths_figure,
    loss_figure,
    masks_figure,
    padded_figure,
)
from course_lib.lessons.lesson_03_work import scores_kept, seconds_of
from course_lib.text import load_tokenizer

LESSON = Lesson("lesson_03")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "SENTENCE",
    "bill_widget",
    "bins_figure",
    "check_filled_bins",
    "check_packed_mask",
    "check_packed_targets",
    "check_restarting_positions",
    "check_score_counts",
    "check_text_lengths",
    "cost_figure",
    "hint",
    "language",
    "lengths_figure",
    "loss_figure",
    "masks_figure",
    "packing_explorer",
    "padded_figure",
    "progress",
    "render_packing_explorer",
    "restore",
    "save_card",
    "scores_kept",
    "seconds_of",
    "solution",
    "token_card",
]


# --- 3.1 ---------------------------------------------------------------------------------------------------------


def text_lengths(text, tokenizer):
    """(code points, graphemes, UTF-8 bytes, tokens) of text, four whole numbers."""
    from course_lib.text import graphemes

    return len(text), len(graphemes(text)), len(text.encode("utf-8")), len(tokenizer.encode(text))


def _text(text: str):
    return lambda: (text, load_tokenizer())


check_text_lengths = LESSON.exercise(
    "3.1",
    "text_lengths",
    solution=text_lengths,
    cases=[
        Case(_text("Rahim"), label="english"),
        Case(_text("বিশ্ববিদ্যালয়"), label="bangla"),
        Case(_text("আমার ফোনের র\u200d্যাম মাত্র ৪ জিবি।"), label="joiner"),
        Case(_text("ভাই, model টা train হতে আর কতক্ষণ লাগবে?"), label="mixed"),
        Case(_text("ok ok 👍🏽 🇧🇩 "), label="emoji"),
        # পড়ে with the sign apart, and as one
        Case(_text("প\u09a1\u09bc\u09c7 প\u09dc\u09c7"), label="two_spellings"),
        Case(_text("")),
    ],
    mistakes=[
        Mistake("things", when=counts.holds_things),
        Mistake("bytes_by_len", like=counts.counts_with_bytes_by_len),
        Mistake("utf16", like=counts.counts_in_utf16),
        Mistake("utf16", like=counts.counts_in_utf16_with_mark),
        Mistake("utf32", like=counts.counts_in_utf32),
        Mistake("bits", like=counts.counts_in_bits),
        Mistake("byte_order_mark", like=counts.counts_with_byte_order_mark),
        Mistake("graphemes_by_len", like=counts.counts_with_graphemes_by_len),
        Mistake("without_marks", like=counts.counts_without_marks),
        Mistake("only_letters", like=counts.counts_of_letters),
        Mistake("only_letters", like=counts.counts_of_word_characters),
        Mistake("without_spaces", like=counts.counts_without_spaces),
        Mistake("without_spaces", like=counts.counts_of_graphemes_without_spaces),
        Mistake("three_each", like=counts.counts_of_three_bytes_each),
        Mistake("object_size", when=counts.measures_the_object),
        Mistake("graphemes_twice", like=counts.counts_of_graphemes_twice),
        Mistake("swapped", like=counts.counts_swapped),
        Mistake("pieces", like=counts.counts_of_pieces),
        Mistake("words", like=counts.counts_of_words),
        Mistake("words", like=counts.counts_of_words_by_space),
        Mistake("before_bpe", like=counts.counts_before_bpe),
        Mistake("specials", like=counts.counts_with_one_special),
        Mistake("specials", like=counts.counts_with_two_specials),
        Mistake("distinct", like=counts.counts_of_distinct_tokens),
        Mistake("vocabulary", like=counts.counts_of_the_vocabulary),
        Mistake("one_by_one", like=counts.counts_of_text_by_ids),
        Mistake("word_by_word", like=counts.counts_word_by_word),
        Mistake("normalised", like=counts.counts_after_normalising),
        Mistake("stripped", like=counts.counts_after_stripping),
        Mistake("order", when=counts.right_in_another_order),
        Mistake("no_tokens", when=counts.repeats_another_number),
    ],
)


# --- 3.2 ---------------------------------------------------------------------------------------------------------


def packed_mask(lengths):
    """[total, total] float tensor of 0 and -inf: each token sees its own document, up to itself."""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    place = torch.arange(sum(lengths))
    may_look = (document[:, None] == document) & (place[:, None] >= place)
    return torch.zeros(may_look.shape).masked_fill(~may_look, -torch.inf)


check_packed_mask = LESSON.exercise(
    "3.2",
    "packed_mask",
    solution=packed_mask,
    cases=[
        Case(([3],), label="one"),
        Case(([2, 3],), label="two"),
        Case(([3, 1, 1, 3],), label="many"),
        Case(([2, 0, 4],), label="nothing"),
    ],
    mistakes=[
        Mistake("list_of_masks", when=masks.is_a_list_of_masks),
        Mistake("padded_batch", when=masks.is_a_padded_batch),
        Mistake("python_or", when=cells.asks_many_for_one),
        Mistake("zero_times_inf", when=cells.holds_nan),
        Mistake("plus_inf", when=cells.holds_plus_inf),
        Mistake("large_number", when=cells.right_cells_but_finite),
        Mistake("ones_left", when=cells.right_cells_but_visible_not_zero),
        Mistake("too_small", when=masks.right_cells_but_small),
        Mistake("ones", like=masks.mask_of_ones, everywhere=False),
        Mistake("inverted", like=masks.mask_inverted, everywhere=False),
        Mistake("other_documents", like=masks.mask_of_other_documents),
        Mistake("other_documents", like=masks.mask_of_earlier_documents),
        Mistake("block_diag", like=masks.mask_by_block_diag),
        Mistake("no_mask", like=masks.mask_of_nothing_hidden),
        Mistake("no_mask", like=masks.mask_by_block_diag_of_zeros),
        Mistake("all_hidden", like=masks.mask_of_everything_hidden),
        Mistake("not_causal", like=masks.mask_not_causal),
        Mistake("by_document", like=masks.mask_by_document),
        Mistake("no_blocks", like=masks.mask_without_blocks),
        Mistake("keeps_future", like=masks.mask_of_the_future),
        Mistake("keeps_future", like=masks.mask_of_the_future_only),
        Mistake("hides_own", like=masks.mask_without_own),
        Mistake("sees_next", like=masks.mask_with_the_next),
        Mistake("sees_next", like=masks.mask_with_the_next_of_all),
        Mistake("return_in_loop", like=masks.mask_of_the_first_document),
        Mistake("never_advances", like=masks.mask_that_never_advances),
        Mistake("advances_by_one", like=masks.mask_that_advances_by_one),
        Mistake("own_length", like=masks.mask_that_starts_at_own_length),
        Mistake("reaches_on", like=masks.mask_that_reaches_on),
        Mistake("reaches_on", like=masks.mask_that_reaches_back),
        Mistake("ends_early", like=masks.mask_that_ends_early),
        Mistake("ends_early", like=masks.mask_that_starts_late),
        Mistake("border_late", like=masks.mask_with_borders_late),
        Mistake("border_early", like=masks.mask_with_borders_early),
        Mistake("starts_at_end", like=masks.mask_that_starts_at_ends),
        Mistake("only_itself", like=masks.mask_of_itself_only),
        Mistake("stops_at_empty", like=masks.mask_that_stops_at_empty),
        Mistake("as_if_equal", like=masks.mask_as_if_equal),
        Mistake("as_if_equal", like=masks.mask_as_if_longest),
        Mistake("same_length", like=masks.mask_of_lengths),
        Mistake("window", like=masks.mask_of_a_window),
        Mistake("leaks", when=masks.leaks, values=masks.first_leak),
    ],
)


# --- 3.3 ---------------------------------------------------------------------------------------------------------


def restarting_positions(lengths):
    """[total] int64: the place of each token in its own document, from 0."""
    return torch.cat([torch.arange(n) for n in lengths])


check_restarting_positions = LESSON.exercise(
    "3.3",
    "restarting_positions",
    solution=restarting_positions,
    cases=[
        Case(([4],), label="one"),
        Case(([2, 3],), label="two"),
        Case(([3, 1, 2, 4],), label="many"),
        Case(([2, 0, 3],), label="nothing"),
    ],
    mistakes=[
        Mistake("one_range", like=wrong.positions_of_the_row),
        Mistake("from_one", like=wrong.positions_from_one),
        Mistake("one_range_from_one", like=wrong.positions_of_the_row_from_one),
        Mistake("later_from_one", like=wrong.positions_from_one_after_the_first),
        Mistake("later_from_one", like=wrong.positions_restarted_late),
        Mistake("one_late", like=wrong.positions_restarted_one_late),
        Mistake("one_early", like=wrong.positions_restarted_early),
        Mistake("documents", like=wrong.positions_of_documents),
        Mistake("starts", like=wrong.positions_of_starts),
        Mistake("counted_down", like=wrong.positions_counted_down),
        Mistake("from_the_end", like=wrong.positions_from_the_end),
        Mistake("own_length", like=wrong.positions_less_own_length),
        Mistake("length_before", like=wrong.positions_less_the_length_before),
        Mistake("as_if_equal", like=wrong.positions_as_if_equal),
        Mistake("as_if_equal", like=wrong.positions_as_if_longest),
        Mistake("all_zero", like=wrong.positions_of_zeros),
        Mistake("as_if_equal", when=wrong.restarts_at_regular_distances),
        Mistake("stops_at_empty", when=wrong.stops_at_the_empty_document),
        Mistake("return_in_loop", when=wrong.only_the_first_document),
        Mistake("last_only", when=wrong.only_the_last_document),
        Mistake("padded", like=wrong.positions_padded),
        Mistake("two_dimensions", when=wrong.has_two_dimensions),
    ],
)


# --- 3.4 ---------------------------------------------------------------------------------------------------------


def packed_targets(tokens, lengths):
    """[total] int64: the token after each within its document; -100 where there is none."""
    targets = tokens.roll(-1)
    ends = torch.tensor(lengths).cumsum(0) - 1
    targets[ends] = -100
    return targets


def _row(*lengths: int):
    """Ids that say where they stand: 17, 14, 11 for the first document, 27, 24 for the second."""
    ids = [10 * (i + 1) + 7 - 3 * j for i, n in enumerate(lengths) for j in range(n)]
    return lambda: (torch.tensor(ids), list(lengths))


check_packed_targets = LESSON.exercise(
    "3.4",
    "packed_targets",
    solution=packed_targets,
    cases=[
        Case(_row(3), label="one"),
        Case(_row(3, 2), label="two"),
        Case(_row(2, 1, 4), label="single"),
        Case(lambda: (torch.tensor([5, 5, 7, 7, 5]), [3, 2]), label="repeated"),
        Case(_row(3, 0, 3), label="nothing"),
    ],
    mistakes=[
        Mistake("index_past_the_end", when=wrong.index_past_the_end),
        Mistake("empty_marked", when=wrong.marks_empty_documents),
        Mistake("drops_ends", like=wrong.targets_without_ends),
        Mistake("shorter", when=wrong.is_one_shorter),
        Mistake("wraps", like=wrong.targets_that_wrap),
        Mistake("crosses", like=wrong.targets_that_cross),
        Mistake("wraps_inside", like=wrong.targets_that_wrap_inside),
        Mistake("first_for_last", like=wrong.targets_without_first),
        Mistake("first_and_last", like=wrong.targets_without_first_nor_last),
        Mistake("one_late", like=wrong.targets_marked_one_late),
        Mistake("one_late", like=wrong.targets_marked_one_late_and_at_the_end),
        Mistake("one_early", like=wrong.targets_marked_one_early),
        Mistake("both_sides", like=wrong.targets_marked_on_both_sides),
        Mistake("own_length", like=wrong.targets_marked_at_own_lengths),
        Mistake("own_length", like=wrong.targets_marked_at_own_lengths_and_at_the_end),
        Mistake("not_the_last", like=wrong.targets_marked_inside),
        Mistake("before", like=wrong.targets_before_unmarked),
        Mistake("unshifted", like=wrong.targets_unshifted),
        Mistake("unshifted", like=wrong.targets_unshifted_without_first),
        Mistake("before", like=wrong.targets_before),
        Mistake("before", like=wrong.targets_before_with_marked_ends),
        Mistake("itself", like=wrong.targets_of_itself),
        Mistake("two_ahead", like=wrong.targets_two_ahead),
        Mistake("all_ignored", like=wrong.targets_of_nothing),
        Mistake("last_for_all", like=wrong.targets_of_the_last_token),
        Mistake("other_number", when=wrong.marks_ends_with_another_number),
    ],
)


# --- 3.5 ---------------------------------------------------------------------------------------------------------


def score_counts(lengths):
    """(padded, packed): how many scores one head makes for these documents, either way."""
    padded = len(lengths) * max(lengths) ** 2
    packed = sum(n**2 for n in lengths)
    return padded, packed


check_score_counts = LESSON.exercise(
    "3.5",
    "score_counts",
    solution=score_counts,
    cases=[
        Case(([7, 2, 4],), label="small", expected=(147, 69)),
        Case(([37, 120, 8, 200],), label="four", expected=(160_000, 55_833)),
        Case(([6, 6, 6],), label="equal", expected=(108, 108)),
        Case(([1, 1, 1, 1, 30],), label="one_long"),
    ],
    mistakes=[
        Mistake("ratio", when=scores.is_a_ratio),
        Mistake("swapped", like=scores.scores_swapped),
        Mistake("one_causal_row", like=scores.scores_of_one_causal_row),
        Mistake("mean", like=scores.scores_by_mean),
        Mistake("tokens", like=scores.scores_of_tokens),
        Mistake("packed_tokens", like=scores.scores_of_packed_tokens),
        Mistake("one_document", like=scores.scores_of_one_document),
        Mistake("padded_row", like=scores.scores_of_padded_row),
        Mistake("documents_squared", like=scores.scores_with_documents_squared),
        Mistake("half", like=scores.scores_of_triangles),
        Mistake("half", like=scores.scores_of_halves),
        Mistake("half", like=scores.scores_rounded_halves),
        Mistake("half", like=scores.scores_of_packed_triangles),
        Mistake("real_rows", like=scores.scores_of_real_rows),
        Mistake("longest_columns", like=scores.scores_of_longest_columns),
        Mistake("bytes", like=scores.scores_in_bytes),
        Mistake("times_two", like=scores.scores_doubled),
        Mistake("xor", like=scores.scores_of_xor),
        Mistake("no_padding", like=scores.scores_without_padding),
        *scores.TWO_AT_ONCE,
    ],
)


# --- 3.6 ---------------------------------------------------------------------------------------------------------


def filled_bins(lengths, capacity):
    """Rows as lists of indices into lengths; no row over the capacity, and as few rows as you can."""
    rows: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = [r for r in range(len(rows)) if room[r] >= lengths[i]]
        if fitting:
            row = min(fitting, key=lambda r: room[r])
        else:
            row = len(rows)
            rows.append([])
            room.append(capacity)
        rows[row].append(i)
        room[row] -= lengths[i]
    return rows


check_filled_bins = LESSON.exercise(
    "3.6",
    "filled_bins",
    solution=filled_bins,
    cases=[
        bins.bins_case([5], 10, "one"),
        bins.bins_case(bins.EXACT, 10, "exact_fit"),
        bins.bins_case(bins.UNSORTED, 10, "unsorted"),
        bins.bins_case(bins.TWO_WITH_ROOM, 10, "two_with_room"),
        bins.bins_case(bins.WITH_NOTHING, 6, "nothing"),
        bins.bins_case([], 10, "no_documents"),
    ],
    mistakes=[
        Mistake("dictionary", when=bins.is_a_dictionary),
        Mistake("flat", when=bins.is_one_flat_list),
        Mistake("pairs", when=bins.holds_pairs),
        Mistake("lengths", when=bins.holds_lengths),
        Mistake("from_one", when=bins.counts_from_one),
        Mistake("unknown", when=bins.names_no_document),
        Mistake("sorted_numbers", when=bins.is_numbered_in_sorted_order),
        Mistake("same_list", when=bins.is_one_list_many_times),
        Mistake("first_of_equals", when=bins.takes_the_first_of_equals),
        Mistake("cut", when=bins.cuts_documents),
        Mistake("twice", when=bins.repeats_documents),
        Mistake("lost_empty", when=bins.loses_empty_documents),
        Mistake("lost", when=bins.loses_documents, values=bins.lost),
        Mistake("over", when=bins.overfills, values=bins.fullest),
        Mistake("empty_rows", when=bins.holds_empty_rows),
        Mistake("each_its_own", when=bins.gives_each_its_own),
        Mistake("order_given", when=bins.follows_the_order_given, values=bins.row_counts),
        Mistake("exact", when=bins.wastes_an_exact_fit),
        Mistake("never_looks_back", when=bins.never_looks_back, values=bins.row_counts),
        Mistake("too_many", when=bins.uses_too_many_rows, values=bins.row_counts),
    ],
)
