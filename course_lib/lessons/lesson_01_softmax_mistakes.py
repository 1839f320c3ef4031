"""Wrong answers to the softmax exercise of lesson 01, and questions that tell a mistake from its output."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt

INF = math.inf


def _divided(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def softmax_over_rows(scores):
    return scores.softmax(0)


def softmax_over_all(scores):
    weights = (scores - scores.max()).exp()
    return weights / weights.sum()


def softmax_less_the_column_maximum(scores):
    return _divided((scores - scores.amax(0)).exp())


def softmax_without_exp(scores):
    return _divided(scores)


def softmax_sum_of_all(scores):
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum()


def softmax_not_divided(scores):
    return (scores - scores.amax(-1, keepdim=True)).exp()


def softmax_logarithm(scores):
    return scores.log_softmax(-1)


def softmax_divided_by_unshifted_sum(scores):
    return (scores - scores.amax(-1, keepdim=True)).exp() / scores.exp().sum(-1, keepdim=True)


def softmax_with_minus_inf_as_zero(scores):
    return scores.masked_fill(scores == -INF, 0).softmax(-1)


def softmax_clamped(scores):
    return _divided(scores.clamp(max=80).exp())


def softmax_nan_where_empty(scores):
    return scores.softmax(-1)


def softmax_even_where_empty(scores):
    return scores.clamp(min=torch.finfo(scores.dtype).min).softmax(-1)


def softmax_without_nan(scores):
    return scores.softmax(-1).nan_to_num(0.0)


def softmax_skipping_nan(scores):
    return scores.masked_fill(scores.isnan(), -INF).softmax(-1).nan_to_num(0.0)


def softmax_empty_where_any(scores):
    return scores.softmax(-1).masked_fill((scores == -INF).any(-1, keepdim=True), 0)


def overflows_in_python(attempt: Attempt) -> bool:
    """math.exp raises where torch gives inf."""
    return isinstance(attempt.error, OverflowError)


def forgot_keepdim(attempt: Attempt) -> bool:
    return "must match the size of tensor" in str(attempt.error)


def took_the_pair(attempt: Attempt) -> bool:
    return "return_types.max" in str(attempt.error)


def number_too_large_for_half(attempt: Attempt) -> bool:
    return "without overflow" in str(attempt.error)


def nan_in(label: str) -> Callable[[Attempt], bool]:
    return lambda attempt: attempt.case.label == label and bool(attempt.got.isnan().any())
