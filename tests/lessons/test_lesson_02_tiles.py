"""Lesson 02: the exercise on tiles of a causal mask knows its wrong answers and takes each right one."""

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_02
from course_lib.lessons import lesson_02_mistakes as wrong


def kind_by_looking(queries, keys, offset):
    seen = [j <= i + offset for i in queries for j in keys]
    return "whole" if all(seen) else "mask" if any(seen) else "skip"


def kind_by_tensor(queries, keys, offset):
    allowed = torch.tensor(list(keys))[None] <= torch.tensor(list(queries))[:, None] + offset
    if not allowed.any():
        return "skip"
    return "whole" if allowed.all() else "mask"


def kind_by_last_elements(queries, keys, offset):
    if queries[-1] + offset < keys[0]:
        return "skip"
    return "mask" if queries[0] + offset < keys[-1] else "whole"


def kind_loses_one_cell(queries, keys, offset):
    return "skip" if keys.start >= queries.stop - 1 + offset else kind_by_looking(queries, keys, offset)


def kind_leaks_one_key(queries, keys, offset):
    found = kind_by_looking(queries, keys, offset)
    return "whole" if found != "skip" and keys.stop - 1 <= queries.start + offset + 1 else found


def kind_wants_a_row_between(queries, keys, offset):
    return "skip" if keys.start > queries.stop + offset else kind_never_skips_else(queries, keys, offset)


def kind_never_skips_else(queries, keys, offset):
    return "whole" if keys.stop - 1 <= queries.start + offset else "mask"


def kind_masks_the_edge(queries, keys, offset):
    found = kind_by_looking(queries, keys, offset)
    return "mask" if found == "whole" and keys.stop - 1 == queries.start + offset else found


def kind_in_capitals(queries, keys, offset):
    return kind_by_looking(queries, keys, offset).upper()


def kind_as_bool(queries, keys, offset):
    return kind_by_looking(queries, keys, offset) == "skip"


def test_exercise_2_3_names_each_wrong_answer():
    assert_exercise(
        lesson_02.LESSON,
        "2.3",
        wrong={
            "words": [kind_in_capitals],
            "reversed": [wrong.kind_reversed, wrong.kind_of_the_upper_half],
            "skips_diagonal": [wrong.kind_skips_diagonal, wrong.kind_by_first_query],
            "diagonal_whole": [wrong.kind_whole_by_last_query],
            "always_masks": [wrong.kind_never_whole],
            "never_skips": [wrong.kind_never_skips, kind_never_skips_else],
            "no_offset": [wrong.kind_without_offset],
            "offset_once": [wrong.kind_skips_without_offset, wrong.kind_whole_without_offset],
            "offset_subtracted": [wrong.kind_offset_subtracted],
            "stop_included": [wrong.kind_with_stop_as_last],
            "loses": [kind_loses_one_cell],
            "leaks": [kind_leaks_one_key],
            "computes_nothing": [kind_wants_a_row_between],
            "needless_mask": [kind_masks_the_edge],
            "common.wrong_type": [kind_as_bool],
        },
        right=[kind_by_looking, kind_by_tensor, kind_by_last_elements],
    )
