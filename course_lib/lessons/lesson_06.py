"""Exercises of lesson 06, SwiGLU: the gate, the matched width, which gate won, bytes saved, the gate's backward.

The pictures and the widget of the lesson are in `lesson_06_pictures`, the fair comparison in `lesson_06_experiment`,
the wrong answers that the checks know by name in `lesson_06_mistakes`, `lesson_06_mistakes_verdict` and
`lesson_06_mistakes_memory`.
"""

import math

import torch

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_06_mistakes as wrong
from course_lib.lessons import lesson_06_mistakes_memory as wrong_memory
from course_lib.lessons import lesson_06_mistakes_verdict as wrong_verdict
from course_lib.lessons.lesson_06_experiment import FEED_FORWARDS, compare, measured_beforehand
from course_lib.lessons.lesson_06_pictures import (
    activation_explorer,
    block_figure,
    curves_figure,
    dimmer_figure,
    losses_figure,
    render_activation,
    saved_figure,
    widths_figure,
)
from course_lib.lessons.lesson_06_xformers import xformers_swiglu

LESSON = Lesson("lesson_06")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "FEED_FORWARDS",
    "LESSON",
    "activation_explorer",
    "block_figure",
    "check_gate_gradients",
    "check_matched_hidden",
    "check_saved_bytes",
    "check_swiglu",
    "check_winner",
    "compare",
    "curves_figure",
    "dimmer_figure",
    "hint",
    "language",
    "losses_figure",
    "measured_beforehand",
    "progress",
    "render_activation",
    "restore",
    "saved_figure",
    "solution",
    "widths_figure",
    "xformers_swiglu",
]


# --- 6.1 ---------------------------------------------------------------------------------------------------------


def swiglu(x, w1, w2, w3):
    """[tokens, out]; w1 makes the gate.

    x [tokens, dim], w1 and w2 [hidden, dim], w3 [out, hidden].
    """
    gate, up = x @ w1.T, x @ w2.T
    return (torch.nn.functional.silu(gate) * up) @ w3.T


def _weights(tokens: int, dim: int, hidden: int, out: int, size: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1000 * tokens + 100 * dim + 10 * hidden + out)
    shapes = ((tokens, dim), (hidden, dim), (hidden, dim), (out, hidden))
    x, *weights = (torch.randn(shape, generator=generator) for shape in shapes)
    return (size * x, *weights)


check_swiglu = LESSON.exercise(
    "6.1",
    "swiglu",
    solution=swiglu,
    cases=[
        Case(
            lambda: (
                torch.tensor([[1.0, 2.0]]),
                torch.tensor([[1.0, 0.5]]),  # gate 2
                torch.tensor([[-1.0, 2.0]]),  # up 3
                torch.tensor([[1.0], [2.0]]),
            ),
            label="one_neuron",
        ),
        Case(lambda: _weights(3, 4, 6, 4), label="several"),
        Case(lambda: _weights(2, 5, 7, 3), label="other_out"),
        Case(lambda: _weights(2, 3, 4, 3, size=200.0), label="loud"),
        Case(lambda: _weights(0, 4, 6, 4), label="no_tokens"),
    ],
    mistakes=[
        Mistake("math_exp", when=wrong.math_function_of_a_tensor),
        Mistake("swapped", like=wrong.swiglu_swapped, everywhere=False),
        Mistake("sigmoid", like=wrong.swiglu_sigmoid, everywhere=False),
        Mistake("other_activation", like=wrong.swiglu_relu, everywhere=False),
        Mistake("other_activation", like=wrong.swiglu_gelu, everywhere=False),
        Mistake("other_activation", like=wrong.swiglu_gelu_tanh, everywhere=False),
        Mistake("other_activation", like=wrong.swiglu_gelu_quick, everywhere=False),
        Mistake("other_activation", like=wrong.swiglu_tanh, everywhere=False),
        Mistake("other_activation", when=wrong.gate_of_another_curve),
        Mistake("up_bent", like=wrong.swiglu_sigmoid_of_up, everywhere=False),
        Mistake("up_bent", like=wrong.swiglu_relu_of_up),
        Mistake("up_bent", like=wrong.swiglu_gelu_of_up, everywhere=False),
        Mistake("gate_twice", like=wrong.swiglu_gate_times_silu, everywhere=False),
        Mistake("softmax", like=wrong.swiglu_softmax),
        Mistake("both", like=wrong.swiglu_both, everywhere=False),
        Mistake("no_activation", like=wrong.swiglu_bilinear, everywhere=False),
        Mistake("silu_of_product", like=wrong.swiglu_silu_of_product, everywhere=False),
        Mistake("silu_of_product", like=wrong.swiglu_silu_of_gate_and_product, everywhere=False),
        Mistake("added", like=wrong.swiglu_added, everywhere=False),
        Mistake("one_alone", like=wrong.swiglu_gate_alone, everywhere=False),
        Mistake("one_alone", like=wrong.swiglu_up_alone, everywhere=False),
        Mistake("one_alone", like=wrong.swiglu_linear_gate_alone),
        Mistake("one_alone", like=wrong.swiglu_linear_up_alone),
        Mistake("same_twice", like=wrong.swiglu_up_from_gate, everywhere=False),
        Mistake("same_twice", like=wrong.swiglu_up_from_up, everywhere=False),
        Mistake("silu_at_end", like=wrong.swiglu_silu_at_end, everywhere=False),
        Mistake("silu_at_end", like=wrong.swiglu_silu_twice_at_end, everywhere=False),
        Mistake("silu_of_input", like=wrong.swiglu_silu_of_input, everywhere=False),
        Mistake("silu_of_input", like=wrong.swiglu_silu_of_input_everywhere, everywhere=False),
        Mistake("silu_of_input", like=wrong.swiglu_silu_of_weights, everywhere=False),
        Mistake("no_w3", like=wrong.swiglu_without_w3),
        Mistake("w3_first", like=wrong.swiglu_w3_first),
        Mistake("w3_first", like=wrong.swiglu_w3_on_each),
        Mistake("other_sign", like=wrong.swiglu_other_sign, everywhere=False),
        Mistake("residual", like=wrong.swiglu_residual),
        Mistake("concatenated", like=wrong.swiglu_concatenated, everywhere=False),
        Mistake("overflow", when=wrong.nan_where_the_gate_is_loud),
        Mistake("sizes", when=wrong.sizes_do_not_fit, values=wrong.error),
    ],
)


