"""Exercises of lesson 02, tiled attention: merging, the loop over tiles, tiles to skip, bytes kept, the backward.

The pictures and the widget of the lesson are in `lesson_02_pictures`, xFormers' masks in `lesson_02_masks`, the
inputs of the checks in `lesson_02_cases`, the wrong answers that the checks know by name in `lesson_02_mistakes`,
`lesson_02_mistakes_backward` and, where an error tells, `lesson_02_signs`.
"""

import math

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_02_mistakes as wrong
from course_lib.lessons import lesson_02_mistakes_backward as wrong_backward
from course_lib.lessons import lesson_02_signs as signs
from course_lib.lessons.lesson_02_cases import (
    backward_tile,
    heads,
    parts,
    watched,
    with_scores,
)
from course_lib.lessons.lesson_02_masks import mask_examples
from course_lib.lessons.lesson_02_pictures import (
    backward_figure,
    mask_gallery,
    memory_figure,
    pieces_figure,
    render_tiles_explorer,
    shares_figure,
    tiles_explorer,
    tiles_figure,
)

LESSON = Lesson("lesson_02")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "backward_figure",
    "check_kept_bytes",
    "check_merge",
    "check_score_gradient",
    "check_tile_kind",
    "check_tiled_attention",
    "hint",
    "language",
    "mask_examples",
    "mask_gallery",
    "memory_figure",
    "pieces_figure",
    "progress",
    "render_tiles_explorer",
    "restore",
    "shares_figure",
    "solution",
    "tiles_explorer",
    "tiles_figure",
]


# --- 2.1 ---------------------------------------------------------------------------------------------------------


def merge(m1, l1, o1, m2, l2, o2):
    """(m, l, o) of both blocks together; m and l are [rows, 1], o is [rows, value_dim]."""
    m = torch.maximum(m1, m2)
    shift = m.masked_fill(m == -torch.inf, 0)  # neither block saw anything: -inf - 0 is harmless
    keep1, keep2 = (m1 - shift).exp(), (m2 - shift).exp()
    return m, keep1 * l1 + keep2 * l2, keep1 * o1 + keep2 * o2


