"""Wrong answers to exercises 6.1 and 6.2 of lesson 06, each written as a student would, and signs in what went wrong.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import math
import operator

import torch
import torch.nn.functional as F

from course_lib.classroom.exercise import Attempt

# --- 6.1 ---------------------------------------------------------------------------------------------------------


def swiglu_swapped(x, w1, w2, w3):
    return (x @ w1.T * F.silu(x @ w2.T)) @ w3.T


def swiglu_sigmoid(x, w1, w2, w3):
    return ((x @ w1.T).sigmoid() * (x @ w2.T)) @ w3.T


def swiglu_relu(x, w1, w2, w3):
    return (F.relu(x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_gelu(x, w1, w2, w3):
    return (F.gelu(x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_gelu_tanh(x, w1, w2, w3):
    return (F.gelu(x @ w1.T, approximate="tanh") * (x @ w2.T)) @ w3.T


def swiglu_gelu_quick(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate * (1.702 * gate).sigmoid() * (x @ w2.T)) @ w3.T


def swiglu_tanh(x, w1, w2, w3):
    return ((x @ w1.T).tanh() * (x @ w2.T)) @ w3.T


def swiglu_sigmoid_of_up(x, w1, w2, w3):
    return ((x @ w1.T) * (x @ w2.T).sigmoid()) @ w3.T


def swiglu_relu_of_up(x, w1, w2, w3):
    return ((x @ w1.T) * F.relu(x @ w2.T)) @ w3.T


def swiglu_gelu_of_up(x, w1, w2, w3):
    return ((x @ w1.T) * F.gelu(x @ w2.T)) @ w3.T


def swiglu_gate_times_silu(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate * F.silu(gate) * (x @ w2.T)) @ w3.T


def swiglu_softmax(x, w1, w2, w3):
    return ((x @ w1.T).softmax(-1) * (x @ w2.T)) @ w3.T


def swiglu_both(x, w1, w2, w3):
    return (F.silu(x @ w1.T) * F.silu(x @ w2.T)) @ w3.T


def swiglu_bilinear(x, w1, w2, w3):
    return ((x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_silu_of_product(x, w1, w2, w3):
    return F.silu((x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_silu_of_gate_and_product(x, w1, w2, w3):
    return F.silu(F.silu(x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_added(x, w1, w2, w3):
    return (F.silu(x @ w1.T) + x @ w2.T) @ w3.T


def swiglu_gate_alone(x, w1, w2, w3):
    return F.silu(x @ w1.T) @ w3.T


def swiglu_up_alone(x, w1, w2, w3):
    return F.silu(x @ w2.T) @ w3.T


def swiglu_linear_gate_alone(x, w1, w2, w3):
    return x @ w1.T @ w3.T


def swiglu_linear_up_alone(x, w1, w2, w3):
    return x @ w2.T @ w3.T


def swiglu_up_from_gate(x, w1, w2, w3):
    gate = x @ w1.T
    return (F.silu(gate) * gate) @ w3.T


def swiglu_up_from_up(x, w1, w2, w3):
    up = x @ w2.T
    return (F.silu(up) * up) @ w3.T


def swiglu_silu_at_end(x, w1, w2, w3):
    return F.silu(((x @ w1.T) * (x @ w2.T)) @ w3.T)


def swiglu_silu_twice_at_end(x, w1, w2, w3):
    return F.silu((F.silu(x @ w1.T) * (x @ w2.T)) @ w3.T)


def swiglu_silu_of_input(x, w1, w2, w3):
    return ((F.silu(x) @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_silu_of_input_everywhere(x, w1, w2, w3):
    return ((F.silu(x) @ w1.T) * (F.silu(x) @ w2.T)) @ w3.T


def swiglu_without_w3(x, w1, w2, w3):
    return F.silu(x @ w1.T) * (x @ w2.T)


def swiglu_w3_first(x, w1, w2, w3):
    return F.silu(x @ w1.T @ w3.T) * (x @ w2.T @ w3.T)


def swiglu_w3_on_each(x, w1, w2, w3):
    return (F.silu(x @ w1.T) @ w3.T) * (x @ w2.T @ w3.T)


def swiglu_other_sign(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate * (-gate).sigmoid() * (x @ w2.T)) @ w3.T


def swiglu_residual(x, w1, w2, w3):
    return x + (F.silu(x @ w1.T) * (x @ w2.T)) @ w3.T


def swiglu_concatenated(x, w1, w2, w3):
    return torch.cat((F.silu(x @ w1.T), x @ w2.T), -1)


OTHER_CURVES = (
    F.mish,
    F.hardswish,
    F.softplus,
    F.elu,
    F.selu,
    F.leaky_relu,
    F.relu6,
    F.hardsigmoid,
    F.logsigmoid,
)


def gate_of_another_curve(attempt: Attempt) -> bool:
    x, w1, w2, w3 = attempt.args
    gate, up = x @ w1.T, x @ w2.T
    return any(
        torch.allclose(attempt.got, (curve(gate) * up) @ w3.T, rtol=1e-4, atol=1e-5) for curve in OTHER_CURVES
    )


def swiglu_silu_of_weights(x, w1, w2, w3):
    return ((x @ F.silu(w1).T) * (x @ w2.T)) @ w3.T


def sizes_do_not_fit(attempt: Attempt) -> bool:
    text = str(attempt.error)
    return "mat1 and mat2" in text or "must match the size" in text or "size mismatch" in text


def nan_where_the_gate_is_loud(attempt: Attempt) -> bool:
    return attempt.case.label == "loud" and bool(attempt.got.isnan().any())


def math_function_of_a_tensor(attempt: Attempt) -> bool:
    return "converted to Python scalars" in str(attempt.error)


def error(attempt: Attempt) -> dict[str, object]:
    return {"error": str(attempt.error)}


# --- 6.2 ---------------------------------------------------------------------------------------------------------


def _up(number, multiple_of):
    return math.ceil(number / multiple_of) * multiple_of


def matched_same_width(dim, expansion, multiple_of):
    return _up(expansion * dim, multiple_of)


def matched_same_width_unrounded(dim, expansion, multiple_of):
    return expansion * dim


def matched_without_expansion(dim, expansion, multiple_of):
    return _up(2 * dim / 3, multiple_of)


def matched_without_expansion_unrounded(dim, expansion, multiple_of):
    return math.ceil(2 * dim / 3)


def matched_always_four(dim, expansion, multiple_of):
    return _up(8 * dim / 3, multiple_of)


def matched_half(dim, expansion, multiple_of):
    return _up(expansion * dim / 2, multiple_of)


def matched_third(dim, expansion, multiple_of):
    return _up(expansion * dim / 3, multiple_of)


def matched_inverted(dim, expansion, multiple_of):
    return _up(3 * expansion * dim / 2, multiple_of)


def matched_three_quarters(dim, expansion, multiple_of):
    return _up(3 * expansion * dim / 4, multiple_of)


def matched_both_halves(dim, expansion, multiple_of):
    return 2 * _up(2 * expansion * dim / 3, multiple_of)


def matched_both_halves_rounded_once(dim, expansion, multiple_of):
    return _up(4 * expansion * dim / 3, multiple_of)


def matched_down(dim, expansion, multiple_of):
    return 2 * expansion * dim // 3 // multiple_of * multiple_of


def matched_ceil_then_down(dim, expansion, multiple_of):
    return math.ceil(2 * expansion * dim / 3) // multiple_of * multiple_of


def matched_nearest(dim, expansion, multiple_of):
    return round(2 * expansion * dim / 3 / multiple_of) * multiple_of


def matched_one_more(dim, expansion, multiple_of):
    return (2 * expansion * dim // 3 // multiple_of + 1) * multiple_of


def matched_remainder_added(dim, expansion, multiple_of):
    hidden = math.ceil(2 * expansion * dim / 3)
    return hidden + hidden % multiple_of


def matched_by_mask(dim, expansion, multiple_of):
    hidden = math.ceil(2 * expansion * dim / 3)
    return (hidden + multiple_of - 1) & ~(multiple_of - 1)


def matched_with_biases(dim, expansion, multiple_of):
    plain = 2 * expansion * dim * dim + expansion * dim + dim
    return _up((plain - dim) / (3 * dim + 2), multiple_of)


def _by_a_rounded_fraction(fraction):
    return lambda dim, expansion, multiple_of: _up(fraction * expansion * dim, multiple_of)


ROUNDED_FRACTIONS = tuple(_by_a_rounded_fraction(f) for f in (0.66, 0.67, 0.666, 0.667, 0.6666, 0.6667))


def matched_cut_first(dim, expansion, multiple_of):
    hidden = int(2 * expansion * dim / 3)
    return (hidden + multiple_of - 1) // multiple_of * multiple_of


def matched_not_a_multiple(dim, expansion, multiple_of):
    return math.ceil(2 * expansion * dim / 3)


def matched_cut(dim, expansion, multiple_of):
    return 2 * expansion * dim // 3


def matched_unrounded(dim, expansion, multiple_of):
    return 2 * expansion * dim / 3


def matched_rounded(dim, expansion, multiple_of):
    return round(2 * expansion * dim / 3)


def matched_eight_thirds(dim, expansion, multiple_of):
    return 8 * dim // 3


def matched_cut_expansion(dim, expansion, multiple_of):
    return _up(2 * expansion // 3 * dim, multiple_of)


def matched_cut_expansion_unrounded(dim, expansion, multiple_of):
    return 2 * expansion // 3 * dim


def matched_always_eight(dim, expansion, multiple_of):
    return _up(2 * expansion * dim / 3, 8)


def matched_times_multiple(dim, expansion, multiple_of):
    return math.ceil(2 * expansion * dim / 3) * multiple_of


def matched_in_multiples(dim, expansion, multiple_of):
    return math.ceil(2 * expansion * dim / 3 / multiple_of)


def matched_parameters(dim, expansion, multiple_of):
    return 2 * expansion * dim * dim


def matched_gated_parameters(dim, expansion, multiple_of):
    return 3 * dim * _up(2 * expansion * dim / 3, multiple_of)


def matched_rounded_early(dim, expansion, multiple_of):
    return _up(math.ceil(2 * dim / 3) * expansion, multiple_of)


def matched_third_rounded_early(dim, expansion, multiple_of):
    return _up(math.ceil(dim / 3) * 2 * expansion, multiple_of)


def matched_rounded_wide(dim, expansion, multiple_of):
    return 2 * _up(expansion * dim, multiple_of) // 3


def right_but_a_float(attempt: Attempt) -> bool:
    """A float, NumPy's and a tensor of floats among them."""
    whole = isinstance(attempt.got, torch.Tensor) and not attempt.got.is_floating_point()
    return not isinstance(attempt.got, str | bool) and not whole and float(attempt.got) == attempt.wanted


def same_width(got, wanted) -> bool:
    """Whether `got` is the whole number wanted: nn.Linear takes no float for a width."""
    if isinstance(wanted, float):  # that of a wrong answer, to which a student's is compared
        return got == wanted
    try:
        return not isinstance(got, bool) and operator.index(got) == wanted
    except TypeError:
        return False
