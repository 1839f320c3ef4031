"""Lesson 02: every exercise knows its wrong answers and takes each right one (the backward)."""

import math

import torch

from course_lib.attention import Causal, attention
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_02
from course_lib.lessons import lesson_02_mistakes_backward as wrong_backward

# --- 2.4 ---------------------------------------------------------------------------------------------------------


def kept_by_tensors(q_len, k_len, num_heads, value_dim, dtype):
    out = torch.empty(1, q_len, num_heads, value_dim, dtype=dtype, device="meta")
    rows = torch.empty(2, num_heads, q_len, device="meta")
    return out.numel() * out.element_size() + rows.numel() * rows.element_size()


def kept_factored(q_len, k_len, num_heads, value_dim, dtype):
    return num_heads * q_len * (torch.finfo(dtype).bits // 8 * value_dim + 4 + 4)


def kept_by_loop(q_len, k_len, num_heads, value_dim, dtype):
    total = 0
    for _ in range(num_heads):
        total += q_len * value_dim * dtype.itemsize
        total += 2 * q_len * torch.float32.itemsize
    return float(total) if total == 0 else total


def kept_three_numbers(q_len, k_len, num_heads, value_dim, dtype):
    return num_heads * q_len * (dtype.itemsize * value_dim + 12)


def kept_times_dtype(q_len, k_len, num_heads, value_dim, dtype):
    return q_len * num_heads * value_dim * dtype + q_len * num_heads * 8


def test_exercise_2_4_names_each_wrong_answer():
    assert_exercise(
        lesson_02.LESSON,
        "2.4",
        wrong={
            "dtype_as_number": [kept_times_dtype],
            "bits": [wrong_backward.kept_bits],
            "output_bits": [wrong_backward.kept_output_in_bits],
            "not_bytes": [wrong_backward.kept_kib, wrong_backward.kept_mib],
            "always_half": [wrong_backward.kept_all_in_half],
            "numbers": [wrong_backward.kept_numbers],
            "scores": [
                wrong_backward.kept_scores,
                wrong_backward.kept_scores_and_output,
                wrong_backward.kept_scores_too,
                wrong_backward.kept_scores_in_float32,
            ],
            "one_head": [wrong_backward.kept_of_one_head],
            "stats_one_head": [wrong_backward.kept_row_numbers_of_one_head],
            "stats_not_bytes": [wrong_backward.kept_row_numbers_uncounted_bytes],
            "stats_once": [wrong_backward.kept_row_numbers_once],
            "stats_per_value": [wrong_backward.kept_row_numbers_per_value],
            "one_number": [wrong_backward.kept_one_number_a_row],
            "no_output": [wrong_backward.kept_without_output],
            "no_row_numbers": [wrong_backward.kept_output_only],
            "inputs": [wrong_backward.kept_inputs_too, wrong_backward.kept_inputs_as_long_as_queries],
            "by_keys": [wrong_backward.kept_by_keys, wrong_backward.kept_row_numbers_by_keys],
            "half_row_numbers": [wrong_backward.kept_row_numbers_in_dtype],
            "always_float32": [wrong_backward.kept_all_in_float32],
            "common.wrong_answer": [kept_three_numbers],
        },
        right=[kept_by_tensors, kept_factored, kept_by_loop],
    )


def test_the_solution_of_2_4_is_what_the_tiled_forward_keeps():
    query = torch.randn(1, 70, 3, 8, requires_grad=True)
    key, value = (torch.randn(1, 90, 3, 8, requires_grad=True) for _ in range(2))
    saved = {}

    def note(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        attention(query, key, value, Causal("bottom-right"), backend="tiled")
    for tensor in (query, key, value):
        saved.pop(tensor.untyped_storage().data_ptr())
    kept = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    assert kept == lesson_02.kept_bytes(70, 90, 3, 8, torch.float32)


# --- 2.5 ---------------------------------------------------------------------------------------------------------


def gradient_by_lse(scores, top, total, value, out, grad_out):
    weights = (scores - (top + total.log())).exp()
    return weights * (grad_out @ value.T) - weights * (grad_out * out).sum(1)[:, None]


def gradient_by_einsum(scores, top, total, value, out, grad_out):
    weights = torch.div(torch.exp(scores - top), total)
    delta = torch.einsum("qd,qd->q", grad_out, out).unsqueeze(-1)
    return torch.einsum("qd,kd->qk", grad_out, value).sub(delta).mul(weights)


def gradient_by_loop(scores, top, total, value, out, grad_out):
    result = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        delta = torch.dot(grad_out[i], out[i])
        for j in range(scores.shape[1]):
            weight = torch.exp(scores[i, j] - top[i, 0]) / total[i, 0]
            result[i, j] = weight * (torch.dot(grad_out[i], value[j]) - delta)
    return result


def gradient_forgets_keepdim(scores, top, total, value, out, grad_out):
    return (scores - top).exp() / total * (grad_out @ value.T - (grad_out * out).sum(-1))


def gradient_transposed(scores, top, total, value, out, grad_out):
    return gradient_by_lse(scores, top, total, value, out, grad_out).T


def gradient_by_math_exp(scores, top, total, value, out, grad_out):
    return math.exp(scores - top) / total


def gradient_without_transpose(scores, top, total, value, out, grad_out):
    return grad_out @ value


def gradient_with_delta_of_outputs(scores, top, total, value, out, grad_out):
    return (scores - top).exp() / total * (grad_out @ value.T - out.sum(-1, keepdim=True))


def test_exercise_2_5_names_each_wrong_answer():
    assert_exercise(
        lesson_02.LESSON,
        "2.5",
        wrong={
            "keepdim": [gradient_forgets_keepdim],
            "math_exp": [gradient_by_math_exp],
            "products": [gradient_without_transpose],
            "no_delta": [wrong_backward.gradient_without_delta],
            "only_dp": [wrong_backward.gradient_of_weights],
            "no_weights": [wrong_backward.gradient_without_weights],
            "plus": [wrong_backward.gradient_plus_delta],
            "flipped": [wrong_backward.gradient_negative],
            "not_divided": [wrong_backward.gradient_not_divided],
            "no_top": [wrong_backward.gradient_without_top],
            "lse_wrong": [wrong_backward.gradient_subtracts_total],
            "lse_sign": [wrong_backward.gradient_adds_log_total],
            "base_two": [wrong_backward.gradient_in_base_two],
            "scores_as_weights": [wrong_backward.gradient_by_scores],
            "scaled": [wrong_backward.gradient_scaled],
            "mean_delta": [wrong_backward.gradient_with_mean_delta],
            "elementwise": [wrong_backward.gradient_elementwise],
            "plain_mean": [wrong_backward.gradient_with_plain_sum, wrong_backward.gradient_with_plain_mean],
            "delta_of_columns": [wrong_backward.gradient_with_delta_of_columns],
            "delta_of_all": [wrong_backward.gradient_with_delta_of_all],
            "delta_outside": [wrong_backward.gradient_with_delta_outside],
            "delta_divided": [wrong_backward.gradient_with_divided_delta],
            "delta_pairs": [wrong_backward.gradient_with_delta_of_pairs],
            "out_for_grad": [wrong_backward.gradient_from_output],
            "delta_of_tile": [wrong_backward.gradient_with_delta_of_tile],
            "softmax_of_tile": [
                wrong_backward.gradient_with_softmax_of_tile,
                wrong_backward.gradient_of_tile_alone,
            ],
            "common.axes_swapped": [gradient_transposed],
            "common.wrong_value": [gradient_with_delta_of_outputs],
        },
        right=[gradient_by_lse, gradient_by_einsum, gradient_by_loop],
    )


def test_the_solution_of_2_5_is_the_derivative_of_the_softmax():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    value, grad_out = torch.randn(5, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    out = scores.softmax(-1) @ value
    (wanted,) = torch.autograd.grad(out, scores, grad_out)
    top = scores.detach().amax(-1, keepdim=True)
    total = (scores.detach() - top).exp().sum(-1, keepdim=True)
    tiles = [
        lesson_02.score_gradient(scores.detach()[:, k], top, total, value[k], out.detach(), grad_out)
        for k in (slice(0, 3), slice(3, 5))
    ]
    assert torch.allclose(torch.cat(tiles, 1), wanted, rtol=0, atol=1e-12)
