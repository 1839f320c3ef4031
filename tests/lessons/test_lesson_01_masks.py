"""Lesson 01: the exercises that ask for a mask know their wrong answers and take each right one."""

import torch

from course_lib.attention import Causal
from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_01
from course_lib.lessons import lesson_01_mask_mistakes as masks

INF = float("inf")


# --- 1.3 ---------------------------------------------------------------------------------------------------------


def mask_by_loop(q_len, k_len):
    mask = torch.zeros(q_len, k_len)
    for i in range(q_len):
        for j in range(k_len):
            if j > i + k_len - q_len:
                mask[i, j] = -INF
    return mask


def mask_by_triu(q_len, k_len):
    return torch.full((q_len, k_len), -INF).triu(k_len - q_len + 1)


def mask_by_slicing(q_len, k_len):
    longest = max(q_len, k_len)
    square = torch.full((longest, longest), -INF).triu(1)
    return square[longest - q_len :, longest - k_len :]


def mask_by_library(q_len, k_len):
    return Causal("bottom-right").materialize(q_len, k_len)[0, 0]


def mask_by_flipping(q_len, k_len):
    return (
        torch.full((k_len, q_len), -INF).triu(1).flip(0, 1).T
        if q_len <= k_len
        else mask_by_loop(q_len, k_len)
    )


def mask_of_a_billion(q_len, k_len):
    return torch.full((q_len, k_len), -1e9).triu(k_len - q_len + 1)


def mask_of_the_lowest_number(q_len, k_len):
    return torch.full((q_len, k_len), torch.finfo(torch.float32).min).triu(k_len - q_len + 1)


def mask_of_bools(q_len, k_len):
    return torch.ones(q_len, k_len).tril(k_len - q_len).bool()


def mask_transposed(q_len, k_len):
    return mask_by_loop(q_len, k_len).T


def mask_of_four_sizes(q_len, k_len):
    return Causal("bottom-right").materialize(q_len, k_len)


def mask_of_integers(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.long).tril(k_len - q_len)


def mask_that_wraps_around(q_len, k_len):
    stands_on = (torch.arange(q_len)[:, None] + k_len - q_len) % k_len
    return torch.zeros(q_len, k_len).masked_fill(torch.arange(k_len) > stands_on, -INF)


def mask_by_slices(q_len, k_len):
    """Right until the slice begins below 0."""
    mask = torch.zeros(q_len, k_len)
    for i in range(q_len):
        mask[i, i + k_len - q_len + 1 :] = -INF
    return mask


def mask_of_the_first_query(q_len, k_len):
    mask = torch.zeros(q_len, k_len)
    for i in range(q_len):
        mask[i] = mask_by_loop(q_len, k_len)[i]
        return mask


def mask_with_ones_left(q_len, k_len):
    mask = torch.ones(q_len, k_len).tril(k_len - q_len)
    mask[mask == 0] = -INF
    return mask


def mask_with_if(q_len, k_len):
    return -INF if torch.arange(k_len) > torch.arange(q_len)[:, None] + k_len - q_len else 0


def mask_of_all_for_one_query(q_len, k_len):
    """Top-left, except that a single query sees everything: what many caches do."""
    return torch.zeros(q_len, k_len) if q_len == 1 else masks.mask_top_left(q_len, k_len)


def test_exercise_1_3_names_each_wrong_answer():
    assert_exercise(
        lesson_01.LESSON,
        "1.3",
        wrong={
            "top_left": [masks.mask_top_left, mask_of_all_for_one_query],
            "before_all_keys": [
                lambda q_len, k_len: torch.full((q_len, k_len), -INF).triu(max(k_len - q_len, 0) + 1),
                mask_that_wraps_around,
                mask_by_slices,
            ],
            "no_column": [masks.mask_without_a_column],
            "return_in_loop": [mask_of_the_first_query],
            "if_of_many": [mask_with_if],
            "ones_left": [mask_with_ones_left],
            "all_hidden": [masks.mask_of_everything],
            "absolute": [masks.mask_by_absolute_shift],
            "shifted_back": [masks.mask_shifted_back],
            "hides_own": [masks.mask_without_own],
            "sees_next": [masks.mask_of_one_more],
            "inverted": [masks.mask_inverted],
            "keeps_future": [masks.mask_of_the_past],
            "common.axes_swapped": [mask_transposed],
            "ones": [masks.mask_of_ones],
            "too_small": [
                lambda q_len, k_len: torch.ones(q_len, k_len).triu(k_len - q_len + 1),
                lambda q_len, k_len: -torch.ones(q_len, k_len).triu(k_len - q_len + 1),
            ],
            "no_mask": [masks.mask_of_zeros],
            "zero_times_inf": [
                lambda q_len, k_len: torch.ones(q_len, k_len).triu(k_len - q_len + 1) * -INF,
                lambda q_len, k_len: (1 - torch.ones(q_len, k_len).tril()) * -INF,
            ],
            "plus_inf": [lambda q_len, k_len: -mask_by_loop(q_len, k_len)],
            "large_number": [mask_of_a_billion, mask_of_the_lowest_number],
            "common.bool_for_float": [mask_of_bools],
            "common.integer_for_float": [
                mask_of_integers,
                lambda q_len, k_len: mask_of_a_billion(q_len, k_len).long(),
            ],
            "common.wrong_shape": [mask_of_four_sizes],
        },
        right=[mask_by_loop, mask_by_triu, mask_by_slicing, mask_by_library, mask_by_flipping],
    )


