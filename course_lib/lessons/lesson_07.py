"""Exercises of lesson 07, AMP training: ends of a format, a scaled step, accumulation, bytes, a checkpoint.

The pictures are in `lesson_07_pictures` and `lesson_07_plots`, the gradients and dtypes that the lesson looks at come
from `lesson_07_gradients`, texts and the card from `lesson_07_card`, the wrong answers that the checks know by name
from `lesson_07_mistakes` and `lesson_07_mistakes_training`.
"""

import torch

from course_lib.classroom.exercise import Case
from course_lib.classroom.lesson import Lesson
from course_lib.lessons import lesson_07_mistakes as wrong
from course_lib.lessons import lesson_07_mistakes_training as wrong_training
from course_lib.lessons.lesson_07_card import own_text, save_card, training_card, write
from course_lib.lessons.lesson_07_gradients import (
    VANISHES,
    dtypes_inside,
    gradient_sizes,
    measured_beforehand,
    packed_loss,
    short,
)
from course_lib.lessons.lesson_07_pictures import (
    formats_figure,
    gpt_figure,
    range_widget,
    render_range,
)
from course_lib.lessons.lesson_07_plots import (
    curves_figure,
    gradients_figure,
    memory_figure,
    ranges_figure,
    updates_figure,
)
from course_lib.lessons.lesson_07_practice import PracticeRun, resumed

LESSON = Lesson("lesson_07")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "VANISHES",
    "PracticeRun",
    "check_accumulate",
    "check_checkpoint",
    "check_fate",
    "check_scaled_step",
    "check_training_bytes",
    "curves_figure",
    "dtypes_inside",
    "formats_figure",
    "gpt_figure",
    "gradient_sizes",
    "gradients_figure",
    "hint",
    "language",
    "measured_beforehand",
    "memory_figure",
    "own_text",
    "packed_loss",
    "progress",
    "range_widget",
    "ranges_figure",
    "render_range",
    "restore",
    "save_card",
    "short",
    "solution",
    "training_card",
    "updates_figure",
    "write",
]


# --- 7.1 ---------------------------------------------------------------------------------------------------------


def fate(value, exponent_bits, mantissa_bits):
    """What a format with these bits makes of a number: "overflows", "vanishes" or "kept"."""
    bias = 2 ** (exponent_bits - 1) - 1
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
    smallest = 2.0 ** (1 - bias - mantissa_bits)
    if abs(value) > largest:
        return "overflows"
    if 0 < abs(value) < smallest:
        return "vanishes"
    return "kept"


check_fate = LESSON.exercise(
    "7.1",
    "fate",
    solution=fate,
    cases=[
        Case((1.0, 5, 10), expected="kept"),
        Case((200000.0, 5, 10), label="above", expected="overflows"),
        Case((200000.0, 8, 7), label="bf16", expected="kept"),
        Case((1e-8, 5, 10), label="below", expected="vanishes"),
        Case((65000.0, 5, 10), label="near_the_top", expected="kept"),
        Case((70000.0, 5, 10), expected="overflows"),
        Case((65530.0, 5, 10), expected="overflows"),
        Case((3e-7, 5, 10), label="subnormal", expected="kept"),
        Case((6e-5, 5, 10), expected="kept"),
        Case((1e-7, 5, 10), expected="kept"),
        Case((2e-8, 5, 10), expected="vanishes"),
        Case((1e-30, 8, 7), expected="kept"),
        Case((1e39, 8, 7), label="above_bf16", expected="overflows"),
        Case((-200000.0, 5, 10), label="negative", expected="overflows"),
        Case((-1e-9, 5, 10), expected="vanishes"),
        Case((-2.0, 5, 10), expected="kept"),
        Case((0.0, 5, 10), label="zero_itself", expected="kept"),
        Case((300.0, 4, 3), label="eight_bits", expected="overflows"),
        Case((230.0, 4, 3), expected="kept"),
        Case((0.0005, 4, 3), expected="vanishes"),
        Case((0.004, 4, 3), expected="kept"),
        Case((1e-9, 8, 23), expected="kept"),
    ],
    mistakes=wrong.FATE,
)


# --- 7.2 ---------------------------------------------------------------------------------------------------------


def scaled_step(weights, gradients, scale, max_norm, lr):
    """(weights after one step of plain gradient descent, scale of the next step).

    gradients [n] are those of scale times the loss; their norm without the scale is clipped to max_norm.
    """
    gradients = gradients / scale
    if not gradients.isfinite().all():
        return weights, scale / 2
    norm = gradients.norm()
    if norm > max_norm:
        gradients = gradients * (max_norm / norm)
    return weights - lr * gradients, scale


