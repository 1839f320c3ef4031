"""Exercises of lesson 04, grouped-query attention: the head map, the cache's bytes, scores without copies, the
gradient of a shared head, pooled projections, and room for what comes.

The pictures and the widget are in `lesson_04_pictures`, what the three ways of sharing allocate is measured in
`lesson_04_sharing`, and the wrong answers that the checks know by name are in `lesson_04_mistakes`,
`lesson_04_tensor_mistakes` and `lesson_04_room_mistakes`.
"""

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_04_mistakes as wrong
from course_lib.lessons import lesson_04_room_mistakes as rooms
from course_lib.lessons import lesson_04_tensor_mistakes as tensors
from course_lib.lessons.lesson_04_pictures import (
    MODELS,
    cache_calculator,
    decode_figure,
    heads_figure,
    pooling_figure,
    render_cache_calculator,
    room_figure,
    writing_figure,
)
from course_lib.lessons.lesson_04_sharing import allocated

LESSON = Lesson("lesson_04")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "MODELS",
    "allocated",
    "cache_calculator",
    "check_append",
    "check_cache_bytes",
    "check_grouped_scores",
    "check_head_map",
    "check_pool_heads",
    "check_shared_gradient",
    "decode_figure",
    "heads_figure",
    "hint",
    "language",
    "pooling_figure",
    "progress",
    "render_cache_calculator",
    "restore",
    "room_figure",
    "solution",
    "writing_figure",
]


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


# --- 4.1 ---------------------------------------------------------------------------------------------------------


