"""Wrong answers to the exercises of lesson 05 that ask for slopes, each written as a student would."""

import math

import torch

from course_lib.classroom.exercise import Attempt

# --- 5.1 ---------------------------------------------------------------------------------------------------------


def _places(num_heads, first=1):
    return torch.arange(first, num_heads + first, dtype=torch.float32)


def _geometric(num_heads):
    return 2.0 ** (-8 * _places(num_heads) / num_heads)


def slopes_from_one(num_heads):
    return 2.0 ** (-8 * _places(num_heads, first=0) / num_heads)


def slopes_from_one_to_the_end(num_heads):
    """The same number of steps, spread from 1 to 2^-8."""
    return 2.0 ** torch.linspace(0, -8, num_heads)


def slopes_halved(num_heads):
    return 0.5 ** _places(num_heads)


def slopes_evenly_between(num_heads):
    return torch.linspace(0.5, 2.0**-8, num_heads)


def slopes_falling_line(num_heads):
    return _places(num_heads).flip(0) / num_heads


def slopes_line_from_one(num_heads):
    return torch.linspace(1, 2.0**-8, num_heads)


def slopes_line_to_zero(num_heads):
    return torch.linspace(1, 0, num_heads)


def slopes_rising_line(num_heads):
    return _places(num_heads) / num_heads


def slopes_in_steps_of_the_last(num_heads):
    return _places(num_heads) * 2.0**-8


def slopes_products(num_heads):
    """2 ** -8 / num_heads * i: Python takes the power first."""
    return 2.0**-8 / num_heads * _places(num_heads)


def slopes_harmonic(num_heads):
    return 1 / _places(num_heads)


def slopes_harmonic_of_two(num_heads):
    return 1 / (2 * _places(num_heads))


def slopes_exponents(num_heads):
    return -8 * _places(num_heads) / num_heads


def slopes_positive_exponents(num_heads):
    return 8 * _places(num_heads) / num_heads


def slopes_growing(num_heads):
    return 2.0 ** (8 * _places(num_heads) / num_heads)


def slopes_flipped(num_heads):
    return _geometric(num_heads).flip(0)


def slopes_negative(num_heads):
    return -_geometric(num_heads)


def slopes_base_e(num_heads):
    return (-8 * _places(num_heads) / num_heads).exp()


def slopes_base_ten(num_heads):
    """What torch.logspace does unless it is told base=2."""
    return torch.logspace(-8 / num_heads, -8, num_heads)


def slopes_ratio_upside_down(num_heads):
    return 2.0 ** (-num_heads * _places(num_heads) / 8)


def slopes_whole_exponents(num_heads):
    return 2.0 ** -(8 * _places(num_heads) // num_heads)


def slopes_whole_step(num_heads):
    return 2.0 ** -(8 // num_heads * _places(num_heads))


def slopes_all_the_first(num_heads):
    return torch.full((num_heads,), 2.0 ** (-8 / num_heads))


def slopes_all_the_last(num_heads):
    return torch.full((num_heads,), 2.0**-8)


def slopes_first_right_then_halved(num_heads):
    return 2.0 ** (-8 / num_heads) * 0.5 ** _places(num_heads, first=0)


def slopes_from_a_half(num_heads):
    return 0.5 * 2.0 ** (-8 * _places(num_heads, first=0) / num_heads)


def slopes_from_a_half_to_the_end(num_heads):
    return 2.0 ** torch.linspace(-1, -8, num_heads)


def slopes_from_the_second(num_heads):
    return 2.0 ** (-8 * _places(num_heads, first=2) / num_heads)


def slopes_two_steps_at_once(num_heads):
    return 2.0 ** (-16 * _places(num_heads) / num_heads)


def slopes_of_four(num_heads):
    return 2.0 ** (-4 * _places(num_heads) / num_heads)


def slopes_shared_out(num_heads):
    """As shares: they sum to 1."""
    slopes = _geometric(num_heads)
    return slopes / slopes.sum()


def negative_power_of_integers(attempt: Attempt) -> bool:
    return "negative integer powers" in str(attempt.error).lower()


def whole_numbers_only(attempt: Attempt) -> bool:
    """A tensor of integers was filled: every slope became 0."""
    return not attempt.got.is_floating_point() and bool((attempt.got == 0).any())


def one_slope_too_many(attempt: Attempt) -> bool:
    """The right slopes, with a 1 before them or one more after them."""
    got, wanted = attempt.got.flatten(), attempt.wanted
    return len(got) == len(wanted) + 1 and any(
        torch.allclose(part.float(), wanted) for part in (got[1:], got[:-1])
    )


def one_slope_too_few(attempt: Attempt) -> bool:
    got, wanted = attempt.got.flatten(), attempt.wanted
    return len(got) == len(wanted) - 1 and any(
        torch.allclose(got.float(), part) for part in (wanted[1:], wanted[:-1])
    )


# --- 5.3 ---------------------------------------------------------------------------------------------------------


def _power_below(num_heads):
    return 1 << (num_heads.bit_length() - 1)


def _power_not_below(num_heads):
    return 1 << (num_heads - 1).bit_length()


def _between(num_heads):
    return _geometric(2 * _power_below(num_heads))[::2]


def any_by_the_formula(num_heads):
    return _geometric(num_heads)


def any_sorted(num_heads):
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), _between(num_heads)[: num_heads - power]]).sort(descending=True)[0]


