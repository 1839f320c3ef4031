"""Wrong answers to exercises 9.3 and 9.4 of lesson 09, bytes of a cache and seconds of a step, and to its questions."""

import math
from collections.abc import Callable
from typing import Any

from course_lib.classroom.exercise import Attempt, Mistake

# --- 9.3 ---------------------------------------------------------------------------------------------------------


def _kept_width(config):
    return config.kv_heads * config.head_width


def _width_of_queries(config):
    return config.num_heads * config.head_width


def _width_of_model(config):
    return config.dim


def _width_of_embedding(config):
    return config.embed_width


def _width_of_feed_forward(config):
    return config.hidden_width


def _counted(formula: Callable[..., Any], width: Callable[[Any], int]) -> Callable[..., Any]:
    """``formula`` of (width, layers, batch, length, bytes_per_value) as an answer to 9.3."""

    def kv_bytes(config, batch, length, bytes_per_value):
        return formula(width(config), config.num_layers, batch, length, bytes_per_value)

    return kv_bytes


def _in_full(width, layers, batch, length, size):
    return 2 * width * layers * batch * length * size


SLIPS: dict[str, list[Callable[..., Any]]] = {
    "keys_only": [lambda w, layers, b, n, s: w * layers * b * n * s],
    "with_queries": [lambda w, layers, b, n, s: 3 * w * layers * b * n * s],
    "one_layer": [lambda w, layers, b, n, s: 2 * w * b * n * s],
    "one_row": [lambda w, layers, b, n, s: 2 * w * layers * n * s],
    "one_token": [
        lambda w, layers, b, n, s: 2 * w * layers * b * s,
        lambda w, layers, b, n, s: 2 * w * layers * s,
    ],
    "numbers": [lambda w, layers, b, n, s: 2 * w * layers * b * n],
    "bits": [lambda w, layers, b, n, s: 16 * w * layers * b * n * s],
    "always_two": [lambda w, layers, b, n, s: 4 * w * layers * b * n],
    "always_four": [lambda w, layers, b, n, s: 8 * w * layers * b * n],
    "weights": [
        lambda w, layers, b, n, s: 2 * w * w * layers * s,
        lambda w, layers, b, n, s: 4 * w * w * layers * s,
        lambda w, layers, b, n, s: 12 * w * w * layers * s,
        lambda w, layers, b, n, s: 2 * w * w * layers * b * n * s,
        lambda w, layers, b, n, s: w * w * layers * b * n * s,
    ],
    "length_squared": [lambda w, layers, b, n, s: 2 * w * layers * b * n * n * s],
    "scores": [lambda w, layers, b, n, s: layers * b * n * n * s],
    "added": [
        lambda w, layers, b, n, s: 2 * w * layers * (b + n) * s,
        lambda w, layers, b, n, s: 2 * (w + layers) * b * n * s,
    ],
    "one_less": [lambda w, layers, b, n, s: 2 * w * layers * b * (n - 1) * s],
    "one_more": [lambda w, layers, b, n, s: 2 * w * layers * b * (n + 1) * s],
}
"""What may be wrong however the width of a key is found; key of the message -> formulas."""


def bytes_of_scores_by_head(config, batch, length, bytes_per_value):
    return config.num_layers * config.num_heads * batch * length * length * bytes_per_value


def bytes_without_head_width(config, batch, length, bytes_per_value):
    return 2 * config.num_layers * config.kv_heads * batch * length * bytes_per_value


def bytes_without_heads(config, batch, length, bytes_per_value):
    return 2 * config.num_layers * config.head_width * batch * length * bytes_per_value


def bytes_times_heads(config, batch, length, bytes_per_value):
    return _in_full(config.dim * config.num_heads, config.num_layers, batch, length, bytes_per_value)


def bytes_times_kv_heads(config, batch, length, bytes_per_value):
    return _in_full(config.dim * config.kv_heads, config.num_layers, batch, length, bytes_per_value)


def bytes_of_max_length(config, batch, length, bytes_per_value):
    return _in_full(_kept_width(config), config.num_layers, batch, config.max_length, bytes_per_value)


def bytes_of_max_length_and_dim(config, batch, length, bytes_per_value):
    return _in_full(config.dim, config.num_layers, batch, config.max_length, bytes_per_value)


