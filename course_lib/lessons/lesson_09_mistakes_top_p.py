"""Wrong answers to exercise 9.5 of lesson 09, top-p, each written as a student would.

A check recognises a mistake by what it gives, so each of these stands for every other way to make it.
"""

import math

import torch

from course_lib.classroom.exercise import Attempt, Mistake


def _sorted(probabilities):
    return probabilities.sort(dim=-1, descending=True)


def _unsorted(values, ids):
    return torch.zeros_like(values).scatter(-1, ids, values)


def _renormalised(kept):
    return kept / kept.sum(-1, keepdim=True)


def _kept_of_sorted(probabilities, p):
    """(sorted probabilities, those outside the top-p set to 0, and their ids)."""
    ordered, ids = _sorted(probabilities)
    return ordered.masked_fill(ordered.cumsum(-1) - ordered >= p, 0), ids


def _kept(probabilities, p):
    return _unsorted(*_kept_of_sorted(probabilities, p))


def _without_crossing(probabilities, p):
    ordered, ids = _sorted(probabilities)
    return _unsorted(ordered.masked_fill(ordered.cumsum(-1) > p, 0), ids)


def top_p_drops_crossing(probabilities, p):
    return _renormalised(_without_crossing(probabilities, p))


def top_p_drops_crossing_unnormalised(probabilities, p):
    return _without_crossing(probabilities, p)


def top_p_drops_crossing_keeps_first(probabilities, p):
    ordered, ids = _sorted(probabilities)
    dropped = ordered.cumsum(-1) > p
    dropped[..., 0] = False
    return _renormalised(_unsorted(ordered.masked_fill(dropped, 0), ids))


def top_p_sorted(probabilities, p):
    return _renormalised(_kept_of_sorted(probabilities, p)[0])


def top_p_sorted_unnormalised(probabilities, p):
    return _kept_of_sorted(probabilities, p)[0]


def top_p_gathered(probabilities, p):
    kept, ids = _kept_of_sorted(probabilities, p)
    return _renormalised(kept.gather(-1, ids))


def top_p_gathered_unnormalised(probabilities, p):
    kept, ids = _kept_of_sorted(probabilities, p)
    return kept.gather(-1, ids)


def top_p_mask_not_moved_back(probabilities, p):
    """The places that were dropped in the sorted order, used on the unsorted one."""
    ordered, _ = _sorted(probabilities)
    return _renormalised(probabilities.masked_fill(ordered.cumsum(-1) - ordered >= p, 0))


def top_p_mask_not_moved_back_unnormalised(probabilities, p):
    ordered, _ = _sorted(probabilities)
    return probabilities.masked_fill(ordered.cumsum(-1) - ordered >= p, 0)


def top_p_unnormalised(probabilities, p):
    return _kept(probabilities, p)


def top_p_over_p(probabilities, p):
    return _kept(probabilities, p) / p


def top_p_over_largest(probabilities, p):
    kept = _kept(probabilities, p)
    return kept / kept.amax(-1, keepdim=True)


def top_p_over_whole_batch(probabilities, p):
    kept = _kept(probabilities, p)
    return kept / kept.sum()


def top_p_softmax(probabilities, p):
    return _kept(probabilities, p).softmax(-1)


def top_p_softmax_of_kept(probabilities, p):
    kept = _kept(probabilities, p)
    return kept.masked_fill(kept == 0, -math.inf).softmax(-1)


def top_p_one_too_many(probabilities, p):
    ordered, ids = _sorted(probabilities)
    before = ordered.cumsum(-1) - ordered
    before = torch.cat([torch.zeros_like(before[..., :1]), before[..., :-1]], dim=-1)
    return _renormalised(_unsorted(ordered.masked_fill(before >= p, 0), ids))


def top_p_crossing_alone(probabilities, p):
    """From the crossing token on: the tail."""
    ordered, ids = _sorted(probabilities)
    return _renormalised(_unsorted(ordered.masked_fill(ordered.cumsum(-1) < p, 0), ids))


def top_p_tail(probabilities, p):
    ordered, ids = _sorted(probabilities)
    return _renormalised(_unsorted(ordered.masked_fill(ordered.cumsum(-1) - ordered < p, 0), ids))


def top_p_ascending(probabilities, p):
    ordered, ids = probabilities.sort(dim=-1)
    return _renormalised(_unsorted(ordered.masked_fill(ordered.cumsum(-1) - ordered >= p, 0), ids))


def top_p_ascending_up_to_p(probabilities, p):
    ordered, ids = probabilities.sort(dim=-1)
    return _renormalised(_unsorted(ordered.masked_fill(ordered.cumsum(-1) > p, 0), ids))


def top_p_in_order_of_ids(probabilities, p):
    before = probabilities.cumsum(-1) - probabilities
    return _renormalised(probabilities.masked_fill(before >= p, 0))


def top_p_in_order_of_ids_up_to_p(probabilities, p):
    return _renormalised(probabilities.masked_fill(probabilities.cumsum(-1) > p, 0))