# --- 6.2 ---------------------------------------------------------------------------------------------------------


def matched_hidden(dim, expansion, multiple_of):
    """Hidden width of a gated feed-forward with the parameters of a plain one.

    The plain one is expansion * dim wide; the width is rounded up to a multiple of multiple_of.
    """
    exact = 2 * expansion * dim / 3
    return math.ceil(exact / multiple_of) * multiple_of


def _width(*args: int, label: str = "", expected: int) -> Case:
    return Case(args, label=label, expected=expected, same=wrong.same_width)


check_matched_hidden = LESSON.exercise(
    "6.2",
    "matched_hidden",
    solution=matched_hidden,
    cases=[
        _width(192, 4, 1, label="thirds", expected=512),
        _width(96, 4, 8, label="already_a_multiple", expected=256),
        _width(100, 4, 8, label="rounded_up", expected=272),
        _width(4096, 4, 256, label="llama", expected=11008),
        _width(120, 5, 64, expected=448),
        _width(768, 2, 24, label="expansion", expected=1032),
        _width(65, 4, 1, label="odd", expected=174),
        _width(5120, 4, 256, expected=13824),
        _width(4096, 4, 1, expected=10923),
    ],
    mistakes=[
        Mistake("same_width", like=wrong.matched_same_width),
        Mistake("same_width", like=wrong.matched_same_width_unrounded),
        Mistake("no_expansion", like=wrong.matched_without_expansion),
        Mistake("no_expansion", like=wrong.matched_without_expansion_unrounded),
        Mistake("always_four", like=wrong.matched_always_four),
        Mistake("half", like=wrong.matched_half),
        Mistake("third", like=wrong.matched_third),
        Mistake("inverted", like=wrong.matched_inverted),
        Mistake("three_quarters", like=wrong.matched_three_quarters),
        Mistake("both_halves", like=wrong.matched_both_halves),
        Mistake("both_halves", like=wrong.matched_both_halves_rounded_once),
        Mistake("down", like=wrong.matched_down),
        Mistake("down", like=wrong.matched_ceil_then_down),
        Mistake("nearest", like=wrong.matched_nearest),
        Mistake("one_more", like=wrong.matched_one_more),
        Mistake("remainder", like=wrong.matched_remainder_added),
        Mistake("power_of_two", like=wrong.matched_by_mask),
        Mistake("biases", like=wrong.matched_with_biases),
        *(Mistake("rounded_fraction", like=like) for like in wrong.ROUNDED_FRACTIONS),
        Mistake("cut_first", like=wrong.matched_cut_first),
        Mistake("no_multiple", like=wrong.matched_not_a_multiple),
        Mistake("no_multiple", like=wrong.matched_cut),
        Mistake("no_multiple", like=wrong.matched_unrounded),
        Mistake("no_multiple", like=wrong.matched_rounded),
        Mistake("no_multiple", like=wrong.matched_eight_thirds),
        Mistake("always_eight", like=wrong.matched_always_eight),
        Mistake("times_multiple", like=wrong.matched_times_multiple),
        Mistake("in_multiples", like=wrong.matched_in_multiples),
        Mistake("parameters", like=wrong.matched_parameters),
        Mistake("parameters", like=wrong.matched_gated_parameters),
        Mistake("rounded_early", like=wrong.matched_rounded_early),
        Mistake("rounded_early", like=wrong.matched_third_rounded_early),
        Mistake("rounded_early", like=wrong.matched_rounded_wide),
        Mistake("rounded_early", like=wrong.matched_cut_expansion),
        Mistake("rounded_early", like=wrong.matched_cut_expansion_unrounded),
        Mistake("a_float", when=wrong.right_but_a_float),
    ],
)


# --- 6.3 ---------------------------------------------------------------------------------------------------------


