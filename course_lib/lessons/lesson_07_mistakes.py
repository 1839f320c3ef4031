"""Wrong answers to exercises 7.1 and 7.2 of lesson 07, each written as a student would (a format's ends, a step)."""

import torch

from course_lib.classroom.exercise import Attempt, Mistake

FATES = ("overflows", "vanishes", "kept")

# --- 7.1 ---------------------------------------------------------------------------------------------------------


def _fate(value, largest, smallest):
    size = abs(value)
    return "overflows" if size > largest else "vanishes" if 0 < size < smallest else "kept"


def _ends(exponent_bits, mantissa_bits):
    bias = 2 ** (exponent_bits - 1) - 1
    return (2 - 2.0**-mantissa_bits) * 2.0**bias, 2.0 ** (1 - bias - mantissa_bits)


def fate_infinity_not_reserved(value, exponent_bits, mantissa_bits):
    largest, smallest = _ends(exponent_bits, mantissa_bits)
    return _fate(value, 2 * largest, smallest)


def fate_power_of_two(value, exponent_bits, mantissa_bits):
    _, smallest = _ends(exponent_bits, mantissa_bits)
    return _fate(value, 2.0 ** (2 ** (exponent_bits - 1) - 1), smallest)


def fate_next_power_of_two(value, exponent_bits, mantissa_bits):
    _, smallest = _ends(exponent_bits, mantissa_bits)
    return _fate(value, 2.0 ** (2 ** (exponent_bits - 1)), smallest)


def fate_without_subnormals(value, exponent_bits, mantissa_bits):
    largest, _ = _ends(exponent_bits, mantissa_bits)
    return _fate(value, largest, 2.0 ** (2 - 2 ** (exponent_bits - 1)))


def fate_one_step_early(value, exponent_bits, mantissa_bits):
    largest, smallest = _ends(exponent_bits, mantissa_bits)
    return _fate(value, largest, 2 * smallest)


def fate_one_over_the_largest(value, exponent_bits, mantissa_bits):
    largest, _ = _ends(exponent_bits, mantissa_bits)
    return _fate(value, largest, 1 / largest)


def fate_spacing_at_one(value, exponent_bits, mantissa_bits):
    largest, _ = _ends(exponent_bits, mantissa_bits)
    return _fate(value, largest, 2.0**-mantissa_bits)


def fate_never_vanishes(value, exponent_bits, mantissa_bits):
    largest, _ = _ends(exponent_bits, mantissa_bits)
    return _fate(value, largest, 0)


def fate_never_overflows(value, exponent_bits, mantissa_bits):
    _, smallest = _ends(exponent_bits, mantissa_bits)
    return _fate(value, float("inf"), smallest)


def fate_without_bias(value, exponent_bits, mantissa_bits):
    return _fate(value, (2 - 2.0**-mantissa_bits) * 2.0 ** (2**exponent_bits - 2), 2.0**-mantissa_bits)


def fate_with_a_small_bias(value, exponent_bits, mantissa_bits):
    bias = 2 ** (exponent_bits - 1) - 2
    return _fate(value, (2 - 2.0**-mantissa_bits) * 2.0**bias, 2.0 ** (1 - bias - mantissa_bits))


def fate_of_an_integer(value, exponent_bits, mantissa_bits):
    return _fate(value, 2 ** (exponent_bits + mantissa_bits) - 1, 1)


def fate_swapped_bits(value, exponent_bits, mantissa_bits):
    return _fate(value, *_ends(mantissa_bits, exponent_bits))


def fate_always_fp16(value, exponent_bits, mantissa_bits):
    return _fate(value, 65504, 2.0**-24)


def fate_signed(value, exponent_bits, mantissa_bits):
    largest, smallest = _ends(exponent_bits, mantissa_bits)
    return "overflows" if value > largest else "vanishes" if 0 < value < smallest else "kept"


def fate_signed_below(value, exponent_bits, mantissa_bits):
    largest, smallest = _ends(exponent_bits, mantissa_bits)
    return "overflows" if value > largest else "vanishes" if value < smallest else "kept"


def fate_zero_vanishes(value, exponent_bits, mantissa_bits):
    largest, smallest = _ends(exponent_bits, mantissa_bits)
    return "overflows" if abs(value) > largest else "vanishes" if abs(value) < smallest else "kept"


def fate_exchanged(value, exponent_bits, mantissa_bits):
    right = _fate(value, *_ends(exponent_bits, mantissa_bits))
    return {"overflows": "vanishes", "vanishes": "overflows"}.get(right, right)


