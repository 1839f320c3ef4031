"""Lesson 04: the exercises on heads, bytes and the cache's room know their wrong answers and take each right one."""

import math

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.gqa import kv_cache_bytes
from course_lib.lessons import lesson_04
from course_lib.lessons import lesson_04_mistakes as wrong
from course_lib.lessons import lesson_04_room_mistakes as rooms
from course_lib.lessons import lesson_04_tensor_mistakes as tensors

# --- 4.1 ---------------------------------------------------------------------------------------------------------


def map_by_nested_loops(num_heads, num_kv_heads):
    heads = []
    for kv_head in range(num_kv_heads):
        for _ in range(num_heads // num_kv_heads):
            heads.append(kv_head)
    return heads


def map_by_repeat_interleave(num_heads, num_kv_heads):
    return torch.arange(num_kv_heads).repeat_interleave(num_heads // num_kv_heads).tolist()


def map_in_whole_numbers(num_heads, num_kv_heads):
    return tuple(h * num_kv_heads // num_heads for h in range(num_heads))


def map_by_repeat(num_heads, num_kv_heads):
    return list(range(num_kv_heads)) * (num_heads // num_kv_heads)


def map_that_returns_at_once(num_heads, num_kv_heads):
    for h in range(num_heads):
        return h // (num_heads // num_kv_heads)


def map_of_groups(num_heads, num_kv_heads):
    group = num_heads // num_kv_heads
    return [list(range(kv * group, (kv + 1) * group)) for kv in range(num_kv_heads)]


def map_of_starts(num_heads, num_kv_heads):
    return list(range(0, num_heads, num_heads // num_kv_heads))


def map_of_pairs(num_heads, num_kv_heads):
    return list(enumerate(lesson_04.head_map(num_heads, num_kv_heads)))


def map_one_short(num_heads, num_kv_heads):
    return lesson_04.head_map(num_heads, num_kv_heads)[:-1]


def test_exercise_4_1_names_each_wrong_answer():
    assert_exercise(
        lesson_04.LESSON,
        "4.1",
        wrong={
            "by_remainder": [wrong.map_by_remainder, map_by_repeat],
            "by_kv_heads": [wrong.map_divided_by_kv_heads],
            "place_in_group": [wrong.map_place_in_group],
            "from_one": [wrong.map_from_one],
            "counted_from_one": [wrong.map_counted_from_one],
            "reversed": [wrong.map_reversed],
            "fractions": [wrong.map_of_fractions, lambda heads, kv: [h / (heads / kv) for h in range(heads)]],
            "rounded": [wrong.map_rounded, wrong.map_rounded_past_the_end, wrong.map_rounded_up],
            "first_members": [wrong.map_of_first_members],
            "group_sizes": [wrong.map_of_group_sizes],
            "not_shared": [wrong.map_itself],
            "all_the_first": [wrong.map_all_the_first],
            "gives_lists": [map_of_groups, map_of_pairs],
            "one_number": [map_that_returns_at_once, lambda heads, kv: heads // kv],
            "one_a_kv_head": [map_of_starts, lambda heads, kv: list(range(kv))],
            "common.wrong_length": [map_one_short],
        },
        right=[map_by_nested_loops, map_by_repeat_interleave, map_in_whole_numbers],
    )


# --- 4.2 ---------------------------------------------------------------------------------------------------------


def test_exercise_4_2_names_each_wrong_answer():
    def by_the_library(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
        return kv_cache_bytes(
            batch=batch,
            length=length,
            num_layers=num_layers,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=dtype,
        )

    def by_loops(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
        one_token = sum(head_dim * dtype.itemsize for _ in ("key", "value") for _ in range(num_kv_heads))
        return sum(one_token * length for _ in range(batch) for _ in range(num_layers))

    def by_a_tensor_of_no_memory(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
        shape = (2, num_layers, batch, length, num_kv_heads, head_dim)
        return torch.empty(shape, dtype=dtype, device="meta").nbytes

    def in_mebibytes(*sizes):
        return wrong.bytes_right(*sizes) / 2**20

    def of_four_or_two(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
        size = {torch.float32: 4, torch.float64: 8}.get(dtype, 2)
        return 2 * batch * length * num_layers * num_kv_heads * head_dim * size

    def by_finfo(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
        size = torch.finfo(dtype).bits // 8
        return 2 * batch * length * num_layers * num_kv_heads * head_dim * size

    def as_text(*sizes):
        return f"{wrong.bytes_right(*sizes)} bytes"

    assert_exercise(
        lesson_04.LESSON,
        "4.2",
        wrong={
            "keys_only": [wrong.bytes_of_keys_only],
            "query_heads": [wrong.bytes_of_query_heads],
            "both": [wrong.bytes_of_keys_of_query_heads],
            "group_size": [wrong.bytes_of_a_group],
            "with_queries": [
                wrong.bytes_with_queries,
                wrong.bytes_with_query_heads_too,
                wrong.bytes_of_queries_and_keys,
            ],
            "one_layer": [wrong.bytes_of_one_layer],
            "one_sequence": [wrong.bytes_of_one_sequence],
            "one_token": [wrong.bytes_of_one_token],
            "one_head": [wrong.bytes_of_one_head],
            "no_head_dim": [wrong.bytes_without_head_dim],
            "numbers": [wrong.bytes_as_numbers],
            "bits": [wrong.bytes_in_bits],
            "always_two": [wrong.bytes_always_two],
            "always_four": [wrong.bytes_always_four],
            "scores": [wrong.bytes_of_scores],
            "length_squared": [wrong.bytes_of_length_squared],
            "split_heads": [wrong.bytes_of_split_heads],
            "all_heads_wide": [wrong.bytes_of_all_heads_wide],
            "other_unit": [in_mebibytes, wrong.bytes_of_whole_mebibytes],
            "misses_a_size": [of_four_or_two],
            "one_less": [wrong.bytes_of_one_token_less],
            "one_more": [wrong.bytes_of_one_token_more],
            "triangle": [wrong.bytes_of_a_triangle],
            "divided_again": [wrong.bytes_divided_by_the_group],
            "added": [wrong.bytes_of_batch_plus_length],
            "too_few": [lambda *sizes: wrong.bytes_of_one_layer(*sizes) // 2],
            "too_many": [lambda *sizes: 2 * wrong.bytes_right(*sizes)],
            "common.wrong_type": [as_text],
            "common.crashed": [by_finfo],
        },
        right=[by_the_library, by_loops, by_a_tensor_of_no_memory],
    )


# --- 4.6 ---------------------------------------------------------------------------------------------------------


def append_by_index_copy(room, length, new):
    room.index_copy_(0, torch.arange(length, length + len(new)), new)
    return room.narrow(0, 0, length + len(new))


def append_by_loop(room, length, new):
    for i in range(len(new)):
        room[length + i] = new[i]
    return room[: length + len(new)]


def append_by_copy_(room, length, new):
    room[length:][: len(new)].copy_(new)
    return room[0 : length + new.size(0), :]


def append_by_rebinding(room, length, new):
    room = torch.cat((room[:length], new, room[length + len(new) :]))
    return room[: length + len(new)]


def append_to_a_clone(room, length, new):
    room = room.clone()
    room[length : length + len(new)] = new
    return room[: length + len(new)]


def append_and_pick_rows(room, length, new):
    room[length : length + len(new)] = new
    return room[torch.arange(length + len(new))]


def append_up_to_the_count(room, length, new):
    """The end of the range is the count of new rows, so that the range is empty."""
    room[length : len(new)] = new
    return room[: length + len(new)]


def append_into_one_row(room, length, new):
    room[length] = new
    return room[: length + 1]


def append_and_return_nothing(room, length, new):
    room[length : length + len(new)] = new


def append_and_give_two_more(room, length, new):
    room[length : length + len(new)] = new
    return room[: length + len(new) + 2]


def append_and_give_the_length(room, length, new):
    room[length : length + len(new)] = new
    return length + len(new)


def append_and_give_a_pair(room, length, new):
    room[length : length + len(new)] = new
    return room, length + len(new)


def append_backwards(room, length, new):
    room[length : length + len(new)] = new.flip(0)
    return room[: length + len(new)]


def test_exercise_4_6_names_each_wrong_answer():
    assert_exercise(
        lesson_04.LESSON,
        "4.6",
        wrong={
            "moved_all": [rooms.append_by_cat, append_by_rebinding, append_to_a_clone],
            "room_grew": [rooms.append_to_all_of_the_room],
            "one_row": [append_into_one_row],
            "copied": [rooms.append_and_copy, append_and_pick_rows],
            "gave_all": [rooms.append_and_give_all],
            "gave_new": [rooms.append_and_give_new, rooms.append_and_give_new_itself],
            "one_too_few": [rooms.append_and_give_one_too_few],
            "gave_old": [rooms.append_and_give_old],
            "at_start": [rooms.append_at_start],
            "over_the_last": [rooms.append_over_the_last, rooms.append_one_early],
            "a_gap": [rooms.append_one_late],
            "at_end": [rooms.append_at_end],
            "added": [rooms.append_added],
            "nothing_written": [rooms.append_nothing, append_up_to_the_count],
            "only_one": [
                rooms.append_only_the_first,
                rooms.append_only_the_last,
                rooms.append_first_and_one_longer,
            ],
            "one_longer": [rooms.append_one_longer],
            "not_rows": [append_and_give_the_length, append_and_give_a_pair],
            "other_rows": [append_and_give_two_more],
            "other_room": [append_backwards],
            "common.returned_nothing": [append_and_return_nothing],
        },
        right=[append_by_index_copy, append_by_loop, append_by_copy_],
    )


# --- 4.5 ---------------------------------------------------------------------------------------------------------


def pool_by_loop(weight, num_heads, num_kv_heads):
    heads = weight.split(len(weight) // num_heads)
    group = num_heads // num_kv_heads
    return torch.cat([sum(heads[i : i + group]) / group for i in range(0, num_heads, group)])


def pool_by_einsum(weight, num_heads, num_kv_heads):
    group = num_heads // num_kv_heads
    return (
        torch.einsum("kgdi->kdi", weight.view(num_kv_heads, group, -1, weight.shape[1])).flatten(0, 1) / group
    )


def pool_by_matrix(weight, num_heads, num_kv_heads):
    head_dim, group = len(weight) // num_heads, num_heads // num_kv_heads
    pooling = torch.kron(torch.eye(num_kv_heads), torch.ones(1, group) / group)
    return torch.kron(pooling, torch.eye(head_dim)) @ weight


def pool_columns(weight, num_heads, num_kv_heads):
    return weight.unflatten(1, (-1, num_heads // num_kv_heads)).mean(2)


def pool_into_heads(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1)).mean(1)


def pool_keeping_the_axis(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1)).mean(1, keepdim=True)


def pool_all_into_one(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_heads, -1)).mean(0)


def pool_with_axes_in_other_order(weight, num_heads, num_kv_heads):
    head_dim = len(weight) // num_heads
    return weight.reshape(-1, num_heads // num_kv_heads, head_dim, weight.shape[1]).mean(0).flatten(0, 1)


def pool_by_stride(weight, num_heads, num_kv_heads):
    heads = torch.stack(weight.chunk(num_heads))
    return torch.cat([heads[kv::num_kv_heads].mean(0) for kv in range(num_kv_heads)])


def pool_in_pairs(weight, num_heads, num_kv_heads):
    """Written for 8 over 4: two heads a group, whatever the group is."""
    heads, group = weight.chunk(num_heads), num_heads // num_kv_heads
    return torch.cat([(heads[i] + heads[i + 1]) / 2 for i in range(0, num_heads, group)])


def pool_transposed(weight, num_heads, num_kv_heads):
    return lesson_04.pool_heads(weight, num_heads, num_kv_heads).T


def test_exercise_4_5_names_each_wrong_answer():
    assert_exercise(
        lesson_04.LESSON,
        "4.5",
        wrong={
            "sum": [tensors.pool_sum],
            "first": [tensors.pool_first],
            "last": [tensors.pool_last],
            "first_rows": [tensors.pool_first_rows],
            "by_remainder": [tensors.pool_by_remainder, pool_by_stride],
            "wrong_axis": [
                tensors.pool_over_kv_heads,
                tensors.pool_split_and_averaged_the_other_way,
                pool_with_axes_in_other_order,
            ],
            "one_row_each": [tensors.pool_into_one_row_each],
            "two_of_each": [tensors.pool_first_two, pool_in_pairs],
            "rows_interleaved": [tensors.pool_with_rows_interleaved],
            "within_heads": [tensors.pool_within_heads],
            "neighbouring_rows": [tensors.pool_neighbouring_rows],
            "over_root": [tensors.pool_over_root],
            "wrong_count": [tensors.pool_by_kv_heads, tensors.pool_by_heads],
            "median": [tensors.pool_median],
            "all_the_same": [tensors.pool_all_the_same],
            "columns": [pool_columns],
            "left_in_heads": [pool_into_heads, pool_keeping_the_axis],
            "one_head_only": [pool_all_into_one],
            "common.axes_swapped": [pool_transposed],
            "common.list_for_tensor": [lambda *args: pool_by_loop(*args).tolist()],
        },
        right=[pool_by_loop, pool_by_einsum, pool_by_matrix],
    )


def test_every_solution_says_the_same_as_the_library():
    assert lesson_04.cache_bytes(2, 10, 3, 8, 2, 16, torch.float16) == kv_cache_bytes(
        batch=2, length=10, num_layers=3, num_kv_heads=2, head_dim=16, dtype=torch.float16
    )
    assert math.prod((2, 2, 10, 3, 2, 16, 2)) == lesson_04.cache_bytes(2, 10, 3, 8, 2, 16, torch.float16)
