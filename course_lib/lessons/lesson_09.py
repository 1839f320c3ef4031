"""Exercises of lesson 09, generation: positions from the mask, a cached loop, the cache's bytes, the decode roofline,
top-p; and what a licence allows.

The pictures are in `lesson_09_pictures` and `lesson_09_plots`, what is measured in `lesson_09_measure`. The wrong
answers that the checks know by name are in `lesson_09_mistakes` and its sisters, those of the loop with the model that
it is tried on in `lesson_09_writing`.
"""

import torch

from course_lib.classroom.exercise import Case
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_09_mistakes as wrong
from course_lib.lessons import lesson_09_mistakes_cost as wrong_cost
from course_lib.lessons import lesson_09_mistakes_licence as wrong_answer
from course_lib.lessons import lesson_09_mistakes_top_p as wrong_top_p
from course_lib.lessons import lesson_09_writing as loops
from course_lib.lessons.lesson_07_gradients import short
from course_lib.lessons.lesson_09_measure import (
    decode_weights,
    measured_step,
    memory_speed,
    opt_of_shape,
    product_speed,
    seconds_a_token,
)
from course_lib.lessons.lesson_09_pictures import (
    anatomy_figure,
    kept_figure,
    label_of,
    next_logits,
    next_token_widget,
    positions_figure,
    reads_figure,
    render_next_token,
)
from course_lib.lessons.lesson_09_plots import machines_figure, roofline_figure, weights_and_caches_figure
from course_lib.models import GPTConfig, OPTConfig

LESSON = Lesson("lesson_09")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "anatomy_figure",
    "check_for_a_shop",
    "check_greedy",
    "check_kv_bytes",
    "check_positions",
    "check_step_seconds",
    "check_top_p",
    "decode_weights",
    "hint",
    "kept_figure",
    "label_of",
    "language",
    "machines_figure",
    "measured_step",
    "memory_speed",
    "next_logits",
    "next_token_widget",
    "opt_of_shape",
    "positions_figure",
    "product_speed",
    "progress",
    "reads_figure",
    "render_next_token",
    "restore",
    "roofline_figure",
    "seconds_a_token",
    "short",
    "solution",
    "weights_and_caches_figure",
]


# --- 9.1 ---------------------------------------------------------------------------------------------------------


def positions(attention_mask):
    """[batch, length] integers: the number of each real token within its row, counted from 0.

    attention_mask [batch, length]: 1 or True for a real token, 0 or False for padding, which may stand anywhere.
    Padding may get any number. OPT adds its 2 later, inside the model.
    """
    real = attention_mask.long()
    return (real.cumsum(1) - 1) * real


def _mask(*rows: str, label: str = "", dtype: torch.dtype = torch.int64) -> Case:
    """A mask written as its rows, "0011", of which only real tokens are compared."""

    def mask() -> torch.Tensor:
        return torch.tensor([[int(sign) for sign in row] for row in rows]).to(dtype)

    def same(got: torch.Tensor, wanted: torch.Tensor) -> bool:
        integers = not got.is_floating_point() and not got.is_complex() and got.dtype != torch.bool
        return (
            got.shape == wanted.shape
            and integers
            and torch.equal(*(t.long()[mask() > 0] for t in (got, wanted)))
        )

    return Case(lambda: (mask(),), label=label, same=same)


check_positions = LESSON.exercise(
    "9.1",
    "positions",
    solution=positions,
    cases=[
        _mask("1111", "1111", "1111", label="no_padding"),
        _mask("00111", "11111", label="left"),
        _mask("110000", "111110", "111111", label="right"),
        _mask("1011010", "0110011", label="between"),
        _mask("011", "111", label="bools_mask", dtype=torch.bool),
    ],
    mistakes=wrong.POSITIONS,
)


# --- 9.2 ---------------------------------------------------------------------------------------------------------


def greedy(model, tokens, steps):
    """[batch, steps] int64: the new tokens, each the likeliest after all before it.

    tokens [batch, length]: the prompts, without padding; they are read in one pass, and each new token once.
    model(tokens, cache=cache) gives logits [batch, length, vocab]; cache is a list of one KVCache() for each of
    model.layers. steps is at least 1.
    """
    from course_lib.gqa import KVCache

    cache = [KVCache() for _ in model.layers]
    with torch.no_grad():
        logits = model(tokens, cache=cache)
        new = [logits[:, -1].argmax(-1, keepdim=True)]
        while len(new) < steps:
            logits = model(new[-1], cache=cache)
            new.append(logits[:, -1].argmax(-1, keepdim=True))
    return torch.cat(new, dim=1)


check_greedy = LESSON.exercise(
    "9.2",
    "greedy",
    solution=greedy,
    cases=[
        Case(lambda: loops.writing(1, 4, 3), label="one_prompt", observe=loops.written),
        Case(lambda: loops.writing(3, 5, 4), label="batch", observe=loops.written),
        Case(lambda: loops.writing(2, 1, 5), label="one_token", observe=loops.written),
        Case(lambda: loops.writing(2, 6, 1), label="one_step", observe=loops.written),
    ],
    mistakes=loops.GREEDY,
)


