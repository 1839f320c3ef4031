"""Wrong answers to the exercise of lesson 05 that lowers scores by distance, each as a student would write it."""

import math
import re

import torch

from course_lib.classroom.exercise import Attempt

INF = math.inf

# --- 5.2 ---------------------------------------------------------------------------------------------------------


def _distance(query, key):
    q_len, k_len = query.shape[1], key.shape[1]
    return torch.arange(q_len)[:, None] + k_len - q_len - torch.arange(k_len)


def _raw(query, key):
    return query @ key.mT


def _root(query):
    return math.sqrt(query.shape[-1])


def _weights(scores, query, key):
    """Causal, the last query on the last key."""
    return scores.masked_fill(_distance(query, key) < 0, -INF).softmax(-1)


def _fine(query, key, slopes):
    return slopes[:, None, None] * _distance(query, key)


def weights_plus(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) + _fine(query, key, slopes), query, key)


def weights_without(query, key, slopes):
    return _weights(_raw(query, key) / _root(query), query, key)


def weights_after(query, key, slopes):
    return weights_without(query, key, slopes) - _fine(query, key, slopes)


def weights_after_in_sight(query, key, slopes):
    fine = _fine(query, key, slopes).masked_fill(_distance(query, key) < 0, 0)
    return weights_without(query, key, slopes) - fine


def weights_after_in_sight_from_zero(query, key, slopes):
    return weights_after_in_sight(query, key, slopes).clamp(min=0)


def weights_after_shared_out(query, key, slopes):
    kept = weights_after_in_sight_from_zero(query, key, slopes)
    return kept / kept.sum(-1, keepdim=True)


def weights_after_by_factors(query, key, slopes):
    """The right factors, but the rows are not divided by their sums again."""
    return weights_without(query, key, slopes) * (-_fine(query, key, slopes).clamp(min=0)).exp()


def weights_multiplied(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) * -_fine(query, key, slopes), query, key)


def weights_multiplied_plus(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) * _fine(query, key, slopes), query, key)


def weights_times_one_less(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) * (1 - _fine(query, key, slopes)), query, key)


def weights_after_times(query, key, slopes):
    return weights_without(query, key, slopes) * -_fine(query, key, slopes)


def weights_bias_divided_too(query, key, slopes):
    return _weights((_raw(query, key) - _fine(query, key, slopes)) / _root(query), query, key)


def weights_unscaled(query, key, slopes):
    return _weights(_raw(query, key) - _fine(query, key, slopes), query, key)


def weights_by_head_dim(query, key, slopes):
    """Divided by head_dim, not by its root."""
    return _weights(_raw(query, key) / query.shape[-1] - _fine(query, key, slopes), query, key)


def weights_with_future(query, key, slopes):
    return (_raw(query, key) / _root(query) - _fine(query, key, slopes)).softmax(-1)


def weights_with_future_fined(query, key, slopes):
    return (_raw(query, key) / _root(query) - _fine(query, key, slopes).abs()).softmax(-1)


def weights_with_future_unfined(query, key, slopes):
    """No mask, and what comes later costs nothing."""
    fine = slopes[:, None, None] * _distance(query, key).clamp(min=0)
    return (_raw(query, key) / _root(query) - fine).softmax(-1)


def weights_masked_after(query, key, slopes):
    return weights_with_future(query, key, slopes).masked_fill(_distance(query, key) < 0, 0)


def weights_masked_after_with_inf(query, key, slopes):
    return weights_with_future(query, key, slopes).masked_fill(_distance(query, key) < 0, -INF)


def weights_see_next(query, key, slopes):
    """tril(diagonal=1), or < -1: one key too many."""
    scores = _raw(query, key) / _root(query) - _fine(query, key, slopes)
    return scores.masked_fill(_distance(query, key) < -1, -INF).softmax(-1)


def weights_future_at_zero(query, key, slopes):
    scores = _raw(query, key) / _root(query) - _fine(query, key, slopes)
    return scores.masked_fill(_distance(query, key) < 0, 0).softmax(-1)


def weights_top_left(query, key, slopes):
    distance = torch.arange(query.shape[1])[:, None] - torch.arange(key.shape[1])
    scores = _raw(query, key) / _root(query) - slopes[:, None, None] * distance
    return scores.masked_fill(distance < 0, -INF).softmax(-1)


