"""Wrong answers to exercise 8.6 of lesson 08: what is left of a gain."""

import math

from course_lib.classroom.exercise import Attempt, Mistake


def _of(gains, part):
    return gains.get(part, 1.0)


def amdahl_product(shares, gains):
    return math.prod(gains.values())


def amdahl_mean(shares, gains):
    return sum(share * _of(gains, part) for part, share in shares.items())


def amdahl_mean_of_touched(shares, gains):
    return sum(shares[part] * gain for part, gain in gains.items())


def amdahl_largest(shares, gains):
    return max(gains.values(), default=1.0)


def amdahl_sum(shares, gains):
    return sum(gains.values())


def amdahl_rest_forgotten(shares, gains):
    left = sum(shares[part] / gain for part, gain in gains.items())
    return 1 / left if left else math.inf


def _alone(shares, gains, part):
    return 1 / (1 - shares[part] + shares[part] / gains[part])


def amdahl_first_part(shares, gains):
    return _alone(shares, gains, next(iter(gains)))


def amdahl_last_part(shares, gains):
    return _alone(shares, gains, list(gains)[-1])


def amdahl_multiplied(shares, gains):
    return 1 / sum(share * _of(gains, part) for part, share in shares.items())


def amdahl_new_time(shares, gains):
    return sum(share / _of(gains, part) for part, share in shares.items())


def amdahl_saved(shares, gains):
    return 1 - amdahl_new_time(shares, gains)


def amdahl_parts_vanish(shares, gains):
    return 1 / (1 - sum(shares[part] for part in gains))


def amdahl_one_at_a_time(shares, gains):
    return math.prod(1 / (1 - shares[part] + shares[part] / gain) for part, gain in gains.items())


def amdahl_only_the_best(shares, gains):
    return max((1 / (1 - shares[part] + shares[part] / gain) for part, gain in gains.items()), default=1.0)


def amdahl_unweighted(shares, gains):
    return len(shares) / sum(1 / _of(gains, part) for part in shares)


def amdahl_saved_times_gain(shares, gains):
    return 1 / (1 - sum(shares[part] / gain for part, gain in gains.items()))


def amdahl_powers(shares, gains):
    return math.prod(_of(gains, part) ** share for part, share in shares.items())


def untouched_part(attempt: Attempt) -> bool:
    return isinstance(attempt.error, KeyError)


AMDAHL = [
    Mistake("untouched", when=untouched_part),
    Mistake("rest_forgotten", like=amdahl_rest_forgotten, everywhere=False),
    Mistake("product", like=amdahl_product),
    Mistake("mean", like=amdahl_mean),
    Mistake("mean", like=amdahl_mean_of_touched),
    Mistake("mean", like=amdahl_powers),
    Mistake("largest", like=amdahl_largest),
    Mistake("largest", like=amdahl_only_the_best),
    Mistake("largest", like=amdahl_first_part, everywhere=False),
    Mistake("largest", like=amdahl_last_part, everywhere=False),
    Mistake("sum", like=amdahl_sum),
    Mistake("multiplied", like=amdahl_multiplied),
    Mistake("new_time", like=amdahl_new_time),
    Mistake("new_time", like=amdahl_saved),
    Mistake("vanish", like=amdahl_parts_vanish),
    Mistake("vanish", like=amdahl_saved_times_gain),
    Mistake("one_at_a_time", like=amdahl_one_at_a_time),
    Mistake("unweighted", like=amdahl_unweighted),
]
