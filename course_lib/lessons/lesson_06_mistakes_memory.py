"""Wrong answers to exercises 6.4 and 6.5 of lesson 06 (what is kept, and the backward through a gate)."""

import torch

from course_lib.classroom.exercise import Attempt, Mistake
from course_lib.lessons.lesson_06_mistakes import math_function_of_a_tensor

# --- 6.4 ---------------------------------------------------------------------------------------------------------


def _bytes(tokens, numbers, dtype):
    return tokens * numbers * dtype.itemsize


def saved_numbers(tokens, dim, hidden, dtype):
    return tokens * (dim + 4 * hidden)


def saved_bits(tokens, dim, hidden, dtype):
    return 8 * _bytes(tokens, dim + 4 * hidden, dtype)


def saved_kib(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) / 2**10


def saved_mib(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) / 2**20


def saved_kb(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) / 10**3


def saved_mb(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) / 10**6


def saved_always_float32(tokens, dim, hidden, dtype):
    return 4 * tokens * (dim + 4 * hidden)


def saved_always_half(tokens, dim, hidden, dtype):
    return 2 * tokens * (dim + 4 * hidden)


def saved_of_one_token(tokens, dim, hidden, dtype):
    return _bytes(1, dim + 4 * hidden, dtype)


def saved_tokens_on_input_alone(tokens, dim, hidden, dtype):
    return (tokens * dim + 4 * hidden) * dtype.itemsize


def saved_without_brackets(tokens, dim, hidden, dtype):
    return tokens * dim + 4 * hidden * dtype.itemsize


def saved_parameters(tokens, dim, hidden, dtype):
    return 3 * dim * hidden * dtype.itemsize


def saved_parameters_too(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) + 3 * dim * hidden * dtype.itemsize


def saved_parameters_and_biases_too(tokens, dim, hidden, dtype):
    return saved_parameters_too(tokens, dim, hidden, dtype) + (2 * hidden + dim) * dtype.itemsize


def saved_parameters_without_product(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 3 * hidden, dtype) + 3 * dim * hidden * dtype.itemsize


def saved_three_hidden(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 3 * hidden, dtype)


def saved_two_hidden(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 2 * hidden, dtype)


def saved_one_hidden(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + hidden, dtype)


def saved_without_input(tokens, dim, hidden, dtype):
    return _bytes(tokens, 4 * hidden, dtype)


def saved_three_hidden_without_input(tokens, dim, hidden, dtype):
    return _bytes(tokens, 3 * hidden, dtype)


def saved_two_hidden_without_input(tokens, dim, hidden, dtype):
    return _bytes(tokens, 2 * hidden, dtype)


def saved_input_alone(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim, dtype)


def saved_output_too(tokens, dim, hidden, dtype):
    return _bytes(tokens, 2 * dim + 4 * hidden, dtype)


def saved_output_too_without_product(tokens, dim, hidden, dtype):
    return _bytes(tokens, 2 * dim + 3 * hidden, dtype)


def saved_output_for_input(tokens, dim, hidden, dtype):
    return _bytes(tokens, 3 * dim + 4 * hidden, dtype)


def saved_five_hidden(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 5 * hidden, dtype)


def saved_views_too(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 6 * hidden, dtype)


def saved_view_of_up_too(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 8 * hidden, dtype)


def saved_twice(tokens, dim, hidden, dtype):
    return 2 * _bytes(tokens, dim + 4 * hidden, dtype)


def saved_dims(tokens, dim, hidden, dtype):
    return _bytes(tokens, 5 * dim, dtype)


def saved_four_dims(tokens, dim, hidden, dtype):
    return _bytes(tokens, 4 * dim + hidden, dtype)


def saved_eight_thirds(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * 8 * dim / 3, dtype)


