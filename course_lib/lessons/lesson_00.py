"""Exercises of lesson 00, start here: five questions that test what the course needs, and one exercise that is
solved together.

The pictures and the explorers of the lesson are in `lesson_00_pictures`, the glossary in `lesson_00_glossary`,
the wrong answers that the check of 0.6 knows by name in `lesson_00_mistakes`.
"""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from course_lib.classroom.exercise import Attempt, Case, Mistake
from course_lib.classroom.lesson import Lesson
from course_lib.classroom.messages import say
from course_lib.lessons import lesson_00_mistakes as wrong
from course_lib.lessons.lesson_00_glossary import glossary, meaning
from course_lib.lessons.lesson_00_pictures import (
    formats_figure,
    heads_figure,
    number_explorer,
    render_number,
    render_tokens,
    token_explorer,
    token_figure,
)

LESSON = Lesson("lesson_00")
hint, solution, progress, restore, language = LESSON.for_notebooks()

__all__ = [
    "LESSON",
    "check_addition",
    "check_loss",
    "check_product",
    "check_shares",
    "check_slopes",
    "check_split_heads",
    "formats_figure",
    "glossary",
    "heads_figure",
    "hint",
    "language",
    "meaning",
    "number_explorer",
    "progress",
    "render_number",
    "render_tokens",
    "restore",
    "self_test",
    "solution",
    "token_explorer",
    "token_figure",
]


# --- answers that are typed by hand ----------------------------------------------------------------------------


def _numbers(answer: Any) -> list[float]:
    """The numbers of an answer, in whatever it came: a number, a list, a tensor or array, text such as "1/8"."""
    if isinstance(answer, str):
        found = re.findall(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+|/\d+)?", answer.replace("−", "-"))
        return [float(Fraction(number)) for number in found]
    if isinstance(answer, torch.Tensor | np.ndarray):
        return _numbers(answer.tolist())
    if isinstance(answer, list | tuple):
        return [number for part in answer for number in _numbers(part)]
    return [float(answer)]


def _same_numbers(got: Any, wanted: Any) -> bool:
    """Two decimals are enough for an answer from paper."""
    ours, theirs = _numbers(got), _numbers(wanted)
    return len(ours) == len(theirs) and all(abs(a - b) <= 0.0055 for a, b in zip(ours, theirs, strict=True))


def _sizes(answer: Any) -> list[int]:
    """A shape as a list; of a tensor that is not itself a list of sizes, its own shape."""
    if isinstance(answer, torch.Tensor) and (answer.ndim != 1 or answer.is_floating_point()):
        return list(answer.shape)
    return [int(size) for size in _numbers(answer)]


def _same_sizes(got: Any, wanted: Any) -> bool:
    return _sizes(got) == _sizes(wanted)


def _says_it_in_words(attempt: Attempt) -> bool:
    """Whether an answer is a sentence, such as "5 and 7 do not fit", and no shape such as "2 x 5 x 7"."""
    answer = attempt.got
    return isinstance(answer, str) and len(re.findall(r"[^\W\d_xX]", answer.replace("torch.Size", ""))) > 1


# --- 0.1 ---------------------------------------------------------------------------------------------------------

SHARES = [0.125, 0.25, 0.625]


def _in_per_cent(attempt: Attempt) -> bool:
    return all(abs(a - 100 * b) <= 0.55 for a, b in zip(_numbers(attempt.got), SHARES, strict=True))


def _in_another_order(attempt: Attempt) -> bool:
    return _same_numbers(sorted(_numbers(attempt.got)), SHARES)


def _not_three_in_a_row(attempt: Attempt) -> bool:
    return isinstance(attempt.got, set | dict) or len(_numbers(attempt.got)) != 3


check_shares = LESSON.question(
    "0.1",
    "shares",
    answer=SHARES,
    same=_same_numbers,
    mistakes=[
        Mistake("scores", like=lambda: [0.0, 0.6931, 1.6094]),
        Mistake("no_exponential", like=lambda: [0.0, 0.3010, 0.6990]),
        Mistake("not_divided", like=lambda: [1.0, 2.0, 5.0]),
        Mistake("by_largest", like=lambda: [0.2, 0.4, 1.0]),
        Mistake("logarithm", like=lambda: [-2.0794, -1.3863, -0.4700]),
        Mistake("base_two", like=lambda: [0.1765, 0.2853, 0.5382]),
        Mistake("one_each", like=lambda: [0.5, 0.6667, 0.8333]),
        Mistake("winner", like=lambda: [0.0, 0.0, 1.0]),
        Mistake("per_cent", when=_in_per_cent),
        Mistake("turned_round", when=_in_another_order),
        Mistake("minus", like=lambda: [0.5882, 0.2941, 0.1176]),
        Mistake("even", like=lambda: [0.3333, 0.3333, 0.3333]),
        Mistake("not_three", when=_not_three_in_a_row),
        Mistake("not_one", when=lambda attempt: abs(sum(_numbers(attempt.got)) - 1) > 0.02),
    ],
)


