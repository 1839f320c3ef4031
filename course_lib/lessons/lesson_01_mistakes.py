"""Wrong answers to the exercises of lesson 01, each written as a student would.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import math

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt

INF = math.inf

# --- 1.1 ---------------------------------------------------------------------------------------------------------


def scores_unscaled(query, key):
    return query @ key.T


def scores_by_head_dim(query, key):
    return query @ key.T / query.shape[-1]


def scores_multiplied(query, key):
    return query @ key.T * math.sqrt(query.shape[-1])


def scores_by_queries(query, key):
    return query @ key.T / math.sqrt(len(query))


def scores_by_keys(query, key):
    return query @ key.T / math.sqrt(len(key))


def scores_by_two(query, key):
    return query @ key.T / 2


def scores_by_half_head_dim(query, key):
    """Python reads head_dim ** 1 / 2 as (head_dim ** 1) / 2."""
    return query @ key.T / (query.shape[-1] / 2)


def scores_by_head_dim_and_two(query, key):
    """The same without brackets: product / head_dim ** 1 / 2."""
    return query @ key.T / query.shape[-1] / 2


def scores_of_keys(query, key):
    return key @ query.T / math.sqrt(query.shape[-1])


def scores_and_beyond(query, key):
    """The whole of attention, with the keys as values."""
    return (query @ key.T / math.sqrt(query.shape[-1])).softmax(-1) @ key


def scores_of_unit_vectors(query, key):
    return (query / query.norm(dim=-1, keepdim=True)) @ (key / key.norm(dim=-1, keepdim=True)).T


def scores_by_whole_root(query, key):
    return query @ key.T / math.isqrt(query.shape[-1])


def scores_elementwise(query, key):
    return query * key / math.sqrt(query.shape[-1])


def scores_elementwise_unscaled(query, key):
    return query * key


def scores_one_for_each_query(query, key):
    return (query * key).sum(-1) / math.sqrt(query.shape[-1])


def scores_one_for_each_query_unscaled(query, key):
    return (query * key).sum(-1)


def scores_over_words(query, key):
    return query.T @ key / math.sqrt(query.shape[-1])


def scores_over_words_unscaled(query, key):
    return query.T @ key


def one_key_gets_all(attempt: Attempt) -> bool:
    """A softmax over one score is 1, whatever the score."""
    return attempt.got.shape == (1, 1) and float(attempt.got) == 1


def products_of_every_pair(attempt: Attempt) -> bool:
    """One query and one key: their products in place of the sum, as [1, 1, head_dim] or [1, head_dim]."""
    if "sizes provided" in str(attempt.error):  # a row of products, put into a cell for one number
        return True
    query, key = attempt.args
    products = query * key
    return attempt.got.numel() == products.numel() and any(
        torch.allclose(attempt.got.flatten(), products.flatten() / scale) for scale in (1, 2)
    )


def matrices_do_not_fit(attempt: Attempt) -> bool:
    return "cannot be multiplied" in str(attempt.error)


# --- 1.2 ---------------------------------------------------------------------------------------------------------


def _future(scores: Tensor, first: int = 1) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool).triu(first)


def masked_scores(scores):
    return scores.masked_fill(_future(scores), -INF)


def weights_masked_after(scores):
    return scores.softmax(-1).tril()


def weights_renormalised(scores):
    weights = scores.softmax(-1).tril()
    return weights / weights.sum(-1, keepdim=True)


def weights_renormalised_with_epsilon(scores):
    weights = scores.softmax(-1).tril()
    return weights / (weights.sum(-1, keepdim=True) + 1e-9)


def weights_unmasked(scores):
    return scores.softmax(-1)


def weights_without_itself(scores):
    return scores.masked_fill(_future(scores, 0), -INF).softmax(-1)


def weights_without_itself_or_nan(scores):
    return weights_without_itself(scores).nan_to_num(0)


def weights_of_transposed_scores(scores):
    return masked_scores(scores.T).softmax(-1)


def weights_of_plus_inf(scores):
    return scores.masked_fill(_future(scores), INF).softmax(-1)


def weights_of_the_mask_alone(scores):
    return masked_scores(torch.zeros_like(scores)).softmax(-1)


def weights_of_scores_times_mask(scores):
    return (scores * masked_scores(torch.zeros_like(scores))).softmax(-1)


def weights_of_scores_times_minus_inf(scores):
    return (scores * masked_scores(torch.ones_like(scores))).softmax(-1)


def six_does_not_fit(attempt: Attempt) -> bool:
    """The 6 by 6 mask of the notebook, used for scores of another size."""
    return "must match" in str(attempt.error) and "(6)" in str(attempt.error)


def weights_of_one_more(scores):
    return scores.masked_fill(_future(scores, 2), -INF).softmax(-1)


def weights_of_the_future(scores):
    return scores.masked_fill(~_future(scores, 0), -INF).softmax(-1)


def weights_of_the_future_only(scores):
    return scores.masked_fill(~_future(scores), -INF).softmax(-1)


def weights_of_zeroed_scores(scores):
    return scores.tril().softmax(-1)


def weights_without_zero_scores(scores):
    kept = scores.tril()
    return kept.masked_fill(kept == 0, -INF).softmax(-1)


def weights_over_queries(scores):
    return masked_scores(scores).softmax(0)


def weights_of_zero_times_inf(scores):
    return (scores + _future(scores) * -INF).softmax(-1)


def weights_scaled_again(scores):
    return (masked_scores(scores) / math.sqrt(len(scores))).softmax(-1)


def gives_weight_to_the_future(attempt: Attempt) -> bool:
    return bool((attempt.got.triu(1) > 1e-6).any())


def first_leak(attempt: Attempt) -> dict[str, object]:
    row, column = (int(i) for i in (attempt.got.triu(1) > 1e-6).nonzero()[0])
    return {"row": row, "column": column, "weight": f"{float(attempt.got[row, column]):.2g}"}


def still_holds_minus_inf(attempt: Attempt) -> bool:
    return bool((attempt.got == -torch.inf).any())


def nan_at_extreme_scores(attempt: Attempt) -> bool:
    """NaN in the cases of two words, whose scores lie far apart or very low; ordinary scores went well."""
    return len(attempt.got) == 2 and bool(attempt.got.isnan().any())


# --- 1.5 ---------------------------------------------------------------------------------------------------------


def bytes_in_bits(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * torch.finfo(dtype).bits


def bytes_as_numbers(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len


def bytes_of_half(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * dtype.itemsize // 2


def bytes_of_triangle(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * (k_len + 1) // 2 * dtype.itemsize


def bytes_of_triangle_of_queries(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * (q_len + 1) // 2 * dtype.itemsize


def bytes_of_queries(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * dtype.itemsize


def bytes_of_keys(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * k_len * dtype.itemsize


def bytes_of_one_head(batch, num_heads, q_len, k_len, dtype):
    return batch * q_len * k_len * dtype.itemsize


def bytes_of_one_sequence(batch, num_heads, q_len, k_len, dtype):
    return num_heads * q_len * k_len * dtype.itemsize


def bytes_of_one_matrix(batch, num_heads, q_len, k_len, dtype):
    return q_len * k_len * dtype.itemsize


def bytes_in_float32(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * 4


def bytes_in_float16(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * 2


def bytes_of_queries_squared(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len**2 * dtype.itemsize


def bytes_of_keys_squared(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * k_len**2 * dtype.itemsize


def bytes_added(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * (q_len + k_len) * dtype.itemsize


def bytes_with_weights(batch, num_heads, q_len, k_len, dtype):
    return 2 * batch * num_heads * q_len * k_len * dtype.itemsize


def bytes_in_whole_kibibytes(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * dtype.itemsize // 2**10


def bytes_in_whole_mebibytes(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * dtype.itemsize // 2**20


def in_another_unit(attempt: Attempt) -> bool:
    return any(
        math.isclose(attempt.got * unit, attempt.wanted) for unit in (1e3, 1024, 1e6, 2**20, 1e9, 2**30)
    )


def wrong_for_double(attempt: Attempt) -> bool:
    return attempt.args[-1] == torch.float64 and attempt.returned