def weights_distance_top_left(query, key, slopes):
    """The mask is right; the fine is |i - j|."""
    distance = (torch.arange(query.shape[1])[:, None] - torch.arange(key.shape[1])).abs()
    return _weights(_raw(query, key) / _root(query) - slopes[:, None, None] * distance, query, key)


def weights_by_key_place(query, key, slopes):
    """Counts from the first key on, and fines what is near."""
    places = torch.arange(key.shape[1])
    return _weights(_raw(query, key) / _root(query) - slopes[:, None, None] * places, query, key)


def weights_squared(query, key, slopes):
    fine = slopes[:, None, None] * _distance(query, key) ** 2
    return _weights(_raw(query, key) / _root(query) - fine, query, key)


def weights_slope_to_the_distance(query, key, slopes):
    fine = slopes[:, None, None] ** _distance(query, key).clamp(min=0)
    return _weights(_raw(query, key) / _root(query) - fine, query, key)


def weights_one_slope(query, key, slopes):
    fine = slopes[0] * _distance(query, key)
    return _weights(_raw(query, key) / _root(query) - fine, query, key)


def weights_mean_slope(query, key, slopes):
    fine = slopes.mean() * _distance(query, key)
    return _weights(_raw(query, key) / _root(query) - fine, query, key)


def weights_no_slope(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) - _distance(query, key), query, key)


def weights_divided_by_slope(query, key, slopes):
    fine = _distance(query, key) / slopes[:, None, None]
    return _weights(_raw(query, key) / _root(query) - fine, query, key)


def weights_heads_flipped(query, key, slopes):
    return _weights(_raw(query, key) / _root(query) - _fine(query, key, slopes.flip(0)), query, key)


def weights_published_slopes(query, key, slopes):
    heads = torch.arange(1, len(slopes) + 1)
    own = 2.0 ** (-8 * heads / len(slopes))
    return _weights(_raw(query, key) / _root(query) - _fine(query, key, own), query, key)


def weights_hide_own(query, key, slopes):
    scores = _raw(query, key) / _root(query) - _fine(query, key, slopes)
    return scores.masked_fill(_distance(query, key) < 1, -INF).softmax(-1)


def weights_over_queries(query, key, slopes):
    scores = _raw(query, key) / _root(query) - _fine(query, key, slopes)
    return scores.masked_fill(_distance(query, key) < 0, -INF).softmax(-2)


def weights_of_distance_alone(query, key, slopes):
    return _weights(-_fine(query, key, slopes).expand(len(query), -1, -1), query, key)


def weights_scores(query, key, slopes):
    scores = _raw(query, key) / _root(query) - _fine(query, key, slopes)
    return scores.masked_fill(_distance(query, key) < 0, -INF)


def weights_scores_of_all(query, key, slopes):
    return _raw(query, key) / _root(query) - _fine(query, key, slopes)


def weights_bias(query, key, slopes):
    return -_fine(query, key, slopes).expand(len(query), -1, -1)


def slopes_do_not_broadcast(attempt: Attempt) -> bool:
    return "must match the size of tensor" in str(attempt.error)


def _product_of_misfits(attempt: Attempt) -> list[int] | None:
    """[wanted batch, wanted rows, batch, rows] of a refused batched product; None if something else was refused."""
    if "first two dimensions of batch2" not in str(attempt.error):
        return None
    return [int(number) for number in re.findall(r"\d+", str(attempt.error).partition("to be")[2])]


def key_is_not_turned(attempt: Attempt) -> bool:
    sizes = _product_of_misfits(attempt)
    return sizes is not None and sizes[2] == len(attempt.args[0])


def heads_were_turned(attempt: Attempt) -> bool:
    """key.T turns all three axes over."""
    sizes = _product_of_misfits(attempt)
    return sizes is not None and sizes[2] != len(attempt.args[0])


def where_query_0_stands(attempt: Attempt) -> dict[str, object]:
    q_len, k_len = attempt.args[0].shape[1], attempt.args[1].shape[1]
    return {"q_len": q_len, "k_len": k_len, "stands_on": str(k_len - q_len)}