# --- 0.2 ---------------------------------------------------------------------------------------------------------


def _product_in_another_order(attempt: Attempt) -> bool:
    return sorted(_sizes(attempt.got)) == [2, 5, 7]


check_product = LESSON.question(
    "0.2",
    "product",
    answer=(2, 5, 7),
    same=_same_sizes,
    mistakes=[
        Mistake("does_work", when=_says_it_in_words),
        Mistake("keys_first", like=lambda: (2, 7, 5)),
        Mistake("no_batch", like=lambda: (5, 7)),
        Mistake("no_batch", like=lambda: (1, 5, 7)),
        Mistake("over_words", like=lambda: (2, 8, 8)),
        Mistake("place_by_place", like=lambda: (2, 5, 8)),
        Mistake("place_by_place", like=lambda: (2, 7, 8)),
        Mistake("batches_crossed", like=lambda: (2, 2, 5, 7)),
        Mistake("keeps_width", like=lambda: (2, 5, 7, 8)),
        Mistake("turned_key", like=lambda: (2, 8, 7)),
        Mistake("counted", like=lambda: 70),
        Mistake("other_order", when=_product_in_another_order),
    ],
)


# --- 0.3 ---------------------------------------------------------------------------------------------------------


def _aligned(answer: Any) -> list[int]:
    """The sizes as broadcasting sees them: four numbers viewed so, leading ones left out."""
    sizes = list(torch.empty(4, device="meta").view(_sizes(answer)).shape)
    while sizes and sizes[0] == 1:
        sizes.pop(0)
    return sizes


def _same_view(got: Any, wanted: Any) -> bool:
    return len(_sizes(got)) <= 4 and _aligned(got) == _aligned(wanted)


def _not_four_numbers(attempt: Attempt) -> bool:
    return math.prod(_sizes(attempt.got)) not in (4, -4)


def _product_of_sizes(attempt: Attempt) -> dict[str, object]:
    return {"sizes": str(_sizes(attempt.got)), "numbers": abs(math.prod(_sizes(attempt.got)))}


check_slopes = LESSON.question(
    "0.3",
    "slopes",
    answer=(4, 1, 1),
    same=_same_view,
    mistakes=[
        Mistake("says_it_works", when=_says_it_in_words),
        Mistake("keys", like=lambda: (4,)),
        Mistake("queries", like=lambda: (4, 1)),
        Mistake("batch", like=lambda: (4, 1, 1, 1)),
        Mistake("not_four", when=_not_four_numbers, values=_product_of_sizes),
    ],
)


# --- 0.4 ---------------------------------------------------------------------------------------------------------

check_addition = LESSON.question(
    "0.4",
    "addition",
    answer=12.0,
    same=_same_numbers,
    mistakes=[
        Mistake("replaced", like=lambda: 4.0),
        Mistake("first_lost", like=lambda: 8.0),
        Mistake("multiplied", like=lambda: 64.0),
        Mistake("loss", like=lambda: 20.0),
        Mistake("losses", like=lambda: 60.0),
        Mistake("every_round", like=lambda: [4.0, 8.0, 12.0]),
        Mistake("every_round", like=lambda: [4.0, 4.0, 4.0]),
        Mistake("added_twice", like=lambda: 24.0),
        Mistake("weight", like=lambda: 5.0),
        Mistake("cleared", like=lambda: 0.0),
        Mistake("a_step", like=lambda: -12.0),
        Mistake("a_step", like=lambda: -7.0),
    ],
)


# --- 0.5 ---------------------------------------------------------------------------------------------------------

