"""Wrong answers to exercises 6.4 and 6.5 of lesson 06 (what is kept, and the backward through a gate)."""

import torch

from course_lib.classroom.exercise import Attempt

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


def saved_always_float32(tokens, dim, hidden, dtype):
    return 4 * tokens * (dim + 4 * hidden)


def saved_always_half(tokens, dim, hidden, dtype):
    return 2 * tokens * (dim + 4 * hidden)


def saved_of_one_token(tokens, dim, hidden, dtype):
    return _bytes(1, dim + 4 * hidden, dtype)


def saved_parameters(tokens, dim, hidden, dtype):
    return 3 * dim * hidden * dtype.itemsize


def saved_parameters_too(tokens, dim, hidden, dtype):
    return _bytes(tokens, dim + 4 * hidden, dtype) + 3 * dim * hidden * dtype.itemsize


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


def saved_product_of_widths(tokens, dim, hidden, dtype):
    return _bytes(tokens, 4 * dim * hidden, dtype)


def saved_square(tokens, dim, hidden, dtype):
    return _bytes(tokens * tokens, dim + 4 * hidden, dtype)


def took_the_dtype_for_a_number(attempt: Attempt) -> bool:
    return "torch.dtype" in str(attempt.error)


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
