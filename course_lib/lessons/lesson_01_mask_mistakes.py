"""Wrong answers to the two mask exercises of lesson 01, and questions that tell a mistake from its output."""

import math

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt

INF = math.inf

# --- 1.3 ---------------------------------------------------------------------------------------------------------


def _mask(allowed: Tensor) -> Tensor:
    return torch.zeros(allowed.shape).masked_fill(~allowed, -INF)


def _past(q_len: int, k_len: int, shift: int) -> Tensor:
    """True where key j <= i + shift."""
    return torch.ones(q_len, k_len, dtype=torch.bool).tril(shift)


def mask_top_left(q_len, k_len):
    return _mask(_past(q_len, k_len, 0))


def mask_by_absolute_shift(q_len, k_len):
    return _mask(_past(q_len, k_len, abs(k_len - q_len)))


def mask_shifted_back(q_len, k_len):
    return _mask(_past(q_len, k_len, q_len - k_len))


def mask_without_own(q_len, k_len):
    return _mask(_past(q_len, k_len, k_len - q_len - 1))


def mask_of_one_more(q_len, k_len):
    return _mask(_past(q_len, k_len, k_len - q_len + 1))


def mask_inverted(q_len, k_len):
    return _mask(~_past(q_len, k_len, k_len - q_len))


def mask_of_the_past(q_len, k_len):
    """Hides what comes before the query, in place of what comes after it."""
    return _mask(~_past(q_len, k_len, k_len - q_len - 1))


def mask_of_ones(q_len, k_len):
    return _past(q_len, k_len, k_len - q_len).float()


def mask_of_everything(q_len, k_len):
    return torch.full((q_len, k_len), -INF)


def mask_of_zeros(q_len, k_len):
    return torch.zeros(q_len, k_len)


def mask_without_a_column(q_len, k_len):
    """Compares two rows of numbers, place by place, in place of a column with a row."""
    return torch.zeros(q_len, k_len).masked_fill(
        torch.arange(k_len) > torch.arange(q_len) + k_len - q_len, -INF
    )


def right_cells_but_finite(attempt: Attempt) -> bool:
    hidden = attempt.wanted == -torch.inf
    low = attempt.got[hidden]
    rest_is_zero = attempt.got.is_floating_point() and bool((attempt.got[~hidden] == 0).all())
    return bool(low.isfinite().any()) and bool((low <= -100).all()) and rest_is_zero


def right_cells_but_small(attempt: Attempt) -> bool:
    hidden = attempt.wanted == -torch.inf
    return bool((attempt.got[hidden] != 0).all() and (attempt.got[hidden] > -100).all()) and bool(
        (attempt.got[~hidden] == 0).all()
    )


def right_cells_but_visible_not_zero(attempt: Attempt) -> bool:
    hidden = attempt.wanted == -torch.inf
    visible = attempt.got[~hidden]
    return bool((attempt.got[hidden] == -torch.inf).all() and visible.isfinite().all() and visible.any())


def only_the_first_row(attempt: Attempt) -> bool:
    """Row 0 is right and the rest was never filled: `return` stands inside the loop."""
    rest = attempt.got[1:]
    return (
        attempt.got.shape == attempt.wanted.shape
        and torch.allclose(attempt.got[0].float(), attempt.wanted[0].float(), atol=1e-5)
        and len(rest) > 0
        and bool((rest == rest.flatten()[0]).all())
    )


def asks_many_for_one(attempt: Attempt) -> bool:
    """`if`, `and` or `or` on a tensor of several True and False."""
    return "is ambiguous" in str(attempt.error)


def holds_nan(attempt: Attempt) -> bool:
    return bool(attempt.got.isnan().any())


def holds_plus_inf(attempt: Attempt) -> bool:
    return bool((attempt.got == torch.inf).any())


def wrong_only_where_queries_are_more(attempt: Attempt) -> bool:
    q_len, k_len = attempt.args
    return q_len > k_len and attempt.returned


def where_query_0_stands(attempt: Attempt) -> dict[str, object]:
    q_len, k_len = attempt.args
    return {"queries": q_len, "keys": k_len, "own": k_len - q_len}


# --- 1.6 ---------------------------------------------------------------------------------------------------------


def _window(q_len: int, k_len: int, left: int, right: int | None = 0, *, top_left: bool = False) -> Tensor:
    """True from `left` keys before each query's own to `right` keys after it."""
    shift = 0 if top_left else k_len - q_len
    seen = torch.ones(q_len, k_len, dtype=torch.bool).triu(shift - left)
    return seen if right is None else seen.tril(shift + right)


def window_one_more(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window))


def window_one_less(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 2))


def window_hides_own(q_len, k_len, window):
    """As many keys as the window is wide, all of them before the query's own."""
    return _mask(_window(q_len, k_len, window, -1))


def window_hides_own_and_is_short(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, -1))


def window_of_zeros(q_len, k_len, window):
    """What `and` makes of the two conditions: no key lies both after the query and before its window."""
    return torch.zeros(q_len, k_len)


def window_of_the_last_keys(q_len, k_len, window):
    return _mask(_past(q_len, k_len, k_len - q_len) & (torch.arange(k_len) >= k_len - window))


def window_of_the_first_keys(q_len, k_len, window):
    return _mask(_past(q_len, k_len, k_len - q_len) & (torch.arange(k_len) < window))


def window_of_the_last_keys_for_all(q_len, k_len, window):
    return _mask((torch.arange(k_len) >= k_len - window).expand(q_len, k_len))


def window_without_a_column(q_len, k_len, window):
    own, keys = torch.arange(q_len) + k_len - q_len, torch.arange(k_len)
    return torch.zeros(q_len, k_len).masked_fill((keys > own) | (keys <= own - window), -INF)


def window_that_wraps_around(q_len, k_len, window):
    """A slice whose start is below 0, which Python counts from the end."""
    mask = torch.full((q_len, k_len), -INF)
    for i in range(q_len):
        own = i + k_len - q_len
        mask[i, own - window + 1 : own + 1] = 0
    return mask


def window_of_negative_keys(q_len, k_len, window):
    """The same in a loop over keys: key -1 is the last one."""
    mask = torch.full((q_len, k_len), -INF)
    for i in range(q_len):
        own = i + k_len - q_len
        for j in range(own - window + 1, own + 1):
            mask[i, j] = 0
    return mask


def window_edge_not_shifted(q_len, k_len, window):
    """Ends at the key on which the query stands, but begins where a square would have it begin."""
    seen = torch.ones(q_len, k_len, dtype=torch.bool)
    return _mask(seen.tril(k_len - q_len).triu(1 - window))


def window_in_blocks(q_len, k_len, window):
    own, keys = torch.arange(q_len)[:, None] + k_len - q_len, torch.arange(k_len)
    return _mask((keys <= own) & (keys // window == own // window))


def window_of_ones(q_len, k_len, window):
    return _window(q_len, k_len, window - 1).float()


def window_both_sides(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, window - 1))


def window_both_sides_and_wider(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window, window))


def window_forward(q_len, k_len, window):
    """The query's own key and those after it: a transposed window."""
    return _mask(_window(q_len, k_len, 0, window - 1))


def window_with_future(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, None))


def window_plain_causal(q_len, k_len, window):
    return _mask(_past(q_len, k_len, k_len - q_len))


def window_inverted(q_len, k_len, window):
    return _mask(~_window(q_len, k_len, window - 1))


def window_top_left(q_len, k_len, window):
    return _mask(_window(q_len, k_len, window - 1, top_left=True))


def window_width(attempt: Attempt) -> dict[str, object]:
    return {"window": attempt.args[2]}