check_loss = LESSON.question(
    "0.5",
    "loss",
    answer=2.0,
    same=_same_numbers,
    mistakes=[
        Mistake("summed", like=lambda: 6.0),
        Mistake("negative", like=lambda: -2.0),
        Mistake("negative", like=lambda: -6.0),
        Mistake("negative", like=lambda: -1.3863),
        Mistake("negative", like=lambda: -4.1589),
        Mistake("nats", like=lambda: 1.3863),
        Mistake("nats", like=lambda: 4.1589),
        Mistake("base_ten", like=lambda: 0.6021),
        Mistake("base_ten", like=lambda: 1.8062),
        Mistake("mean_probability", like=lambda: 0.2917),
        Mistake("mean_probability", like=lambda: 0.875),
        Mistake("one_minus", like=lambda: 0.7083),
        Mistake("log_of_mean", like=lambda: 1.7776),
        Mistake("log_of_mean", like=lambda: 1.2321),
        Mistake("perplexity", like=lambda: 4.0),
        Mistake("product", like=lambda: 0.015625),
        Mistake("last_only", like=lambda: 3.0),
        Mistake("not_averaged", like=lambda: [1.0, 2.0, 3.0]),
    ],
)

TO_READ = {
    "0.1": "shares.read",
    "0.2": "product.read",
    "0.3": "slopes.read",
    "0.4": "addition.read",
    "0.5": "loss.read",
}


def self_test() -> None:
    """Print how the five questions stand, and for each that was tried and missed, what to read."""
    stands = {name: status for name, status in LESSON.statuses().items() if name in TO_READ}
    right = sum(status == "solved" for status in stands.values())
    print(LESSON.say("self_test.summary", right=right, total=len(stands)))
    for name, status in stands.items():
        title = say(LESSON.exercises[name].key("title"))
        words = say(f"common.status_{status.replace(' ', '_')}")
        print(f"  {name}  {words} · {title}")
        if status == "tried":
            print(f"       {LESSON.say(TO_READ[name])}")
    if right == len(stands):
        print(LESSON.say("self_test.ready"))
    elif set(stands.values()) == {"not started"}:
        print(LESSON.say("self_test.begin"))
    elif "tried" in stands.values():
        print(LESSON.say("self_test.missed"))


# --- 0.6 ---------------------------------------------------------------------------------------------------------


def split_heads(x, num_heads):
    """[batch, sequence, num_heads * head_dim] -> [batch, num_heads, sequence, head_dim]."""
    heads = x.unflatten(-1, (num_heads, -1))  # [batch, sequence, num_heads, head_dim]
    return heads.transpose(1, 2)


def _counted(batch: int, sequence: int, num_heads: int, head_dim: int) -> tuple[torch.Tensor, int]:
    """Numbers that say where they come from: hundreds are the sentence, tens the word, ones the place."""
    width = num_heads * head_dim
    place = torch.arange(width) + 10.0 * torch.arange(sequence)[:, None]
    return place + 100.0 * torch.arange(batch)[:, None, None], num_heads


def _glued_batch(attempt: Attempt) -> bool:
    batch, heads, *rest = attempt.wanted.shape
    return list(attempt.got.shape) == [batch * heads, *rest]


def _sizes_do_not_fit(attempt: Attempt) -> bool:
    return "is invalid for input of size" in str(attempt.error)


def _error_text(attempt: Attempt) -> dict[str, object]:
    return {"error": str(attempt.error)}


check_split_heads = LESSON.exercise(
    "0.6",
    "split_heads",
    solution=split_heads,
    cases=[
        Case(lambda: _counted(1, 3, 2, 4), label="one_sentence"),
        Case(lambda: _counted(2, 5, 3, 2), label="a_batch"),
        Case(lambda: _counted(2, 3, 1, 4), label="one_head"),
    ],
    mistakes=[
        Mistake("reshaped", like=wrong.reshaped),
        Mistake("turned_then_reshaped", like=wrong.turned_then_reshaped),
        Mistake("not_exchanged", like=wrong.not_exchanged),
        Mistake("not_exchanged", like=wrong.not_exchanged_interleaved),
        Mistake("interleaved", like=wrong.interleaved),
        Mistake("heads_for_head_dim", like=wrong.heads_for_head_dim),
        Mistake("width_before_words", like=wrong.width_before_words),
        Mistake("heads_before_batch", like=wrong.heads_before_batch),
        Mistake("copied", like=wrong.copied),
        Mistake("one_head_only", like=wrong.first_head),
        Mistake("sizes_do_not_fit", when=_sizes_do_not_fit, values=_error_text),
        Mistake("glued", when=_glued_batch),
        Mistake("glued_words", like=wrong.glued_words),
        Mistake("unchanged", like=wrong.unchanged),
        Mistake("in_a_list", like=wrong.in_a_list),
    ],
)
