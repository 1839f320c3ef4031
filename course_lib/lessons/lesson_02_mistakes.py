"""Wrong answers to exercises 2.1 to 2.3 of lesson 02 (the forward), each written as a student would.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import math

import torch

INF = math.inf

# --- 2.1 ---------------------------------------------------------------------------------------------------------


def _merged(m, keep1, keep2, l1, o1, l2, o2):
    return m, keep1 * l1 + keep2 * l2, keep1 * o1 + keep2 * o2


def merge_nan_where_blind(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, (m1 - m).exp(), (m2 - m).exp(), l1, o1, l2, o2)


def merge_output_first(m1, l1, o1, m2, l2, o2):
    return merge_nan_where_blind(m1, l1, o1, m2, l2, o2)[::-1]


def merge_total_first(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return total, m, acc


def merge_without_rescaling(m1, l1, o1, m2, l2, o2):
    return torch.maximum(m1, m2), l1 + l2, o1 + o2


def merge_rescales_sum_only(m1, l1, o1, m2, l2, o2):
    m, total, _ = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total, o1 + o2


def merge_rescales_output_only(m1, l1, o1, m2, l2, o2):
    m, _, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, l1 + l2, acc


def merge_averages(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total / 2, acc / 2


def merge_averages_output(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total, acc / 2


def merge_averages_outputs(m1, l1, o1, m2, l2, o2):
    m, total, _ = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total, (o1 / l1 + o2 / l2) / 2


def merge_divides(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total, acc / total


def merge_weighs_twice(m1, l1, o1, m2, l2, o2):
    m, total, _ = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, total, (m1 - m).exp() * l1 * o1 + (m2 - m).exp() * l2 * o2


def merge_weighs_twice_and_divides(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_weighs_twice(m1, l1, o1, m2, l2, o2)
    return m, total, acc / total


def merge_by_logaddexp(m1, l1, o1, m2, l2, o2):
    m = torch.logaddexp(m1, m2)
    return _merged(m, (m1 - m).exp(), (m2 - m).exp(), l1, o1, l2, o2)


def merge_gives_log(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_nan_where_blind(m1, l1, o1, m2, l2, o2)
    return m, m + total.log(), acc


def merge_adds_tops(m1, l1, o1, m2, l2, o2):
    return _merged(m1 + m2, 1, 1, l1, o1, l2, o2)


def merge_by_minimum(m1, l1, o1, m2, l2, o2):
    m = torch.minimum(m1, m2)
    return _merged(m, (m1 - m).exp(), (m2 - m).exp(), l1, o1, l2, o2)


def merge_by_largest_of_all(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2).max().expand_as(m1)
    return _merged(m, (m1 - m).exp(), (m2 - m).exp(), l1, o1, l2, o2)


def merge_flipped(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, (m - m1).exp(), (m - m2).exp(), l1, o1, l2, o2)


def merge_crossed(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, (m2 - m).exp(), (m1 - m).exp(), l1, o1, l2, o2)


def merge_base_two(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, 2 ** (m1 - m), 2 ** (m2 - m), l1, o1, l2, o2)


def merge_rescales_first_only(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, (m1 - m).exp(), 1, l1, o1, l2, o2)


def merge_rescales_second_only(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return _merged(m, 1, (m2 - m).exp(), l1, o1, l2, o2)


def merge_takes_newest_top(m1, l1, o1, m2, l2, o2):
    return _merged(m2, (m1 - m2).exp(), 1, l1, o1, l2, o2)


def merge_keeps_first_top(m1, l1, o1, m2, l2, o2):
    return _merged(m1, 1, (m2 - m1).exp(), l1, o1, l2, o2)


def merge_shrinks_first(m1, l1, o1, m2, l2, o2):
    return _merged(torch.maximum(m1, m2), (-(m1 - m2).abs()).exp(), 1, l1, o1, l2, o2)


def merge_measured_from_zero(m1, l1, o1, m2, l2, o2):
    return _merged(torch.maximum(m1, m2), m1.exp(), m2.exp(), l1, o1, l2, o2)


def merge_from_zero(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    total = (l1 * m1.exp() + l2 * m2.exp()) / m.exp()
    return m, total, (o1 * m1.exp() + o2 * m2.exp()) / m.exp()


# --- 2.2 ---------------------------------------------------------------------------------------------------------


def _loop(query, key, value, tile, *, scale=None, step, start=-INF):
    """The loop of the solution with another step in it."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    state = (
        torch.full((len(query), 1), start),
        torch.zeros(len(query), 1),
        torch.zeros(len(query), value.shape[-1]),
    )
    for first in range(0, len(key), tile):
        scores = query @ key[first : first + tile].T * scale
        state = step(*state, scores, value[first : first + tile])
    return state