def saved_eight_thirds_whole(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * (8 * dim // 3), dtype)


def saved_weights_per_token(tokens, dim, hidden, dtype):
    return _bytes(tokens, 3 * dim * hidden, dtype)


def saved_product_of_widths(tokens, dim, hidden, dtype):
    return _bytes(tokens, 4 * dim * hidden, dtype)


def saved_square(tokens, dim, hidden, dtype):
    return _bytes(tokens * tokens, dim + 4 * hidden, dtype)


def took_the_dtype_for_a_number(attempt: Attempt) -> bool:
    return "torch.dtype" in str(attempt.error)


SAVED_BYTES = [
    Mistake("dtype_as_number", when=took_the_dtype_for_a_number),
    Mistake("bits", like=saved_bits),
    Mistake("numbers", like=saved_numbers),
    Mistake("not_bytes", like=saved_kib),
    Mistake("not_bytes", like=saved_mib),
    Mistake("not_bytes", like=saved_kb),
    Mistake("not_bytes", like=saved_mb),
    Mistake("always_float32", like=saved_always_float32),
    Mistake("always_half", like=saved_always_half),
    Mistake("one_token_only", like=saved_of_one_token),
    Mistake("brackets", like=saved_tokens_on_input_alone),
    Mistake("brackets", like=saved_without_brackets),
    Mistake("parameters", like=saved_parameters),
    Mistake("parameters", like=saved_parameters_and_biases_too),
    Mistake("parameters", like=saved_parameters_too),
    Mistake("parameters", like=saved_parameters_without_product),
    Mistake("one_missing", like=saved_three_hidden),
    Mistake("two_missing", like=saved_two_hidden),
    Mistake("three_missing", like=saved_one_hidden),
    Mistake("no_input", like=saved_without_input),
    Mistake("no_input", like=saved_three_hidden_without_input),
    Mistake("no_input", like=saved_two_hidden_without_input),
    Mistake("input_alone", like=saved_input_alone),
    Mistake("output", like=saved_output_too),
    Mistake("output", like=saved_output_too_without_product),
    Mistake("output", like=saved_output_for_input),
    Mistake("views", like=saved_five_hidden),
    Mistake("views", like=saved_views_too),
    Mistake("views", like=saved_view_of_up_too),
    Mistake("gradients", like=saved_twice),
    Mistake("widths", like=saved_dims),
    Mistake("widths", like=saved_four_dims),
    Mistake("widths", like=saved_eight_thirds),
    Mistake("widths", like=saved_eight_thirds_whole),
    Mistake("widths", like=saved_weights_per_token),
    Mistake("widths", like=saved_product_of_widths),
    Mistake("square", like=saved_square),
]


# --- 6.5 ---------------------------------------------------------------------------------------------------------


def _silu(gate):
    return gate * gate.sigmoid()


def _slope(gate):
    sigma = gate.sigmoid()
    return sigma + gate * sigma * (1 - sigma)


def gradients_swapped(gate, up, grad):
    return grad * _silu(gate), grad * up * _slope(gate)


def gradients_sigmoid_alone(gate, up, grad):
    return grad * up * gate.sigmoid(), grad * _silu(gate)


def gradients_sigmoid_slope(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * sigma * (1 - sigma), grad * _silu(gate)


def gradients_of_glu(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * sigma * (1 - sigma), grad * sigma


def gradients_without_slope(gate, up, grad):
    return grad * up, grad * _silu(gate)


def gradients_of_a_sigmoid_of_silu(gate, up, grad):
    silu = _silu(gate)
    return grad * up * silu * (1 - silu), grad * silu


def gradients_silu_in_sigmoid_slope(gate, up, grad):
    silu = _silu(gate)
    return grad * up * (gate.sigmoid() + silu * (1 - silu)), grad * silu


def gradients_with_one_plus(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * sigma * (1 + gate * (1 + sigma)), grad * _silu(gate)


def gradients_second_term_alone(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * gate * sigma * (1 - sigma), grad * _silu(gate)


def gradients_minus(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * (sigma - gate * sigma * (1 - sigma)), grad * _silu(gate)


def gradients_without_outer_sigmoid(gate, up, grad):
    return grad * up * (1 + gate * (1 - gate.sigmoid())), grad * _silu(gate)


def gradients_without_inner_sigmoid(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * (sigma + gate * (1 - sigma)), grad * _silu(gate)


def gradients_without_one_minus(gate, up, grad):
    sigma = gate.sigmoid()
    return grad * up * (sigma + gate * sigma), grad * _silu(gate)


def gradients_of_relu(gate, up, grad):
    return grad * up * (gate > 0), grad * _silu(gate)


def gradients_of_reglu(gate, up, grad):
    return grad * up * (gate > 0), grad * gate.clamp(min=0)


def gradients_silu_for_slope(gate, up, grad):
    return grad * up * _silu(gate), grad * _silu(gate)


def gradients_slope_without_up(gate, up, grad):
    return grad * _slope(gate), grad * _silu(gate)


def gradients_slope_plus_up(gate, up, grad):
    return grad * (_slope(gate) + up), grad * _silu(gate)


def gradients_up_without_silu(gate, up, grad):
    return grad * up * _slope(gate), grad


def gradients_up_by_gate(gate, up, grad):
    return grad * up * _slope(gate), grad * gate


def gradients_up_by_sigmoid(gate, up, grad):
    return grad * up * _slope(gate), grad * gate.sigmoid()


def gradients_up_by_slope(gate, up, grad):
    return grad * up * _slope(gate), grad * _slope(gate)


def gradients_up_by_up(gate, up, grad):
    return grad * up * _slope(gate), grad * _silu(gate) * up


def gradients_of_ones(gate, up, grad):
    return up * _slope(gate), _silu(gate)


def gradients_gate_of_ones(gate, up, grad):
    return up * _slope(gate), grad * _silu(gate)


def gradients_up_of_ones(gate, up, grad):
    return grad * up * _slope(gate), _silu(gate)


def gradients_of_swapped_gate(gate, up, grad):
    return grad * _silu(up), grad * gate * _slope(up)


def gradients_of_silu_on_both(gate, up, grad):
    return grad * _silu(up) * _slope(gate), grad * _silu(gate) * _slope(up)


def gradients_of_bilinear(gate, up, grad):
    return grad * up, grad * gate


def gradients_at_grad(gate, up, grad):
    return up * _slope(grad), grad * _silu(gate)


def gave_one_tensor(attempt: Attempt) -> bool:
    return isinstance(attempt.got, torch.Tensor)


def nan_where_the_gate_is_loud(attempt: Attempt) -> bool:
    return attempt.case.label == "loud" and any(bool(part.isnan().any()) for part in attempt.got)


def gave_the_forward(attempt: Attempt) -> bool:
    gate, up, _ = attempt.args
    return isinstance(attempt.got, torch.Tensor) and torch.allclose(attempt.got, _silu(gate) * up, atol=1e-4)


GATE_GRADIENTS = [
    Mistake("math_exp", when=math_function_of_a_tensor),
    Mistake("forward", when=gave_the_forward),
    Mistake("one_tensor", when=gave_one_tensor),
    Mistake("order", like=gradients_swapped),
    Mistake("sigmoid_alone", like=gradients_sigmoid_alone),
    Mistake("sigmoid_slope", like=gradients_sigmoid_slope),
    Mistake("second_alone", like=gradients_second_term_alone),
    Mistake("minus", like=gradients_minus),
    Mistake("glu", like=gradients_of_glu),
    Mistake("no_slope", like=gradients_without_slope),
    Mistake("slope_formula", like=gradients_of_a_sigmoid_of_silu),
    Mistake("slope_formula", like=gradients_silu_in_sigmoid_slope),
    Mistake("slope_formula", like=gradients_with_one_plus),
    Mistake("slope_formula", like=gradients_without_outer_sigmoid),
    Mistake("slope_formula", like=gradients_without_inner_sigmoid),
    Mistake("slope_formula", like=gradients_without_one_minus),
    Mistake("relu", like=gradients_of_relu),
    Mistake("relu", like=gradients_of_reglu),
    Mistake("silu_for_slope", like=gradients_silu_for_slope),
    Mistake("no_up", like=gradients_slope_without_up),
    Mistake("plus_up", like=gradients_slope_plus_up),
    Mistake("up_factor", like=gradients_up_without_silu),
    Mistake("up_factor", like=gradients_up_by_gate),
    Mistake("up_factor", like=gradients_up_by_sigmoid),
    Mistake("up_factor", like=gradients_up_by_slope),
    Mistake("up_factor", like=gradients_up_by_up),
    Mistake("no_grad", like=gradients_of_ones),
    Mistake("no_grad", like=gradients_gate_of_ones),
    Mistake("no_grad", like=gradients_up_of_ones),
    Mistake("swapped_gate", like=gradients_of_swapped_gate),
    Mistake("both", like=gradients_of_silu_on_both),
    Mistake("no_activation", like=gradients_of_bilinear),
    Mistake("at_grad", like=gradients_at_grad),
    Mistake("overflow", when=nan_where_the_gate_is_loud),
]
