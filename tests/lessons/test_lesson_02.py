"""Lesson 02: the merge and the loop over tiles know their wrong answers and take each right one."""

import math

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_02
from course_lib.lessons import lesson_02_mistakes as wrong

INF = math.inf


# --- 2.1 ---------------------------------------------------------------------------------------------------------


def merge_by_nan_to_num(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    a, b = torch.nan_to_num((m1 - m).exp()), torch.nan_to_num((m2 - m).exp())
    return m, a * l1 + b * l2, a * o1 + b * o2


def merge_by_stack(m1, l1, o1, m2, l2, o2):
    tops = torch.stack([m1, m2])
    m = tops.max(dim=0).values
    shares = torch.where(tops == -INF, torch.zeros(()), (tops - m).exp())
    return [m, (shares * torch.stack([l1, l2])).sum(0), (shares * torch.stack([o1, o2])).sum(0)]


def merge_by_rows(m1, l1, o1, m2, l2, o2):
    rows = []
    for i in range(len(m1)):
        m = max(float(m1[i]), float(m2[i]))
        a = math.exp(float(m1[i]) - m) if m1[i] > -INF else 0.0
        b = math.exp(float(m2[i]) - m) if m2[i] > -INF else 0.0
        rows.append((torch.tensor([m]), a * l1[i] + b * l2[i], a * o1[i] + b * o2[i]))
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def merge_averaged_by_weight_of_one(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_by_nan_to_num(m1, l1, o1, m2, l2, o2)
    return m, total, acc * 0.5


def merge_shrinks_the_newer(m1, l1, o1, m2, l2, o2):
    keep = (m2 - m1).exp()
    return m1, l1 + keep * l2, o1 + keep * o2


def merge_guarded_without_rescaling(m1, l1, o1, m2, l2, o2):
    return merge_by_nan_to_num(m1, l1, o1, m2, l2, o2)[0], l1 + l2, o1 + o2


def merge_only_the_output(m1, l1, o1, m2, l2, o2):
    _, total, acc = merge_by_nan_to_num(m1, l1, o1, m2, l2, o2)
    return acc / total


def merge_by_python_max(m1, l1, o1, m2, l2, o2):
    m = max(m1, m2)
    return m, (m1 - m).exp() * l1 + (m2 - m).exp() * l2, (m1 - m).exp() * o1 + (m2 - m).exp() * o2


def merge_by_math_exp(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    return m, math.exp(m1 - m) * l1 + math.exp(m2 - m) * l2, o1


def merge_takes_the_pair(m1, l1, o1, m2, l2, o2):
    m = torch.cat([m1, m2], -1).max(-1, keepdim=True)
    return m, (m1 - m).exp() * l1, o1


def merge_forgets_keepdim(m1, l1, o1, m2, l2, o2):
    m = torch.cat([m1, m2], -1).amax(-1)
    return m, (m1 - m).exp() * l1, (m1 - m).exp() * o1


def merge_by_if(m1, l1, o1, m2, l2, o2):
    if m1 > m2:
        return m1, l1 + (m2 - m1).exp() * l2, o1 + (m2 - m1).exp() * o2
    return m2, (m1 - m2).exp() * l1 + l2, (m1 - m2).exp() * o1 + o2


def merge_with_finite_tops(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2).clamp(min=-1e30)
    return m, (m1 - m).exp() * l1 + (m2 - m).exp() * l2, (m1 - m).exp() * o1 + (m2 - m).exp() * o2


def merge_with_a_top_of_zero(m1, l1, o1, m2, l2, o2):
    m = torch.maximum(m1, m2)
    m = torch.where(m == -INF, 0.0, m)
    return m, (m1 - m).exp() * l1 + (m2 - m).exp() * l2, (m1 - m).exp() * o1 + (m2 - m).exp() * o2


def merge_in_place(m1, l1, o1, m2, l2, o2):
    m, total, acc = merge_by_nan_to_num(m1, l1, o1, m2, l2, o2)
    l1.zero_()
    return m, total, acc


def test_exercise_2_1_names_each_wrong_answer():
    assert_exercise(
        lesson_02.LESSON,
        "2.1",
        wrong={
            "order": [wrong.merge_output_first, wrong.merge_total_first],
            "averages": [
                wrong.merge_averages,
                wrong.merge_averages_output,
                wrong.merge_averages_outputs,
                merge_averaged_by_weight_of_one,
            ],
            "divided": [wrong.merge_divides, merge_only_the_output],
            "python_max": [merge_by_python_max, merge_by_if],
            "math_exp": [merge_by_math_exp],
            "max_pair": [merge_takes_the_pair],
            "keepdim": [merge_forgets_keepdim],
            "from_zero": [wrong.merge_measured_from_zero],
            "weighted_twice": [wrong.merge_weighs_twice, wrong.merge_weighs_twice_and_divides],
            "soft_maximum": [wrong.merge_by_logaddexp],
            "log": [wrong.merge_gives_log],
            "adds_tops": [wrong.merge_adds_tops],
            "lower": [wrong.merge_by_minimum],
            "one_top": [wrong.merge_by_largest_of_all],
            "no_rescale": [wrong.merge_without_rescaling, merge_guarded_without_rescaling],
            "only_sum": [wrong.merge_rescales_sum_only],
            "only_output": [wrong.merge_rescales_output_only],
            "flipped": [wrong.merge_flipped],
            "crossed": [wrong.merge_crossed],
            "base_two": [wrong.merge_base_two],
            "only_first": [
                wrong.merge_rescales_first_only,
                wrong.merge_takes_newest_top,
                wrong.merge_shrinks_first,
            ],
            "only_second": [
                wrong.merge_rescales_second_only,
                wrong.merge_keeps_first_top,
                merge_shrinks_the_newer,
            ],
            "overflow": [wrong.merge_from_zero],
            "blind_nan": [wrong.merge_nan_where_blind],
            "blind_top": [merge_with_finite_tops, merge_with_a_top_of_zero],
            "common.modified_input": [merge_in_place],
        },
        right=[merge_by_nan_to_num, merge_by_stack, merge_by_rows],
    )


# --- 2.2 ---------------------------------------------------------------------------------------------------------


def loop_by_split(query, key, value, tile):
    query = query / math.sqrt(query.size(1))
    m, total, acc = torch.full((query.size(0),), torch.finfo(torch.float32).min), 0.0, 0.0
    for k, v in zip(key.split(tile), value.split(tile), strict=True):
        s = torch.einsum("qd,kd->qk", query, k)
        new = torch.maximum(m, s.max(dim=1).values)
        p = torch.exp(s - new[:, None])
        total = total * torch.exp(m - new) + p.sum(1)
        acc = acc * torch.exp(m - new)[:, None] + p @ v
        m = new
    return acc / total[:, None]


def loop_by_lse(query, key, value, tile):
    out, lse = None, None
    for start in range(0, key.shape[0], tile):
        s = query @ key[start : start + tile].T * query.shape[-1] ** -0.5
        part, part_lse = s.softmax(-1) @ value[start : start + tile], s.logsumexp(-1, keepdim=True)
        if out is None:
            out, lse = part, part_lse
        else:
            both = torch.logaddexp(lse, part_lse)
            out = out * (lse - both).exp() + part * (part_lse - both).exp()
            lse = both
    return out


def loop_query_by_query(query, key, value, tile):
    rows = []
    for q in query:
        m, total, acc = -INF, 0.0, torch.zeros(value.shape[1])
        for j in range(len(key)):
            s = float(q @ key[j]) / math.sqrt(len(q))
            new = max(m, s)
            keep, weight = math.exp(m - new), math.exp(s - new)
            total, acc, m = total * keep + weight, acc * keep + weight * value[j], new
        rows.append(acc / total)
    return torch.stack(rows)


def loop_whole_matrix(query, key, value, tile):
    return (query @ key.T / math.sqrt(query.shape[-1])).softmax(-1) @ value


def loop_fills_a_buffer(query, key, value, tile):
    scores = torch.zeros(len(query), len(key))
    for start in range(0, len(key), tile):
        scores[:, start : start + tile] = query @ key[start : start + tile].T / math.sqrt(query.shape[-1])
    return scores.softmax(-1) @ value


def loop_over_queries_only(query, key, value, tile):
    tiles = [q @ key.T / math.sqrt(query.shape[-1]) for q in query.split(tile)]
    return torch.cat([scores.softmax(-1) @ value for scores in tiles])


def loop_library(query, key, value, tile):
    return torch.nn.functional.scaled_dot_product_attention(query[None], key[None], value[None])[0]


def loop_takes_the_pair(query, key, value, tile):
    scores = query @ key[:tile].T
    return torch.maximum(torch.zeros(len(query), 1), scores.max(-1, keepdim=True))


def loop_forgets_keepdim(query, key, value, tile):
    scores = query @ key[:tile].T
    return (scores - scores.amax(-1)).exp() @ value[:tile]


def loop_scales_by_value_dim(query, key, value, tile):
    return loop_by_split(query * math.sqrt(query.shape[1] / value.shape[1]), key, value, tile)


def loop_with_an_empty_tile(query, key, value, tile):
    tops = [(query @ key[i * tile : (i + 1) * tile].T).amax(-1) for i in range(len(key) // tile + 1)]
    return torch.stack(tops)


def loop_by_math_exp(query, key, value, tile):
    return math.exp(query @ key[:tile].T)


def loop_starts_with_a_number(query, key, value, tile):
    return torch.maximum(-INF, (query @ key[:tile].T).amax(-1, keepdim=True))


def loop_by_chunk(query, key, value, tile):
    return loop_by_split(query, key, value, -(-len(key) // tile))


def loop_without_transpose(query, key, value, tile):
    return query @ key[:tile]


def loop_gathers_like_queries(query, key, value, tile):
    scores = query @ key[:tile].T
    return torch.zeros_like(query) * scores.sum(-1, keepdim=True) + scores.softmax(-1) @ value[:tile]


def loop_by_python_max(query, key, value, tile):
    top = torch.full((len(query), 1), -INF)
    for k in key.split(tile):
        top = max(top, (query @ k.T).amax(-1, keepdim=True))
    return top


def _loop(query, key, value, tile, *, early=False, never=False, total=0.0):
    top, acc = torch.full((len(query), 1), -INF), 0.0
    for k, v in zip(key.split(tile), value.split(tile), strict=True):
        s = query @ k.T / math.sqrt(query.shape[-1])
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        if early:
            top = new
        keep, p = (top - new).exp(), (s - new).exp()
        total, acc = total * keep + p.sum(-1, keepdim=True), acc * keep + p @ v
        top = top if never else new
    return acc / total


def loop_overwrites_top_early(query, key, value, tile):
    return _loop(query, key, value, tile, early=True)


def loop_keeps_the_first_top(query, key, value, tile):
    return _loop(query, key, value, tile, never=True)


def loop_counts_one_more(query, key, value, tile):
    return _loop(query, key, value, tile, early=True, total=1.0)


def test_exercise_2_2_names_each_wrong_answer():
    assert_exercise(
        lesson_02.LESSON,
        "2.2",
        wrong={
            "whole": [loop_whole_matrix, loop_fills_a_buffer, loop_over_queries_only, loop_library],
            "max_pair": [loop_takes_the_pair],
            "math_exp": [loop_by_math_exp],
            "top_number": [loop_starts_with_a_number],
            "larger_tiles": [loop_by_chunk],
            "products": [loop_without_transpose],
            "acc_width": [loop_gathers_like_queries],
            "first_only": [wrong.loop_first_tile_only],
            "same_values": [wrong.loop_first_values_only],
            "overlap": [wrong.loop_overlaps],
            "softmaxes": [wrong.loop_merges_softmaxes],
            "keepdim": [loop_forgets_keepdim],
            "empty_tile": [loop_with_an_empty_tile],
            "python_max": [loop_by_python_max],
            "no_scale": [wrong.loop_unscaled],
            "other_scale": [
                wrong.loop_scaled_by_head_dim,
                wrong.loop_scaled_by_value_dim,
                wrong.loop_scaled_by_queries,
                wrong.loop_multiplied,
                loop_scales_by_value_dim,
            ],
            "sum_axis": [wrong.loop_sums_all],
            "not_divided": [wrong.loop_not_divided],
            "last_only": [wrong.loop_last_tile_only, loop_keeps_the_first_top],
            "averaged": [wrong.loop_averages_tiles],
            "summed": [wrong.loop_sums_tiles],
            "divided_inside": [wrong.loop_divides_inside],
            "no_rescale": [
                wrong.loop_without_rescaling,
                wrong.loop_by_own_maximum,
                loop_overwrites_top_early,
            ],
            "only_sum": [wrong.loop_rescales_sum_only],
            "only_output": [wrong.loop_rescales_output_only],
            "flipped": [wrong.loop_flipped],
            "drops_rest": [wrong.loop_drops_the_rest],
            "overflow": [wrong.loop_without_maximum],
            "tile_top": [wrong.loop_by_tile_maximum],
            "from_zero": [wrong.loop_from_zero],
            "one_top": [wrong.loop_by_one_maximum],
            "common.wrong_value": [loop_counts_one_more],
        },
        right=[loop_by_split, loop_by_lse, loop_query_by_query],
    )
