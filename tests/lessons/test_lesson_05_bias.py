"""Lesson 05: the exercises that lower scores by distance know their wrong answers and take each right one."""

import math

import pytest
import torch

from course_lib.alibi import ALiBi
from course_lib.attention import Causal, Segments, attention
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_05
from course_lib.lessons import lesson_05_distance_mistakes as distances
from course_lib.lessons import lesson_05_weight_mistakes as weights

INF = math.inf

# --- 5.2 ---------------------------------------------------------------------------------------------------------


def weights_by_loop(query, key, slopes):
    heads, q_len, head_dim = query.shape
    k_len = key.shape[1]
    out = torch.zeros(heads, q_len, k_len)
    for h in range(heads):
        for i in range(q_len):
            own = i + k_len - q_len
            scores = torch.stack(
                [
                    query[h, i] @ key[h, j] / math.sqrt(head_dim) - slopes[h] * (own - j)
                    for j in range(own + 1)
                ]
            )
            out[h, i, : own + 1] = scores.softmax(0)
    return out


def weights_by_key_positions(query, key, slopes):
    """BLOOM's form: every row is shifted by a constant, which the softmax does not see."""
    q_len, k_len = query.shape[1], key.shape[1]
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    scores = scores + slopes[:, None, None] * torch.arange(k_len)
    hidden = torch.ones(q_len, k_len, dtype=torch.bool).triu(k_len - q_len + 1)
    return scores.masked_fill(hidden, -INF).softmax(-1)


def weights_by_library(query, key, slopes):
    bias = (Causal("bottom-right") + ALiBi(slopes)).materialize(
        query.shape[1], key.shape[1], num_heads=len(slopes)
    )
    return (torch.einsum("hid,hjd->hij", query, key) * query.shape[-1] ** -0.5 + bias[0]).softmax(-1)


def weights_by_attention(query, key, slopes):
    eye = torch.eye(key.shape[1])[None, :, None].expand(-1, -1, len(slopes), -1)
    q, k = (t.transpose(0, 1)[None] for t in (query, key))
    return attention(q, k, eye, Causal("bottom-right") + ALiBi(slopes))[0].transpose(0, 1)


def weights_with_a_large_number(query, key, slopes):
    q_len, k_len = query.shape[1], key.shape[1]
    bias = ALiBi(slopes).materialize(q_len, k_len, num_heads=len(slopes))[0]
    hidden = torch.full((q_len, k_len), -1e9).triu(k_len - q_len + 1)
    return (query @ key.mT / math.sqrt(query.shape[-1]) + bias + hidden).softmax(-1)


def weights_slopes_left_flat(query, key, slopes):
    q_len, k_len = query.shape[1], key.shape[1]
    distance = torch.arange(q_len)[:, None] + k_len - q_len - torch.arange(k_len)
    return slopes.expand(3, -1) * distance


def weights_key_as_it_is(query, key, slopes):
    return (query @ key).softmax(-1)


def weights_key_turned_over(query, key, slopes):
    return (query @ key.T).softmax(-1)


def weights_with_the_mask_only_top_left(query, key, slopes):
    """Shifting all distances of a row changes nothing: only the mask can be seen to be wrong."""
    q_len, k_len = query.shape[1], key.shape[1]
    bias = ALiBi(slopes).materialize(q_len, k_len, num_heads=len(slopes))[0]
    hidden = torch.ones(q_len, k_len).triu(1).bool()
    return (query @ key.mT / math.sqrt(query.shape[-1]) + bias).masked_fill(hidden, -INF).softmax(-1)


def weights_by_factors(query, key, slopes):
    """After the softmax, and right: the weights are multiplied by e^-m·t and divided by their sums again."""
    kept = weights.weights_after_by_factors(query, key, slopes)
    return kept / kept.sum(-1, keepdim=True)


def weights_transposed(query, key, slopes):
    return weights_by_loop(query, key, slopes).mT


def weights_of_the_first_head(query, key, slopes):
    return weights_by_loop(query, key, slopes)[0]


