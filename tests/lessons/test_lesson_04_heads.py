"""Lesson 04: the exercises on grouped scores and shared gradients know their wrong answers and take each right one."""

import math

import torch

from course_lib.attention import attention
from course_lib.classroom.contract import assert_exercise
from course_lib.gqa import mean_pool_kv_heads
from course_lib.lessons import lesson_04
from course_lib.lessons import lesson_04_tensor_mistakes as tensors

# --- 4.3 ---------------------------------------------------------------------------------------------------------


def scores_by_loop(query, key):
    group = query.shape[1] // key.shape[1]
    return torch.stack([query[:, h] @ key[:, h // group].T for h in range(query.shape[1])])


def scores_by_einsum(query, key):
    grouped = query.unflatten(1, (key.shape[1], -1))
    return torch.einsum("qngd,knd->ngqk", grouped, key).flatten(0, 1)


def scores_by_bmm(query, key):
    (q_len, heads, dim), kv = query.shape, key.shape[1]
    rows = query.transpose(0, 1).contiguous().view(kv, heads // kv * q_len, dim)
    return torch.bmm(rows, key.transpose(0, 1).transpose(1, 2)).view(heads, q_len, -1)


def scores_by_copies(query, key):
    return torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(query.shape[1] // key.shape[1], 1))


def scores_by_plain_einsum(query, key):
    return torch.einsum("qhd,khd->hqk", query, key)


def scores_by_plain_product(query, key):
    return query.transpose(0, 1) @ key.permute(1, 2, 0)


def scores_still_in_rows(query, key):
    rows = query.transpose(0, 1).reshape(key.shape[1], -1, query.shape[-1])
    return rows @ key.permute(1, 2, 0)


def scores_still_in_groups(query, key):
    return torch.einsum("qngd,knd->ngqk", query.unflatten(1, (key.shape[1], -1)), key)


def scores_summed(query, key):
    return torch.einsum("qngd,knd->nqk", query.unflatten(1, (key.shape[1], -1)), key)


def scores_transposed(query, key):
    return scores_by_loop(query, key).mT


def scores_words_first(query, key):
    return scores_by_loop(query, key).transpose(0, 1)


def scores_masked(query, key):
    scores = scores_by_loop(query, key)
    q_len, k_len = scores.shape[1:]
    return scores.masked_fill(torch.ones(q_len, k_len).triu(1 + k_len - q_len).bool(), -math.inf)


def scores_in_group_order(query, key):
    """The query split as (group, kv): what one writes who thinks of `repeat`."""
    grouped = query.unflatten(1, (-1, key.shape[1]))
    return torch.einsum("qgnd,knd->gnqk", grouped, key).flatten(0, 1)


def test_exercise_4_3_names_each_wrong_answer():
    assert_exercise(
        lesson_04.LESSON,
        "4.3",
        wrong={
            "every_pair": [lambda query, key: torch.einsum("qhd,kgd->hgqk", query, key)],
            "by_kv_heads": [tensors.scores_divided_by_kv_heads],
            "masked": [scores_masked],
            "summed_keys": [tensors.scores_of_summed_keys],
            "left_folded": [scores_still_in_rows, scores_still_in_groups],
            "group_gone": [scores_summed],
            "needs_as_many": [scores_by_plain_einsum, scores_by_plain_product],
            "repeated": [tensors.scores_of_repeated_keys, scores_in_group_order],
            "scaled": [tensors.scores_scaled],
            "softmaxed": [tensors.scores_softmaxed, tensors.scores_softmaxed_and_scaled],
            "first_kv_head": [tensors.scores_of_first_kv_head],
            "mean_key": [tensors.scores_of_mean_key],
            "mean_query": [tensors.scores_of_mean_query],
            "rows_not_moved": [tensors.scores_of_rows_not_moved],
            "keys_not_moved": [
                tensors.scores_of_keys_not_moved,
                tensors.scores_of_queries_and_keys_not_moved,
            ],
            "other_order": [tensors.scores_with_heads_in_other_order],
            "interleaved": [tensors.scores_rows_interleaved],
            "common.axes_swapped": [scores_transposed, scores_words_first],
        },
        right=[scores_by_loop, scores_by_einsum, scores_by_bmm, scores_by_copies],
    )


# --- 4.4 ---------------------------------------------------------------------------------------------------------


def gradient_by_loop(grad, num_kv_heads):
    group = grad.shape[1] // num_kv_heads
    total = torch.zeros(grad.shape[0], num_kv_heads, grad.shape[2])
    for head in range(grad.shape[1]):
        total[:, head // group] += grad[:, head]
    return total


def gradient_by_autograd(grad, num_kv_heads):
    key = torch.zeros(grad.shape[0], num_kv_heads, grad.shape[2], requires_grad=True)
    with torch.enable_grad():
        copies = key.repeat_interleave(grad.shape[1] // num_kv_heads, dim=1)
    return torch.autograd.grad(copies, key, grad)[0]


def gradient_by_einsum(grad, num_kv_heads):
    return torch.einsum("kngd->knd", grad.reshape(len(grad), num_kv_heads, -1, grad.shape[-1]))


def gradient_with_axis(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum(2, keepdim=True)


def gradient_still_in_groups(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1))


def gradient_over_words(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum((0, 2))


def gradient_handed_back(grad, num_kv_heads):
    group = grad.shape[1] // num_kv_heads
    return gradient_by_loop(grad, num_kv_heads).repeat_interleave(group, 1)


def gradient_overwritten(grad, num_kv_heads):
    total = torch.zeros(grad.shape[0], num_kv_heads, grad.shape[2])
    for head in range(grad.shape[1]):
        total[:, head // (grad.shape[1] // num_kv_heads)] = grad[:, head]
    return total


def gradient_in_place(grad, num_kv_heads):
    groups = grad.unflatten(1, (num_kv_heads, -1))
    for i in range(1, groups.shape[2]):
        groups[:, :, 0] += groups[:, :, i]
    return groups[:, :, 0]


def test_exercise_4_4_names_each_wrong_answer():
    assert_exercise(
        lesson_04.LESSON,
        "4.4",
        wrong={
            "mean": [tensors.gradient_mean],
            "first_only": [tensors.gradient_of_first],
            "last_only": [tensors.gradient_of_last, gradient_overwritten],
            "first_heads": [tensors.gradient_of_first_heads],
            "by_remainder": [
                tensors.gradient_by_remainder,
                tensors.gradient_mean_by_remainder,
            ],
            "wrong_axis": [
                tensors.gradient_summed_over_kv_heads,
                tensors.gradient_split_and_summed_the_other_way,
            ],
            "by_kv_heads": [tensors.gradient_divided_by_kv_heads],
            "wrong_count": [
                tensors.gradient_over_kv_heads,
                tensors.gradient_over_heads,
                tensors.gradient_sum_times_group,
            ],
            "all_heads": [
                tensors.gradient_of_all_heads,
                lambda grad, kv: grad.sum(1),
                lambda grad, kv: grad.sum(1, keepdim=True),
            ],
            "largest": [
                tensors.gradient_largest,
                tensors.gradient_largest_by_size,
                tensors.gradient_of_longest,
            ],
            "over_root": [tensors.gradient_over_root],
            "product": [tensors.gradient_product],
            "times_group": [tensors.gradient_times_group],
            "every_head": [gradient_handed_back, lambda grad, kv: grad],
            "group_axis": [gradient_with_axis, gradient_still_in_groups],
            "words_too": [gradient_over_words],
            "common.modified_input": [gradient_in_place],
        },
        right=[gradient_by_loop, gradient_by_autograd, gradient_by_einsum],
    )


# --- the solutions against the library ---------------------------------------------------------------------------


def test_the_scores_are_those_that_attention_uses():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(3, 6, 8, generator=generator), torch.randn(5, 2, 8, generator=generator)
    _, lse = attention(query[None], key[None], key[None], scale=1.0, return_lse=True)
    torch.testing.assert_close(lesson_04.grouped_scores(query, key).logsumexp(-1), lse[0])


def test_pooling_is_that_of_the_library():
    weight = torch.randn(24, 10, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(lesson_04.pool_heads(weight, 6, 2), mean_pool_kv_heads(weight, 6, 2))


def test_the_gradient_is_that_of_shared_keys():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 6, 8, generator=generator)
    key = torch.randn(1, 5, 2, 8, generator=generator).requires_grad_()
    copies = key.repeat_interleave(3, dim=2)
    copies.retain_grad()
    attention(query, copies, copies.detach()).sum().backward()
    torch.testing.assert_close(lesson_04.shared_gradient(copies.grad[0], 2), key.grad[0])
    assert math.isfinite(float(key.grad.sum()))