check_merge = LESSON.exercise(
    "2.1",
    "merge",
    solution=merge,
    cases=[
        Case(lambda: parts(([2.0, 5.0], [1.25, 1.5]), ([2.0, 5.0], [1.75, 1.0])), label="equal"),
        Case(lambda: parts(([1.0, 0.0], [1.25, 2.0]), ([3.0, 0.5], [1.5, 1.75])), label="second_larger"),
        Case(lambda: parts(([4.0, 2.0], [1.25, 1.0]), ([3.0, 0.5], [1.5, 1.25])), label="first_larger"),
        Case(
            lambda: parts(([4.0, -2.0, 0.0], [1.25, 1.0, 3.0]), ([1.0, 0.5, 0.0], [1.5, 1.25, 1.0])),
            label="rows",
        ),
        Case(lambda: parts(([1000.0, -1000.0], [1.25, 1.5]), ([999.0, -999.0], [1.5, 1.0])), label="far"),
        Case(
            lambda: parts(([-math.inf, 2.0], [0.0, 1.5]), ([3.0, -math.inf], [1.75, 0.0])), label="one_blind"
        ),
        Case(
            lambda: parts(([-math.inf, 2.0], [0.0, 1.5]), ([-math.inf, 3.0], [0.0, 1.75])),
            label="both_blind",
        ),
    ],
    mistakes=[
        Mistake("python_max", when=signs.compared_whole_tensors),
        Mistake("math_exp", when=signs.raised("converted to Python scalars")),
        Mistake("max_pair", when=signs.took_the_pair),
        Mistake("keepdim", when=signs.forgot_keepdim, values=signs.error),
        Mistake("order", like=wrong.merge_output_first, everywhere=False),
        Mistake("order", like=wrong.merge_total_first, everywhere=False),
        Mistake("averages", like=wrong.merge_averages, everywhere=False),
        Mistake("averages", like=wrong.merge_averages_output, everywhere=False),
        Mistake("averages", like=wrong.merge_averages_outputs, everywhere=False),
        Mistake("divided", like=wrong.merge_divides, everywhere=False),
        Mistake("divided", when=signs.gives_the_output_alone),
        Mistake("weighted_twice", like=wrong.merge_weighs_twice, everywhere=False),
        Mistake("weighted_twice", like=wrong.merge_weighs_twice_and_divides, everywhere=False),
        Mistake("soft_maximum", like=wrong.merge_by_logaddexp, everywhere=False),
        Mistake("log", like=wrong.merge_gives_log, everywhere=False),
        Mistake("adds_tops", like=wrong.merge_adds_tops, everywhere=False),
        Mistake("lower", like=wrong.merge_by_minimum, everywhere=False),
        Mistake("one_top", like=wrong.merge_by_largest_of_all, everywhere=False),
        Mistake("no_rescale", like=wrong.merge_without_rescaling, everywhere=False, values=signs.first_tops),
        Mistake("only_sum", like=wrong.merge_rescales_sum_only, everywhere=False),
        Mistake("only_output", like=wrong.merge_rescales_output_only, everywhere=False),
        Mistake("flipped", like=wrong.merge_flipped, everywhere=False),
        Mistake("only_first", like=wrong.merge_shrinks_first, everywhere=False),
        Mistake("crossed", like=wrong.merge_crossed, everywhere=False),
        Mistake("base_two", like=wrong.merge_base_two, everywhere=False),
        Mistake("only_first", like=wrong.merge_rescales_first_only, everywhere=False),
        Mistake("only_first", like=wrong.merge_takes_newest_top, everywhere=False),
        Mistake("only_second", like=wrong.merge_rescales_second_only, everywhere=False),
        Mistake("only_second", like=wrong.merge_keeps_first_top, everywhere=False),
        Mistake("from_zero", like=wrong.merge_measured_from_zero, everywhere=False),
        Mistake("overflow", like=wrong.merge_from_zero, everywhere=False),
        Mistake("blind_nan", like=wrong.merge_nan_where_blind, everywhere=False),
        Mistake(
            "blind_top",
            when=signs.invents_a_top,
            values=lambda attempt: {"top": f"{float(attempt.got[0][0]):g}"},
        ),
    ],
)


# --- 2.2 ---------------------------------------------------------------------------------------------------------


def tiled_attention(query, key, value, tile):
    """[q_len, value_dim], made from `tile` keys at a time.

    query [q_len, head_dim], key [k_len, head_dim], value [k_len, value_dim].
    """
    top = torch.full((len(query), 1), -torch.inf)
    total = torch.zeros(len(query), 1)
    acc = torch.zeros(len(query), value.shape[-1])
    for start in range(0, len(key), tile):
        scores = query @ key[start : start + tile].T / math.sqrt(query.shape[-1])
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights, keep = (scores - new_top).exp(), (top - new_top).exp()
        total = total * keep + weights.sum(-1, keepdim=True)
        acc = acc * keep + weights @ value[start : start + tile]
        top = new_top
    return acc / total