def head_map(num_heads, num_kv_heads):
    """A list with an entry for each query head: the number of the kv head that it uses."""
    group = num_heads // num_kv_heads
    return [head // group for head in range(num_heads)]


check_head_map = LESSON.exercise(
    "4.1",
    "head_map",
    solution=head_map,
    cases=[
        Case((8, 2), label="eight_over_two", expected=[0, 0, 0, 0, 1, 1, 1, 1]),
        Case((6, 3), label="six_over_three", expected=[0, 0, 1, 1, 2, 2]),
        Case((12, 4), label="twelve_over_four"),
        Case((4, 4), label="multi_head", expected=[0, 1, 2, 3]),
        Case((5, 1), label="multi_query", expected=[0, 0, 0, 0, 0]),
    ],
    mistakes=[
        Mistake("gives_lists", when=wrong.gives_lists, values=wrong.sizes),
        Mistake("one_number", when=wrong.one_number, values=wrong.sizes),
        Mistake("one_a_kv_head", when=wrong.one_entry_a_kv_head, values=wrong.sizes),
        Mistake("by_remainder", like=wrong.map_by_remainder, values=wrong.sizes),
        Mistake("by_kv_heads", like=wrong.map_divided_by_kv_heads, values=wrong.sizes),
        Mistake("place_in_group", like=wrong.map_place_in_group, values=wrong.sizes),
        Mistake("from_one", like=wrong.map_from_one, values=wrong.sizes),
        Mistake("counted_from_one", like=wrong.map_counted_from_one, values=wrong.sizes),
        Mistake("reversed", like=wrong.map_reversed, values=wrong.sizes),
        Mistake("fractions", like=wrong.map_of_fractions, values=wrong.sizes),
        Mistake("rounded", like=wrong.map_rounded, values=wrong.sizes),
        Mistake("rounded", like=wrong.map_rounded_past_the_end, values=wrong.sizes),
        Mistake("rounded", like=wrong.map_rounded_up, values=wrong.sizes),
        Mistake("first_members", like=wrong.map_of_first_members, values=wrong.sizes),
        Mistake("group_sizes", like=wrong.map_of_group_sizes, values=wrong.sizes),
        Mistake("not_shared", like=wrong.map_itself, values=wrong.sizes),
        Mistake("all_the_first", like=wrong.map_all_the_first, values=wrong.sizes),
    ],
)


# --- 4.2 ---------------------------------------------------------------------------------------------------------


def cache_bytes(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    """Bytes of the keys and values that a model keeps of `batch` sequences of `length` tokens."""
    return 2 * batch * length * num_layers * num_kv_heads * head_dim * dtype.itemsize


check_cache_bytes = LESSON.exercise(
    "4.2",
    "cache_bytes",
    solution=cache_bytes,
    cases=[
        Case((1, 6, 3, 8, 4, 16, torch.float32), label="six_words", expected=9216),
        Case((3, 100, 5, 12, 2, 32, torch.bfloat16), label="batch"),
        Case((1, 4096, 80, 64, 8, 128, torch.float16), label="llama", expected=5 * 2**28),
        Case((2, 50, 7, 6, 3, 24, torch.float64), label="double"),
        Case((2, 300, 10, 16, 2, 64, torch.int8), label="one_byte"),
    ],
    mistakes=[
        Mistake("keys_only", like=wrong.bytes_of_keys_only),
        Mistake("query_heads", like=wrong.bytes_of_query_heads),
        Mistake("both", like=wrong.bytes_of_keys_of_query_heads),
        Mistake("group_size", like=wrong.bytes_of_a_group),
        Mistake("with_queries", like=wrong.bytes_with_queries),
        Mistake("with_queries", like=wrong.bytes_with_query_heads_too),
        Mistake("one_layer", like=wrong.bytes_of_one_layer),
        Mistake("one_sequence", like=wrong.bytes_of_one_sequence),
        Mistake("one_token", like=wrong.bytes_of_one_token),
        Mistake("one_head", like=wrong.bytes_of_one_head),
        Mistake("no_head_dim", like=wrong.bytes_without_head_dim),
        Mistake("numbers", like=wrong.bytes_as_numbers),
        Mistake("bits", like=wrong.bytes_in_bits),
        Mistake("always_two", like=wrong.bytes_always_two),
        Mistake("always_four", like=wrong.bytes_always_four),
        Mistake("scores", like=wrong.bytes_of_scores),
        Mistake("length_squared", like=wrong.bytes_of_length_squared),
        Mistake("split_heads", like=wrong.bytes_of_split_heads),
        Mistake("all_heads_wide", like=wrong.bytes_of_all_heads_wide),
        Mistake("with_queries", like=wrong.bytes_of_queries_and_keys),
        Mistake("one_less", like=wrong.bytes_of_one_token_less),
        Mistake("one_more", like=wrong.bytes_of_one_token_more),
        Mistake("triangle", like=wrong.bytes_of_a_triangle),
        Mistake("divided_again", like=wrong.bytes_divided_by_the_group),
        Mistake("added", like=wrong.bytes_of_batch_plus_length),
        Mistake("other_unit", when=wrong.in_another_unit),
        Mistake("other_unit", like=wrong.bytes_of_whole_mebibytes),
        Mistake("misses_a_size", when=wrong.only_wrong_for_one_byte),
        Mistake("too_few", when=wrong.a_factor_too_few, values=wrong.how_far_off),
        Mistake("too_many", when=wrong.a_factor_too_many, values=wrong.how_far_off),
    ],
)


# --- 4.3 ---------------------------------------------------------------------------------------------------------


def grouped_scores(query, key):
    """[num_heads, q_len, k_len] dot products of query [q_len, num_heads, head_dim] and key [k_len, num_kv_heads,
    head_dim]; no scale, no mask."""
    q_len, num_heads, head_dim = query.shape
    k_len, num_kv_heads, _ = key.shape
    group = num_heads // num_kv_heads
    # Heads first; then the words of a group's heads follow each other, as further rows of their kv head.
    rows = query.transpose(0, 1).reshape(num_kv_heads, group * q_len, head_dim)
    scores = rows @ key.permute(1, 2, 0)  # [num_kv_heads, group * q_len, k_len]
    return scores.reshape(num_heads, q_len, k_len)


def _query_and_key(q_len: int, num_heads: int, k_len: int, num_kv_heads: int, head_dim: int):
    return lambda: (_normal(q_len, num_heads, head_dim), _normal(k_len, num_kv_heads, head_dim))


check_grouped_scores = LESSON.exercise(
    "4.3",
    "grouped_scores",
    solution=grouped_scores,
    cases=[
        Case(_query_and_key(1, 4, 5, 2, 8), label="one_query"),
        Case(_query_and_key(3, 6, 4, 2, 8), label="several_queries"),
        Case(_query_and_key(2, 12, 7, 3, 6), label="twelve_over_three"),
        Case(_query_and_key(2, 5, 3, 1, 4), label="multi_query"),
        Case(_query_and_key(2, 3, 5, 3, 4), label="multi_head"),
    ],
    mistakes=[
        Mistake("left_folded", when=tensors.left_folded, values=tensors.score_sizes),
        Mistake("group_gone", when=tensors.scores_summed_over_group, values=tensors.score_sizes),
        Mistake("every_pair", when=tensors.every_pair, values=tensors.score_sizes),
        Mistake("needs_as_many", when=tensors.needs_as_many_heads),
        Mistake("by_kv_heads", like=tensors.scores_divided_by_kv_heads),
        Mistake("masked", when=tensors.masked),
        Mistake("repeated", like=tensors.scores_of_repeated_keys),
        Mistake("scaled", like=tensors.scores_scaled),
        Mistake("softmaxed", like=tensors.scores_softmaxed),
        Mistake("softmaxed", like=tensors.scores_softmaxed_and_scaled),
        Mistake("first_kv_head", like=tensors.scores_of_first_kv_head),
        Mistake("mean_key", like=tensors.scores_of_mean_key),
        Mistake("summed_keys", like=tensors.scores_of_summed_keys),
        Mistake("mean_query", like=tensors.scores_of_mean_query),
        Mistake("rows_not_moved", like=tensors.scores_of_rows_not_moved),
        Mistake("keys_not_moved", like=tensors.scores_of_keys_not_moved),
        Mistake("keys_not_moved", like=tensors.scores_of_queries_and_keys_not_moved),
        Mistake("other_order", like=tensors.scores_with_heads_in_other_order, values=tensors.score_sizes),
        Mistake("interleaved", like=tensors.scores_rows_interleaved, values=tensors.score_sizes),
    ],
)


# --- 4.4 ---------------------------------------------------------------------------------------------------------


def shared_gradient(grad, num_kv_heads):
    """The gradient [k_len, num_kv_heads, head_dim] of shared keys; grad [k_len, num_heads, head_dim] is that of the
    key as each query head used it."""
    return grad.unflatten(1, (num_kv_heads, -1)).sum(2)


def _gradients(k_len: int, num_heads: int, head_dim: int, num_kv_heads: int):
    return lambda: (_normal(k_len, num_heads, head_dim), num_kv_heads)


check_shared_gradient = LESSON.exercise(
    "4.4",
    "shared_gradient",
    solution=shared_gradient,
    cases=[
        Case(
            lambda: (torch.tensor([[[1.0], [2.0], [4.0], [8.0]]]), 2),
            label="by_hand",
            expected=torch.tensor([[[3.0], [12.0]]]),
        ),
        Case(_gradients(5, 6, 3, 2), label="six_over_two"),
        Case(_gradients(4, 12, 2, 3), label="twelve_over_three"),
        Case(_gradients(3, 4, 5, 1), label="multi_query"),
        Case(_gradients(3, 4, 2, 4), label="multi_head"),
    ],
    mistakes=[
        Mistake("every_head", when=tensors.gives_every_head),
        Mistake("group_axis", when=tensors.kept_a_group_axis),
        Mistake("words_too", when=tensors.gradient_over_sum_and_words),
        Mistake("wrong_axis", like=tensors.gradient_summed_over_kv_heads),
        Mistake("wrong_axis", like=tensors.gradient_split_and_summed_the_other_way),
        Mistake("by_kv_heads", like=tensors.gradient_divided_by_kv_heads),
        Mistake("mean", like=tensors.gradient_mean),
        Mistake("first_only", like=tensors.gradient_of_first),
        Mistake("last_only", like=tensors.gradient_of_last),
        Mistake("first_heads", like=tensors.gradient_of_first_heads),
        Mistake("by_remainder", like=tensors.gradient_by_remainder, values=tensors.last_argument),
        Mistake("by_remainder", like=tensors.gradient_mean_by_remainder, values=tensors.last_argument),
        Mistake("all_heads", like=tensors.gradient_of_all_heads),
        Mistake("all_heads", when=tensors.all_heads_in_one),
        Mistake("largest", like=tensors.gradient_largest),
        Mistake("largest", like=tensors.gradient_largest_by_size),
        Mistake("largest", like=tensors.gradient_of_longest),
        Mistake("over_root", like=tensors.gradient_over_root),
        Mistake("product", like=tensors.gradient_product),
        Mistake("times_group", like=tensors.gradient_times_group),
        Mistake("wrong_count", like=tensors.gradient_over_kv_heads),
        Mistake("wrong_count", like=tensors.gradient_over_heads),
        Mistake("wrong_count", like=tensors.gradient_sum_times_group),
        Mistake(
            "by_remainder",
            like=tensors.gradient_by_remainder,
            everywhere=False,
            values=tensors.last_argument,
        ),
    ],
)


# --- 4.5 ---------------------------------------------------------------------------------------------------------


def pool_heads(weight, num_heads, num_kv_heads):
    """[num_kv_heads * head_dim, dim]: each kv head the mean of its group's heads in weight [num_heads * head_dim,
    dim]."""
    head_dim = weight.shape[0] // num_heads
    heads = weight.reshape(num_kv_heads, num_heads // num_kv_heads, head_dim, weight.shape[1])
    return heads.mean(1).reshape(num_kv_heads * head_dim, weight.shape[1])


def _by_hand() -> tuple[torch.Tensor, int, int]:
    """Four heads of two rows: in the first column the first two average to 2 and 20, the others to 6 and 60."""
    first = torch.tensor([1.0, 10, 3, 30, 5, 50, 7, 70])
    return torch.stack([first, -first], dim=1), 4, 2


def _weights(num_heads: int, head_dim: int, dim: int, num_kv_heads: int):
    return lambda: (_normal(num_heads * head_dim, dim), num_heads, num_kv_heads)


check_pool_heads = LESSON.exercise(
    "4.5",
    "pool_heads",
    solution=pool_heads,
    cases=[
        Case(_by_hand, label="by_hand", expected=torch.tensor([[2.0, -2], [20, -20], [6, -6], [60, -60]])),
        Case(_weights(6, 5, 7, 2), label="six_into_two"),
        Case(_weights(8, 3, 10, 4), label="eight_into_four"),
        Case(_weights(4, 3, 6, 1), label="multi_query"),
        Case(_weights(3, 2, 6, 3), label="multi_head"),
    ],
    mistakes=[
        Mistake("left_in_heads", when=tensors.left_in_heads),
        Mistake("one_row_each", like=tensors.pool_into_one_row_each),
        Mistake("wrong_axis", like=tensors.pool_over_kv_heads),
        Mistake("wrong_axis", like=tensors.pool_split_and_averaged_the_other_way),
        Mistake("one_head_only", when=tensors.one_head_only),
        Mistake("columns", when=tensors.pooled_columns),
        Mistake("sum", like=tensors.pool_sum),
        Mistake("first", like=tensors.pool_first),
        Mistake("last", like=tensors.pool_last),
        Mistake("first_rows", like=tensors.pool_first_rows),
        Mistake("by_remainder", like=tensors.pool_by_remainder, values=tensors.last_argument),
        Mistake("neighbouring_rows", like=tensors.pool_neighbouring_rows),
        Mistake("over_root", like=tensors.pool_over_root),
        Mistake("wrong_count", like=tensors.pool_by_kv_heads),
        Mistake("wrong_count", like=tensors.pool_by_heads),
        Mistake("median", like=tensors.pool_median),
        Mistake("two_of_each", like=tensors.pool_first_two, everywhere=False),
        Mistake("rows_interleaved", like=tensors.pool_with_rows_interleaved),
        Mistake("all_the_same", like=tensors.pool_all_the_same),
        Mistake("within_heads", like=tensors.pool_within_heads, everywhere=False),
        Mistake(
            "by_remainder", like=tensors.pool_by_remainder, everywhere=False, values=tensors.last_argument
        ),
    ],
)


# --- 4.6 ---------------------------------------------------------------------------------------------------------


def append(room, length, new):
    """Write new [n, kv_heads, head_dim] into room [max_length, kv_heads, head_dim], whose first `length` rows are
    taken; return all the rows that are taken now, as a part of room."""
    stop = length + new.shape[0]
    room[length:stop] = new
    return room[:stop]


def _room(max_length: int, length: int, count: int):
    def made() -> tuple[torch.Tensor, int, torch.Tensor]:
        room = _normal(max_length, 2, 3)
        room[length:] = 9.0  # what a longer text has left behind
        return room, length, _normal(count, 2, 3) + 20

    return made


def _what_is_kept(result, args):
    """The result, the room afterwards, and whether the one lies in the other."""
    if not isinstance(result, torch.Tensor):
        return result  # nothing, or a list: said in the common words
    room = args[0]
    return result, room, result.untyped_storage().data_ptr() == room.untyped_storage().data_ptr()


check_append = LESSON.exercise(
    "4.6",
    "append",
    solution=append,
    cases=[
        Case(_room(8, 3, 1), label="one_token", observe=_what_is_kept),
        Case(_room(9, 2, 4), label="several_tokens", observe=_what_is_kept),
        Case(_room(6, 0, 2), label="empty", observe=_what_is_kept),
        Case(_room(5, 3, 2), label="to_the_brim", observe=_what_is_kept),
    ],
    mistakes=[
        Mistake("not_rows", when=rooms.gives_no_rows),
        Mistake("moved_all", when=rooms.right_but_elsewhere),
        Mistake("one_row", when=rooms.several_into_one_row),
        Mistake("room_grew", like=rooms.append_to_all_of_the_room),
        Mistake("copied", when=rooms.right_but_a_copy),
        Mistake("gave_all", like=rooms.append_and_give_all, everywhere=False),
        Mistake("one_too_few", like=rooms.append_and_give_one_too_few),
        Mistake("gave_new", like=rooms.append_and_give_new, everywhere=False),
        Mistake("gave_new", like=rooms.append_and_give_new_itself),
        Mistake("gave_old", like=rooms.append_and_give_old, everywhere=False),
        Mistake("at_start", like=rooms.append_at_start, everywhere=False),
        Mistake("over_the_last", like=rooms.append_over_the_last, everywhere=False),
        Mistake("over_the_last", like=rooms.append_one_early, everywhere=False),
        Mistake("a_gap", like=rooms.append_one_late, everywhere=False),
        Mistake("at_end", like=rooms.append_at_end, everywhere=False),
        Mistake("added", like=rooms.append_added, everywhere=False),
        Mistake("nothing_written", like=rooms.append_nothing, everywhere=False),
        Mistake("only_one", like=rooms.append_only_the_first, values=rooms.new_rows),
        Mistake("only_one", like=rooms.append_only_the_last, values=rooms.new_rows),
        Mistake("only_one", like=rooms.append_first_and_one_longer, values=rooms.new_rows),
        Mistake("one_longer", like=rooms.append_one_longer, values=rooms.new_rows),
        Mistake("other_rows", when=rooms.gives_other_rows, values=rooms.row_counts),
        Mistake("other_room", when=rooms.wrote_elsewhere, values=rooms.first_wrong_row),
    ],
)