# --- 9.3 ---------------------------------------------------------------------------------------------------------


def kv_bytes(config, batch, length, bytes_per_value):
    """Bytes of the keys and values that a model keeps of `batch` rows of `length` tokens.

    config is the model's: config.num_layers, num_heads, kv_heads, head_width (numbers in a head), dim.
    """
    values_per_token = 2 * config.num_layers * config.kv_heads * config.head_width
    return batch * length * values_per_token * bytes_per_value


check_kv_bytes = LESSON.exercise(
    "9.3",
    "kv_bytes",
    solution=kv_bytes,
    cases=[
        Case(
            lambda: (OPTConfig(vocab_size=50, dim=12, num_layers=3, num_heads=2), 1, 5, 4),
            label="small",
            expected=1440,
        ),
        Case(lambda: (OPTConfig(vocab_size=50, dim=40, num_layers=5, num_heads=4), 3, 7, 2), label="batch"),
        Case(lambda: (OPTConfig.of_size("125m"), 1, 1, 2), label="opt_125m", expected=36_864),
        Case(lambda: (OPTConfig.of_size("350m"), 2, 100, 2), label="opt_350m"),
        Case(
            lambda: (
                GPTConfig(vocab_size=50, dim=24, num_layers=5, num_heads=6, num_kv_heads=2, head_dim=8),
                2,
                30,
                1,
            ),
            label="grouped",
            expected=9600,
        ),
        Case(lambda: (OPTConfig.of_size("175b"), 1, 2048, 2), label="opt_175b", expected=9_663_676_416),
    ],
    mistakes=wrong_cost.KV_BYTES,
)


# --- 9.4 ---------------------------------------------------------------------------------------------------------


def step_seconds(weight_bytes, kv_bytes_per_row, flops_per_token, batch, bandwidth, flops_per_second):
    """Seconds that one decode step of `batch` rows takes at least, all rows together.

    weight_bytes of the model, kv_bytes_per_row of one row's cache, flops_per_token of one row's new token;
    bandwidth in bytes a second, flops_per_second of the processor. It reads and computes at the same time.
    """
    moving = (weight_bytes + batch * kv_bytes_per_row) / bandwidth
    computing = batch * flops_per_token / flops_per_second
    return max(moving, computing)


check_step_seconds = LESSON.exercise(
    "9.4",
    "step_seconds",
    solution=step_seconds,
    cases=[
        Case((10**10, 0, 10**10, 1, 2 * 10**10, 10**12), label="weights", expected=0.5),
        Case((10**9, 2 * 10**9, 10**9, 1, 2 * 10**10, 10**12), label="cache", expected=0.15),
        Case((10**10, 10**9, 10**10, 8, 2 * 10**10, 10**12), label="batch", expected=0.9),
        Case((10**10, 25 * 10**7, 10**10, 64, 2 * 10**10, 25 * 10**10), label="computing", expected=2.56),
        Case((350 * 10**9, 97 * 10**8, 350 * 10**9, 16, 2 * 10**12, 312 * 10**12), label="opt_175b"),
        Case((2 * 10**9, 10**8, 2 * 10**9, 1, 5 * 10**10, 2 * 10**10), label="slow_processor", expected=0.1),
    ],
    mistakes=wrong_cost.STEP_SECONDS,
)


# --- 9.5 ---------------------------------------------------------------------------------------------------------


def top_p(probabilities, p):
    """[..., vocab]: the fewest tokens, likeliest first, that together reach p; renormalised, all others 0.

    probabilities [..., vocab]: each row sums to 1. The token that crosses p is kept.
    """
    ordered, ids = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered  # what the likelier ones have together
    kept = ordered.masked_fill(before >= p, 0)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(kept).scatter(-1, ids, kept)


def _rows(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows)


def _drawn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (2.5 * torch.randn(shape, generator=generator)).softmax(-1)


check_top_p = LESSON.exercise(
    "9.5",
    "top_p",
    solution=top_p,
    cases=[
        Case(lambda: (torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15]), 0.6), label="five_tokens"),
        Case(lambda: (torch.tensor([0.05, 0.85, 0.04, 0.06]), 0.5), label="one_is_enough"),
        Case(
            lambda: (_rows([0.02, 0.26, 0.6, 0.12], [0.27, 0.22, 0.24, 0.27 - 1e-3]), 0.8),
            label="rows_differ",
        ),
        Case(lambda: (torch.tensor([0.25, 0.125, 0.5, 0.125]), 1.0), label="everything"),
        Case(lambda: (_drawn(2, 3, 40), 0.9), label="deeper"),
    ],
    mistakes=wrong_top_p.TOP_P,
)


# --- 9.6 ---------------------------------------------------------------------------------------------------------

check_for_a_shop = LESSON.question(
    "9.6",
    "for_a_shop",
    answer=["bloom-560m", "lean-opt-5m"],
    same=wrong_answer.same_models,
    mistakes=wrong_answer.FOR_A_SHOP,
)
