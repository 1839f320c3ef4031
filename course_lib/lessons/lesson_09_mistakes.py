"""Wrong answers to exercise 9.1 of lesson 09, positions, each written as a student would.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import torch

from course_lib.classroom.exercise import Attempt, Mistake


def _real(mask):
    return mask.long()


def _columns(mask):
    return torch.arange(mask.shape[1]).expand(mask.shape)


def positions_right(mask):
    return (_real(mask).cumsum(1) - 1) * _real(mask)


def positions_by_column(mask):
    return _columns(mask)


def positions_by_column_from_one(mask):
    return _columns(mask) + 1


def positions_by_column_plus_two(mask):
    return _columns(mask) + 2


def positions_from_one(mask):
    return _real(mask).cumsum(1)


def positions_plus_two(mask):
    return _real(mask).cumsum(1) + 1


def positions_plus_two_from_one(mask):
    return _real(mask).cumsum(1) + 2


def positions_only_left(mask):
    """Right while all padding stands before the text."""
    return _columns(mask) - (1 - _real(mask)).sum(1, keepdim=True)


def positions_only_left_clamped(mask):
    return positions_only_left(mask).clamp(min=0)


def positions_from_first_real(mask):
    """Right while no padding stands between real tokens."""
    return _columns(mask) - _real(mask).argmax(1, keepdim=True)


def positions_within_length(mask):
    """A range of as many as are real, from the first column on: right while padding stands after the text."""
    return _columns(mask).where(_columns(mask) < _real(mask).sum(1, keepdim=True), 0)


def positions_over_batch(mask):
    return _real(mask).cumsum(0) - 1


def positions_over_batch_from_one(mask):
    return _real(mask).cumsum(0)


def positions_across_rows(mask):
    return _real(mask).flatten().cumsum(0).view(mask.shape) - 1


def positions_across_rows_from_one(mask):
    return _real(mask).flatten().cumsum(0).view(mask.shape)


def positions_from_end(mask):
    return _real(mask).flip(1).cumsum(1).flip(1) - 1


def positions_from_end_from_one(mask):
    return _real(mask).flip(1).cumsum(1).flip(1)


def positions_minus_one_first(mask):
    return (_real(mask) - 1).cumsum(1)


def positions_of_padding(mask):
    return (1 - _real(mask)).cumsum(1)


def positions_of_padding_from_zero(mask):
    return (1 - _real(mask)).cumsum(1) - 1


def positions_always_zero(mask):
    return torch.zeros_like(_real(mask))


def positions_mask_itself(mask):
    return _real(mask)


def positions_first_row(mask):
    return positions_right(mask)[:1].expand(mask.shape)


def _sizes(attempt: Attempt) -> tuple[int, ...]:
    return tuple(attempt.got.shape)


def lengths_of_rows(attempt: Attempt) -> bool:
    """[batch] or [batch, 1]: how many tokens are real."""
    lengths = attempt.args[0].sum(1)
    return attempt.got.numel() == len(lengths) and bool((attempt.got.flatten() == lengths).all())


def one_row_for_all(attempt: Attempt) -> bool:
    batch, length = attempt.args[0].shape
    return batch > 1 and _sizes(attempt) in ((length,), (1, length))


def only_the_real(attempt: Attempt) -> bool:
    """[real tokens] or [real tokens, 2]: a number for each real token, or its place; padding is left out."""
    return len(attempt.got) == int(attempt.args[0].sum()) and _sizes(attempt) != tuple(attempt.args[0].shape)


def minus_of_bools(attempt: Attempt) -> bool:
    return isinstance(attempt.error, RuntimeError) and "bool" in str(attempt.error)


def written_into_the_mask(attempt: Attempt) -> bool:
    return bool(attempt.modified)


def of_one_row_only(attempt: Attempt) -> bool:
    """`if mask:` or .item() of several numbers."""
    text = str(attempt.error)
    return attempt.error is not None and ("ambiguous" in text or "converted to Scalar" in text)


POSITIONS = [
    Mistake("bools", when=minus_of_bools),
    Mistake("several_rows", when=of_one_row_only),
    Mistake("lengths", when=lengths_of_rows),
    Mistake("one_row", when=one_row_for_all),
    Mistake("only_real", when=only_the_real),
    Mistake("by_column", like=positions_by_column),
    Mistake("by_column", like=positions_by_column_from_one),
    Mistake("by_column", like=positions_by_column_plus_two),
    Mistake("from_one", like=positions_from_one),
    Mistake("plus_two", like=positions_plus_two),
    Mistake("plus_two", like=positions_plus_two_from_one),
    Mistake("only_left", like=positions_only_left),
    Mistake("only_left", like=positions_only_left_clamped),
    Mistake("only_right", like=positions_within_length),
    Mistake("holes", like=positions_from_first_real),
    Mistake("over_batch", like=positions_over_batch),
    Mistake("over_batch", like=positions_over_batch_from_one),
    Mistake("across_rows", like=positions_across_rows),
    Mistake("across_rows", like=positions_across_rows_from_one),
    Mistake("from_end", like=positions_from_end),
    Mistake("from_end", like=positions_from_end_from_one),
    Mistake("minus_first", like=positions_minus_one_first),
    Mistake("counts_padding", like=positions_of_padding),
    Mistake("counts_padding", like=positions_of_padding_from_zero),
    Mistake("not_counted", like=positions_always_zero),
    Mistake("not_counted", like=positions_mask_itself),
    Mistake("one_row", like=positions_first_row),
    Mistake("in_place", when=written_into_the_mask),
]
