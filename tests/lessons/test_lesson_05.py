"""Lesson 05: the exercises that ask for slopes know their wrong answers and take each right one."""

import math

import torch

from course_lib.alibi import alibi_slopes
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_05
from course_lib.lessons import lesson_05_mistakes as wrong

# --- 5.1 ---------------------------------------------------------------------------------------------------------


def slopes_by_loop(num_heads):
    ratio = 2 ** (-8 / num_heads)
    found, slope = [], 1.0
    for _ in range(num_heads):
        slope *= ratio
        found.append(slope)
    return torch.tensor(found)


def slopes_by_exp2(num_heads):
    return torch.exp2(-8 * torch.arange(1, num_heads + 1, dtype=torch.float64) / num_heads)


def slopes_by_logspace(num_heads):
    return torch.logspace(-8 / num_heads, -8, num_heads, base=2)


def slopes_by_comprehension(num_heads):
    return torch.tensor([1 / 2 ** (8 * (i + 1) / num_heads) for i in range(num_heads)])


def slopes_by_cumprod(num_heads):
    return torch.full((num_heads,), 2 ** (-8 / num_heads)).cumprod(0)


def slopes_of_the_released_code(num_heads):
    start = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
    return torch.tensor([start * start**i for i in range(num_heads)])


def slopes_of_a_sixteenth(num_heads):
    """0.5 to the power of places: the exponents of eight heads."""
    return torch.pow(0.5, torch.arange(1, num_heads + 1))


def slopes_of_integers(num_heads):
    return 2 ** (-1 * torch.arange(1, num_heads + 1))


