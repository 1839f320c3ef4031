"""Exercises of lesson 05, ALiBi: the slopes, weights that pay for distance, bfloat16, packs, key positions.

The pictures and the widget of the lesson are in `lesson_05_pictures`, its plots in `lesson_05_plots`, what it measures
in a process of its own in `lesson_05_memory`, the wrong answers that the checks know by name in `lesson_05_mistakes`
(slopes), `lesson_05_weight_mistakes` and `lesson_05_distance_mistakes`.
"""

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_05_distance_mistakes as distances
from course_lib.lessons import lesson_05_mistakes as wrong
from course_lib.lessons import lesson_05_weight_mistakes as weights
from course_lib.lessons.lesson_05_memory import alibi_workspaces
from course_lib.lessons.lesson_05_pictures import (
    dials_figure,
    pack_figure,
    render_slopes_explorer,
    slopes_explorer,
)
from course_lib.lessons.lesson_05_plots import (
    added_figure,
    extrapolation_figure,
    memory_figure,
    reach_figure,
    rounding_figure,
    table_figure,
    waves_figure,
)

LESSON = Lesson("lesson_05")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "added_figure",
    "alibi_workspaces",
    "check_alibi_weights",
    "check_any_slopes",
    "check_distinct",
    "check_key_bias",
    "check_packed_distances",
    "check_slopes",
    "dials_figure",
    "extrapolation_figure",
    "hint",
    "language",
    "memory_figure",
    "pack_figure",
    "progress",
    "reach_figure",
    "render_slopes_explorer",
    "restore",
    "rounding_figure",
    "slopes_explorer",
    "solution",
    "table_figure",
    "waves_figure",
]


# --- 5.1 ---------------------------------------------------------------------------------------------------------


def slopes(num_heads):
    """[num_heads] slopes, num_heads a power of two: a geometric series that ends at 2^-8."""
    heads = torch.arange(1, num_heads + 1)
    return 2.0 ** (-8 * heads / num_heads)


check_slopes = LESSON.exercise(
    "5.1",
    "slopes",
    solution=slopes,
    cases=[
        Case((8,), label="eight"),
        Case((4,), label="four"),
        Case((16,), label="sixteen"),
        Case((1,)),
    ],
    mistakes=[
        Mistake("integer_power", when=wrong.negative_power_of_integers),
        Mistake("whole_numbers", when=wrong.whole_numbers_only),
        Mistake("halved", like=wrong.slopes_halved),
        Mistake("whole_step", like=wrong.slopes_whole_step),
        Mistake("whole_step", like=wrong.slopes_whole_exponents),
        Mistake("upside_down", like=wrong.slopes_ratio_upside_down),
        Mistake("from_a_half", like=wrong.slopes_from_a_half),
        Mistake("from_a_half", like=wrong.slopes_from_a_half_to_the_end),
        Mistake("then_halved", like=wrong.slopes_first_right_then_halved),
        Mistake("one_too_many", when=wrong.one_slope_too_many),
        Mistake("one_too_few", when=wrong.one_slope_too_few),
        Mistake("from_one", like=wrong.slopes_from_one, everywhere=False),
        Mistake("from_one", like=wrong.slopes_from_one_to_the_end, everywhere=False),
        Mistake("from_the_second", like=wrong.slopes_from_the_second, everywhere=False),
        Mistake("flipped", like=wrong.slopes_flipped, everywhere=False),
        Mistake("negative", like=wrong.slopes_negative, everywhere=False),
        Mistake("exponents", like=wrong.slopes_exponents, everywhere=False),
        Mistake("exponents", like=wrong.slopes_positive_exponents, everywhere=False),
        Mistake("growing", like=wrong.slopes_growing, everywhere=False),
        Mistake("base_e", like=wrong.slopes_base_e, everywhere=False),
        Mistake("base_ten", like=wrong.slopes_base_ten, everywhere=False),
        Mistake("line", like=wrong.slopes_evenly_between, everywhere=False),
        Mistake("line", like=wrong.slopes_falling_line, everywhere=False),
        Mistake("line", like=wrong.slopes_line_from_one, everywhere=False),
        Mistake("line", like=wrong.slopes_line_to_zero, everywhere=False),
        Mistake("line", like=wrong.slopes_rising_line, everywhere=False),
        Mistake("line", like=wrong.slopes_in_steps_of_the_last, everywhere=False),
        Mistake("line", like=wrong.slopes_products, everywhere=False),
        Mistake("harmonic", like=wrong.slopes_harmonic, everywhere=False),
        Mistake("harmonic", like=wrong.slopes_harmonic_of_two, everywhere=False),
        Mistake("all_equal", like=wrong.slopes_all_the_first, everywhere=False),
        Mistake("all_equal", like=wrong.slopes_all_the_last, everywhere=False),
        Mistake("not_to_eight", like=wrong.slopes_two_steps_at_once, everywhere=False),
        Mistake("not_to_eight", like=wrong.slopes_of_four, everywhere=False),
        Mistake("shared_out", like=wrong.slopes_shared_out, everywhere=False),
    ],
)


