"""Signs of a mistake that its output alone does not tell: what was raised, or one telling number (lesson 02)."""

import torch

from course_lib.classroom.exercise import Attempt
from course_lib.lessons.lesson_02_cases import AllKeysAtOnce, TileTooLarge


def first_tops(attempt: Attempt) -> dict[str, object]:
    return {"m1": f"{float(attempt.args[0][0]):g}", "m2": f"{float(attempt.args[3][0]):g}"}


def compared_whole_tensors(attempt: Attempt) -> bool:
    return "Boolean value of Tensor" in str(attempt.error)


def gives_the_output_alone(attempt: Attempt) -> bool:
    _, total, acc = attempt.wanted
    return attempt.got.shape == acc.shape and torch.allclose(attempt.got, acc / total, rtol=1e-4)


def invents_a_top(attempt: Attempt) -> bool:
    return bool((attempt.wanted[0] == -torch.inf).any()) and bool(attempt.got[0].isfinite().all())


def held_the_matrix(attempt: Attempt) -> bool:
    return isinstance(attempt.error, AllKeysAtOnce)


def forgot_keepdim(attempt: Attempt) -> bool:
    return "must match the size of tensor" in str(attempt.error)


def took_the_pair(attempt: Attempt) -> bool:
    return "return_types.max" in str(attempt.error)


def answered(wanted: str, *got: str):
    return lambda attempt: attempt.wanted == wanted and attempt.got in got


def unknown_word(attempt: Attempt) -> bool:
    return isinstance(attempt.got, str) and attempt.got not in ("skip", "mask", "whole")


def corners(attempt: Attempt) -> dict[str, object]:
    """The tile's corners that decide: what its first and last query stand on, its first and last key."""
    queries, keys, offset = attempt.args
    first, last = queries.start + offset, queries.stop - 1 + offset
    return {"first": first, "last": last, "first_key": keys.start, "last_key": keys.stop - 1}


def raised(text: str):
    """Whether the first wrong case stopped with an error that holds this text."""
    return lambda attempt: text in str(attempt.error)


def error(attempt: Attempt) -> dict[str, object]:
    return {"error": str(attempt.error)}


def took_larger_tiles(attempt: Attempt) -> bool:
    return isinstance(attempt.error, TileTooLarge)


def made_acc_as_wide_as_queries(attempt: Attempt) -> bool:
    """Where q_len is 2, head_dim 4 and value_dim 3, only an accumulator of the wrong width lets 4 meet 3."""
    return raised("tensor a (4) must match the size of tensor b (3)")(attempt)
