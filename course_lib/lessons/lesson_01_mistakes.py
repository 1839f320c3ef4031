"""Wrong answers to the exercises of lesson 01, each written as a student would.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import math

import torch
from torch import Tensor

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


def scores_of_keys(query, key):
    return key @ query.T / math.sqrt(query.shape[-1])


def scores_softmaxed(query, key):
    return (query @ key.T / math.sqrt(query.shape[-1])).softmax(-1)


def scores_one_for_each_query(query, key):
    return (query * key).sum(-1) / math.sqrt(query.shape[-1])


def scores_one_for_each_query_unscaled(query, key):
    return (query * key).sum(-1)


def scores_over_words(query, key):
    return query.T @ key / math.sqrt(query.shape[-1])


def scores_over_words_unscaled(query, key):
    return query.T @ key


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


# --- 1.3 ---------------------------------------------------------------------------------------------------------


def _mask(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape).masked_fill(~allowed, -INF)


def _past(q_len: int, k_len: int, shift: int) -> Tensor:
    """True where key j <= i + shift."""
    return torch.ones(q_len, k_len, dtype=torch.bool).tril(shift)


def mask_top_left(q_len, k_len):
    return _mask(_past(q_len, k_len, 0))


def mask_clamped(q_len, k_len):
    return _mask(_past(q_len, k_len, max(k_len - q_len, 0)))


def mask_by_absolute_shift(q_len, k_len):
    return _mask(_past(q_len, k_len, abs(k_len - q_len)))


def mask_shifted_back(q_len, k_len):
    return _mask(_past(q_len, k_len, q_len - k_len))


def mask_by_product(q_len, k_len):
    return (~_past(q_len, k_len, k_len - q_len)).float() * -INF


def mask_by_product_top_left(q_len, k_len):
    return (~_past(q_len, k_len, 0)).float() * -INF


def mask_without_own(q_len, k_len):
    return _mask(_past(q_len, k_len, k_len - q_len - 1))


def mask_of_one_more(q_len, k_len):
    return _mask(_past(q_len, k_len, k_len - q_len + 1))


def mask_inverted(q_len, k_len):
    return _mask(~_past(q_len, k_len, k_len - q_len))


def mask_of_the_past(q_len, k_len):
    """Hides what comes before the query, in place of what comes after it."""
    return _mask(~_past(q_len, k_len, k_len - q_len - 1))


def mask_of_ones(q_len, k_len):
    return _past(q_len, k_len, k_len - q_len).float()


def mask_of_ones_where_hidden(q_len, k_len):
    return (~_past(q_len, k_len, k_len - q_len)).float()


def mask_of_zeros(q_len, k_len):
    return torch.zeros(q_len, k_len)


# --- 1.4 ---------------------------------------------------------------------------------------------------------


def _divided(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def softmax_naive(scores):
    return _divided(scores.exp())


def softmax_over_rows(scores):
    return scores.softmax(0)


def softmax_over_all(scores):
    weights = (scores - scores.max()).exp()
    return weights / weights.sum()


def softmax_sum_of_all(scores):
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum()


def softmax_not_divided(scores):
    return (scores - scores.amax(-1, keepdim=True)).exp()


def softmax_logarithm(scores):
    return scores.log_softmax(-1)


def softmax_clamped(scores):
    return _divided(scores.clamp(max=80).exp())


def softmax_global_max(scores):
    return _divided((scores - scores.max()).exp())


def softmax_nan_where_empty(scores):
    return scores.softmax(-1)


def softmax_even_where_empty(scores):
    return scores.clamp(min=torch.finfo(scores.dtype).min).softmax(-1)


def softmax_without_nan(scores):
    return scores.softmax(-1).nan_to_num(0.0)


def softmax_skipping_nan(scores):
    return scores.masked_fill(scores.isnan(), -INF).softmax(-1).nan_to_num(0.0)


# --- 1.5 ---------------------------------------------------------------------------------------------------------


def bytes_in_bits(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * torch.finfo(dtype).bits


def bytes_as_numbers(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len


def bytes_of_half(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * k_len * dtype.itemsize // 2


def bytes_of_triangle(batch, num_heads, q_len, k_len, dtype):
    return batch * num_heads * q_len * (k_len + 1) // 2 * dtype.itemsize


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


# --- 1.6 ---------------------------------------------------------------------------------------------------------


def _window(q_len: int, k_len: int, left: int, right: int | None = 0, *, top_left: bool = False) -> Tensor:
    """True from `left` keys before each query's own to `right` keys after it."""
    shift = 0 if top_left else k_len - q_len
    seen = torch.ones(q_len, k_len, dtype=torch.bool).triu(shift - left)
    return seen if right is None else seen.tril(shift + right)


def window_one_more(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window))


def window_one_less(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 2))


def window_hides_own(q_len, k_len, window):
    """As many keys as the window is wide, all of them before the query's own."""
    return _mask(_window(q_len, k_len, window, -1))


def window_of_ones(q_len, k_len, window):
    return _window(q_len, k_len, window - 1).float()


def window_both_sides(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, window - 1))


def window_forward(q_len, k_len, window):
    """The query's own key and those after it: a transposed window."""
    return _mask(_window(q_len, k_len, 0, window - 1))


def window_with_future(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, None))


def window_plain_causal(q_len, k_len, window):
    return _mask(_past(q_len, k_len, k_len - q_len))


def window_inverted(q_len, k_len, window):
    return _mask(~_window(q_len, k_len, window - 1))


def window_top_left(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, top_left=True))


def window_by_product(q_len, k_len, window):
    return (~_window(q_len, k_len, window - 1)).float() * -INF