# --- 5.2 ---------------------------------------------------------------------------------------------------------


def alibi_weights(query, key, slopes):
    """[heads, q_len, k_len] causal weights of query [heads, q_len, head_dim] and key [heads, k_len, head_dim]."""
    q_len, k_len = query.shape[1], key.shape[1]
    stands_on = torch.arange(q_len)[:, None] + k_len - q_len
    distance = stands_on - torch.arange(k_len)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores - slopes[:, None, None] * distance
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1)


def _silent(heads: int, q_len: int, k_len: int, slopes: list[float]):
    """Queries of 0, so that only distance decides."""
    return torch.zeros(heads, q_len, 6), torch.ones(heads, k_len, 6), torch.tensor(slopes)


def _spoken(q_len: int, k_len: int, head_dim: int, slopes: list[float]):
    generator = torch.Generator().manual_seed(q_len + k_len)
    query = torch.randn(len(slopes), q_len, head_dim, generator=generator)
    return query, torch.randn(len(slopes), k_len, head_dim, generator=generator), torch.tensor(slopes)


check_alibi_weights = LESSON.exercise(
    "5.2",
    "alibi_weights",
    solution=alibi_weights,
    cases=[
        Case(lambda: _silent(1, 4, 4, [1.0]), label="distance_alone"),
        Case(lambda: _spoken(4, 4, 16, [0.5]), label="with_scores"),
        Case(lambda: _spoken(5, 5, 9, [0.5, 0.25, 0.03125]), label="heads"),
        Case(lambda: _spoken(2, 5, 4, [0.25, 0.0625]), label="cache"),
    ],
    mistakes=[
        Mistake("key_not_turned", when=weights.key_is_not_turned),
        Mistake("heads_turned", when=weights.heads_were_turned),
        Mistake("slopes_shape", when=weights.slopes_do_not_broadcast),
        Mistake("plus", like=weights.weights_plus, everywhere=False),
        Mistake("plus", like=weights.weights_by_key_place, everywhere=False),
        Mistake("not_weights", like=weights.weights_scores, everywhere=False),
        Mistake("not_weights", like=weights.weights_scores_of_all, everywhere=False),
        Mistake("not_weights", like=weights.weights_bias, everywhere=False),
        Mistake("after", like=weights.weights_after, everywhere=False),
        Mistake("after", like=weights.weights_after_in_sight, everywhere=False),
        Mistake("after", like=weights.weights_after_in_sight_from_zero, everywhere=False),
        Mistake("after", like=weights.weights_after_shared_out, everywhere=False),
        Mistake("after", like=weights.weights_after_times, everywhere=False),
        Mistake("after", like=weights.weights_after_by_factors, everywhere=False),
        Mistake("multiplied", like=weights.weights_multiplied),
        Mistake("multiplied", like=weights.weights_multiplied_plus),
        Mistake("multiplied", like=weights.weights_times_one_less),
        Mistake("without", like=weights.weights_without),
        Mistake("divided_too", like=weights.weights_bias_divided_too),
        Mistake("unscaled", like=weights.weights_unscaled),
        Mistake("by_head_dim", like=weights.weights_by_head_dim),
        Mistake("with_future", like=weights.weights_with_future, everywhere=False),
        Mistake("with_future", like=weights.weights_with_future_fined, everywhere=False),
        Mistake("with_future", like=weights.weights_with_future_unfined),
        Mistake("masked_after", like=weights.weights_masked_after, everywhere=False),
        Mistake("masked_after", like=weights.weights_masked_after_with_inf, everywhere=False),
        Mistake("sees_next", like=weights.weights_see_next, everywhere=False),
        Mistake("future_at_zero", like=weights.weights_future_at_zero, everywhere=False),
        Mistake("hides_own", like=weights.weights_hide_own, everywhere=False),
        Mistake("over_queries", like=weights.weights_over_queries, everywhere=False),
        Mistake("squared", like=weights.weights_squared, everywhere=False),
        Mistake("to_the_power", like=weights.weights_slope_to_the_distance, everywhere=False),
        Mistake("distance_alone_counts", like=weights.weights_of_distance_alone),
        Mistake("no_slope", like=weights.weights_no_slope),
        Mistake("by_slope", like=weights.weights_divided_by_slope),
        Mistake("own_slopes", like=weights.weights_published_slopes, everywhere=False),
        Mistake("one_slope", like=weights.weights_one_slope),
        Mistake("one_slope", like=weights.weights_mean_slope),
        Mistake("heads_flipped", like=weights.weights_heads_flipped),
        Mistake("top_left", like=weights.weights_top_left, values=weights.where_query_0_stands),
        Mistake(
            "distance_top_left", like=weights.weights_distance_top_left, values=weights.where_query_0_stands
        ),
    ],
)