@pytest.mark.filterwarnings("ignore:The use of .x.T.")
def test_exercise_5_2_names_each_wrong_answer():
    assert_exercise(
        lesson_05.LESSON,
        "5.2",
        wrong={
            "plus": [weights.weights_plus, weights.weights_by_key_place],
            "not_weights": [weights.weights_scores, weights.weights_scores_of_all, weights.weights_bias],
            "after": [
                weights.weights_after,
                weights.weights_after_in_sight,
                weights.weights_after_in_sight_from_zero,
                weights.weights_after_shared_out,
                weights.weights_after_times,
                weights.weights_after_by_factors,
            ],
            "masked_after": [weights.weights_masked_after, weights.weights_masked_after_with_inf],
            "sees_next": [weights.weights_see_next],
            "by_head_dim": [weights.weights_by_head_dim],
            "multiplied": [
                weights.weights_multiplied,
                weights.weights_multiplied_plus,
                weights.weights_times_one_less,
            ],
            "without": [weights.weights_without],
            "divided_too": [weights.weights_bias_divided_too],
            "unscaled": [weights.weights_unscaled],
            "with_future": [
                weights.weights_with_future,
                weights.weights_with_future_fined,
                weights.weights_with_future_unfined,
            ],
            "future_at_zero": [weights.weights_future_at_zero],
            "hides_own": [weights.weights_hide_own],
            "over_queries": [weights.weights_over_queries],
            "squared": [weights.weights_squared],
            "to_the_power": [weights.weights_slope_to_the_distance],
            "distance_alone_counts": [weights.weights_of_distance_alone],
            "no_slope": [weights.weights_no_slope],
            "by_slope": [weights.weights_divided_by_slope],
            "own_slopes": [weights.weights_published_slopes],
            "one_slope": [weights.weights_one_slope, weights.weights_mean_slope],
            "heads_flipped": [weights.weights_heads_flipped],
            "top_left": [weights.weights_top_left, weights_with_the_mask_only_top_left],
            "distance_top_left": [weights.weights_distance_top_left],
            "slopes_shape": [weights_slopes_left_flat],
            "key_not_turned": [weights_key_as_it_is],
            "heads_turned": [weights_key_turned_over],
            "common.axes_swapped": [weights_transposed],
            "common.wrong_shape": [weights_of_the_first_head],
        },
        right=[
            weights_by_loop,
            weights_by_key_positions,
            weights_by_library,
            weights_by_attention,
            weights_with_a_large_number,
            weights_by_factors,
        ],
    )


# --- 5.6 ---------------------------------------------------------------------------------------------------------


def packed_by_cells(q_lengths, k_lengths):
    rows = [
        (d, i + k - q) for d, (q, k) in enumerate(zip(q_lengths, k_lengths, strict=True)) for i in range(q)
    ]
    columns = [(d, j) for d, k in enumerate(k_lengths) for j in range(k)]
    return torch.tensor(
        [[float(own - j) if d == e and own >= j else INF for e, j in columns] for d, own in rows]
    )


def packed_by_block_diag(q_lengths, k_lengths):
    blocks = [
        (torch.arange(q)[:, None] + k - q - torch.arange(k) + 1).clamp(min=0).float()
        for q, k in zip(q_lengths, k_lengths, strict=True)
    ]
    counted = torch.block_diag(*blocks)
    return torch.where(counted == 0, INF, counted - 1)


def packed_by_library(q_lengths, k_lengths):
    inner = Causal("bottom-right") + ALiBi(torch.ones(1))
    return -Segments(q_lengths, k_lengths, inner=inner).materialize(sum(q_lengths), sum(k_lengths))[0, 0]


def packed_by_numpy_like_repeat(q_lengths, k_lengths):
    q_n, k_n = torch.tensor(q_lengths), torch.tensor(k_lengths)
    q_doc = torch.repeat_interleave(torch.arange(len(q_lengths)), q_n)
    k_doc = torch.repeat_interleave(torch.arange(len(k_lengths)), k_n)
    q_at = torch.cat([torch.arange(q) + k - q for q, k in zip(q_lengths, k_lengths, strict=True)])
    k_at = torch.cat([torch.arange(k) for k in k_lengths])
    distance = (q_at[:, None] - k_at).float()
    hidden = (q_doc[:, None] != k_doc) | (distance < 0)
    return distance.masked_fill(hidden, INF)


def packed_of_a_billion(q_lengths, k_lengths):
    return packed_by_cells(q_lengths, k_lengths).clamp(max=1e9)


def packed_of_integers(q_lengths, k_lengths):
    return packed_of_a_billion(q_lengths, k_lengths).long()


def packed_inf_into_integers(q_lengths, k_lengths):
    return torch.full((sum(q_lengths), sum(k_lengths)), 0).masked_fill(torch.tensor(True), INF)


def packed_transposed(q_lengths, k_lengths):
    return packed_by_cells(q_lengths, k_lengths).T


