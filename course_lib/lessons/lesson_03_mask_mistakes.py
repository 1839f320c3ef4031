"""Wrong answers to exercise 3.2 of lesson 03, the mask of a packed row, each written as a student would."""

import math

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt
from course_lib.lessons import lesson_01_mask_mistakes as cells

INF = math.inf


def _mask(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape).masked_fill(~allowed, -INF)


def _documents(lengths) -> Tensor:
    """The number of each token's document."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def _same(lengths) -> Tensor:
    own = _documents(lengths)
    return own[:, None] == own


def _past(lengths, diagonal: int = 0) -> Tensor:
    return torch.ones(sum(lengths), sum(lengths), dtype=torch.bool).tril(diagonal)


def _blocks(lengths, first: int = 0, last: int = 0, diagonal: int = 0) -> Tensor:
    """Causal blocks whose corners are moved: `first` places before the start, `last` after the end."""
    total = sum(lengths)
    allowed, start = torch.zeros(total, total, dtype=torch.bool), 0
    for n in lengths:
        at = slice(max(start - first, 0), max(start + n + last, 0))
        allowed[at, at] |= torch.ones_like(allowed[at, at]).tril(diagonal)
        start += n
    return allowed


def mask_without_blocks(lengths):
    return _mask(_past(lengths))


def mask_not_causal(lengths):
    return _mask(_same(lengths))


def mask_of_nothing_hidden(lengths):
    return torch.zeros(sum(lengths), sum(lengths))


def mask_of_everything_hidden(lengths):
    return torch.full((sum(lengths), sum(lengths)), -INF)


def mask_by_block_diag(lengths):
    """block_diag fills with 0, and a 0 in an additive mask is "may look"."""
    return torch.block_diag(*(torch.full((n, n), -INF).triu(1) for n in lengths))


def mask_by_block_diag_of_zeros(lengths):
    return torch.block_diag(*(torch.zeros(n, n) for n in lengths))


def mask_of_the_first_document(lengths):
    mask = torch.full((sum(lengths), sum(lengths)), -INF)
    mask[: lengths[0], : lengths[0]] = torch.full((lengths[0], lengths[0]), -INF).triu(1)
    return mask


def mask_that_never_advances(lengths):
    """Every block in the top left corner: `start` stays 0."""
    mask = torch.full((sum(lengths), sum(lengths)), -INF)
    for n in lengths:
        mask[:n, :n] = torch.full((n, n), -INF).triu(1)
    return mask


def mask_that_advances_by_one(lengths):
    """The number of the document taken for its start."""
    mask = torch.full((sum(lengths), sum(lengths)), -INF)
    for i, n in enumerate(lengths):
        mask[i : i + n, i : i + n] = torch.full((n, n), -INF).triu(1)
    return mask


def mask_that_starts_at_own_length(lengths):
    """Each block starts at its own length: right for two equal documents only."""
    total = sum(lengths)
    allowed = torch.zeros(total, total, dtype=torch.bool)
    for i, n in enumerate(lengths):
        start = n if i else 0
        block = allowed[start : start + n, start : start + n]
        block |= torch.ones_like(block).tril()
    return _mask(allowed)


def mask_that_reaches_on(lengths):
    return _mask(_blocks(lengths, last=1))


def mask_that_reaches_back(lengths):
    return _mask(_blocks(lengths, first=1))


def mask_that_ends_early(lengths):
    return _mask(_blocks(lengths, last=-1))


def mask_that_starts_late(lengths):
    return _mask(_blocks(lengths, first=-1))


def mask_without_own(lengths):
    return _mask(_same(lengths) & _past(lengths, -1))


def mask_with_the_next(lengths):
    return _mask(_same(lengths) & _past(lengths, 1))


def mask_with_the_next_of_all(lengths):
    return _mask(_blocks(lengths, last=1) | _blocks(lengths, diagonal=1))


def _causal_in(documents: Tensor) -> Tensor:
    """The mask of these numbers of documents, one for each token."""
    at = torch.arange(len(documents))
    return _mask((documents[:, None] == documents) & (at <= at[:, None]))


def mask_with_borders_late(lengths):
    """Each token's document found among the ends with < for <=: a first token still counts to the document before."""
    ends = torch.tensor(lengths).cumsum(0)
    return _causal_in(torch.bucketize(torch.arange(sum(lengths)), ends, right=False))