# --- 5.3 ---------------------------------------------------------------------------------------------------------


def any_slopes(num_heads):
    """[num_heads] slopes by the published rule, for any number of heads."""
    power = 1
    while 2 * power <= num_heads:
        power *= 2
    below = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * torch.arange(1, 2 * power, 2) / (2 * power))  # 1, 3, 5 … of the doubled series
    return torch.cat([below, between[: num_heads - power]])


check_any_slopes = LESSON.exercise(
    "5.3",
    "any_slopes",
    solution=any_slopes,
    cases=[
        Case((8,), label="power"),
        Case((6,), label="six"),
        Case((12,), label="twelve"),
        Case((3,), label="three"),
        Case((40,), label="forty"),
        Case((1,)),
    ],
    mistakes=[
        Mistake("whole_numbers", when=wrong.whole_numbers_only),
        Mistake("from_one", like=wrong.any_from_one, everywhere=False),
        Mistake("negative", like=wrong.any_negative, everywhere=False),
        Mistake("power_doubled", when=wrong.power_of_two_doubled, values=wrong.heads_of),
        Mistake("too_few", when=wrong.only_the_power_below, values=wrong.heads_of),
        Mistake("power_above", when=wrong.whole_power_above, values=wrong.heads_of),
        Mistake("by_the_formula", like=wrong.any_by_the_formula, values=wrong.heads_of),
        Mistake("sorted", like=wrong.any_sorted, values=wrong.heads_of),
        Mistake("rising", like=wrong.any_sorted_rising, everywhere=False),
        Mistake("between_first", like=wrong.any_between_first),
        Mistake("every_doubled", like=wrong.any_of_every_doubled),
        Mistake("repeated", like=wrong.any_repeated),
        Mistake("far_end", like=wrong.any_from_the_far_end),
        Mistake("far_end", like=wrong.any_reversed),
        Mistake("power_above", like=wrong.any_of_the_power_above, values=wrong.heads_of),
        Mistake("power_above", like=wrong.any_of_the_power_above_from_the_end, values=wrong.heads_of),
        Mistake("means", like=wrong.any_with_means),
        Mistake("means", like=wrong.any_with_means_within),
        Mistake("means", like=wrong.any_of_a_linear_between),
        Mistake("doubled_count", like=wrong.any_doubled_by_count, values=wrong.heads_of),
        Mistake("power_above", like=wrong.any_of_the_nearest_power, values=wrong.heads_of),
        Mistake("strictly_below", like=wrong.any_of_the_power_strictly_below, values=wrong.heads_of),
        Mistake("from_the_third", like=wrong.any_from_the_third_of_the_doubled),
        Mistake("halved", like=wrong.slopes_halved),
        Mistake("going_on", like=wrong.any_going_on),
        Mistake("own_series", like=wrong.any_with_a_series_of_its_own, values=wrong.heads_of),
    ],
)