def slopes_of_a_refused_power(num_heads):
    return torch.full((num_heads,), 2) ** (-8 // num_heads)


def slopes_into_integers(num_heads):
    slopes = torch.arange(num_heads)
    for i in range(num_heads):
        slopes[i] = 2 ** (-8 * (i + 1) / num_heads)
    return slopes


def slopes_with_one_before(num_heads):
    return 2.0 ** (-8 * torch.arange(num_heads + 1) / num_heads)


def slopes_without_the_last(num_heads):
    return 2.0 ** (-8 * torch.arange(1, num_heads) / num_heads)


def slopes_as_a_list(num_heads):
    return [2 ** (-8 * i / num_heads) for i in range(1, num_heads + 1)]


def slopes_as_a_column(num_heads):
    return slopes_by_loop(num_heads)[:, None]


def slopes_half_only(num_heads):
    return torch.tensor(2 ** (-8 / num_heads))


def test_exercise_5_1_names_each_wrong_answer():
    assert_exercise(
        lesson_05.LESSON,
        "5.1",
        wrong={
            "from_one": [wrong.slopes_from_one, wrong.slopes_from_one_to_the_end],
            "line": [
                wrong.slopes_evenly_between,
                wrong.slopes_falling_line,
                wrong.slopes_line_from_one,
                wrong.slopes_line_to_zero,
                wrong.slopes_rising_line,
                wrong.slopes_in_steps_of_the_last,
                wrong.slopes_products,
            ],
            "halved": [wrong.slopes_halved, slopes_of_a_sixteenth],
            "whole_step": [wrong.slopes_whole_step, wrong.slopes_whole_exponents],
            "upside_down": [wrong.slopes_ratio_upside_down],
            "from_a_half": [wrong.slopes_from_a_half, wrong.slopes_from_a_half_to_the_end],
            "then_halved": [wrong.slopes_first_right_then_halved],
            "from_the_second": [wrong.slopes_from_the_second],
            "flipped": [wrong.slopes_flipped],
            "negative": [wrong.slopes_negative],
            "exponents": [wrong.slopes_exponents, wrong.slopes_positive_exponents],
            "growing": [wrong.slopes_growing],
            "base_e": [wrong.slopes_base_e],
            "base_ten": [wrong.slopes_base_ten],
            "harmonic": [wrong.slopes_harmonic, wrong.slopes_harmonic_of_two],
            "all_equal": [wrong.slopes_all_the_first, wrong.slopes_all_the_last],
            "not_to_eight": [wrong.slopes_two_steps_at_once, wrong.slopes_of_four],
            "shared_out": [wrong.slopes_shared_out],
            "integer_power": [slopes_of_a_refused_power],
            "whole_numbers": [slopes_into_integers, slopes_of_integers],
            "one_too_many": [slopes_with_one_before],
            "one_too_few": [slopes_without_the_last],
            "common.list_for_tensor": [slopes_as_a_list],
            "common.wrong_shape": [slopes_as_a_column, slopes_half_only],
        },
        right=[
            slopes_by_loop,
            slopes_by_exp2,
            slopes_by_logspace,
            slopes_by_comprehension,
            slopes_by_cumprod,
            slopes_of_the_released_code,
            alibi_slopes,
        ],
    )


# --- 5.3 ---------------------------------------------------------------------------------------------------------


def any_by_recursion(num_heads):
    power = 2 ** math.floor(math.log2(num_heads))
    if power == num_heads:
        return slopes_by_loop(num_heads)
    return torch.cat([slopes_by_loop(power), any_by_recursion(2 * power)[0::2][: num_heads - power]])


def any_by_loop(num_heads):
    power = 1 << (num_heads.bit_length() - 1)
    found = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    exponent = 1
    while len(found) < num_heads:
        found.append(2 ** (-4 * exponent / power))
        exponent += 2
    return torch.tensor(found)


def any_by_powers_of_a_base(num_heads):
    """As transformers builds BLOOM's."""
    power = 2 ** math.floor(math.log2(num_heads))
    base = torch.tensor(2 ** (-(2 ** -(math.log2(power) - 3))), dtype=torch.float32)
    slopes = torch.pow(base, torch.arange(1, 1 + power, dtype=torch.int32))
    if power != num_heads:
        extra = torch.tensor(2 ** (-(2 ** -(math.log2(2 * power) - 3))), dtype=torch.float32)
        missing = min(power, num_heads - power)
        slopes = torch.cat([slopes, torch.pow(extra, torch.arange(1, 1 + 2 * missing, 2))])
    return slopes


def any_of_the_power_only(num_heads):
    return slopes_by_loop(1 << (num_heads.bit_length() - 1))


def any_of_all_between(num_heads):
    """Nothing is cut off at the end."""
    power = 1 << (num_heads.bit_length() - 1)
    extras = slopes_by_loop(2 * power)[::2] if power < num_heads else torch.empty(0)
    return torch.cat([slopes_by_loop(power), extras])


def any_of_all_the_power_above(num_heads):
    return slopes_by_loop(1 << (num_heads - 1).bit_length())


def any_doubles_a_power(num_heads):
    power = 1 << (num_heads.bit_length() - 1)
    return torch.cat([slopes_by_loop(power), slopes_by_loop(2 * power)[::2]])


def any_of_integers(num_heads):
    return 2 ** -torch.arange(1, num_heads + 1)


def any_shuffled(num_heads):
    return any_by_loop(num_heads).roll(1)


def any_half_below(num_heads):
    """The largest power strictly below."""
    power = 1 << ((num_heads - 1).bit_length() - 1) if num_heads > 1 else 1
    return torch.cat([slopes_by_loop(power), slopes_by_loop(2 * power)[::2][: num_heads - power]])


def test_exercise_5_3_names_each_wrong_answer():
    assert_exercise(
        lesson_05.LESSON,
        "5.3",
        wrong={
            "by_the_formula": [wrong.any_by_the_formula, slopes_by_loop, slopes_by_logspace],
            "sorted": [wrong.any_sorted],
            "rising": [wrong.any_sorted_rising],
            "between_first": [wrong.any_between_first],
            "every_doubled": [wrong.any_of_every_doubled],
            "repeated": [wrong.any_repeated],
            "far_end": [wrong.any_from_the_far_end, wrong.any_reversed],
            "power_above": [
                wrong.any_of_the_power_above,
                wrong.any_of_the_power_above_from_the_end,
                any_of_all_between,
                any_of_all_the_power_above,
                wrong.any_of_the_nearest_power,
            ],
            "strictly_below": [wrong.any_of_the_power_strictly_below, any_half_below],
            "from_the_third": [wrong.any_from_the_third_of_the_doubled],
            "halved": [wrong.slopes_halved],
            "means": [
                wrong.any_with_means,
                wrong.any_with_means_within,
                wrong.any_of_a_linear_between,
            ],
            "doubled_count": [wrong.any_doubled_by_count],
            "going_on": [wrong.any_going_on],
            "own_series": [wrong.any_with_a_series_of_its_own],
            "too_few": [any_of_the_power_only],
            "power_doubled": [any_doubles_a_power],
            "from_one": [wrong.any_from_one],
            "negative": [wrong.any_negative],
            "whole_numbers": [any_of_integers],
            "common.wrong_value": [any_shuffled],
        },
        right=[any_by_recursion, any_by_loop, any_by_powers_of_a_base, alibi_slopes],
    )


def test_the_solution_of_5_3_gives_what_the_library_gives():
    for heads in range(1, 130):
        assert torch.allclose(lesson_05.any_slopes(heads), alibi_slopes(heads), rtol=1e-6)


# --- 5.5 ---------------------------------------------------------------------------------------------------------


def test_the_answer_of_5_5_is_what_torch_counts():
    positions = torch.arange(1024)
    assert positions.bfloat16().unique().numel() == 513
    assert positions.half().unique().numel() == 1024


def test_question_5_5_names_each_wrong_answer():
    wrong_answers = {
        "forgot_zero": 512,
        "stops_at_256": 257,
        "one_step": 641,
        "no_rounding_up": 511,
        "stops_at_512": 385,
        "ends_twice": 514,
        "half_precision": 1024,
        "of_a_byte": 128,
    }
    for key, answer in wrong_answers.items():
        assert lesson_05.LESSON.examine("5.5", answer).key == f"lesson_05.distinct.{key}"
    assert lesson_05.LESSON.examine("5.5", 256).key == "lesson_05.distinct.stops_at_256"
    assert lesson_05.LESSON.examine("5.5", 769).key == "common.answer_wrong"
    for right in (513, 513.0, torch.tensor(513)):
        assert lesson_05.LESSON.examine("5.5", right).status == "solved"