def mask_with_borders_early(lengths):
    """A last token already counts to the document after."""
    ends = torch.tensor(lengths).cumsum(0)
    return _causal_in(torch.bucketize(torch.arange(sum(lengths)) + 1, ends, right=True))


def mask_that_starts_at_ends(lengths):
    """cumsum taken for the starts: each block one document too late, the last one outside."""
    total, end = sum(lengths), 0
    allowed = torch.zeros(total, total, dtype=torch.bool)
    for n in lengths:
        end += n
        block = allowed[end : end + n, end : end + n]
        block |= torch.ones_like(block).tril()
    return _mask(allowed)


def mask_of_itself_only(lengths):
    return _mask(torch.eye(sum(lengths), dtype=torch.bool))


def mask_that_stops_at_empty(lengths):
    """`break` at an empty document, where `continue` is meant."""
    before = lengths[: lengths.index(0)] if 0 in lengths else lengths
    allowed = _same(lengths) & _past(lengths)
    allowed[sum(before) :] = False
    return _mask(allowed)


def mask_as_if_equal(lengths):
    blocks = torch.arange(sum(lengths)) // max(lengths[0], 1)
    return _mask((blocks[:, None] == blocks) & _past(lengths))


def mask_as_if_longest(lengths):
    blocks = torch.arange(sum(lengths)) // max(lengths)
    return _mask((blocks[:, None] == blocks) & _past(lengths))


def mask_of_the_future(lengths):
    return _mask(_same(lengths) & _past(lengths).T)


def mask_of_the_future_only(lengths):
    return _mask(_same(lengths) & ~_past(lengths))


def mask_inverted(lengths):
    return _mask(~(_same(lengths) & _past(lengths)))


def mask_of_other_documents(lengths):
    return _mask(~_same(lengths))


def mask_of_earlier_documents(lengths):
    return _mask(~_same(lengths) & _past(lengths))


def mask_by_document(lengths):
    """All earlier documents and all of the own: >= where == is meant, or the two rules joined by or."""
    own = _documents(lengths)
    return _mask(own[:, None] >= own)


def mask_of_ones(lengths):
    return (_same(lengths) & _past(lengths)).float()


def mask_of_lengths(lengths):
    """Lengths compared in place of documents: two of one length see each other."""
    own = torch.repeat_interleave(torch.tensor(lengths), torch.tensor(lengths))
    return _mask((own[:, None] == own) & _past(lengths))


def mask_of_a_window(lengths):
    """A sliding window as wide as the document: it reaches back over the border."""
    width = torch.repeat_interleave(torch.tensor(lengths), torch.tensor(lengths))
    at = torch.arange(sum(lengths))
    return _mask((at > at[:, None] - width[:, None]) & (at <= at[:, None]))


def right_cells_but_small(attempt: Attempt) -> bool:
    """As in lesson 01, but of floats: -1 in a mask of whole numbers is a matter of its dtype first."""
    return attempt.got.is_floating_point() and cells.right_cells_but_small(attempt)


def is_a_list_of_masks(attempt: Attempt) -> bool:
    return isinstance(attempt.got, (list, tuple)) and all(isinstance(part, Tensor) for part in attempt.got)


def is_a_padded_batch(attempt: Attempt) -> bool:
    lengths = attempt.args[0]
    return (
        attempt.got.dim() == 3
        and attempt.got.shape[0] == len(lengths)
        and attempt.got.shape[-1] == max(lengths)
    )


def leaks(attempt: Attempt) -> bool:
    """Some token may look into another document, whatever the rest is like."""
    others = ~_same(attempt.args[0])
    return attempt.got.shape == attempt.wanted.shape and bool((attempt.got[others] > -100).any())


def first_leak(attempt: Attempt) -> dict[str, object]:
    open_cells = ~_same(attempt.args[0]) & (attempt.got > -100)
    row, column = (int(i) for i in open_cells.nonzero()[0])
    own = _documents(attempt.args[0])
    return {"row": row, "column": column, "mine": int(own[row]), "other": int(own[column])}