check_tiled_attention = LESSON.exercise(
    "2.2",
    "tiled_attention",
    solution=tiled_attention,
    cases=[
        Case(lambda: heads(2, 5, 5), label="one_tile"),
        Case(lambda: with_scores([[4.0, 1.0, 2.0, 0.0]], 2), label="falling"),
        Case(lambda: heads(3, 6, 2), label="several"),
        Case(lambda: heads(3, 7, 3), label="ragged"),
        Case(lambda: heads(2, 3, 5)),
        Case(lambda: with_scores([[300.0, 299.0, 0.0, 1.0], [0.0, 1.0, 299.0, 300.0]], 2), label="large"),
        Case(lambda: with_scores([[-300.0, -301.0, -302.0, -300.0]], 2), label="low"),
        Case(
            lambda: with_scores([[300.0, 299.0, 298.0, 0.0], [-300.0, -301.0, -300.0, -302.0]], 2),
            label="apart",
        ),
        Case(watched, label="in_tiles"),
    ],
    mistakes=[
        Mistake("whole", when=signs.held_the_matrix),
        Mistake("max_pair", when=signs.took_the_pair),
        Mistake("python_max", when=signs.compared_whole_tensors),
        Mistake("math_exp", when=signs.raised("converted to Python scalars")),
        Mistake("top_number", when=signs.raised("maximum(): argument")),
        Mistake("larger_tiles", when=signs.took_larger_tiles),
        Mistake("products", when=signs.raised("mat1 and mat2"), values=signs.error),
        Mistake("acc_width", when=signs.made_acc_as_wide_as_queries),
        Mistake("empty_tile", when=signs.raised("non-zero size")),
        Mistake("keepdim", when=signs.forgot_keepdim, values=signs.error),
        Mistake("no_scale", like=wrong.loop_unscaled, everywhere=False),
        Mistake("other_scale", like=wrong.loop_scaled_by_head_dim, everywhere=False),
        Mistake("other_scale", like=wrong.loop_scaled_by_value_dim, everywhere=False),
        Mistake("other_scale", like=wrong.loop_scaled_by_queries, everywhere=False),
        Mistake("other_scale", like=wrong.loop_multiplied, everywhere=False),
        Mistake("sum_axis", like=wrong.loop_sums_all, everywhere=False),
        Mistake("not_divided", like=wrong.loop_not_divided, everywhere=False),
        Mistake("last_only", like=wrong.loop_last_tile_only, everywhere=False),
        Mistake("first_only", like=wrong.loop_first_tile_only, everywhere=False),
        Mistake("same_values", like=wrong.loop_first_values_only, everywhere=False),
        Mistake("overlap", like=wrong.loop_overlaps, everywhere=False),
        Mistake("softmaxes", like=wrong.loop_merges_softmaxes, everywhere=False),
        Mistake("averaged", like=wrong.loop_averages_tiles, everywhere=False),
        Mistake("summed", like=wrong.loop_sums_tiles, everywhere=False),
        Mistake("divided_inside", like=wrong.loop_divides_inside, everywhere=False),
        Mistake("no_rescale", like=wrong.loop_without_rescaling, everywhere=False),
        Mistake("no_rescale", like=wrong.loop_by_own_maximum, everywhere=False),
        Mistake("only_sum", like=wrong.loop_rescales_sum_only, everywhere=False),
        Mistake("only_output", like=wrong.loop_rescales_output_only, everywhere=False),
        Mistake("flipped", like=wrong.loop_flipped, everywhere=False),
        Mistake("drops_rest", like=wrong.loop_drops_the_rest, everywhere=False),
        Mistake("overflow", like=wrong.loop_without_maximum, everywhere=False),
        Mistake("tile_top", like=wrong.loop_by_tile_maximum, everywhere=False),
        Mistake("from_zero", like=wrong.loop_from_zero, everywhere=False),
        Mistake("one_top", like=wrong.loop_by_one_maximum, everywhere=False),
    ],
)


# --- 2.3 ---------------------------------------------------------------------------------------------------------


def tile_kind(queries, keys, offset):
    """One of "skip", "mask" and "whole"; query i stands on key i + offset."""
    first_stands_on = queries.start + offset
    last_stands_on = queries.stop - 1 + offset
    if keys.start > last_stands_on:
        return "skip"
    return "whole" if keys.stop - 1 <= first_stands_on else "mask"