def test_exercise_5_6_names_each_wrong_answer():
    assert_exercise(
        lesson_05.LESSON,
        "5.6",
        wrong={
            "whole_row": [
                distances.packed_counted_over_the_row,
                distances.packed_counted_from_the_top_left,
                distances.packed_counted_from_the_top_left_without_sign,
            ],
            "leaks": [
                distances.packed_over_the_whole_row,
                distances.packed_over_the_whole_row_from_the_top_left,
                distances.packed_by_absolute_distance,
            ],
            "other_documents": [distances.packed_with_other_documents],
            "no_counters": [distances.packed_all_at_the_start],
            "mask_only": [distances.packed_mask, distances.packed_mask_of_minus_inf],
            "top_left": [distances.packed_top_left, distances.packed_top_left_without_sign],
            "with_future": [distances.packed_with_future, distances.packed_with_negative_future],
            "negative": [
                distances.packed_negative,
                distances.packed_negative_but_inf,
                distances.packed_negative_in_sight,
            ],
            "from_one": [distances.packed_from_one],
            "zero_hidden": [
                distances.packed_zero_elsewhere,
                distances.packed_zero_in_other_documents,
                distances.packed_zero_in_the_future,
            ],
            "minus_inf": [distances.packed_minus_inf],
            "hides_own": [distances.packed_hides_own, distances.packed_one_too_near],
            "key_places": [distances.packed_key_places],
            "first_only": [distances.packed_first_document_only],
            "queries_for_keys": [distances.packed_queries_for_keys, distances.packed_keys_for_queries],
            "finite": [packed_of_a_billion],
            "integers": [packed_of_integers, packed_inf_into_integers],
            "common.axes_swapped": [packed_transposed],
        },
        right=[packed_by_cells, packed_by_block_diag, packed_by_library, packed_by_numpy_like_repeat],
    )


# --- 5.4 ---------------------------------------------------------------------------------------------------------


def bloom_by_loop(attention_mask, slopes):
    batch, k_len = attention_mask.shape
    out = torch.zeros(batch, len(slopes), 1, k_len)
    for b in range(batch):
        place = 0
        for j in range(k_len):
            if attention_mask[b, j]:
                out[b, :, 0, j] = slopes * place
                place += 1
    return out


def bloom_by_einsum(attention_mask, slopes):
    places = (attention_mask.cumsum(1) - 1).clamp(min=0) * attention_mask
    return torch.einsum("h,bk->bhk", slopes, places.float())[:, :, None]


def bloom_by_masked_fill(attention_mask, slopes):
    places = (attention_mask.cumsum(-1) - 1).masked_fill(attention_mask == 0, 0)
    return (slopes.view(1, -1, 1) * places.unsqueeze(1)).unsqueeze(2)


def bloom_without_axis(attention_mask, slopes):
    return bloom_by_loop(attention_mask, slopes)[:, :, 0]


def bloom_for_all_queries(attention_mask, slopes):
    k_len = attention_mask.shape[1]
    return bloom_by_loop(attention_mask, slopes).expand(-1, -1, k_len, -1)


def bloom_left_flat(attention_mask, slopes):
    return slopes * (attention_mask.cumsum(-1) - 1)


def bloom_as_a_matrix(attention_mask, slopes):
    k_len = attention_mask.shape[1]
    bias = ALiBi(slopes).materialize(k_len, k_len, num_heads=len(slopes))
    return bias.expand(len(attention_mask), -1, -1, -1)


def bloom_of_older_transformers(attention_mask, slopes):
    return bloom_by_loop(attention_mask, slopes).flatten(0, 1)


def bloom_that_hides_with_a_large_number(attention_mask, slopes):
    return bloom_by_loop(attention_mask, slopes) - 1e9 * (1 - attention_mask[:, None, None])


def bloom_that_hides(attention_mask, slopes):
    return bloom_by_loop(attention_mask, slopes).masked_fill(attention_mask[:, None, None] == 0, -INF)


def test_exercise_5_4_names_each_wrong_answer():
    assert_exercise(
        lesson_05.LESSON,
        "5.4",
        wrong={
            "counts_padding": [
                distances.bloom_counts_padding,
                distances.bloom_counts_padding_and_hides_it,
            ],
            "from_one": [distances.bloom_from_one, distances.bloom_from_one_padding_too],
            "padding_kept": [distances.bloom_padding_kept, distances.bloom_padding_clamped],
            "negative": [distances.bloom_negative],
            "from_the_end": [distances.bloom_from_the_end, distances.bloom_distance_to_the_end],
            "no_slopes": [distances.bloom_without_slopes],
            "one_slope": [distances.bloom_one_slope],
            "minus_one_first": [distances.bloom_minus_one_first],
            "over_the_batch": [distances.bloom_over_the_batch],
            "no_query_axis": [bloom_without_axis],
            "all_rows": [bloom_for_all_queries],
            "heads_shape": [bloom_left_flat],
            "masks_too": [bloom_that_hides, bloom_that_hides_with_a_large_number],
            "matrix": [bloom_as_a_matrix],
            "batch_and_heads": [bloom_of_older_transformers],
            "padding_taken_off": [
                distances.bloom_padding_taken_off,
                distances.bloom_padding_taken_off_and_hidden,
            ],
        },
        right=[bloom_by_loop, bloom_by_einsum, bloom_by_masked_fill],
    )