# --- 5.4 ---------------------------------------------------------------------------------------------------------


def key_bias(attention_mask, slopes):
    """[batch, heads, 1, k_len] as BLOOM adds it; attention_mask [batch, k_len] is 1 where a real token is."""
    places = (attention_mask.cumsum(-1) - 1) * attention_mask
    return slopes[:, None, None] * places[:, None, None, :]


def _masks(*rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(rows), torch.tensor([0.5, 0.25, 0.125])


check_key_bias = LESSON.exercise(
    "5.4",
    "key_bias",
    solution=key_bias,
    cases=[
        Case(lambda: _masks([1, 1, 1, 1]), label="no_padding"),
        Case(lambda: _masks([0, 0, 1, 1, 1]), label="left"),
        Case(lambda: _masks([1, 1, 1, 0, 0]), label="right"),
        Case(lambda: _masks([0, 1, 1, 1, 1], [1, 1, 1, 1, 1]), label="batch"),
    ],
    mistakes=[
        Mistake("no_query_axis", when=distances.no_axis_of_queries),
        Mistake("all_rows", when=distances.expanded_queries),
        Mistake("matrix", when=distances.matrix_of_distances),
        Mistake("batch_and_heads", when=distances.batch_and_heads_in_one),
        Mistake("heads_shape", when=distances.heads_do_not_broadcast),
        Mistake("masks_too", when=distances.bloom_mask_hidden),
        Mistake("negative", like=distances.bloom_negative, everywhere=False),
        Mistake("from_the_end", like=distances.bloom_from_the_end, everywhere=False),
        Mistake("from_the_end", like=distances.bloom_distance_to_the_end, everywhere=False),
        Mistake("no_slopes", like=distances.bloom_without_slopes, everywhere=False),
        Mistake("one_slope", like=distances.bloom_one_slope, everywhere=False),
        Mistake("from_one", like=distances.bloom_from_one, everywhere=False),
        Mistake("from_one", like=distances.bloom_from_one_padding_too, everywhere=False),
        Mistake("over_the_batch", like=distances.bloom_over_the_batch, everywhere=False),
        Mistake("minus_one_first", like=distances.bloom_minus_one_first, everywhere=False),
        Mistake("counts_padding", like=distances.bloom_counts_padding),
        Mistake("counts_padding", like=distances.bloom_counts_padding_and_hides_it),
        Mistake("padding_kept", like=distances.bloom_padding_kept),
        Mistake("padding_kept", like=distances.bloom_padding_clamped),
        Mistake("padding_taken_off", like=distances.bloom_padding_taken_off),
        Mistake("padding_taken_off", like=distances.bloom_padding_taken_off_and_hidden),
    ],
)


# --- 5.5 ---------------------------------------------------------------------------------------------------------

check_distinct = LESSON.question(
    "5.5",
    "distinct",
    answer=513,
    mistakes=[
        Mistake("forgot_zero", like=lambda: 512),
        Mistake("stops_at_256", like=lambda: 256),
        Mistake("stops_at_256", like=lambda: 257),
        Mistake("one_step", like=lambda: 641),
        Mistake("one_step", like=lambda: 640),
        Mistake("no_rounding_up", like=lambda: 511),
        Mistake("stops_at_512", like=lambda: 385),
        Mistake("stops_at_512", like=lambda: 384),
        Mistake("ends_twice", like=lambda: 514),
        Mistake("ends_twice", like=lambda: 515),
        Mistake("half_precision", like=lambda: 1024),
        Mistake("of_a_byte", like=lambda: 128),
        Mistake("of_a_byte", like=lambda: 127),
        Mistake("lost", like=lambda: 1024 - 513),
    ],
)


# --- 5.6 ---------------------------------------------------------------------------------------------------------


def packed_distances(q_lengths, k_lengths):
    """[sum(q_lengths), sum(k_lengths)] float distances; inf where a query may not look."""
    distances = torch.full((sum(q_lengths), sum(k_lengths)), torch.inf)
    q_start = k_start = 0
    for q_len, k_len in zip(q_lengths, k_lengths, strict=True):
        stands_on = torch.arange(q_len)[:, None] + k_len - q_len
        within = (stands_on - torch.arange(k_len)).float()
        rows, columns = slice(q_start, q_start + q_len), slice(k_start, k_start + k_len)
        distances[rows, columns] = within.masked_fill(within < 0, torch.inf)
        q_start, k_start = q_start + q_len, k_start + k_len
    return distances


check_packed_distances = LESSON.exercise(
    "5.6",
    "packed_distances",
    solution=packed_distances,
    cases=[
        Case(([3], [3]), label="one"),
        Case(([3, 2], [3, 2]), label="two"),
        Case(([1, 1], [3, 2]), label="cache"),
        Case(([2, 1, 3], [4, 1, 3]), label="chunks"),
    ],
    mistakes=[
        Mistake("integers", when=distances.integers_hold_no_infinity),
        Mistake("finite", when=distances.large_but_finite),
        Mistake("zero_hidden", like=distances.packed_zero_elsewhere, everywhere=False),
        Mistake("zero_hidden", like=distances.packed_zero_in_the_future, everywhere=False),
        Mistake("zero_hidden", like=distances.packed_zero_in_other_documents, everywhere=False),
        Mistake("with_future", like=distances.packed_with_future, everywhere=False),
        Mistake("with_future", like=distances.packed_with_negative_future, everywhere=False),
        Mistake("negative", like=distances.packed_negative, everywhere=False),
        Mistake("negative", like=distances.packed_negative_but_inf, everywhere=False),
        Mistake("negative", like=distances.packed_negative_in_sight, everywhere=False),
        Mistake("mask_only", like=distances.packed_mask, everywhere=False),
        Mistake("mask_only", like=distances.packed_mask_of_minus_inf, everywhere=False),
        Mistake("minus_inf", like=distances.packed_minus_inf, everywhere=False),
        Mistake("from_one", like=distances.packed_from_one, everywhere=False),
        Mistake("hides_own", like=distances.packed_hides_own, everywhere=False),
        Mistake("hides_own", like=distances.packed_one_too_near, everywhere=False),
        Mistake("key_places", like=distances.packed_key_places, everywhere=False),
        Mistake("first_only", like=distances.packed_first_document_only),
        Mistake("leaks", like=distances.packed_over_the_whole_row),
        Mistake("leaks", like=distances.packed_by_absolute_distance, everywhere=False),
        Mistake("leaks", like=distances.packed_over_the_whole_row_from_the_top_left),
        Mistake("other_documents", like=distances.packed_with_other_documents),
        Mistake("no_counters", like=distances.packed_all_at_the_start),
        Mistake("whole_row", like=distances.packed_counted_over_the_row),
        Mistake("whole_row", like=distances.packed_counted_from_the_top_left),
        Mistake("whole_row", like=distances.packed_counted_from_the_top_left_without_sign),
        Mistake("top_left", like=distances.packed_top_left),
        Mistake("top_left", like=distances.packed_top_left_without_sign),
        Mistake("queries_for_keys", like=distances.packed_queries_for_keys),
        Mistake("queries_for_keys", like=distances.packed_keys_for_queries),
    ],
)