check_tile_kind = LESSON.exercise(
    "2.3",
    "tile_kind",
    solution=tile_kind,
    cases=[
        Case((range(4, 8), range(0, 4), 0), label="below"),
        Case((range(0, 4), range(4, 8), 0), label="above"),
        Case((range(0, 4), range(8, 12), 0)),
        Case((range(4, 8), range(4, 8), 0), label="diagonal"),
        Case((range(0, 4), range(0, 2), 0)),
        Case((range(4, 8), range(6, 8), 0)),
        Case((range(0, 4), range(3, 6), 0), label="one_cell"),
        Case((range(3, 6), range(0, 4), 0)),
        Case((range(0, 4), range(4, 6), 0)),
        Case((range(2, 4), range(0, 4), 0)),
        Case((range(0, 2), range(2, 4), 3), label="cache"),
        Case((range(0, 2), range(4, 6), 3)),
        Case((range(0, 2), range(5, 7), 3)),
        Case((range(0, 2), range(0, 2), -2), label="more_queries"),
        Case((range(1, 3), range(0, 2), -2)),
    ],
    mistakes=[
        Mistake("words", when=signs.unknown_word),
        Mistake("reversed", like=wrong.kind_reversed),
        Mistake("reversed", like=wrong.kind_of_the_upper_half),
        Mistake("skips_diagonal", like=wrong.kind_skips_diagonal),
        Mistake("skips_diagonal", like=wrong.kind_by_first_query),
        Mistake("diagonal_whole", like=wrong.kind_whole_by_last_query),
        Mistake("always_masks", like=wrong.kind_never_whole),
        Mistake("never_skips", like=wrong.kind_never_skips),
        Mistake("no_offset", like=wrong.kind_without_offset),
        Mistake("offset_once", like=wrong.kind_skips_without_offset),
        Mistake("offset_once", like=wrong.kind_whole_without_offset),
        Mistake("offset_subtracted", like=wrong.kind_offset_subtracted),
        Mistake("stop_included", like=wrong.kind_with_stop_as_last),
        Mistake("loses", when=signs.answered("mask", "skip"), values=signs.corners),
        Mistake("loses", when=signs.answered("whole", "skip"), values=signs.corners),
        Mistake("leaks", when=signs.answered("mask", "whole"), values=signs.corners),
        Mistake("computes_nothing", when=signs.answered("skip", "mask", "whole"), values=signs.corners),
        Mistake("needless_mask", when=signs.answered("whole", "mask"), values=signs.corners),
    ],
)


# --- 2.4 ---------------------------------------------------------------------------------------------------------


def kept_bytes(q_len, k_len, num_heads, value_dim, dtype):
    """Bytes of the output, in `dtype`, and of m and l, in float32."""
    output = q_len * num_heads * value_dim * dtype.itemsize
    row_numbers = q_len * num_heads * 2 * 4
    return output + row_numbers


check_kept_bytes = LESSON.exercise(
    "2.4",
    "kept_bytes",
    solution=kept_bytes,
    cases=[
        Case((6, 6, 1, 8, torch.float32), label="six_words", expected=240),
        Case((1024, 1024, 4, 32, torch.float32), label="heads", expected=544 * 2**10),
        Case((100, 4000, 8, 64, torch.float32), label="rectangle"),
        Case((2048, 2048, 16, 128, torch.float16), label="half"),
        Case((300, 500, 6, 80, torch.bfloat16)),
    ],
    mistakes=[
        Mistake("dtype_as_number", when=signs.raised("torch.dtype")),
        Mistake("bits", like=wrong_backward.kept_bits),
        Mistake("output_bits", like=wrong_backward.kept_output_in_bits),
        Mistake("not_bytes", like=wrong_backward.kept_kib),
        Mistake("not_bytes", like=wrong_backward.kept_mib),
        Mistake("numbers", like=wrong_backward.kept_numbers),
        Mistake("scores", like=wrong_backward.kept_scores),
        Mistake("scores", like=wrong_backward.kept_scores_and_output),
        Mistake("scores", like=wrong_backward.kept_scores_too),
        Mistake("scores", like=wrong_backward.kept_scores_in_float32),
        Mistake("one_head", like=wrong_backward.kept_of_one_head),
        Mistake("stats_one_head", like=wrong_backward.kept_row_numbers_of_one_head),
        Mistake("stats_not_bytes", like=wrong_backward.kept_row_numbers_uncounted_bytes),
        Mistake("stats_once", like=wrong_backward.kept_row_numbers_once),
        Mistake("stats_per_value", like=wrong_backward.kept_row_numbers_per_value),
        Mistake("one_number", like=wrong_backward.kept_one_number_a_row),
        Mistake("no_output", like=wrong_backward.kept_without_output),
        Mistake("no_row_numbers", like=wrong_backward.kept_output_only),
        Mistake("inputs", like=wrong_backward.kept_inputs_too),
        Mistake("inputs", like=wrong_backward.kept_inputs_as_long_as_queries),
        Mistake("by_keys", like=wrong_backward.kept_by_keys),
        Mistake("by_keys", like=wrong_backward.kept_row_numbers_by_keys),
        Mistake("half_row_numbers", like=wrong_backward.kept_row_numbers_in_dtype),
        Mistake("always_float32", like=wrong_backward.kept_all_in_float32),
        Mistake("always_half", like=wrong_backward.kept_all_in_half),
    ],
)


