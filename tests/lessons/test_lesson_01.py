"""Lesson 01: the exercises on scores, softmax and bytes know their wrong answers and take each right one."""

import math

import torch
import torch.nn.functional as F

from course_lib.attention import Causal
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_01
from course_lib.lessons import lesson_01_mistakes as wrong
from course_lib.lessons import lesson_01_softmax_mistakes as softmaxes

INF = math.inf


# --- 1.1 ---------------------------------------------------------------------------------------------------------


def scores_by_loop(query, key):
    rows = []
    for q in query:
        rows.append(torch.stack([torch.dot(q, k) for k in key]) / len(q) ** 0.5)
    return torch.stack(rows)


def scores_by_einsum(query, key):
    return torch.einsum("qd,kd->qk", query, key) * query.size(1) ** -0.5


def scores_by_broadcasting(query, key):
    return (query[:, None] * key[None]).sum(-1).div(math.sqrt(key.shape[1]))


def scores_by_scaled_query(query, key):
    return F.linear(query / query.shape[-1] ** 0.5, key)


def scores_as_list(query, key):
    return scores_by_loop(query, key).tolist()


def scores_as_flat(query, key):
    return lesson_01.scores(query, key).flatten()


def scores_scaled_twice(query, key):
    root = math.sqrt(query.shape[-1])
    return (query / root) @ (key / root).T


def scores_by_hand_for_four(query, key):
    return query @ key.T / math.sqrt(4)


def scores_by_loop_not_added_up(query, key):
    table = torch.zeros(len(query), len(key))
    for i in range(len(query)):
        for j in range(len(key)):
            table[i, j] = query[i] * key[j]
    return table


def scores_of_the_first_query(query, key):
    table = torch.zeros(len(query), len(key))
    for i in range(len(query)):
        for j in range(len(key)):
            table[i, j] = query[i] @ key[j] / math.sqrt(query.shape[-1])
        return table


def scores_normalised(query, key):
    return F.cosine_similarity(query[:, None], key[None], dim=-1)


def test_exercise_1_1_names_each_wrong_answer():
    assert_exercise(
        lesson_01.LESSON,
        "1.1",
        wrong={
            "no_scale": [wrong.scores_unscaled, lambda query, key: torch.einsum("qd,kd->qk", query, key)],
            "by_head_dim": [wrong.scores_by_head_dim, scores_scaled_twice],
            "multiplied": [wrong.scores_multiplied],
            "by_length": [wrong.scores_by_queries, wrong.scores_by_keys],
            "always_two": [wrong.scores_by_two, scores_by_hand_for_four],
            "power_first": [
                lambda query, key: query @ key.T / (query.shape[-1] ** 1 / 2),
                lambda query, key: query @ key.T / query.shape[-1] ** 1 / 2,
            ],
            "not_added_up": [
                lambda query, key: query[:, None] * key[None],
                lambda query, key: (query[:, None] * key[None]).sum(1) / math.sqrt(query.shape[-1]),
                scores_by_loop_not_added_up,
            ],
            "return_in_loop": [scores_of_the_first_query],
            "rows_are_keys": [wrong.scores_of_keys],
            "already_weights": [
                lambda query, key: scores_by_einsum(query, key).softmax(-1),
                lambda query, key: (query @ key.T).softmax(-1),
                lambda query, key: scores_by_einsum(query, key).softmax(0),
            ],
            "already_outputs": [wrong.scores_and_beyond],
            "normalised": [wrong.scores_of_unit_vectors, scores_normalised],
            "whole_root": [wrong.scores_by_whole_root],
            "elementwise": [wrong.scores_elementwise, wrong.scores_elementwise_unscaled, torch.mul],
            "one_for_each_query": [
                wrong.scores_one_for_each_query,
                wrong.scores_one_for_each_query_unscaled,
            ],
            "over_words": [wrong.scores_over_words, lambda query, key: query.T @ key],
            "not_turned": [lambda query, key: query @ key / math.sqrt(query.shape[-1])],
            "common.list_for_tensor": [scores_as_list],
            "common.wrong_shape": [scores_as_flat],
            "common.wrong_value": [lambda query, key: -torch.cdist(query, key)],
        },
        right=[scores_by_loop, scores_by_einsum, scores_by_broadcasting, scores_by_scaled_query],
    )


# --- 1.2 ---------------------------------------------------------------------------------------------------------


def weights_by_loop(scores):
    weights = torch.zeros_like(scores)
    for i in range(len(scores)):
        weights[i, : i + 1] = scores[i, : i + 1].softmax(0)
    return weights


def weights_by_added_mask(scores):
    return (scores + Causal().materialize(*scores.shape)[0, 0]).softmax(-1)


def weights_by_where(scores):
    seen = torch.tril(torch.ones(scores.shape)).bool()
    return F.softmax(torch.where(seen, scores, float("-inf")), dim=1)


def weights_by_large_number(scores):
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -1e9).softmax(-1)


def weights_in_float64(scores):
    return weights_by_loop(scores.double())