def top_p_threshold(probabilities, p):
    return _renormalised(probabilities.masked_fill(probabilities < p, 0))


def top_p_below(probabilities, p):
    return _renormalised(probabilities.masked_fill(probabilities > p, 0))


def top_p_min_p(probabilities, p):
    least = p * probabilities.amax(-1, keepdim=True)
    return _renormalised(probabilities.masked_fill(probabilities < least, 0))


def _top_k(probabilities, k):
    values, ids = probabilities.topk(k, dim=-1)
    return _renormalised(torch.zeros_like(probabilities).scatter(-1, ids, values))


def top_p_share_of_vocabulary(probabilities, p):
    return _top_k(probabilities, max(1, int(p * probabilities.shape[-1])))


def top_p_share_of_vocabulary_rounded_up(probabilities, p):
    return _top_k(probabilities, math.ceil(p * probabilities.shape[-1]))


def top_p_one_minus(probabilities, p):
    return _renormalised(_kept(probabilities, 1 - p))


def top_p_likeliest(probabilities, p):
    return torch.nn.functional.one_hot(probabilities.argmax(-1), probabilities.shape[-1]).float()


def top_p_nothing(probabilities, p):
    return probabilities


def top_p_same_count_for_all(probabilities, p):
    """As many tokens in each row as the first row needs."""
    rows = probabilities.reshape(-1, probabilities.shape[-1])
    return _top_k(probabilities, int((_kept(rows, p)[0] > 0).sum()))


def gives_bools(attempt: Attempt) -> bool:
    return attempt.got.dtype == torch.bool


def gives_tokens(attempt: Attempt) -> bool:
    """Ids: of the token drawn, or of those kept."""
    if isinstance(attempt.got, int) and not isinstance(attempt.got, bool):
        return True
    return not attempt.got.is_floating_point() and attempt.got.dtype != torch.bool


def gives_pair(attempt: Attempt) -> bool:
    return isinstance(attempt.got, tuple) and len(attempt.got) == 2


def gives_minus_infinity(attempt: Attempt) -> bool:
    return bool(attempt.got.isneginf().any())


def gives_only_the_kept(attempt: Attempt) -> bool:
    """Fewer numbers than tokens in the vocabulary, one row's or all rows'."""
    got, given = attempt.got, attempt.args[0]
    return got.dim() == given.dim() and got.shape[-1] < given.shape[-1]


def all_rows_at_once(attempt: Attempt) -> bool:
    """Written for one row: it stops with an error, or gives one row, where there are several."""
    if attempt.args[0].dim() == 1:
        return False
    if attempt.error is not None:
        return isinstance(attempt.error, RuntimeError | IndexError | ValueError | TypeError)
    return attempt.got.dim() < attempt.args[0].dim()


TOP_P = [
    Mistake("pair", when=gives_pair),
    Mistake("bools", when=gives_bools),
    Mistake("tokens", when=gives_tokens),
    Mistake("minus_infinity", when=gives_minus_infinity),
    Mistake("only_kept", when=gives_only_the_kept),
    Mistake("crossing", like=top_p_drops_crossing),
    Mistake("crossing", like=top_p_drops_crossing_unnormalised),
    Mistake("crossing", like=top_p_drops_crossing_keeps_first),
    Mistake("not_renormalised", like=top_p_unnormalised),
    Mistake("over_p", like=top_p_over_p),
    Mistake("over_p", like=top_p_over_largest),
    Mistake("over_batch", like=top_p_over_whole_batch),
    Mistake("softmax", like=top_p_softmax),
    Mistake("softmax", like=top_p_softmax_of_kept),
    Mistake("sorted", like=top_p_sorted),
    Mistake("sorted", like=top_p_sorted_unnormalised),
    Mistake("gathered", like=top_p_gathered),
    Mistake("gathered", like=top_p_gathered_unnormalised),
    Mistake("mask_not_moved", like=top_p_mask_not_moved_back),
    Mistake("mask_not_moved", like=top_p_mask_not_moved_back_unnormalised),
    Mistake("one_too_many", like=top_p_one_too_many),
    Mistake("tail", like=top_p_crossing_alone),
    Mistake("tail", like=top_p_tail),
    Mistake("ascending", like=top_p_ascending),
    Mistake("ascending", like=top_p_ascending_up_to_p),
    Mistake("not_sorted", like=top_p_in_order_of_ids),
    Mistake("not_sorted", like=top_p_in_order_of_ids_up_to_p),
    Mistake("threshold", like=top_p_threshold),
    Mistake("threshold", like=top_p_below),
    Mistake("min_p", like=top_p_min_p),
    Mistake("top_k", like=top_p_share_of_vocabulary),
    Mistake("top_k", like=top_p_share_of_vocabulary_rounded_up),
    Mistake("same_count", like=top_p_same_count_for_all),
    Mistake("one_minus", like=top_p_one_minus),
    Mistake("greedy", like=top_p_likeliest),
    Mistake("unchanged", like=top_p_nothing),
    Mistake("one_row", when=all_rows_at_once),
]
