"""Lesson 00: the self-test knows its wrong answers, the exercise its wrong functions."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_00
from course_lib.lessons import lesson_00_mistakes as wrong

# --- the self-test -----------------------------------------------------------------------------------------------


def test_question_0_1_names_each_wrong_answer():
    scores = torch.tensor([0.0, math.log(2), math.log(5)])
    assert_exercise(
        lesson_00.LESSON,
        "0.1",
        wrong={
            "scores": [scores, [0, 0.69, 1.61]],
            "no_exponential": [(scores / scores.sum()).tolist()],
            "not_divided": [scores.exp().tolist(), (1, 2, 5)],
            "by_largest": [(scores - scores.max()).exp()],
            "logarithm": [scores.log_softmax(0)],
            "base_two": [(2**scores / (2**scores).sum()).tolist()],
            "one_each": [scores.sigmoid()],
            "winner": [[0, 0, 1]],
            "per_cent": [[12.5, 25, 62.5], (12, 25, 63), "12.5%, 25%, 62.5%"],
            "turned_round": [[0.625, 0.25, 0.125], [0.25, 0.125, 0.625]],
            "minus": [(-scores).softmax(0)],
            "even": [[1 / 3] * 3],
            "not_three": [0.625, [0.125, 0.625], "five eighths", {0.125, 0.25, 0.625}],
            "not_one": [[0.5, 0.25, 0.625]],
            "common.answer_wrong": [[0.2, 0.3, 0.5], object()],
        },
        right=[
            scores.softmax(0),
            [0.13, 0.25, 0.63],
            (1 / 8, 2 / 8, 5 / 8),
            "1/8, 1/4, 5/8",
            ".125, .25, .625",
            "১/৮, ১/৪, ৫/৮",
            np.array([0.125, 0.25, 0.625]),
            [Fraction(1, 8), Fraction(1, 4), "5/8"],
        ],
    )


def test_question_0_2_names_each_wrong_answer():
    query, key = torch.zeros(2, 5, 8), torch.zeros(2, 7, 8)
    assert_exercise(
        lesson_00.LESSON,
        "0.2",
        wrong={
            "keys_first": [(key @ query.mT).shape],
            "no_batch": [(5, 7), (1, 5, 7)],
            "over_words": [[2, 8, 8]],
            "place_by_place": [[2, 5, 8], (2, 7, 8)],
            "batches_crossed": [(query[:, None] @ key.mT).shape],
            "keeps_width": [(2, 5, 7, 8)],
            "turned_key": [key.mT.shape],
            "counted": [70],
            "other_order": [(5, 7, 2)],
            "does_work": ["error", "5 and 7 do not fit", "৫ আর ৭ মেলে না"],
            "common.answer_wrong": [(2, 12, 8), (5, 8, 7), 2],
        },
        right=[
            (query @ key.mT).shape,
            [2, 5, 7],
            query @ key.mT,
            "[2, 5, 7]",
            "2 X 5 X 7",
            torch.tensor([2, 5, 7]),
            np.array([2, 5, 7]),
        ],
    )


def test_question_0_3_names_each_wrong_answer():
    assert_exercise(
        lesson_00.LESSON,
        "0.3",
        wrong={
            "keys": [(4,), [1, 4], (1, 1, 1, 4), 4, "[4]"],
            "queries": [(4, 1), (1, 4, 1), [1, 1, -1, 1]],
            "batch": [(4, 1, 1, 1)],
            "says_it_works": ["the heads", "a 4 below the heads"],
            "not_four": [(2, 4, 1, 1), (2, 4, 4, 4), (1, 1, 1)],
            "common.answer_wrong": [(4, 1, 1, 1, 1), (2, 2), (1, 4, 1, 1, 1)],
        },
        right=[(4, 1, 1), [1, 4, 1, 1], (-1, 1, 1), torch.zeros(4)[:, None, None], "4, 1, 1"],
    )


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1)])
def test_the_answer_to_0_3_multiplies_each_head_by_its_own_number(shape):
    scores = torch.ones(2, 4, 4, 4)
    slopes = torch.tensor([2.0, 3.0, 5.0, 7.0])
    product = scores * slopes.view(shape)
    assert all(bool((product[:, head] == slopes[head]).all()) for head in range(4))


def test_question_0_4_names_each_wrong_answer():
    w = torch.tensor(5.0, requires_grad=True)
    for _ in range(3):
        (4 * w).backward()
    assert_exercise(
        lesson_00.LESSON,
        "0.4",
        wrong={
            "replaced": [4, torch.tensor(4.0)],
            "first_lost": [8],
            "multiplied": [4**3],
            "loss": [20.0],
            "losses": [60],
            "every_round": [[4, 8, 12], [4, 4, 4]],
            "added_twice": [4 + 8 + 12],
            "weight": [5],
            "cleared": [0, "0"],
            "a_step": [-12, 5 - 12],
            "common.answer_wrong": [3, 15, "twelve"],
        },
        right=[w.grad, 12, "12", [12.0]],
    )


def test_question_0_5_names_each_wrong_answer():
    probabilities = torch.tensor([1 / 2, 1 / 4, 1 / 8])
    assert_exercise(
        lesson_00.LESSON,
        "0.5",
        wrong={
            "summed": [-probabilities.log2().sum()],
            "negative": [
                probabilities.log2().mean(),
                -6,
                probabilities.log().mean(),
                probabilities.log().sum(),
            ],
            "nats": [-probabilities.log().mean(), -probabilities.log().sum(), 1.39],
            "mean_probability": [probabilities.mean(), 7 / 8],
            "log_of_mean": [-probabilities.mean().log2(), -probabilities.mean().log()],
            "perplexity": [4],
            "product": [1 / 64, "1/64"],
            "last_only": [3],
            "not_averaged": [(1, 2, 3), -probabilities.log2()],
            "one_minus": [(1 - probabilities).mean()],
            "base_ten": [-probabilities.log10().mean(), -probabilities.log10().sum()],
            "common.answer_wrong": [1.5, "two"],
        },
        right=[-probabilities.log2().mean(), 2, "2 bits", 2.0],
    )


def test_the_self_test_points_to_what_to_read_for_a_missed_question(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    lesson_00.self_test()
    assert "Nothing is answered yet" in capsys.readouterr().out
    lesson_00.check_slopes((1, 4))
    lesson_00.check_loss(2)
    capsys.readouterr()
    lesson_00.self_test()
    told = capsys.readouterr().out
    assert "1 of 5 right" in told
    assert "Broadcasting semantics" in told
    assert "CrossEntropyLoss" not in told
    assert "torch.matmul" not in told


def test_the_self_test_says_so_when_all_five_are_right(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    for name in ("0.1", "0.2", "0.3", "0.4", "0.5"):
        getattr(lesson_00, f"check_{lesson_00.LESSON.exercises[name].name}")(
            lesson_00.LESSON.exercises[name].solution()
        )
    capsys.readouterr()
    lesson_00.self_test()
    told = capsys.readouterr().out
    assert "5 of 5 right" in told
    assert "You have what the course needs." in told


# --- 0.6 ---------------------------------------------------------------------------------------------------------


def by_view(x, num_heads):
    batch, sequence, width = x.shape
    return x.view(batch, sequence, num_heads, width // num_heads).transpose(1, 2)


def by_permute(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3).contiguous()


def by_stacking_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def by_splitting_widths(x, num_heads):
    return torch.stack(x.split(x.shape[-1] // num_heads, -1), 1)


def by_loop(x, num_heads):
    batch, sequence, width = x.shape
    size = width // num_heads
    out = torch.empty(batch, num_heads, sequence, size)
    for head in range(num_heads):
        out[:, head] = x[:, :, head * size : (head + 1) * size]
    return out


def by_swapaxes(x, num_heads):
    return x.unflatten(2, (num_heads, x.size(2) // num_heads)).swapaxes(1, 2)


def computes_and_forgets(x, num_heads):
    heads = by_view(x, num_heads)
    heads.contiguous()


def test_exercise_0_6_names_each_wrong_answer():
    assert_exercise(
        lesson_00.LESSON,
        "0.6",
        wrong={
            "reshaped": [
                wrong.reshaped,
                lambda x, num_heads: x.view(x.size(0), num_heads, x.size(1), -1),
                lambda x, num_heads: x.flatten(1).unflatten(1, (num_heads, x.size(1), -1)),
            ],
            "turned_then_reshaped": [wrong.turned_then_reshaped],
            "not_exchanged": [
                wrong.not_exchanged,
                wrong.not_exchanged_interleaved,
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1), 2),
            ],
            "interleaved": [
                wrong.interleaved,
                lambda x, num_heads: torch.stack([x[..., head::num_heads] for head in range(num_heads)], 1),
            ],
            "heads_for_head_dim": [
                wrong.heads_for_head_dim,
                lambda x, num_heads: torch.stack(x.split(num_heads, -1), 1),
            ],
            "width_before_words": [
                wrong.width_before_words,
                lambda x, num_heads: by_view(x, num_heads).mT,
            ],
            "heads_before_batch": [
                wrong.heads_before_batch,
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1)),
            ],
            "copied": [wrong.copied, lambda x, num_heads: torch.stack([x] * num_heads, 1)],
            "one_head_only": [wrong.first_head],
            "glued": [lambda x, num_heads: by_view(x, num_heads).flatten(0, 1)],
            "glued_words": [wrong.glued_words],
            "unchanged": [wrong.unchanged],
            "in_a_list": [wrong.in_a_list, lambda x, num_heads: x.chunk(num_heads, -1)],
            "common.axes_swapped": [
                lambda x, num_heads: x.unflatten(-1, (num_heads, -1)).transpose(0, 1),
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1), -1),
            ],
            "sizes_do_not_fit": [
                lambda x, num_heads: x.view(1, 3, 2, 4).transpose(1, 2),
                lambda x, num_heads: x.view(*x.shape[:2], num_heads, x.shape[-1]).transpose(1, 2),
            ],
            "common.crashed": [lambda x, num_heads: x.transpose(1, 4)],
            "common.returned_nothing": [computes_and_forgets],
        },
        right=[by_view, by_permute, by_stacking_chunks, by_splitting_widths, by_loop, by_swapaxes],
    )


def test_a_wrong_reshape_mixes_words_in_each_head():
    words = torch.arange(3.0)[:, None].expand(3, 8)[None]  # every number of word m is m
    assert wrong.reshaped(words, 2)[0, 0].unique().tolist() == [0, 1]
    assert all(lesson_00.split_heads(words, 2)[0, :, m].unique().tolist() == [m] for m in range(3))