def weights_with_minus_100(scores):
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -100).softmax(-1)


def weights_with_minus_100_added(scores):
    return (scores - 100 * torch.ones_like(scores).triu(1)).softmax(-1)


def weights_by_hand(scores):
    shares = wrong.masked_scores(scores).exp()
    return shares / shares.sum(-1, keepdim=True)


def weights_by_hand_less_the_global_maximum(scores):
    shares = (wrong.masked_scores(scores) - scores.max()).exp()
    return shares / shares.sum(-1, keepdim=True)


def weights_in_place(scores):
    scores[torch.ones_like(scores).triu(1) == 1] = -INF
    return scores.softmax(-1)


def weights_shared_evenly(scores):
    seen = torch.ones_like(scores).tril()
    return seen / seen.sum(-1, keepdim=True)


def weights_of_one_step(scores):
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -INF).softmax(-1)[-1]


def test_exercise_1_2_names_each_wrong_answer():
    assert_exercise(
        lesson_01.LESSON,
        "1.2",
        wrong={
            "after": [wrong.weights_masked_after, lambda s: s.softmax(-1) * torch.ones_like(s).tril()],
            "renormalised": [wrong.weights_renormalised, wrong.weights_renormalised_with_epsilon],
            "no_mask": [wrong.weights_unmasked],
            "hides_itself": [wrong.weights_without_itself, wrong.weights_without_itself_or_nan],
            "sees_next": [wrong.weights_of_one_more],
            "keeps_future": [wrong.weights_of_the_future, wrong.weights_of_the_future_only],
            "zeroed": [wrong.weights_of_zeroed_scores, lambda s: (s * torch.ones_like(s).tril()).softmax(-1)],
            "hides_zeros": [wrong.weights_without_zero_scores],
            "over_queries": [wrong.weights_over_queries],
            "no_softmax": [
                wrong.masked_scores,
                lambda s: wrong.masked_scores(s).log_softmax(-1),
                lambda s: wrong.masked_scores(torch.zeros_like(s)),
            ],
            "transposed": [wrong.weights_of_transposed_scores],
            "plus_inf": [wrong.weights_of_plus_inf],
            "own_softmax": [weights_by_hand, weights_by_hand_less_the_global_maximum],
            "zero_times_inf": [wrong.weights_of_zero_times_inf],
            "scaled_again": [wrong.weights_scaled_again],
            "mask_of_six": [lambda s: (s + Causal().materialize(6, 6)[0, 0]).softmax(-1)],
            "mask_alone": [wrong.weights_of_the_mask_alone, weights_shared_evenly],
            "multiplied": [
                lambda s: (s * Causal().materialize(*s.shape)[0, 0]).softmax(-1),
                wrong.weights_of_scores_times_minus_inf,
            ],
            "common.modified_input": [weights_in_place],
            "leak": [weights_with_minus_100, weights_with_minus_100_added],
            "common.wrong_shape": [weights_of_one_step],
        },
        right=[
            weights_by_loop,
            weights_by_added_mask,
            weights_by_where,
            weights_by_large_number,
            weights_in_float64,
        ],
    )


# --- 1.4 ---------------------------------------------------------------------------------------------------------


def softmax_by_loop(scores):
    rows = []
    for row in scores:
        if bool((row == -INF).all()):
            rows.append(torch.zeros_like(row))
        else:
            shares = torch.exp(row - row.max())
            rows.append(shares / shares.sum())
    return torch.stack(rows)


def softmax_by_library(scores):
    empty = (scores == -INF).all(-1, keepdim=True)
    return torch.where(empty, torch.zeros_like(scores), scores.softmax(-1))


def softmax_by_logsumexp(scores):
    empty = (scores == -INF).all(-1, keepdim=True)
    safe = scores.masked_fill(empty, 0)
    return (safe - safe.logsumexp(-1, keepdim=True)).exp().masked_fill(empty, 0)


def softmax_in_float32(scores):
    return softmax_by_loop(scores.float())


def softmax_naive(scores):
    shares = scores.exp()
    return shares / shares.sum(-1, keepdim=True)


def softmax_with_max_pair(scores):
    return torch.exp(scores - scores.max(-1, keepdim=True))


def softmax_without_keepdim(scores):
    shares = torch.exp(scores - scores.max(-1).values)
    return shares / shares.sum(-1)


def softmax_less_the_mean(scores):
    shares = (scores - scores.mean(-1, keepdim=True)).exp()
    return shares / shares.sum(-1, keepdim=True)


def softmax_by_math_exp(scores):
    rows = [[math.exp(x) for x in row] for row in scores.tolist()]
    return torch.tensor([[x / sum(row) for x in row] for row in rows])


def softmax_with_if(scores):
    top = scores.amax(-1, keepdim=True)
    if top == -INF:
        top = 0
    return softmax_naive(scores - top)


def softmax_zero_over_zero(scores):
    top = scores.amax(-1, keepdim=True)
    return softmax_naive(scores - top.masked_fill(top == -INF, 0))


