"""Lesson 07: the exercises on a format's ends and on a scaled step know their wrong answers."""

import math

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_07
from course_lib.lessons import lesson_07_mistakes as wrong

# --- 7.1 ---------------------------------------------------------------------------------------------------------


def fate_by_frexp(value, exponent_bits, mantissa_bits):
    if value == 0:
        return "kept"
    _, exponent = math.frexp(abs(value))
    power = exponent - 1
    bias = 2 ** (exponent_bits - 1) - 1
    if power > bias or abs(value) > 2.0**bias * (2 - 0.5**mantissa_bits):
        return "overflows"
    return "vanishes" if power < 1 - bias - mantissa_bits else "kept"


def fate_with_rounding(value, exponent_bits, mantissa_bits):
    bias = (1 << (exponent_bits - 1)) - 1
    step = 2.0 ** (1 - bias - mantissa_bits)
    if abs(value) >= 2.0 ** (bias + 1) - 2.0 ** (bias - mantissa_bits - 1):
        return "overflows"
    return "vanishes" if value != 0 and abs(value) <= step / 2 else "kept"


def fate_by_the_fields(value, exponent_bits, mantissa_bits):
    """The largest and the smallest number from their bit fields."""
    bias = 2 ** (exponent_bits - 1) - 1
    top_field = 2**exponent_bits - 2
    largest = sum(2.0 ** (top_field - bias - i) for i in range(mantissa_bits + 1))
    smallest = 2.0**-mantissa_bits * 2.0 ** (1 - bias)
    size = value if value > 0 else -value
    if size > largest:
        return "overflows"
    if size < smallest and size:
        return "vanishes"
    return "kept"


def fate_by_torch_of_half(value, exponent_bits, mantissa_bits):
    half = torch.tensor(value, dtype=torch.float16)
    return "overflows" if half.isinf() else "vanishes" if half == 0 and value else "kept"


def fate_by_two_formats(value, exponent_bits, mantissa_bits):
    return fate_by_the_fields(value, exponent_bits, 7 if exponent_bits == 8 else 10)


def test_exercise_7_1_names_each_wrong_answer():
    right = fate_by_the_fields
    assert_exercise(
        lesson_07.LESSON,
        "7.1",
        wrong={
            "truth": [
                lambda v, e, m: right(v, e, m) == "kept",
                lambda v, e, m: right(v, e, m) == "overflows",
            ],
            "word": [
                lambda v, e, m: {"overflows": "overflow"}.get(right(v, e, m), right(v, e, m)),
                lambda v, e, m: {"kept": "fits"}.get(right(v, e, m), right(v, e, m)),
                lambda v, e, m: right(v, e, m).upper(),
            ],
            "number": [lambda v, e, m: v, lambda v, e, m: (2 - 2.0**-m) * 2.0 ** (2 ** (e - 1) - 1)],
            "reserved": [wrong.fate_infinity_not_reserved],
            "power_of_two": [wrong.fate_power_of_two],
            "next_power": [wrong.fate_next_power_of_two],
            "subnormals": [
                wrong.fate_without_subnormals,
                wrong.fate_one_over_the_largest,
                wrong.fate_one_step_early,
                lambda v, e, m: "vanishes" if v == 0 else wrong.fate_without_subnormals(v, e, m),
            ],
            "spacing": [wrong.fate_spacing_at_one],
            "one_end": [wrong.fate_never_vanishes, wrong.fate_never_overflows],
            "no_bias": [wrong.fate_without_bias],
            "bias": [wrong.fate_with_a_small_bias],
            "integer": [wrong.fate_of_an_integer],
            "bits_swapped": [wrong.fate_swapped_bits],
            "always_fp16": [wrong.fate_always_fp16, fate_by_torch_of_half],
            "sign": [
                wrong.fate_signed,
                wrong.fate_signed_below,
                lambda v, e, m: "vanishes" if v < 0 and right(v, e, m) == "kept" else right(v, e, m),
                lambda v, e, m: "kept" if v < 0 else right(v, e, m),
            ],
            "other_formats": [fate_by_two_formats],
            "zero": [wrong.fate_zero_vanishes],
            "exchanged": [wrong.fate_exchanged],
            "common.printed_instead": [lambda v, e, m: print(right(v, e, m))],
        },
        right=[fate_by_frexp, fate_with_rounding, fate_by_the_fields],
    )


# --- 7.2 ---------------------------------------------------------------------------------------------------------


