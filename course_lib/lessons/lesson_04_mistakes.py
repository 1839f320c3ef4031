"""Wrong answers to lesson 04's exercises on the head map and the cache's bytes, to be recognised by their output."""

import math

from course_lib.classroom.exercise import Attempt

# --- 4.1: which kv head a query head uses ------------------------------------------------------------------------


def map_by_remainder(num_heads, num_kv_heads):
    return [h % num_kv_heads for h in range(num_heads)]


def map_divided_by_kv_heads(num_heads, num_kv_heads):
    return [h // num_kv_heads for h in range(num_heads)]


def map_place_in_group(num_heads, num_kv_heads):
    return [h % (num_heads // num_kv_heads) for h in range(num_heads)]


def map_from_one(num_heads, num_kv_heads):
    return [h // (num_heads // num_kv_heads) + 1 for h in range(num_heads)]


def map_reversed(num_heads, num_kv_heads):
    return [num_kv_heads - 1 - h // (num_heads // num_kv_heads) for h in range(num_heads)]


def map_of_fractions(num_heads, num_kv_heads):
    return [h * num_kv_heads / num_heads for h in range(num_heads)]


def map_rounded(num_heads, num_kv_heads):
    return [min(round(h * num_kv_heads / num_heads), num_kv_heads - 1) for h in range(num_heads)]


def map_rounded_past_the_end(num_heads, num_kv_heads):
    return [round(h * num_kv_heads / num_heads) for h in range(num_heads)]


def map_rounded_up(num_heads, num_kv_heads):
    return [math.ceil(h * num_kv_heads / num_heads) for h in range(num_heads)]


def map_counted_from_one(num_heads, num_kv_heads):
    return [(h + 1) // (num_heads // num_kv_heads) for h in range(num_heads)]


def map_all_the_first(num_heads, num_kv_heads):
    return [0] * num_heads


def map_itself(num_heads, num_kv_heads):
    return list(range(num_heads))


def map_of_group_sizes(num_heads, num_kv_heads):
    return [num_heads // num_kv_heads] * num_heads


def map_of_first_members(num_heads, num_kv_heads):
    group = num_heads // num_kv_heads
    return [h // group * group for h in range(num_heads)]


def gives_lists(attempt: Attempt) -> bool:
    """A list for each kv head, or pairs, in place of one number for each query head."""
    return any(isinstance(entry, list | tuple | range | dict) for entry in attempt.got)


def one_entry_a_kv_head(attempt: Attempt) -> bool:
    """Also asked where both counts are the same: there the length says nothing, and this says no."""
    num_heads, num_kv_heads = attempt.args
    return len(attempt.got) == num_kv_heads != num_heads


def sizes(attempt: Attempt) -> dict[str, object]:
    """As text, so that they stay Latin digits beside code."""
    num_heads, num_kv_heads = attempt.args
    return {
        "answer": str(attempt.got),
        "right": str(attempt.wanted),
        "heads": str(num_heads),
        "group": str(num_heads // num_kv_heads),
        "last": str(num_heads - 1),
        "last_kv": str(num_kv_heads - 1),
    }


def one_number(attempt: Attempt) -> bool:
    return isinstance(attempt.got, int | float)


# --- 4.2: bytes of a cache ---------------------------------------------------------------------------------------


def bytes_right(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_keys_only(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return batch * length * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_query_heads(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_heads * head_dim * dtype.itemsize


def bytes_of_keys_of_query_heads(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return batch * length * num_layers * num_heads * head_dim * dtype.itemsize


def bytes_of_a_group(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * (num_heads // num_kv_heads) * head_dim * dtype.itemsize


def bytes_with_queries(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 3 * batch * length * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_with_query_heads_too(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return (num_heads + 2 * num_kv_heads) * batch * length * num_layers * head_dim * dtype.itemsize


def bytes_of_one_layer(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_one_sequence(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * length * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_one_token(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_one_head(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * head_dim * dtype.itemsize


def bytes_without_head_dim(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_kv_heads * dtype.itemsize


def bytes_as_numbers(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_kv_heads * head_dim


def bytes_in_bits(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 8 * bytes_right(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype)


def bytes_always_two(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 4 * batch * length * num_layers * num_kv_heads * head_dim


def bytes_always_four(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 8 * batch * length * num_layers * num_kv_heads * head_dim


def bytes_of_scores(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return batch * length * length * num_layers * num_heads * dtype.itemsize


def bytes_of_length_squared(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length**2 * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_split_heads(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_kv_heads * (head_dim // num_heads) * dtype.itemsize


def bytes_of_all_heads_wide(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * length * num_layers * num_kv_heads * num_heads * head_dim * dtype.itemsize


def bytes_of_whole_mebibytes(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return bytes_right(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype) // 2**20


def bytes_of_queries_and_keys(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return batch * length * num_layers * (num_heads + num_kv_heads) * head_dim * dtype.itemsize


def bytes_of_one_token_less(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * (length - 1) * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_one_token_more(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * batch * (length + 1) * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_of_a_triangle(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    read = length * (length + 1) // 2
    return 2 * batch * read * num_layers * num_kv_heads * head_dim * dtype.itemsize


def bytes_divided_by_the_group(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    whole = bytes_right(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype)
    return whole // (num_heads // num_kv_heads)


def bytes_of_batch_plus_length(batch, length, num_layers, num_heads, num_kv_heads, head_dim, dtype):
    return 2 * (batch + length) * num_layers * num_kv_heads * head_dim * dtype.itemsize


def a_factor_too_few(attempt: Attempt) -> bool:
    """A whole part of what is wanted: factors that were left out, in a combination that has no name of its own."""
    return 0 < attempt.got < attempt.wanted and attempt.wanted % attempt.got == 0


def a_factor_too_many(attempt: Attempt) -> bool:
    return attempt.got > attempt.wanted and attempt.got % attempt.wanted == 0


def how_far_off(attempt: Attempt) -> dict[str, object]:
    larger, smaller = max(attempt.got, attempt.wanted), min(attempt.got, attempt.wanted)
    return {"answer": str(attempt.got), "ratio": str(int(larger // smaller))}


def in_another_unit(attempt: Attempt) -> bool:
    return any(
        math.isclose(attempt.got * unit, attempt.wanted) for unit in (1e3, 1024, 1e6, 2**20, 1e9, 2**30)
    )


def only_wrong_for_one_byte(attempt: Attempt) -> bool:
    """All larger dtypes came right before: two sizes were told apart, and a third is there."""
    return attempt.returned and attempt.args[-1].itemsize == 1