def _step(gradients: list[float], scale: float, max_norm: float, lr: float, label: str = "") -> Case:
    def args() -> tuple[object, ...]:
        weights = torch.tensor([1.0, -2.0, 0.5, 3.0][: len(gradients)])
        return weights, torch.tensor(gradients), scale, max_norm, lr

    return Case(args, label=label)


check_scaled_step = LESSON.exercise(
    "7.2",
    "scaled_step",
    solution=scaled_step,
    cases=[
        _step([0.75, -0.5], 1.0, 2.0, 0.1, label="no_scale"),
        _step([2048.0, -1024.0, 512.0], 1024.0, 5.0, 0.1, label="unscaled"),
        _step([6144.0, -8192.0], 1024.0, 2.0, 0.1, label="clipped"),
        _step([307.2, 409.6, 204.8], 1024.0, 0.8, 0.5, label="gentle"),
        _step([1200.0, -900.0, 800.0], 256.0, 0.5, 0.05),
        _step([float("inf"), 1024.0], 2048.0, 1.0, 0.1, label="infinity"),
        _step([512.0, float("-inf"), 256.0], 512.0, 1.0, 0.1, label="minus_infinity"),
        _step([float("nan"), 64.0], 65536.0, 1.0, 0.1, label="nan"),
        _step([float("inf"), float("inf")], 1024.0, 1.0, 0.1),
        _step([0.0, 0.0, 0.0], 128.0, 1.0, 0.1, label="zeros"),
    ],
    mistakes=wrong.SCALED_STEP,
)


# --- 7.3 ---------------------------------------------------------------------------------------------------------


def accumulate(weight, batches):
    """weight.grad of the mean loss over all targets of all batches, one batch at a time.

    weight [vocab, dim] requires a gradient; batches are pairs of hidden [n, dim] and targets [n], -100: none.
    """
    total = sum(int((targets != -100).sum()) for _, targets in batches)
    for hidden, targets in batches:
        logits = hidden @ weight.T
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        (loss / total).backward()
    return weight.grad


def _batches(*targets: list[int]) -> Case:
    def args() -> tuple[object, ...]:
        generator = torch.Generator().manual_seed(len(targets))
        weight = torch.randn(5, 3, generator=generator).requires_grad_()
        pairs = [(torch.randn(len(own), 3, generator=generator), torch.tensor(own)) for own in targets]
        return weight, pairs

    labels = {1: "one", 2: "unequal", 3: "no_target", 4: "empty_batch"}
    return Case(args, label=labels[len(targets)])


check_accumulate = LESSON.exercise(
    "7.3",
    "accumulate",
    solution=accumulate,
    cases=[
        _batches([1, 2, 4]),
        _batches([1, 2, 4, 0, 3, 1], [2, 2]),
        _batches([3, 1, -100, -100, -100], [2, 0, 4, -100], [1, -100]),
        _batches([3, 1, 0], [-100, -100], [4, 2, 2, 1], [0, -100, -100]),
    ],
    mistakes=wrong_training.ACCUMULATE,
)


# --- 7.4 ---------------------------------------------------------------------------------------------------------


def training_bytes(parameters, dtype):
    """Bytes of weights, gradients and AdamW's state, and of autocast's copies where dtype is a half.

    dtype is what autocast multiplies in: torch.float32 means no autocast.
    """
    weight, gradient, moments = 4, 4, 2 * 4
    copy = dtype.itemsize if dtype != torch.float32 else 0
    return parameters * (weight + gradient + moments + copy)


check_training_bytes = LESSON.exercise(
    "7.4",
    "training_bytes",
    solution=training_bytes,
    cases=[
        Case((1500, torch.float32), label="fp32", expected=24_000),
        Case((1500, torch.float16), label="fp16", expected=27_000),
        Case((1_475_856, torch.bfloat16), label="bf16", expected=26_565_408),
        Case((6_738_415_616, torch.float32), label="llama", expected=107_814_649_856),
    ],
    mistakes=wrong_training.TRAINING_BYTES,
)


# --- 7.5 ---------------------------------------------------------------------------------------------------------


def checkpoint(run):
    """A dict of copies of all that a new PracticeRun needs to go on exactly as this one will."""
    return {
        "weight": run.weight.clone(),
        "average": run.average.clone(),
        "loss_scale": run.loss_scale,
        "good_steps": run.good_steps,
        "step": run.step,
        "position": run.position,
        "generator": run.generator.get_state(),
    }


def _after(steps: int) -> tuple[PracticeRun]:
    run = PracticeRun()
    run.train(steps)
    return (run,)


check_checkpoint = LESSON.exercise(
    "7.5",
    "checkpoint",
    solution=checkpoint,
    cases=[
        Case(lambda: _after(7), label="losses", observe=resumed),
        Case(lambda: _after(10), observe=resumed),
    ],
    mistakes=wrong_training.CHECKPOINT,
)