# --- 2.5 ---------------------------------------------------------------------------------------------------------


def score_gradient(scores, top, total, value, out, grad_out):
    """dS of one tile, [rows, keys], from its scores [rows, keys] and value [keys, value_dim].

    Of the whole rows: top and total [rows, 1], out and grad_out [rows, value_dim].
    """
    weights = (scores - top).exp() / total
    delta = (grad_out * out).sum(-1, keepdim=True)
    return weights * (grad_out @ value.T - delta)


check_score_gradient = LESSON.exercise(
    "2.5",
    "score_gradient",
    solution=score_gradient,
    cases=[
        Case(lambda: backward_tile(1, 3, 3), label="one_row"),
        Case(lambda: backward_tile(3, 4, 4), label="whole_rows"),
        Case(lambda: backward_tile(3, 7, 4), label="tile"),
        Case(lambda: backward_tile(4, 5, 5, causal=True), label="masked"),
    ],
    mistakes=[
        Mistake("math_exp", when=signs.raised("converted to Python scalars")),
        Mistake("products", when=signs.raised("mat1 and mat2"), values=signs.error),
        Mistake("keepdim", when=signs.forgot_keepdim, values=signs.error),
        Mistake("no_delta", like=wrong_backward.gradient_without_delta, everywhere=False),
        Mistake("only_dp", like=wrong_backward.gradient_of_weights, everywhere=False),
        Mistake("no_weights", like=wrong_backward.gradient_without_weights, everywhere=False),
        Mistake("plus", like=wrong_backward.gradient_plus_delta, everywhere=False),
        Mistake("flipped", like=wrong_backward.gradient_negative, everywhere=False),
        Mistake("not_divided", like=wrong_backward.gradient_not_divided, everywhere=False),
        Mistake("no_top", like=wrong_backward.gradient_without_top, everywhere=False),
        Mistake("lse_wrong", like=wrong_backward.gradient_subtracts_total, everywhere=False),
        Mistake("lse_sign", like=wrong_backward.gradient_adds_log_total, everywhere=False),
        Mistake("base_two", like=wrong_backward.gradient_in_base_two, everywhere=False),
        Mistake("scores_as_weights", like=wrong_backward.gradient_by_scores, everywhere=False),
        Mistake("scaled", like=wrong_backward.gradient_scaled, everywhere=False),
        Mistake("mean_delta", like=wrong_backward.gradient_with_mean_delta, everywhere=False),
        Mistake("elementwise", like=wrong_backward.gradient_elementwise, everywhere=False),
        Mistake("plain_mean", like=wrong_backward.gradient_with_plain_sum, everywhere=False),
        Mistake("plain_mean", like=wrong_backward.gradient_with_plain_mean, everywhere=False),
        Mistake("delta_of_columns", like=wrong_backward.gradient_with_delta_of_columns, everywhere=False),
        Mistake("delta_of_all", like=wrong_backward.gradient_with_delta_of_all, everywhere=False),
        Mistake("delta_outside", like=wrong_backward.gradient_with_delta_outside, everywhere=False),
        Mistake("delta_divided", like=wrong_backward.gradient_with_divided_delta, everywhere=False),
        Mistake("delta_pairs", like=wrong_backward.gradient_with_delta_of_pairs, everywhere=False),
        Mistake("out_for_grad", like=wrong_backward.gradient_from_output, everywhere=False),
        Mistake("delta_of_tile", like=wrong_backward.gradient_with_delta_of_tile, everywhere=False),
        Mistake("softmax_of_tile", like=wrong_backward.gradient_with_softmax_of_tile, everywhere=False),
        Mistake("softmax_of_tile", like=wrong_backward.gradient_of_tile_alone, everywhere=False),
    ],
)
