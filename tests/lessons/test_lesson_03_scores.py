"""Lesson 03: the exercise on the scores of two layouts knows its wrong answers, also two at once."""

import numpy as np
import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_03
from course_lib.lessons import lesson_03_score_mistakes as scores


def counts_by_loop(lengths):
    padded = packed = 0
    for n in lengths:
        padded += max(lengths) * max(lengths)
        packed += n * n
    return padded, packed


def counts_by_tensor(lengths):
    n = torch.tensor(lengths)
    return len(n) * n.max() ** 2, (n**2).sum()


def counts_as_a_list(lengths):
    return [len(lengths) * pow(max(lengths), 2), sum(map(lambda n: n**2, lengths))]


def counts_by_dot_product(lengths):
    n = torch.tensor(lengths)
    return int(n.numel() * n.amax() * n.amax()), int(n @ n)


def visible_cells_of_one_row(lengths):
    return len(lengths) * max(lengths) ** 2, sum(lengths) * (sum(lengths) + 1) // 2


def scores_by_whole_mean(lengths):
    return len(lengths) * max(lengths) ** 2, len(lengths) * (sum(lengths) // len(lengths)) ** 2


def counts_in_a_numpy_array(lengths):
    n = np.array(lengths)
    return np.array([len(n) * n.max() ** 2, (n**2).sum()])


def test_exercise_3_5_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.5",
        wrong={
            "ratio": [
                lambda lengths: len(lengths) * max(lengths) ** 2 / sum(n * n for n in lengths),
                lambda lengths: sum(n * n for n in lengths) / (len(lengths) * max(lengths) ** 2),
            ],
            "swapped": [scores.scores_swapped],
            "one_causal_row": [scores.scores_of_one_causal_row, visible_cells_of_one_row],
            "mean": [scores.scores_by_mean, scores_by_whole_mean],
            "tokens": [scores.scores_of_tokens],
            "packed_tokens": [scores.scores_of_packed_tokens],
            "one_document": [scores.scores_of_one_document, lambda n: (max(n) ** 2, sum(n) ** 2)],
            "padded_row": [scores.scores_of_padded_row],
            "documents_squared": [scores.scores_with_documents_squared],
            "padded_total": [lambda n: (sum(n) ** 2, sum(k * k for k in n))],
            "padded_mean": [lambda n: (sum(n) ** 2 / len(n), sum(k * k for k in n))],
            "padded_tokens": [lambda n: (len(n) * max(n), sum(k * k for k in n))],
            "half": [
                scores.scores_of_triangles,
                scores.scores_of_halves,
                scores.scores_rounded_halves,
                scores.scores_of_packed_triangles,
                lambda n: (len(n) * max(n) * (max(n) + 1) // 2, sum(k * k for k in n)),
                lambda n: (len(n) * max(n) * (max(n) - 1) // 2, sum(k * (k - 1) // 2 for k in n)),
                lambda n: (len(n) * max(n) ** 2, sum(k * k for k in n) // 2),
                lambda n: (len(n) * max(n) ** 2, sum(k * (k - 1) // 2 for k in n)),
            ],
            "real_rows": [scores.scores_of_real_rows],
            "longest_columns": [scores.scores_of_longest_columns],
            "bytes": [scores.scores_in_bytes],
            "times_two": [scores.scores_doubled],
            "xor": [scores.scores_of_xor],
            "no_padding": [scores.scores_without_padding],
            "common.wrong_type": [lambda lengths: sum(n * n for n in lengths)],
            "common.wrong_answer": [lambda lengths: (0, 0)],
        },
        right=[
            counts_by_loop,
            counts_by_tensor,
            counts_as_a_list,
            counts_by_dot_product,
            counts_in_a_numpy_array,
        ],
    )