def step_by_torch(weights, gradients, scale, max_norm, lr):
    parameter = torch.nn.Parameter(weights.clone())
    parameter.grad = gradients / scale
    norm = torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    if not math.isfinite(norm):
        return weights, scale / 2
    torch.optim.SGD([parameter], lr=lr).step()
    return parameter.detach(), scale


def step_with_a_scaled_bound(weights, gradients, scale, max_norm, lr):
    """Clipping before unscaling, to max_norm * scale, is right."""
    if gradients.isnan().any() or gradients.isinf().any():
        return weights, scale * 0.5
    factor = min(1.0, max_norm * scale / float(gradients.norm() + 1e-12))
    return weights - lr * factor * gradients / scale, scale


def step_by_loop(weights, gradients, scale, max_norm, lr):
    unscaled = [float(g) / scale for g in gradients]
    if not all(math.isfinite(g) for g in unscaled):
        return weights, scale / 2
    norm = math.sqrt(sum(g * g for g in unscaled))
    if norm > max_norm:
        unscaled = [g * max_norm / norm for g in unscaled]
    return torch.stack([w - lr * g for w, g in zip(weights, unscaled, strict=True)]), scale


def step_with_a_check_of_the_norm(weights, gradients, scale, max_norm, lr):
    norm = torch.linalg.vector_norm(gradients / scale)
    if not torch.isfinite(norm):
        return weights, scale / 2
    clipped = gradients / scale * torch.clamp(max_norm / (norm + 1e-6), max=1)
    return weights - lr * clipped, scale


def step_rate_over_scale_after_clipping(weights, gradients, scale, max_norm, lr):
    if not gradients.isfinite().all():
        return weights, scale / 2
    norm = gradients.norm()
    if norm > max_norm:
        gradients = gradients * max_norm / norm
    return weights - (lr / scale) * gradients, scale


def step_clips_first_and_never_looks(weights, gradients, scale, max_norm, lr):
    parameter = torch.nn.Parameter(weights.clone())
    parameter.grad = gradients.clone()
    torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    return weights - lr * parameter.grad / scale, scale


def test_exercise_7_2_names_each_wrong_answer():
    right = wrong.step_right_with
    assert_exercise(
        lesson_07.LESSON,
        "7.2",
        wrong={
            "one_tensor": [lambda *args: right(*args)[0]],
            "scale_first": [wrong.step_scale_first],
            "clips_first": [
                wrong.step_clips_first,
                step_rate_over_scale_after_clipping,
                step_clips_first_and_never_looks,
            ],
            "with_infinity": [wrong.step_with_infinity, wrong.step_with_infinity_then_halves],
            "keeps_scale": [wrong.step_keeps_scale],
            "doubles": [wrong.step_doubles_on_overflow],
            "always_halves": [wrong.step_always_halves],
            "grows": [wrong.step_doubles_when_good],
            "never_unscales": [wrong.step_never_unscales, wrong.step_scales_again, wrong.step_plain],
            "scales_rate": [wrong.step_scales_the_rate, wrong.step_divides_the_rate_too],
            "never_clips": [wrong.step_never_clips, lambda w, g, s, n, lr: (w - lr * g / s, s)],
            "always_normalises": [wrong.step_always_normalises],
            "other_norm": [
                wrong.step_clamps,
                wrong.step_clips_by_largest,
                wrong.step_clips_by_sum,
                wrong.step_clips_by_square,
                wrong.step_clips_by_root_mean_square,
                lambda w, g, s, n, lr: (w - lr * (g / s).clamp(-n, n), s),
            ],
            "clips_to_one": [wrong.step_clips_to_one, wrong.step_forgets_max_norm],
            "misses_nan": [wrong.step_misses_nan],
            "misses_infinity": [wrong.step_misses_infinity, wrong.step_misses_minus_infinity],
            "skips_too_rarely": [wrong.step_skips_if_all_are_infinite],
            "zeroes": [wrong.step_zeroes_infinity, wrong.step_zeroes_infinity_and_keeps_scale],
            "uphill": [wrong.step_uphill, lambda w, g, s, n, lr: (w + lr * g / s, s)],
            "no_rate": [wrong.step_without_rate],
            "update_alone": [wrong.step_update_alone],
        },
        right=[
            step_by_torch,
            step_with_a_scaled_bound,
            step_by_loop,
            step_with_a_check_of_the_norm,
        ],
    )