def any_sorted_rising(num_heads):
    return any_sorted(num_heads).flip(0)


def any_between_first(num_heads):
    power = _power_below(num_heads)
    return torch.cat([_between(num_heads)[: num_heads - power], _geometric(power)])


def any_of_every_doubled(num_heads):
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), _geometric(2 * power)[: num_heads - power]])


def any_repeated(num_heads):
    """Every second of the doubled series, counted from the wrong one: those are there already."""
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), _geometric(2 * power)[1::2][: num_heads - power]])


def any_from_the_far_end(num_heads):
    power = _power_below(num_heads)
    extra = num_heads - power
    return torch.cat([_geometric(power), _between(num_heads)[power - extra :]])


def any_reversed(num_heads):
    power = _power_below(num_heads)
    extra = num_heads - power
    return torch.cat([_geometric(power), _between(num_heads).flip(0)[power - extra :]])


def any_of_the_power_above(num_heads):
    return _geometric(_power_not_below(num_heads))[:num_heads]


def any_of_the_power_above_from_the_end(num_heads):
    """The last slopes of the power above."""
    return _geometric(_power_not_below(num_heads))[-num_heads:]


def any_with_means(num_heads):
    """Arithmetic means of neighbours, the first of them with 1."""
    power = _power_below(num_heads)
    series = _geometric(power)
    means = (torch.cat([torch.ones(1), series[:-1]]) + series) / 2
    return torch.cat([series, means[: num_heads - power]])


def any_with_means_within(num_heads):
    power = _power_below(num_heads)
    series = _geometric(power)
    means = (series[:-1] + series[1:]) / 2
    return torch.cat([series, means[: num_heads - power]])


def any_doubled_by_count(num_heads):
    """The odd ones of twice num_heads, not of twice the power."""
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), _geometric(2 * num_heads)[::2][: num_heads - power]])


def _by_the_rule(num_heads, power):
    return torch.cat([_geometric(power), _geometric(2 * power)[::2]])[:num_heads]


def any_of_the_nearest_power(num_heads):
    """round(log2(num_heads)): up for 6 and 12."""
    return _by_the_rule(num_heads, 2 ** round(math.log2(num_heads)))


def any_of_the_power_strictly_below(num_heads):
    """while 2 * power < num_heads: a power of two itself gets the one below."""
    return _by_the_rule(num_heads, max(1, _power_not_below(num_heads) // 2))


def any_from_the_third_of_the_doubled(num_heads):
    """Between those that are there, and not before the first."""
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), _geometric(2 * power)[2::2][: num_heads - power]])


def any_going_on(num_heads):
    """The series of the power below, continued past 2^-8."""
    return 2.0 ** (-8 * _places(num_heads) / _power_below(num_heads))


def any_with_a_series_of_its_own(num_heads):
    """The missing heads get the slopes of a model with so many heads."""
    power = _power_below(num_heads)
    extra = num_heads - power
    return torch.cat([_geometric(power), _geometric(extra)]) if extra else _geometric(power)


def any_from_one(num_heads):
    power = _power_below(num_heads)
    extras = slopes_from_one(2 * power)[1::2][: num_heads - power]
    return torch.cat([slopes_from_one(power), extras])


def any_negative(num_heads):
    power = _power_below(num_heads)
    return -torch.cat([_geometric(power), _between(num_heads)[: num_heads - power]])


def any_of_a_linear_between(num_heads):
    power = _power_below(num_heads)
    return torch.cat([_geometric(power), torch.linspace(0.5, 2.0**-8, power)[: num_heads - power]])


def only_the_power_below(attempt: Attempt) -> bool:
    return attempt.got.shape == (_power_below(attempt.args[0]),) and attempt.got.shape != attempt.wanted.shape


def whole_power_above(attempt: Attempt) -> bool:
    """All slopes of the power above: none was left out."""
    return len(attempt.got) > attempt.args[0]


def power_of_two_doubled(attempt: Attempt) -> bool:
    """Wrong for a power of two already, where nothing is to be added."""
    count = attempt.args[0]
    return count == _power_below(count) and attempt.got.shape != attempt.wanted.shape


def heads_of(attempt: Attempt) -> dict[str, object]:
    """What the sentences say about a number of heads and the powers of two around it."""
    heads, power = attempt.args[0], _power_below(attempt.args[0])
    return {
        "heads": heads,
        "power": power,
        "twice": 2 * power,
        "above": _power_not_below(heads),
        "missing": heads - power,
        "count": len(attempt.got),
    }