def softmax_empty_by_any(scores):
    sees_nothing = torch.isneginf(scores).any(1)
    return torch.where(sees_nothing[:, None], 0.0, scores.softmax(-1))


def softmax_in_float64(scores):
    shares = scores.double().exp()
    return shares / shares.sum(-1, keepdim=True)


def test_exercise_1_4_names_each_wrong_answer():
    assert_exercise(
        lesson_01.LESSON,
        "1.4",
        wrong={
            "overflow": [
                softmax_naive,
                softmax_less_the_mean,
                softmax_in_float64,
                softmax_by_math_exp,
                lambda s: softmax_naive(s - s[:, :1]),
                lambda s: softmax_naive(s - s.amin(-1, keepdim=True)),
            ],
            "any_for_all": [softmaxes.softmax_empty_where_any, softmax_empty_by_any],
            "if_of_many": [softmax_with_if],
            "not_its_own": [
                lambda s: softmax_naive(s - s.max()),
                lambda s: softmax_naive(s - s.abs().amax(-1, keepdim=True)),
            ],
            "over_columns": [softmaxes.softmax_less_the_column_maximum],
            "no_exp": [softmaxes.softmax_without_exp],
            "too_low_for_half": [lambda s: s.masked_fill(s == -INF, -1e9).softmax(-1)],
            "over_rows": [softmaxes.softmax_over_rows],
            "over_all": [softmaxes.softmax_over_all],
            "sums_all": [softmaxes.softmax_sum_of_all],
            "not_divided": [softmaxes.softmax_not_divided],
            "a_logarithm": [softmaxes.softmax_logarithm],
            "clamped": [softmaxes.softmax_clamped],
            "other_sum": [softmaxes.softmax_divided_by_unshifted_sum],
            "minus_inf_as_zero": [softmaxes.softmax_with_minus_inf_as_zero],
            "empty_nan": [softmaxes.softmax_nan_where_empty, softmax_zero_over_zero],
            "empty_even": [softmaxes.softmax_even_where_empty],
            "hides_nan": [softmaxes.softmax_without_nan, softmaxes.softmax_skipping_nan],
            "max_pair": [softmax_with_max_pair],
            "keepdim": [softmax_without_keepdim],
        },
        right=[softmax_by_loop, softmax_by_library, softmax_by_logsumexp, softmax_in_float32],
    )


# --- 1.5 ---------------------------------------------------------------------------------------------------------


def test_exercise_1_5_names_each_wrong_answer():
    def by_loop(batch, num_heads, q_len, k_len, dtype):
        return sum(
            k_len * dtype.itemsize for _ in range(batch) for _ in range(num_heads) for _ in range(q_len)
        )

    def by_finfo(batch, num_heads, q_len, k_len, dtype):
        return batch * num_heads * q_len * k_len * (torch.finfo(dtype).bits // 8)

    def by_a_tensor_of_no_memory(batch, num_heads, q_len, k_len, dtype):
        return torch.empty(batch, num_heads, q_len, k_len, dtype=dtype, device="meta").nbytes

    def by_element_size(batch, num_heads, q_len, k_len, dtype):
        return math.prod((batch, num_heads, q_len, k_len)) * torch.zeros((), dtype=dtype).element_size()

    def with_mebibytes(batch, num_heads, q_len, k_len, dtype):
        return by_finfo(batch, num_heads, q_len, k_len, dtype) / 2**20

    def of_four_or_two(batch, num_heads, q_len, k_len, dtype):
        return batch * num_heads * q_len * k_len * (4 if dtype == torch.float32 else 2)

    def as_text(batch, num_heads, q_len, k_len, dtype):
        return f"{by_finfo(batch, num_heads, q_len, k_len, dtype)} bytes"

    assert_exercise(
        lesson_01.LESSON,
        "1.5",
        wrong={
            "bits": [wrong.bytes_in_bits],
            "numbers": [wrong.bytes_as_numbers],
            "half_for_causal": [
                wrong.bytes_of_half,
                wrong.bytes_of_triangle,
                wrong.bytes_of_triangle_of_queries,
            ],
            "one_length": [wrong.bytes_of_queries, wrong.bytes_of_keys],
            "misses_double": [of_four_or_two],
            "forgets_heads": [wrong.bytes_of_one_head],
            "forgets_batch": [wrong.bytes_of_one_sequence],
            "forgets_both": [wrong.bytes_of_one_matrix],
            "always_four": [wrong.bytes_in_float32],
            "always_two": [wrong.bytes_in_float16],
            "q_squared": [wrong.bytes_of_queries_squared],
            "k_squared": [wrong.bytes_of_keys_squared],
            "added": [wrong.bytes_added],
            "other_unit": [
                with_mebibytes,
                wrong.bytes_in_whole_kibibytes,
                wrong.bytes_in_whole_mebibytes,
            ],
            "counts_weights": [wrong.bytes_with_weights],
            "common.wrong_type": [as_text],
        },
        right=[by_finfo, by_a_tensor_of_no_memory, by_element_size, by_loop],
    )
