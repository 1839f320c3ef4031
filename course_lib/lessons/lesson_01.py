"""Exercises of lesson 01, causal masking: scores, weights, masks, a softmax that holds, bytes, windows.

The pictures and the widget of the lesson are in `lesson_01_pictures`, the wrong answers that the checks know by
name in `lesson_01_mistakes`, `lesson_01_mask_mistakes` and `lesson_01_softmax_mistakes`.
"""

import math

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_01_mask_mistakes as masks
from course_lib.lessons import lesson_01_mistakes as wrong
from course_lib.lessons import lesson_01_softmax_mistakes as softmaxes
from course_lib.lessons.lesson_01_pictures import (
    corner_figure,
    decode_figure,
    mask_explorer,
    mask_figure,
    memory_figure,
    render_mask_explorer,
    scores_figure,
    tiles_figure,
    weights_figure,
    window_figure,
)

LESSON = Lesson("lesson_01")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "check_cached_mask",
    "check_causal_weights",
    "check_score_bytes",
    "check_scores",
    "check_stable_softmax",
    "check_window_mask",
    "corner_figure",
    "decode_figure",
    "hint",
    "language",
    "mask_explorer",
    "mask_figure",
    "memory_figure",
    "progress",
    "render_mask_explorer",
    "restore",
    "scores_figure",
    "solution",
    "tiles_figure",
    "weights_figure",
    "window_figure",
]


# --- 1.1 ---------------------------------------------------------------------------------------------------------


def scores(query, key):
    """[q_len, k_len] scaled scores of query [q_len, head_dim] and key [k_len, head_dim]."""
    return query @ key.T / math.sqrt(query.shape[-1])


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[1.0, 2.0, 0.0, 1.0]]), torch.tensor([[3.0, 1.0, 5.0, 1.0]])


def _normal(q_len: int, k_len: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(q_len * k_len + head_dim)
    return torch.randn(q_len, head_dim, generator=generator), torch.randn(
        k_len, head_dim, generator=generator
    )


check_scores = LESSON.exercise(
    "1.1",
    "scores",
    solution=scores,
    cases=[
        Case(_pair, label="one_pair"),
        Case(lambda: _normal(2, 5, 16), label="rectangle"),
        Case(lambda: _normal(3, 3, 20), label="any_head_dim"),
    ],
    mistakes=[
        Mistake("no_scale", like=wrong.scores_unscaled),
        Mistake("by_head_dim", like=wrong.scores_by_head_dim),
        Mistake("multiplied", like=wrong.scores_multiplied),
        Mistake("by_length", like=wrong.scores_by_queries),
        Mistake("by_length", like=wrong.scores_by_keys),
        Mistake("always_two", like=wrong.scores_by_two),
        Mistake("power_first", like=wrong.scores_by_half_head_dim),
        Mistake("power_first", like=wrong.scores_by_head_dim_and_two),
        Mistake("rows_are_keys", like=wrong.scores_of_keys),
        Mistake("already_weights", when=wrong.one_key_gets_all),
        Mistake("already_outputs", like=wrong.scores_and_beyond),
        Mistake("normalised", like=wrong.scores_of_unit_vectors, everywhere=False),
        Mistake("whole_root", like=wrong.scores_by_whole_root),
        Mistake("over_words", like=wrong.scores_over_words, everywhere=False),
        Mistake("over_words", like=wrong.scores_over_words_unscaled, everywhere=False),
        Mistake("elementwise", like=wrong.scores_elementwise),
        Mistake("elementwise", like=wrong.scores_elementwise_unscaled),
        Mistake("one_for_each_query", like=wrong.scores_one_for_each_query),
        Mistake("one_for_each_query", like=wrong.scores_one_for_each_query_unscaled),
        Mistake("not_added_up", when=wrong.products_of_every_pair),
        Mistake("return_in_loop", when=masks.only_the_first_row),
        Mistake("not_turned", when=wrong.matrices_do_not_fit),
    ],
)


# --- 1.2 ---------------------------------------------------------------------------------------------------------


def causal_weights(scores):
    """Causal weights [n, n] of scores [n, n]: each row sums to 1, the future gets 0."""
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


check_causal_weights = LESSON.exercise(
    "1.2",
    "causal_weights",
    solution=causal_weights,
    cases=[
        Case(lambda: (torch.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 2.0], [2.0, 5.0, 1.0]]),), label="small"),
        Case(
            lambda: (torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 1.0], [2.0, 0.0, 1.0]]),), label="zero_score"
        ),
        Case(lambda: (torch.tensor([[1.0, 2000.0], [2.0, 3.0]]),), label="loud_future"),
        Case(lambda: (torch.tensor([[-500.0, 0.0], [-501.0, -500.0]]),), label="low_scores"),
        Case(lambda: (_normal(6, 6, 4)[0] @ _normal(6, 6, 4)[1].T,), label="six_words"),
    ],
    mistakes=[
        Mistake("after", like=wrong.weights_masked_after),
        Mistake("renormalised", like=wrong.weights_renormalised),
        Mistake("renormalised", like=wrong.weights_renormalised_with_epsilon),
        Mistake("no_mask", like=wrong.weights_unmasked),
        Mistake("hides_itself", like=wrong.weights_without_itself),
        Mistake("hides_itself", like=wrong.weights_without_itself_or_nan),
        Mistake("sees_next", like=wrong.weights_of_one_more),
        Mistake("keeps_future", like=wrong.weights_of_the_future),
        Mistake("keeps_future", like=wrong.weights_of_the_future_only),
        Mistake("zeroed", like=wrong.weights_of_zeroed_scores),
        Mistake("hides_zeros", like=wrong.weights_without_zero_scores),
        Mistake("over_queries", like=wrong.weights_over_queries),
        Mistake("no_softmax", when=wrong.still_holds_minus_inf),
        Mistake("transposed", like=wrong.weights_of_transposed_scores),
        Mistake("plus_inf", like=wrong.weights_of_plus_inf),
        Mistake("zero_times_inf", like=wrong.weights_of_zero_times_inf),
        Mistake("mask_of_six", when=wrong.six_does_not_fit),
        Mistake("mask_alone", like=wrong.weights_of_the_mask_alone),
        Mistake("multiplied", like=wrong.weights_of_scores_times_mask),
        Mistake("multiplied", like=wrong.weights_of_scores_times_minus_inf),
        Mistake("scaled_again", like=wrong.weights_scaled_again, everywhere=False),
        Mistake("own_softmax", when=wrong.nan_at_extreme_scores),
        Mistake("leak", when=wrong.gives_weight_to_the_future, values=wrong.first_leak),
    ],
)