def _right_step(top, total, acc, scores, value):
    new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
    weights, keep = (scores - new_top).exp(), (top - new_top).exp()
    return new_top, total * keep + weights.sum(-1, keepdim=True), acc * keep + weights @ value


def _divided(state):
    _, total, acc = state
    return acc / total


def loop_unscaled(query, key, value, tile):
    return _divided(_loop(query, key, value, tile, scale=1, step=_right_step))


def _scaled(query, key, value, tile, scale):
    return _divided(_loop(query, key, value, tile, scale=scale, step=_right_step))


def loop_scaled_by_head_dim(query, key, value, tile):
    return _scaled(query, key, value, tile, 1 / query.shape[-1])


def loop_scaled_by_value_dim(query, key, value, tile):
    return _scaled(query, key, value, tile, 1 / math.sqrt(value.shape[-1]))


def loop_scaled_by_queries(query, key, value, tile):
    return _scaled(query, key, value, tile, 1 / math.sqrt(len(query)))


def loop_multiplied(query, key, value, tile):
    return _scaled(query, key, value, tile, math.sqrt(query.shape[-1]))


def loop_sums_all(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top, _, acc = _right_step(top, total, acc, scores, value)
        return new_top, total * (top - new_top).exp() + (scores - new_top).exp().sum(), acc

    return _divided(_loop(query, key, value, tile, step=step))


def loop_not_divided(query, key, value, tile):
    return _loop(query, key, value, tile, step=_right_step)[2]


def loop_from_zero(query, key, value, tile):
    return _divided(_loop(query, key, value, tile, step=_right_step, start=0.0))


def loop_last_tile_only(query, key, value, tile):
    def step(top, total, acc, scores, value):
        return top, 1, scores.softmax(-1) @ value

    return _loop(query, key, value, tile, step=step)[2]


def loop_first_tile_only(query, key, value, tile):
    return _divided(_loop(query, key[:tile], value[:tile], tile, step=_right_step))


def loop_first_values_only(query, key, value, tile):
    def step(top, total, acc, scores, _):
        return _right_step(top, total, acc, scores, value[: scores.shape[-1]])

    return _divided(_loop(query, key, value, tile, step=step))


def loop_overlaps(query, key, value, tile):
    tiles = [torch.arange(first, min(first + tile, len(key))) for first in range(len(key))]
    again = torch.cat(tiles)
    return _divided(_loop(query, key[again], value[again], tile, step=_right_step))


def loop_merges_softmaxes(query, key, value, tile):
    def step(top, total, acc, scores, value):
        own_top = scores.amax(-1, keepdim=True)
        new_top = torch.maximum(top, own_top)
        keep, count = (top - new_top).exp(), (own_top - new_top).exp()
        return new_top, total * keep + count, acc * keep + count * (scores.softmax(-1) @ value)

    return _divided(_loop(query, key, value, tile, step=step))


def loop_sums_tiles(query, key, value, tile):
    def step(top, total, acc, scores, value):
        return top, total + 1, acc + scores.softmax(-1) @ value

    return _loop(query, key, value, tile, step=step)[2]


def loop_averages_tiles(query, key, value, tile):
    return loop_sums_tiles(query, key, value, tile) / math.ceil(len(key) / tile)


def loop_divides_inside(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top, total, acc = _right_step(top, total, acc, scores, value)
        return new_top, total, acc / total

    return _loop(query, key, value, tile, step=step)[2]


def loop_without_rescaling(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = (scores - new_top).exp()
        return new_top, total + weights.sum(-1, keepdim=True), acc + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_by_own_maximum(query, key, value, tile):
    def step(top, total, acc, scores, value):
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return top, total + weights.sum(-1, keepdim=True), acc + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_rescales_sum_only(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top, total, _ = _right_step(top, total, acc, scores, value)
        return new_top, total, acc + (scores - new_top).exp() @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_rescales_output_only(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top, _, acc = _right_step(top, total, acc, scores, value)
        return new_top, total + (scores - new_top).exp().sum(-1, keepdim=True), acc

    return _divided(_loop(query, key, value, tile, step=step))


def loop_flipped(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = (scores - new_top).exp()
        keep = torch.where(top == -INF, 0.0, (new_top - top).exp())
        return new_top, total * keep + weights.sum(-1, keepdim=True), acc * keep + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_drops_the_rest(query, key, value, tile):
    whole = len(key) // tile * tile
    return _divided(_loop(query, key[:whole], value[:whole], tile, step=_right_step))


def loop_without_maximum(query, key, value, tile):
    def step(top, total, acc, scores, value):
        weights = scores.exp()
        return top, total + weights.sum(-1, keepdim=True), acc + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_by_tile_maximum(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top = scores.amax(-1, keepdim=True)
        weights, keep = (scores - new_top).exp(), (top - new_top).exp()
        return new_top, total * keep + weights.sum(-1, keepdim=True), acc * keep + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


def loop_by_one_maximum(query, key, value, tile):
    def step(top, total, acc, scores, value):
        new_top = torch.maximum(top, scores.max())
        weights, keep = (scores - new_top).exp(), (top - new_top).exp()
        return new_top, total * keep + weights.sum(-1, keepdim=True), acc * keep + weights @ value

    return _divided(_loop(query, key, value, tile, step=step))


# --- 2.3 ---------------------------------------------------------------------------------------------------------


def _kind(skip: bool, whole: bool) -> str:
    return "skip" if skip else "whole" if whole else "mask"


def kind_reversed(queries, keys, offset):
    return {"skip": "whole", "whole": "skip", "mask": "mask"}[_right_kind(queries, keys, offset)]


def _right_kind(queries, keys, offset):
    return _kind(keys.start > queries.stop - 1 + offset, keys.stop - 1 <= queries.start + offset)


def kind_of_the_upper_half(queries, keys, offset):
    return _kind(keys.stop - 1 < queries.start + offset, keys.start >= queries.stop - 1 + offset)


def kind_skips_diagonal(queries, keys, offset):
    return _kind(keys.start >= queries.start + offset, keys.stop - 1 <= queries.start + offset)


def kind_by_first_query(queries, keys, offset):
    return _kind(keys.start > queries.start + offset, keys.stop - 1 <= queries.start + offset)


def kind_whole_by_last_query(queries, keys, offset):
    last = queries.stop - 1 + offset
    return _kind(keys.start > last, keys.stop - 1 <= last)


def kind_never_whole(queries, keys, offset):
    return _kind(keys.start > queries.stop - 1 + offset, False)


def kind_never_skips(queries, keys, offset):
    return _kind(False, keys.stop - 1 <= queries.start + offset)


def kind_without_offset(queries, keys, offset):
    return _right_kind(queries, keys, 0)


def kind_offset_subtracted(queries, keys, offset):
    return _right_kind(queries, keys, -offset)


def kind_skips_without_offset(queries, keys, offset):
    return _kind(keys.start > queries.stop - 1, keys.stop - 1 <= queries.start + offset)


def kind_whole_without_offset(queries, keys, offset):
    return _kind(keys.start > queries.stop - 1 + offset, keys.stop - 1 <= queries.start)


def kind_with_stop_as_last(queries, keys, offset):
    return _kind(keys.start > queries.stop + offset, keys.stop <= queries.start + offset)