def _is_truth_value(attempt: Attempt) -> bool:
    return isinstance(attempt.got, bool)


def _is_other_word(attempt: Attempt) -> bool:
    return isinstance(attempt.got, str) and attempt.got not in FATES


def _is_number(attempt: Attempt) -> bool:
    return isinstance(attempt.got, int | float | torch.Tensor)


def _is_negative(attempt: Attempt) -> bool:
    """All positive numbers are tried before the first negative one, so the fault is in the sign."""
    return attempt.args[0] < 0


def _is_of_eight_bits(attempt: Attempt) -> bool:
    """The formats of eight bits are tried last, so fp16 and bf16 have been answered rightly."""
    return attempt.args[1:] == (4, 3)


FATE = [
    Mistake("truth", when=_is_truth_value),
    Mistake("word", when=_is_other_word),
    Mistake("number", when=_is_number),
    Mistake("reserved", like=fate_infinity_not_reserved),
    Mistake("power_of_two", like=fate_power_of_two),
    Mistake("next_power", like=fate_next_power_of_two),
    Mistake("subnormals", like=fate_without_subnormals),
    Mistake("subnormals", like=fate_one_step_early),
    Mistake("subnormals", like=fate_one_over_the_largest),
    Mistake("spacing", like=fate_spacing_at_one),
    Mistake("one_end", like=fate_never_vanishes),
    Mistake("one_end", like=fate_never_overflows),
    Mistake("no_bias", like=fate_without_bias),
    Mistake("bias", like=fate_with_a_small_bias),
    Mistake("integer", like=fate_of_an_integer),
    Mistake("bits_swapped", like=fate_swapped_bits),
    Mistake("always_fp16", like=fate_always_fp16),
    Mistake("sign", like=fate_signed),
    Mistake("sign", like=fate_signed_below),
    Mistake("zero", like=fate_zero_vanishes),
    Mistake("exchanged", like=fate_exchanged),
    Mistake("sign", when=_is_negative),
    Mistake("subnormals", like=fate_without_subnormals, everywhere=False),
    Mistake("other_formats", when=_is_of_eight_bits),
]

# --- 7.2 ---------------------------------------------------------------------------------------------------------


def _clipped(gradients, max_norm):
    norm = gradients.norm()
    return gradients * (max_norm / norm) if norm > max_norm else gradients


def _finite(tensor):
    return bool(tensor.isfinite().all())


def step_clips_first(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients, max_norm) / scale, scale


def step_with_infinity(weights, gradients, scale, max_norm, lr):
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_with_infinity_then_halves(weights, gradients, scale, max_norm, lr):
    return weights - lr * _clipped(gradients / scale, max_norm), scale if _finite(gradients) else scale / 2