def of_another_config(attempt: Attempt) -> bool:
    """A field was asked for that this config does not have: hidden_size, n_layer, head_dim …"""
    return isinstance(attempt.error, AttributeError) and "Config" in str(attempt.error)


def subscripted_config(attempt: Attempt) -> bool:
    return isinstance(attempt.error, TypeError) and "not subscriptable" in str(attempt.error)


def asked_for(attempt: Attempt) -> dict[str, object]:
    return {"field": getattr(attempt.error, "name", None) or "?"}


def not_a_count(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple | dict)


def in_another_unit(attempt: Attempt) -> bool:
    units = (1e3, 1024, 1e6, 2**20, 1e9, 2**30)
    return any(math.isclose(attempt.got * unit, attempt.wanted, rel_tol=1e-6) for unit in units)


def _off_by_whole_factor(larger: Any, smaller: Any) -> bool:
    return 0 < smaller < larger and larger % smaller == 0


def a_factor_too_few(attempt: Attempt) -> bool:
    return _off_by_whole_factor(attempt.wanted, attempt.got)


def a_factor_too_many(attempt: Attempt) -> bool:
    return _off_by_whole_factor(attempt.got, attempt.wanted)


def how_far_off(attempt: Attempt) -> dict[str, object]:
    larger, smaller = max(attempt.got, attempt.wanted), min(attempt.got, attempt.wanted)
    return {"ratio": str(int(larger // smaller))}


KV_BYTES = [
    Mistake("other_config", when=of_another_config, values=asked_for),
    Mistake("subscripted", when=subscripted_config),
    Mistake("not_a_count", when=not_a_count),
    Mistake("dim", like=_counted(_in_full, _width_of_model)),
    Mistake("query_heads", like=_counted(_in_full, _width_of_queries)),
    *(
        Mistake(key, like=_counted(formula, width))
        for key, formulas in SLIPS.items()
        for formula in formulas
        for width in (_kept_width, _width_of_queries, _width_of_model)
    ),
    Mistake("embedding", like=_counted(_in_full, _width_of_embedding)),
    Mistake("feed_forward", like=_counted(_in_full, _width_of_feed_forward)),
    Mistake("scores", like=bytes_of_scores_by_head),
    Mistake("no_head_width", like=bytes_without_head_width),
    Mistake("one_head", like=bytes_without_heads),
    Mistake("heads_twice", like=bytes_times_heads),
    Mistake("heads_twice", like=bytes_times_kv_heads),
    Mistake("max_length", like=bytes_of_max_length),
    Mistake("max_length", like=bytes_of_max_length_and_dim),
    Mistake("other_unit", when=in_another_unit),
    Mistake("too_few", when=a_factor_too_few, values=how_far_off),
    Mistake("too_many", when=a_factor_too_many, values=how_far_off),
]

# --- 9.4 ---------------------------------------------------------------------------------------------------------

Answer = Callable[..., Any]


def _moved(weights, row, batch):
    return weights + batch * row


def step_right(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) / bandwidth, batch * work / speed)


def step_weights_times_batch(weights, row, work, batch, bandwidth, speed):
    return max(batch * (weights + row) / bandwidth, batch * work / speed)


def step_weights_times_batch_cache_once(weights, row, work, batch, bandwidth, speed):
    return max((batch * weights + row) / bandwidth, batch * work / speed)


def step_weights_times_batch_no_cache(weights, row, work, batch, bandwidth, speed):
    return max(batch * weights / bandwidth, batch * work / speed)


def step_no_cache(weights, row, work, batch, bandwidth, speed):
    return max(weights / bandwidth, batch * work / speed)


def step_cache_once(weights, row, work, batch, bandwidth, speed):
    return max((weights + row) / bandwidth, batch * work / speed)


def step_cache_only(weights, row, work, batch, bandwidth, speed):
    return max(batch * row / bandwidth, batch * work / speed)


def step_sum(weights, row, work, batch, bandwidth, speed):
    return _moved(weights, row, batch) / bandwidth + batch * work / speed


def step_min(weights, row, work, batch, bandwidth, speed):
    return min(_moved(weights, row, batch) / bandwidth, batch * work / speed)


def step_mean(weights, row, work, batch, bandwidth, speed):
    return step_sum(weights, row, work, batch, bandwidth, speed) / 2


def step_memory_only(weights, row, work, batch, bandwidth, speed):
    return _moved(weights, row, batch) / bandwidth


def step_weights_only(weights, row, work, batch, bandwidth, speed):
    return weights / bandwidth


def step_compute_only(weights, row, work, batch, bandwidth, speed):
    return batch * work / speed


def step_one_rows_work(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) / bandwidth, work / speed)


def step_without_batch(weights, row, work, batch, bandwidth, speed):
    return max((weights + row) / bandwidth, work / speed)


def step_a_token(weights, row, work, batch, bandwidth, speed):
    return step_right(weights, row, work, batch, bandwidth, speed) / batch


def step_rate(weights, row, work, batch, bandwidth, speed):
    return 1 / step_right(weights, row, work, batch, bandwidth, speed)


def step_rate_of_batch(weights, row, work, batch, bandwidth, speed):
    return batch / step_right(weights, row, work, batch, bandwidth, speed)


def step_upside_down(weights, row, work, batch, bandwidth, speed):
    return max(bandwidth / _moved(weights, row, batch), speed / (batch * work))


def step_multiplied(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) * bandwidth, batch * work * speed)