# --- 1.3 ---------------------------------------------------------------------------------------------------------


def cached_mask(q_len, k_len):
    """[q_len, k_len] float tensor of 0 and -inf: the last query stands on the last key."""
    stands_on = torch.arange(q_len)[:, None] + k_len - q_len
    return torch.zeros(q_len, k_len).masked_fill(torch.arange(k_len) > stands_on, -torch.inf)


check_cached_mask = LESSON.exercise(
    "1.3",
    "cached_mask",
    solution=cached_mask,
    cases=[
        Case((3, 3), label="square"),
        Case((2, 5), label="cache"),
        Case((1, 4), label="one_query"),
        Case((1, 1)),
        Case((5, 3), label="more_queries"),
    ],
    mistakes=[
        Mistake("if_of_many", when=masks.asks_many_for_one),
        Mistake("absolute", like=masks.mask_by_absolute_shift),
        Mistake("before_all_keys", when=masks.wrong_only_where_queries_are_more),
        Mistake("zero_times_inf", when=masks.holds_nan),
        Mistake("plus_inf", when=masks.holds_plus_inf),
        Mistake("large_number", when=masks.right_cells_but_finite),
        Mistake("hides_own", like=masks.mask_without_own, everywhere=False),
        Mistake("sees_next", like=masks.mask_of_one_more, everywhere=False),
        Mistake("return_in_loop", when=masks.only_the_first_row),
        Mistake("no_column", like=masks.mask_without_a_column),
        Mistake("ones_left", when=masks.right_cells_but_visible_not_zero),
        Mistake("inverted", like=masks.mask_inverted, everywhere=False),
        Mistake("keeps_future", like=masks.mask_of_the_past, everywhere=False),
        Mistake("ones", like=masks.mask_of_ones, everywhere=False),
        Mistake("too_small", when=masks.right_cells_but_small),
        Mistake("all_hidden", like=masks.mask_of_everything, everywhere=False),
        Mistake("no_mask", like=masks.mask_of_zeros, everywhere=False),
        Mistake("top_left", like=masks.mask_top_left, everywhere=False, values=masks.where_query_0_stands),
        Mistake("shifted_back", like=masks.mask_shifted_back, everywhere=False),
    ],
)


