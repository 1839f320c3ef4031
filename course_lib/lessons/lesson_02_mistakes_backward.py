"""Wrong answers to exercises 2.4 and 2.5 of lesson 02 (the backward), each written as a student would."""

# --- 2.4 ---------------------------------------------------------------------------------------------------------


def kept_numbers(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim + 2)


def kept_bits(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize + 8) * 8


def kept_scores(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * k_len * num_heads * dtype.itemsize


def kept_scores_and_output(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (k_len + value_dim) * dtype.itemsize


def kept_scores_too(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * ((k_len + value_dim) * dtype.itemsize + 8)


def kept_scores_in_float32(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * k_len * num_heads * 4


def kept_kib(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize + 8) / 2**10


def kept_mib(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize + 8) / 2**20


def kept_row_numbers_by_keys(q_len, k_len, num_heads, value_dim, dtype):
    return num_heads * (q_len * value_dim * dtype.itemsize + k_len * 8)


def kept_all_in_half(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim + 2) * 2


def kept_of_one_head(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * (value_dim * dtype.itemsize + 8)


def kept_row_numbers_of_one_head(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * (num_heads * value_dim * dtype.itemsize + 8)


def kept_one_number_a_row(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize + 4)


def kept_without_output(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * 8


def kept_output_only(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * value_dim * dtype.itemsize


def kept_inputs_too(q_len, k_len, num_heads, value_dim, dtype):
    inputs = (q_len + 2 * k_len) * num_heads * value_dim * dtype.itemsize
    return inputs + q_len * num_heads * (value_dim * dtype.itemsize + 8)


def kept_by_keys(q_len, k_len, num_heads, value_dim, dtype):
    return k_len * num_heads * (value_dim * dtype.itemsize + 8)


def kept_row_numbers_in_dtype(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim + 2) * dtype.itemsize


def kept_inputs_as_long_as_queries(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (4 * value_dim * dtype.itemsize + 8)


def kept_row_numbers_uncounted_bytes(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize + 2)


def kept_row_numbers_once(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * value_dim * dtype.itemsize + 8


def kept_row_numbers_per_value(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * value_dim * (dtype.itemsize + 8)


def kept_output_in_bits(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim * dtype.itemsize * 8 + 8)


def kept_all_in_float32(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * (value_dim + 2) * 4


# --- 2.5 ---------------------------------------------------------------------------------------------------------


def _weights(scores, top, total):
    return (scores - top).exp() / total


def _delta(out, grad_out):
    return (grad_out * out).sum(-1, keepdim=True)


def gradient_without_delta(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T)


def gradient_of_weights(scores, top, total, value, out, grad_out):
    return grad_out @ value.T


def gradient_without_weights(scores, top, total, value, out, grad_out):
    return grad_out @ value.T - _delta(out, grad_out)


def gradient_plus_delta(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T + _delta(out, grad_out))


def gradient_negative(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (_delta(out, grad_out) - grad_out @ value.T)


def gradient_not_divided(scores, top, total, value, out, grad_out):
    return (scores - top).exp() * (grad_out @ value.T - _delta(out, grad_out))


def gradient_without_top(scores, top, total, value, out, grad_out):
    return scores.exp() / total * (grad_out @ value.T - _delta(out, grad_out))


def gradient_subtracts_total(scores, top, total, value, out, grad_out):
    return (scores - top - total).exp() * (grad_out @ value.T - _delta(out, grad_out))


def gradient_adds_log_total(scores, top, total, value, out, grad_out):
    return (scores - top + total.log()).exp() * (grad_out @ value.T - _delta(out, grad_out))


def gradient_in_base_two(scores, top, total, value, out, grad_out):
    return 2 ** (scores - top) / total * (grad_out @ value.T - _delta(out, grad_out))


def gradient_by_scores(scores, top, total, value, out, grad_out):
    return scores * (grad_out @ value.T - _delta(out, grad_out))


def gradient_scaled(scores, top, total, value, out, grad_out):
    gradient = _weights(scores, top, total) * (grad_out @ value.T - _delta(out, grad_out))
    return gradient / value.shape[-1] ** 0.5


def gradient_with_mean_delta(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T - (grad_out * out).mean(-1, keepdim=True))


def gradient_elementwise(scores, top, total, value, out, grad_out):
    weights = _weights(scores, top, total)
    return weights * (1 - weights) * (grad_out @ value.T)


def gradient_with_plain_sum(scores, top, total, value, out, grad_out):
    grad_weights = grad_out @ value.T
    return _weights(scores, top, total) * (grad_weights - grad_weights.sum(-1, keepdim=True))


def gradient_with_plain_mean(scores, top, total, value, out, grad_out):
    grad_weights = grad_out @ value.T
    return _weights(scores, top, total) * (grad_weights - grad_weights.mean(-1, keepdim=True))


def gradient_with_delta_of_columns(scores, top, total, value, out, grad_out):
    weights, grad_weights = _weights(scores, top, total), grad_out @ value.T
    return weights * (grad_weights - (weights * grad_weights).sum(0, keepdim=True))


def gradient_with_delta_of_all(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T - (grad_out * out).sum())


def gradient_with_delta_outside(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T) - _delta(out, grad_out)


def gradient_with_divided_delta(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T - _delta(out, grad_out) / total)


def gradient_with_delta_of_pairs(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (grad_out @ value.T - (grad_out @ out.T).sum(-1, keepdim=True))


def gradient_from_output(scores, top, total, value, out, grad_out):
    return _weights(scores, top, total) * (out @ value.T - _delta(out, grad_out))


def gradient_with_delta_of_tile(scores, top, total, value, out, grad_out):
    weights, grad_weights = _weights(scores, top, total), grad_out @ value.T
    return weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))


def gradient_with_softmax_of_tile(scores, top, total, value, out, grad_out):
    return scores.softmax(-1) * (grad_out @ value.T - _delta(out, grad_out))


def gradient_of_tile_alone(scores, top, total, value, out, grad_out):
    weights, grad_weights = scores.softmax(-1), grad_out @ value.T
    return weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))