def step_max_of_three(weights, row, work, batch, bandwidth, speed):
    return max(weights / bandwidth, batch * row / bandwidth, batch * work / speed)


def step_cache_added_after(weights, row, work, batch, bandwidth, speed):
    return max(weights / bandwidth, batch * work / speed) + batch * row / bandwidth


def step_weights_added_after(weights, row, work, batch, bandwidth, speed):
    return weights / bandwidth + max(batch * row / bandwidth, batch * work / speed)


def step_swapped_speeds(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) / speed, batch * work / bandwidth)


def step_one_speed(weights, row, work, batch, bandwidth, speed):
    return (_moved(weights, row, batch) + batch * work) / (bandwidth + speed)


def step_milliseconds(weights, row, work, batch, bandwidth, speed):
    return 1000 * step_right(weights, row, work, batch, bandwidth, speed)


def step_cache_twice(weights, row, work, batch, bandwidth, speed):
    return step_right(weights, 2 * row, work, batch, bandwidth, speed)


def step_floored(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) // bandwidth, batch * work // speed)


def step_bits(weights, row, work, batch, bandwidth, speed):
    return max(8 * _moved(weights, row, batch) / bandwidth, batch * work / speed)


def step_twice_the_work(weights, row, work, batch, bandwidth, speed):
    return max(_moved(weights, row, batch) / bandwidth, 2 * batch * work / speed)


def several_numbers(attempt: Attempt) -> bool:
    return isinstance(attempt.got, list | tuple | dict)


STEP_SECONDS = [
    Mistake("several", when=several_numbers),
    Mistake("weights_times_batch", like=step_weights_times_batch),
    Mistake("weights_times_batch", like=step_weights_times_batch_cache_once),
    Mistake("weights_times_batch", like=step_weights_times_batch_no_cache),
    Mistake("no_cache", like=step_no_cache),
    Mistake("no_cache", like=step_weights_only),
    Mistake("cache_once", like=step_cache_once),
    Mistake("cache_only", like=step_cache_only),
    Mistake("sum", like=step_sum),
    Mistake("sum", like=step_mean),
    Mistake("min", like=step_min),
    Mistake("memory_only", like=step_memory_only),
    Mistake("compute_only", like=step_compute_only),
    Mistake("one_rows_work", like=step_one_rows_work),
    Mistake("no_batch", like=step_without_batch),
    Mistake("a_token", like=step_a_token),
    Mistake("rate", like=step_rate),
    Mistake("rate", like=step_rate_of_batch),
    Mistake("rate", like=step_upside_down),
    Mistake("multiplied", like=step_multiplied),
    Mistake("max_of_three", like=step_max_of_three),
    Mistake("split_memory", like=step_cache_added_after),
    Mistake("split_memory", like=step_weights_added_after),
    Mistake("swapped", like=step_swapped_speeds),
    Mistake("swapped", like=step_one_speed),
    Mistake("milliseconds", like=step_milliseconds),
    Mistake("cache_twice", like=step_cache_twice),
    Mistake("bits", like=step_bits),
    Mistake("twice_the_work", like=step_twice_the_work),
    Mistake("floored", like=step_floored),
]