# --- 1.4 ---------------------------------------------------------------------------------------------------------


def stable_softmax(scores):
    """Softmax of each row of [rows, keys]; a row of -inf only gives zeros, a NaN stays NaN."""
    top = scores.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)  # a row that sees nothing: -inf - 0 is harmless
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


check_stable_softmax = LESSON.exercise(
    "1.4",
    "stable_softmax",
    solution=stable_softmax,
    cases=[
        Case(lambda: (torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 0.0]]),), label="plain"),
        Case(lambda: (torch.tensor([[0.0, 1000.0, 999.0]]),), label="large"),
        Case(lambda: (torch.tensor([[0.0, 1.0, 2.0], [-500.0, -501.0, -502.0]]),), label="far_apart"),
        Case(lambda: (torch.tensor([[12.0, 11.0, -torch.inf]], dtype=torch.float16),), label="half"),
        Case(lambda: (torch.tensor([[-torch.inf] * 3, [0.0, 1.0, -torch.inf]]),), label="empty_row"),
        Case(lambda: (torch.tensor([[torch.nan, 1.0, 2.0], [0.0, 1.0, 0.0]]),), label="nan_stays"),
    ],
    mistakes=[
        Mistake("max_pair", when=softmaxes.took_the_pair),
        Mistake("keepdim", when=softmaxes.forgot_keepdim),
        Mistake("over_rows", like=softmaxes.softmax_over_rows, everywhere=False),
        Mistake("over_all", like=softmaxes.softmax_over_all, everywhere=False),
        Mistake("sums_all", like=softmaxes.softmax_sum_of_all, everywhere=False),
        Mistake("not_divided", like=softmaxes.softmax_not_divided, everywhere=False),
        Mistake("a_logarithm", like=softmaxes.softmax_logarithm, everywhere=False),
        Mistake("over_columns", like=softmaxes.softmax_less_the_column_maximum, everywhere=False),
        Mistake("no_exp", like=softmaxes.softmax_without_exp, everywhere=False),
        Mistake("if_of_many", when=masks.asks_many_for_one),
        Mistake("overflow", when=softmaxes.nan_in("large")),
        Mistake("overflow", when=softmaxes.overflows_in_python),
        Mistake("any_for_all", like=softmaxes.softmax_empty_where_any),
        Mistake("not_its_own", when=softmaxes.nan_in("far_apart")),
        Mistake("other_sum", like=softmaxes.softmax_divided_by_unshifted_sum, everywhere=False),
        Mistake("minus_inf_as_zero", like=softmaxes.softmax_with_minus_inf_as_zero),
        Mistake("clamped", like=softmaxes.softmax_clamped, everywhere=False),
        Mistake("too_low_for_half", when=softmaxes.number_too_large_for_half),
        Mistake("empty_nan", like=softmaxes.softmax_nan_where_empty, everywhere=False),
        Mistake("empty_even", like=softmaxes.softmax_even_where_empty, everywhere=False),
        Mistake("hides_nan", like=softmaxes.softmax_without_nan, everywhere=False),
        Mistake("hides_nan", like=softmaxes.softmax_skipping_nan, everywhere=False),
    ],
)


# --- 1.5 ---------------------------------------------------------------------------------------------------------


def score_bytes(batch, num_heads, q_len, k_len, dtype):
    """Bytes of the score matrices of one attention call, every one of them held whole."""
    return batch * num_heads * q_len * k_len * dtype.itemsize


