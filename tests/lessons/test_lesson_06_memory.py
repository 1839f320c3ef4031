"""Lesson 06: the exercises on saved bytes and on the backward through a gate know their wrong answers."""

import math

import torch
import torch.nn.functional as F

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_06
from course_lib.lessons import lesson_06_mistakes_memory as wrong
from course_lib.swiglu import SwiGLU
from course_lib.swiglu.activation import SILU

# --- 6.4 ---------------------------------------------------------------------------------------------------------


def saved_by_tensors(tokens, dim, hidden, dtype):
    kept = [torch.empty(tokens, n, dtype=dtype, device="meta") for n in (dim, 2 * hidden, hidden, hidden)]
    return sum(tensor.nbytes for tensor in kept)


def saved_by_finfo(tokens, dim, hidden, dtype):
    return (tokens * dim + 4 * tokens * hidden) * torch.finfo(dtype).bits // 8


def saved_by_autograd(tokens, dim, hidden, dtype):
    layer = SwiGLU(dim, hidden).to(dtype)
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(torch.zeros(tokens, dim, dtype=dtype, requires_grad=True))
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights)


def saved_with_dtype_as_number(tokens, dim, hidden, dtype):
    return tokens * (dim + 4 * hidden) * dtype


def test_exercise_6_4_names_each_wrong_answer():
    assert_exercise(
        lesson_06.LESSON,
        "6.4",
        wrong={
            "dtype_as_number": [saved_with_dtype_as_number],
            "bits": [wrong.saved_bits, lambda t, d, h, dtype: t * (d + 4 * h) * torch.finfo(dtype).bits],
            "numbers": [wrong.saved_numbers],
            "not_bytes": [wrong.saved_kib, wrong.saved_mib, wrong.saved_kb, wrong.saved_mb],
            "always_float32": [wrong.saved_always_float32],
            "always_half": [wrong.saved_always_half],
            "one_token_only": [wrong.saved_of_one_token],
            "brackets": [wrong.saved_tokens_on_input_alone, wrong.saved_without_brackets],
            "parameters": [
                wrong.saved_parameters_and_biases_too,
                wrong.saved_parameters,
                wrong.saved_parameters_too,
                wrong.saved_parameters_without_product,
            ],
            "one_missing": [wrong.saved_three_hidden],
            "two_missing": [wrong.saved_two_hidden],
            "three_missing": [wrong.saved_one_hidden],
            "no_input": [
                wrong.saved_without_input,
                wrong.saved_three_hidden_without_input,
                wrong.saved_two_hidden_without_input,
            ],
            "input_alone": [wrong.saved_input_alone],
            "output": [
                wrong.saved_output_too,
                wrong.saved_output_too_without_product,
                wrong.saved_output_for_input,
            ],
            "views": [
                wrong.saved_five_hidden,
                wrong.saved_views_too,
                wrong.saved_view_of_up_too,
            ],
            "gradients": [wrong.saved_twice],
            "widths": [
                wrong.saved_dims,
                wrong.saved_four_dims,
                wrong.saved_eight_thirds,
                wrong.saved_eight_thirds_whole,
                wrong.saved_weights_per_token,
                wrong.saved_product_of_widths,
            ],
            "square": [wrong.saved_square],
        },
        right=[saved_by_tensors, saved_by_finfo, saved_by_autograd],
    )


# --- 6.5 ---------------------------------------------------------------------------------------------------------


def gradients_by_autograd(gate, up, grad):
    gate, up = gate.clone().requires_grad_(), up.clone().requires_grad_()
    return torch.autograd.grad(F.silu(gate) * up, (gate, up), grad)


def gradients_by_factoring(gate, up, grad):
    s = torch.sigmoid(gate)
    return [grad * up * s * (1 + gate * (1 - s)), grad * gate * s]


def gradients_by_library(gate, up, grad):
    return SILU.backward(grad * up, gate), SILU.function(gate) * grad


def gradients_by_numbers(gate, up, grad):
    first, second = torch.empty_like(gate), torch.empty_like(up)
    for i in range(gate.shape[0]):
        for j in range(gate.shape[1]):
            s = 1 / (1 + torch.exp(-gate[i, j]))
            slope = s + gate[i, j] * s * (1 - s)
            first[i, j] = grad[i, j] * up[i, j] * slope
            second[i, j] = grad[i, j] * gate[i, j] * s
    return first, second


def gradients_by_exp(gate, up, grad):
    s = gate.exp() / (1 + gate.exp())
    return grad * up * (s + gate * s * (1 - s)), grad * gate * s


def gradients_by_math(gate, up, grad):
    s = 1 / (1 + math.exp(-gate))
    return grad * up * (s + gate * s * (1 - s)), grad * gate * s


def test_exercise_6_5_names_each_wrong_answer():
    assert_exercise(
        lesson_06.LESSON,
        "6.5",
        wrong={
            "math_exp": [gradients_by_math],
            "forward": [lambda gate, up, grad: F.silu(gate) * up],
            "one_tensor": [lambda gate, up, grad: gradients_by_factoring(gate, up, grad)[0]],
            "order": [wrong.gradients_swapped],
            "sigmoid_alone": [wrong.gradients_sigmoid_alone],
            "sigmoid_slope": [wrong.gradients_sigmoid_slope],
            "second_alone": [wrong.gradients_second_term_alone],
            "minus": [wrong.gradients_minus],
            "glu": [wrong.gradients_of_glu],
            "no_slope": [wrong.gradients_without_slope],
            "slope_formula": [
                wrong.gradients_of_a_sigmoid_of_silu,
                wrong.gradients_silu_in_sigmoid_slope,
                wrong.gradients_with_one_plus,
                wrong.gradients_without_outer_sigmoid,
                wrong.gradients_without_inner_sigmoid,
                wrong.gradients_without_one_minus,
            ],
            "relu": [wrong.gradients_of_relu, wrong.gradients_of_reglu],
            "silu_for_slope": [wrong.gradients_silu_for_slope],
            "no_up": [wrong.gradients_slope_without_up],
            "plus_up": [wrong.gradients_slope_plus_up],
            "up_factor": [
                wrong.gradients_up_without_silu,
                wrong.gradients_up_by_gate,
                wrong.gradients_up_by_sigmoid,
                wrong.gradients_up_by_slope,
                wrong.gradients_up_by_up,
            ],
            "no_grad": [
                wrong.gradients_of_ones,
                wrong.gradients_gate_of_ones,
                wrong.gradients_up_of_ones,
            ],
            "swapped_gate": [wrong.gradients_of_swapped_gate],
            "both": [wrong.gradients_of_silu_on_both],
            "no_activation": [wrong.gradients_of_bilinear],
            "at_grad": [wrong.gradients_at_grad],
            "overflow": [gradients_by_exp],
            "common.wrong_value": [lambda gate, up, grad: (grad, grad)],
        },
        right=[gradients_by_autograd, gradients_by_factoring, gradients_by_library, gradients_by_numbers],
    )