def step_keeps_scale(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_doubles_on_overflow(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale * 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_always_halves(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale / 2


def step_doubles_when_good(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale * 2


def step_never_unscales(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients, max_norm), scale


def step_scales_again(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients * scale, max_norm), scale


def step_scales_the_rate(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * scale * _clipped(gradients / scale, max_norm), scale


def step_divides_the_rate_too(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr / scale * _clipped(gradients / scale, max_norm), scale


def step_never_clips(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * gradients / scale, scale


def step_always_normalises(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    gradients = gradients / scale
    return weights - lr * gradients * (max_norm / gradients.norm()), scale


def step_clamps(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * (gradients / scale).clamp(-max_norm, max_norm), scale


def _step_that_clips_by(norm):
    def step(weights, gradients, scale, max_norm, lr):
        if not _finite(gradients):
            return weights, scale / 2
        gradients = gradients / scale
        return weights - lr * gradients * min(1.0, max_norm / norm(gradients)), scale

    return step


step_clips_by_largest = _step_that_clips_by(lambda gradients: gradients.abs().max())
step_clips_by_sum = _step_that_clips_by(lambda gradients: gradients.abs().sum())
step_clips_by_square = _step_that_clips_by(lambda gradients: gradients.square().sum())
step_clips_by_root_mean_square = _step_that_clips_by(lambda gradients: gradients.square().mean().sqrt())


def step_forgets_max_norm(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    gradients = gradients / scale
    norm = gradients.norm()
    return weights - lr * (gradients / norm if norm > max_norm else gradients), scale


def step_plain(weights, gradients, scale, max_norm, lr):
    return weights - lr * gradients, scale


def step_clips_to_one(weights, gradients, scale, max_norm, lr):
    return step_right_with(weights, gradients, scale, 1.0, lr)


def step_right_with(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_misses_nan(weights, gradients, scale, max_norm, lr):
    if gradients.isinf().any():
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_misses_infinity(weights, gradients, scale, max_norm, lr):
    if gradients.isnan().any():
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_misses_minus_infinity(weights, gradients, scale, max_norm, lr):
    if (gradients == float("inf")).any() or gradients.isnan().any():
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_skips_if_all_are_infinite(weights, gradients, scale, max_norm, lr):
    if not gradients.isfinite().any():
        return weights, scale / 2
    return weights - lr * _clipped(gradients / scale, max_norm), scale


def step_zeroes_infinity(weights, gradients, scale, max_norm, lr):
    usable = gradients.nan_to_num(0.0, 0.0, 0.0)
    return weights - lr * _clipped(usable / scale, max_norm), scale if _finite(gradients) else scale / 2


def step_zeroes_infinity_and_keeps_scale(weights, gradients, scale, max_norm, lr):
    return weights - lr * _clipped(gradients.nan_to_num(0.0, 0.0, 0.0) / scale, max_norm), scale


def step_uphill(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights + lr * _clipped(gradients / scale, max_norm), scale


def step_without_rate(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return weights, scale / 2
    return weights - _clipped(gradients / scale, max_norm), scale


def step_update_alone(weights, gradients, scale, max_norm, lr):
    if not _finite(gradients):
        return torch.zeros_like(weights), scale / 2
    return -lr * _clipped(gradients / scale, max_norm), scale


def step_scale_first(weights, gradients, scale, max_norm, lr):
    moved, next_scale = step_right_with(weights, gradients, scale, max_norm, lr)
    return next_scale, moved


def _is_one_tensor(attempt: Attempt) -> bool:
    return isinstance(attempt.got, torch.Tensor)


def _is_scale_first(attempt: Attempt) -> bool:
    first, second = attempt.got
    return (
        isinstance(second, torch.Tensor)
        and second.shape == attempt.args[0].shape
        and not (isinstance(first, torch.Tensor) and first.dim())
    )


SCALED_STEP = [
    Mistake("one_tensor", when=_is_one_tensor),
    Mistake("scale_first", when=_is_scale_first),
    Mistake("clips_first", like=step_clips_first, everywhere=False),
    Mistake("with_infinity", like=step_with_infinity),
    Mistake("with_infinity", like=step_with_infinity_then_halves),
    Mistake("keeps_scale", like=step_keeps_scale),
    Mistake("doubles", like=step_doubles_on_overflow),
    Mistake("always_halves", like=step_always_halves, everywhere=False),
    Mistake("grows", like=step_doubles_when_good, everywhere=False),
    Mistake("never_unscales", like=step_never_unscales, everywhere=False),
    Mistake("never_unscales", like=step_scales_again),
    Mistake("scales_rate", like=step_scales_the_rate),
    Mistake("scales_rate", like=step_divides_the_rate_too),
    Mistake("never_unscales", like=step_plain, everywhere=False),
    Mistake("never_clips", like=step_never_clips, everywhere=False),
    Mistake("always_normalises", like=step_always_normalises),
    Mistake("other_norm", like=step_clamps, everywhere=False),
    Mistake("other_norm", like=step_clips_by_largest, everywhere=False),
    Mistake("other_norm", like=step_clips_by_sum, everywhere=False),
    Mistake("other_norm", like=step_clips_by_square),
    Mistake("other_norm", like=step_clips_by_root_mean_square, everywhere=False),
    Mistake("clips_to_one", like=step_clips_to_one),
    Mistake("clips_to_one", like=step_forgets_max_norm),
    Mistake("misses_nan", like=step_misses_nan),
    Mistake("misses_infinity", like=step_misses_infinity),
    Mistake("misses_infinity", like=step_misses_minus_infinity),
    Mistake("skips_too_rarely", like=step_skips_if_all_are_infinite),
    Mistake("zeroes", like=step_zeroes_infinity),
    Mistake("zeroes", like=step_zeroes_infinity_and_keeps_scale),
    Mistake("uphill", like=step_uphill, everywhere=False),
    Mistake("no_rate", like=step_without_rate, everywhere=False),
    Mistake("update_alone", like=step_update_alone, everywhere=False),
]