check_score_bytes = LESSON.exercise(
    "1.5",
    "score_bytes",
    solution=score_bytes,
    cases=[
        Case((1, 1, 6, 6, torch.float32), label="six_words", expected=144),
        Case((1, 8, 2048, 2048, torch.float32), label="heads", expected=128 * 2**20),
        Case((3, 16, 1, 4096, torch.float16), label="decode_step", expected=384 * 2**10),
        Case((2, 12, 512, 2048, torch.bfloat16), label="chunk"),
        Case((1, 2, 300, 300, torch.float64), label="double"),
    ],
    mistakes=[
        Mistake("bits", like=wrong.bytes_in_bits),
        Mistake("numbers", like=wrong.bytes_as_numbers),
        Mistake("half_for_causal", like=wrong.bytes_of_half),
        Mistake("half_for_causal", like=wrong.bytes_of_triangle),
        Mistake("half_for_causal", like=wrong.bytes_of_triangle_of_queries),
        Mistake("forgets_heads", like=wrong.bytes_of_one_head, everywhere=False),
        Mistake("forgets_batch", like=wrong.bytes_of_one_sequence, everywhere=False),
        Mistake("forgets_both", like=wrong.bytes_of_one_matrix),
        Mistake("one_length", like=wrong.bytes_of_queries),
        Mistake("one_length", like=wrong.bytes_of_keys),
        Mistake("always_four", like=wrong.bytes_in_float32, everywhere=False),
        Mistake("always_two", like=wrong.bytes_in_float16),
        Mistake("q_squared", like=wrong.bytes_of_queries_squared),
        Mistake("k_squared", like=wrong.bytes_of_keys_squared),
        Mistake("added", like=wrong.bytes_added),
        Mistake("counts_weights", like=wrong.bytes_with_weights),
        Mistake("other_unit", when=wrong.in_another_unit),
        Mistake("other_unit", like=wrong.bytes_in_whole_kibibytes),
        Mistake("other_unit", like=wrong.bytes_in_whole_mebibytes),
        Mistake("misses_double", when=wrong.wrong_for_double),
    ],
)


# --- 1.6 ---------------------------------------------------------------------------------------------------------


def window_mask(q_len, k_len, window):
    """[q_len, k_len] of 0 and -inf: each query sees its own key and the window - 1 before it."""
    stands_on = torch.arange(q_len)[:, None] + k_len - q_len
    keys = torch.arange(k_len)
    hidden = (keys > stands_on) | (keys <= stands_on - window)
    return torch.zeros(q_len, k_len).masked_fill(hidden, -torch.inf)


check_window_mask = LESSON.exercise(
    "1.6",
    "window_mask",
    solution=window_mask,
    cases=[
        Case((5, 5, 2), label="square"),
        Case((2, 6, 3), label="cache"),
        Case((1, 5, 2), label="one_query"),
        Case((3, 3, 1), label="only_itself"),
        Case((3, 4, 10), label="wide"),
    ],
    mistakes=[
        Mistake("zero_times_inf", when=masks.holds_nan),
        Mistake("large_number", when=masks.right_cells_but_finite),
        Mistake("too_small", when=masks.right_cells_but_small),
        Mistake("one_more", like=masks.window_one_more, everywhere=False, values=masks.window_width),
        Mistake("one_less", like=masks.window_one_less, everywhere=False, values=masks.window_width),
        Mistake("hides_own", like=masks.window_hides_own, everywhere=False),
        Mistake("hides_own", like=masks.window_hides_own_and_is_short, everywhere=False),
        Mistake("python_or", when=masks.asks_many_for_one),
        Mistake("no_column", like=masks.window_without_a_column),
        Mistake("return_in_loop", when=masks.only_the_first_row),
        Mistake("wraps_around", like=masks.window_that_wraps_around),
        Mistake("wraps_around", like=masks.window_of_negative_keys),
        Mistake("edge_not_shifted", like=masks.window_edge_not_shifted),
        Mistake("ones_left", when=masks.right_cells_but_visible_not_zero),
        Mistake("no_mask", like=masks.window_of_zeros, everywhere=False),
        Mistake("stands_still", like=masks.window_of_the_last_keys, everywhere=False),
        Mistake("stands_still", like=masks.window_of_the_first_keys, everywhere=False),
        Mistake("stands_still", like=masks.window_of_the_last_keys_for_all, everywhere=False),
        Mistake("in_blocks", like=masks.window_in_blocks, everywhere=False),
        Mistake("both_sides", like=masks.window_both_sides, everywhere=False),
        Mistake("both_sides", like=masks.window_both_sides_and_wider, everywhere=False),
        Mistake("forward", like=masks.window_forward, everywhere=False),
        Mistake("no_future_hidden", like=masks.window_with_future, everywhere=False),
        Mistake("no_window", like=masks.window_plain_causal, everywhere=False, values=masks.window_width),
        Mistake("ones", like=masks.window_of_ones, everywhere=False),
        Mistake("inverted", like=masks.window_inverted, everywhere=False),
        Mistake("top_left", like=masks.window_top_left, everywhere=False),
    ],
)