# --- 1.6 ---------------------------------------------------------------------------------------------------------


def window_by_loop(q_len, k_len, window):
    mask = torch.full((q_len, k_len), -INF)
    for i in range(q_len):
        own = i + k_len - q_len
        mask[i, max(0, own - window + 1) : own + 1] = 0
    return mask


def window_by_bands(q_len, k_len, window):
    seen = torch.ones(q_len, k_len).tril(k_len - q_len).triu(k_len - q_len - window + 1)
    return torch.where(seen == 1, 0.0, -INF)


def window_by_library(q_len, k_len, window):
    return Causal("bottom-right", window=window).materialize(q_len, k_len)[0, 0]


def window_of_two_masks(q_len, k_len, window):
    recent = torch.full((q_len, k_len), -INF).tril(k_len - q_len - window)
    return lesson_01.cached_mask(q_len, k_len) + recent


def window_of_a_billion(q_len, k_len, window):
    return window_by_loop(q_len, k_len, window).clamp(min=-1e9)


def window_of_two_masks_unshifted(q_len, k_len, window):
    return lesson_01.cached_mask(q_len, k_len) + torch.full((q_len, k_len), -INF).tril(-window)


def window_of_the_first_query(q_len, k_len, window):
    mask = torch.full((q_len, k_len), -INF)
    for i in range(q_len):
        own = i + k_len - q_len
        mask[i, max(0, own - window + 1) : own + 1] = 0
        return mask


def window_with_or(q_len, k_len, window):
    own, keys = torch.arange(q_len)[:, None] + k_len - q_len, torch.arange(k_len)
    return torch.zeros(q_len, k_len).masked_fill((keys > own) or (keys <= own - window), -INF)


def window_without_brackets(q_len, k_len, window):
    own, keys = torch.arange(q_len)[:, None] + k_len - q_len, torch.arange(k_len)
    return torch.zeros(q_len, k_len).masked_fill(keys > own | keys <= own - window, -INF)


def window_transposed(q_len, k_len, window):
    return window_by_loop(q_len, k_len, window).T


def test_exercise_1_6_names_each_wrong_answer():
    assert_exercise(
        lesson_01.LESSON,
        "1.6",
        wrong={
            "one_more": [masks.window_one_more],
            "one_less": [masks.window_one_less],
            "both_sides": [masks.window_both_sides, masks.window_both_sides_and_wider],
            "no_future_hidden": [masks.window_with_future],
            "no_window": [masks.window_plain_causal],
            "inverted": [masks.window_inverted],
            "top_left": [masks.window_top_left],
            "large_number": [window_of_a_billion],
            "too_small": [lambda q_len, k_len, window: window_by_loop(q_len, k_len, window).clamp(min=-1)],
            "zero_times_inf": [
                lambda q_len, k_len, window: (window_by_bands(q_len, k_len, window) != 0).float() * -INF,
            ],
            "no_mask": [masks.window_of_zeros],
            "stands_still": [
                masks.window_of_the_last_keys,
                masks.window_of_the_first_keys,
                masks.window_of_the_last_keys_for_all,
            ],
            "wraps_around": [masks.window_that_wraps_around, masks.window_of_negative_keys],
            "return_in_loop": [window_of_the_first_query],
            "edge_not_shifted": [masks.window_edge_not_shifted, window_of_two_masks_unshifted],
            "no_column": [masks.window_without_a_column],
            "python_or": [window_with_or, window_without_brackets],
            "ones_left": [lambda q_len, k_len, window: window_by_loop(q_len, k_len, window) + 1],
            "in_blocks": [masks.window_in_blocks],
            "ones": [lambda q_len, k_len, window: (window_by_loop(q_len, k_len, window) == 0).float()],
            "hides_own": [masks.window_hides_own, masks.window_hides_own_and_is_short],
            "forward": [masks.window_forward],
            "common.axes_swapped": [window_transposed],
        },
        right=[window_by_loop, window_by_bands, window_by_library, window_of_two_masks],
    )