def winner(losses):
    """The name whose worst loss is below every loss of all others; None if there is none.

    losses: name -> losses, one for each seed: {"ReLU": [3.9, 3.8], "SwiGLU": [3.5, 3.6]}.
    """
    for name, own in losses.items():
        others = [loss for other, runs in losses.items() if other != name for loss in runs]
        if max(own) < min(others):
            return name
    return None


check_winner = LESSON.exercise(
    "6.3",
    "winner",
    solution=winner,
    cases=[
        Case(({"ReLU": [3.9, 3.8], "SwiGLU": [3.5, 3.6]},), label="clear", expected="SwiGLU"),
        Case(({"SwiGLU": [3.71, 3.62], "ReLU": [3.44, 3.45]},), label="plain_wins", expected="ReLU"),
        Case(({"ReLU": [3.52, 3.47, 3.49], "SwiGLU": [3.50, 3.45, 3.48]},), label="overlap", expected=None),
        Case(({"GELU": [3.1, 3.2], "ReLU": [3.6, 3.4]},), expected="GELU"),
        Case(
            ({"ReLU": [3.9, 4.1, 4.0], "SwiGLU": [3.6, 3.5, 3.7], "GLU": [4.2, 4.7, 3.4]},),
            label="third",
            expected=None,
        ),
        Case(
            ({"ReLU": [3.9, 4.1, 4.0], "SwiGLU": [3.6, 3.5, 3.7], "GLU": [4.1, 4.7, 4.2]},),
            label="three",
            expected="SwiGLU",
        ),
        Case(({"ReLU": [3.8, 4.0], "SwiGLU": [3.7, 3.8]},), label="equal", expected=None),
        Case(
            ({"ReLU": [3.80, 3.90, 4.00, 3.85], "SwiGLU": [3.0, 3.0, 4.1, 3.0]},),
            label="one_bad_seed",
            expected=None,
        ),
        Case(({"ReLU": [3.9, 3.9, 3.4, 3.9], "SwiGLU": [3.0, 3.0, 3.5, 3.0]},), expected=None),
        Case(({"ReLU": [3.9, 3.9, 3.3, 3.3], "SwiGLU": [3.0, 3.0, 3.5, 3.0]},), expected=None),
        Case(({"ReLU": [4.9, 3.35], "GELU": [3.2, 3.3], "SwiGLU": [3.1, 3.9]},), expected=None),
        Case(({"ReLU": [3.2, 3.4, 3.9], "SwiGLU": [3.1, 3.8, 3.85]},), expected=None),
    ],
    mistakes=wrong_verdict.WINNER,
)


# --- 6.4 ---------------------------------------------------------------------------------------------------------


def saved_bytes(tokens, dim, hidden, dtype):
    """Bytes that autograd keeps of one SwiGLU, its parameters left out."""
    from_input = dim  # for the gradient of w12
    from_w12 = 2 * hidden  # gate and up, side by side in one tensor
    from_silu = hidden  # for the gradient of up
    product = hidden  # for the gradient of w3
    return tokens * (from_input + from_w12 + from_silu + product) * dtype.itemsize


check_saved_bytes = LESSON.exercise(
    "6.4",
    "saved_bytes",
    solution=saved_bytes,
    cases=[
        Case((1, 6, 16, torch.float32), label="one_token", expected=280),
        Case((100, 96, 256, torch.float32), label="many", expected=448000),
        Case((1024, 512, 1368, torch.float32), label="lesson", expected=24510464),
        Case((300, 192, 512, torch.float16), label="half"),
        Case((7, 80, 216, torch.bfloat16)),
        Case((5, 96, 256, torch.float64), label="double"),
        Case((64, 128, 128, torch.float32), label="narrow"),
    ],
    mistakes=wrong_memory.SAVED_BYTES,
)


# --- 6.5 ---------------------------------------------------------------------------------------------------------


def gate_gradients(gate, up, grad):
    """(gradient of gate, gradient of up); grad is what arrives at silu(gate) * up."""
    sigma = gate.sigmoid()
    silu = gate * sigma
    return grad * up * (sigma + silu * (1 - sigma)), grad * silu


def _row(*numbers: list[float]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor([row]) for row in numbers)


def _hidden(tokens: int, hidden: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(10 * tokens + hidden)
    return tuple(2 * torch.randn(tokens, hidden, generator=generator) for _ in range(3))


check_gate_gradients = LESSON.exercise(
    "6.5",
    "gate_gradients",
    solution=gate_gradients,
    cases=[
        Case(lambda: _row([0.0, 0.0], [3.0, -1.0], [2.0, 1.0]), label="at_zero"),
        Case(lambda: _row([1.0, 3.0], [3.0, 0.5], [2.0, -1.0]), label="open"),
        Case(lambda: _hidden(3, 5), label="several"),
        Case(
            lambda: _row([-100.0, 100.0, -200.0, 200.0], [3.0, -2.0, 1.0, 5.0], [2.0, 1.0, -1.0, 0.5]),
            label="loud",
        ),
    ],
    mistakes=wrong_memory.GATE_GRADIENTS,
)
