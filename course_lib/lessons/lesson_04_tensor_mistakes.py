"""Wrong answers to lesson 04's exercises on scores, gradients and pooled weights."""

import math

import torch

from course_lib.classroom.exercise import Attempt

# --- 4.3: scores of grouped queries ------------------------------------------------------------------------------


def _scores(query, key):
    """Of one key head for each query head."""
    return torch.einsum("qhd,khd->hqk", query, key)


def scores_of_repeated_keys(query, key):
    return _scores(query, key.repeat(1, query.shape[1] // key.shape[1], 1))


def scores_right(query, key):
    return _scores(query, key.repeat_interleave(query.shape[1] // key.shape[1], dim=1))


def scores_scaled(query, key):
    return scores_right(query, key) / math.sqrt(query.shape[-1])


def scores_softmaxed(query, key):
    return scores_right(query, key).softmax(-1)


def scores_softmaxed_and_scaled(query, key):
    return scores_scaled(query, key).softmax(-1)


def scores_of_first_kv_head(query, key):
    return torch.einsum("qhd,kd->hqk", query, key[:, 0])


def scores_of_mean_key(query, key):
    return torch.einsum("qhd,kd->hqk", query, key.mean(1))


def scores_of_summed_keys(query, key):
    """The kv head's letter stands in the inputs of an einsum only, so it is summed over."""
    return torch.einsum("qhd,kgd->hqk", query, key)


def scores_divided_by_kv_heads(query, key):
    """Head h meets kv head h // num_kv_heads, which runs past the last one."""
    return torch.stack([query[:, h] @ key[:, h // key.shape[1]].T for h in range(query.shape[1])])


def scores_of_mean_query(query, key):
    groups = query.unflatten(1, (key.shape[1], -1)).mean(2, keepdim=True)
    return scores_right(groups.expand(-1, -1, query.shape[1] // key.shape[1], -1).flatten(1, 2), key)


def scores_of_rows_not_moved(query, key):
    """Reshaped without moving the heads to the front: words and heads are mixed up."""
    (q_len, num_heads, head_dim), num_kv_heads = query.shape, key.shape[1]
    rows = query.reshape(num_kv_heads, num_heads // num_kv_heads * q_len, head_dim)
    return (rows @ key.permute(1, 2, 0)).reshape(num_heads, q_len, -1)


def scores_of_queries_and_keys_not_moved(query, key):
    (q_len, num_heads, head_dim), (k_len, num_kv_heads, _) = query.shape, key.shape
    rows = query.reshape(num_kv_heads, num_heads // num_kv_heads * q_len, head_dim)
    return (rows @ key.reshape(num_kv_heads, k_len, head_dim).mT).reshape(num_heads, q_len, k_len)


def scores_of_keys_not_moved(query, key):
    (q_len, num_heads, head_dim), (k_len, num_kv_heads, _) = query.shape, key.shape
    rows = query.transpose(0, 1).reshape(num_kv_heads, -1, head_dim)
    return (rows @ key.reshape(num_kv_heads, k_len, head_dim).mT).reshape(num_heads, q_len, k_len)


def scores_with_heads_in_other_order(query, key):
    """Right numbers; the heads come out as [group, kv] in place of [kv, group]."""
    scores = scores_right(query, key).unflatten(0, (key.shape[1], -1))
    return scores.transpose(0, 1).flatten(0, 1)


def scores_rows_interleaved(query, key):
    """The rows of a kv head went in as [q_len, group] and are read as [group, q_len]."""
    (q_len, num_heads, head_dim), num_kv_heads = query.shape, key.shape[1]
    rows = query.unflatten(1, (num_kv_heads, -1)).transpose(0, 1).reshape(num_kv_heads, -1, head_dim)
    return (rows @ key.permute(1, 2, 0)).reshape(num_heads, q_len, -1)


def score_sizes(attempt: Attempt) -> dict[str, object]:
    (q_len, num_heads, _), (k_len, num_kv_heads, _) = (t.shape for t in attempt.args)
    return {
        "shape": str([num_heads, q_len, k_len]),
        "group": str(num_heads // num_kv_heads),
        "q_len": str(q_len),
    }


def scores_summed_over_group(attempt: Attempt) -> bool:
    """One score matrix for each kv head: the group was added up or dropped."""
    (q_len, _, _), (k_len, num_kv_heads, _) = (t.shape for t in attempt.args)
    return list(attempt.got.shape) == [num_kv_heads, q_len, k_len]


def every_pair(attempt: Attempt) -> bool:
    """[num_heads, num_kv_heads, q_len, k_len] or the two counts of heads the other way round."""
    (q_len, num_heads, _), (k_len, num_kv_heads, _) = (t.shape for t in attempt.args)
    shape = list(attempt.got.shape)
    return shape in ([num_heads, num_kv_heads, q_len, k_len], [num_kv_heads, num_heads, q_len, k_len])


def masked(attempt: Attempt) -> bool:
    return bool(attempt.got.isneginf().any())


def left_folded(attempt: Attempt) -> bool:
    """[kv_heads, group * q_len, k_len] or [kv_heads, group, q_len, k_len]: right, but not yet one matrix a head."""
    (q_len, num_heads, _), (k_len, num_kv_heads, _) = (t.shape for t in attempt.args)
    group = num_heads // num_kv_heads
    folded = ([num_kv_heads, group * q_len, k_len], [num_kv_heads, group, q_len, k_len])
    return list(attempt.got.shape) in folded and group > 1


def needs_as_many_heads(attempt: Attempt) -> bool:
    """einsum or matmul over heads that are not equally many."""
    text = str(attempt.error)
    return isinstance(attempt.error, RuntimeError) and any(
        words in text
        for words in ("must match", "does not broadcast", "Expected size for first two dimensions")
    )


# --- 4.4: the gradient of shared keys ----------------------------------------------------------------------------


def gradient_mean(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).mean(2)


def gradient_of_first(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1))[:, :, 0]


def gradient_of_last(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1))[:, :, -1]


def gradient_of_first_heads(grad, num_kv_heads):
    return grad[:, :num_kv_heads]


def gradient_by_remainder(grad, num_kv_heads):
    return grad.unflatten(1, (-1, num_kv_heads)).sum(1)


def gradient_mean_by_remainder(grad, num_kv_heads):
    return grad.unflatten(1, (-1, num_kv_heads)).mean(1)


def gradient_of_all_heads(grad, num_kv_heads):
    return grad.sum(1, keepdim=True).expand(-1, num_kv_heads, -1)


def gradient_largest(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).amax(2)


def gradient_largest_by_size(grad, num_kv_heads):
    groups = grad.unflatten(1, (num_kv_heads, -1))
    return groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)


def gradient_of_longest(grad, num_kv_heads):
    """The head of each group whose gradient is the longest vector."""
    groups = grad.unflatten(1, (num_kv_heads, -1))
    longest = groups.norm(dim=-1, keepdim=True).argmax(2, keepdim=True)
    return groups.take_along_dim(longest, dim=2).squeeze(2)


def gradient_summed_over_kv_heads(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum(1)


def gradient_split_and_summed_the_other_way(grad, num_kv_heads):
    return grad.unflatten(1, (-1, num_kv_heads)).sum(2)


def gradient_divided_by_kv_heads(grad, num_kv_heads):
    """Head h is added to kv head h // num_kv_heads, which runs past the last one."""
    total = torch.zeros(grad.shape[0], num_kv_heads, grad.shape[2])
    for head in range(grad.shape[1]):
        total[:, head // num_kv_heads] += grad[:, head]
    return total


def gradient_over_root(grad, num_kv_heads):
    return gradient_mean(grad, num_kv_heads) * math.sqrt(grad.shape[1] // num_kv_heads)


def gradient_product(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).prod(2)


def gradient_times_group(grad, num_kv_heads):
    return gradient_of_first(grad, num_kv_heads) * (grad.shape[1] // num_kv_heads)


def last_argument(attempt: Attempt) -> dict[str, object]:
    """The number of kv heads."""
    return {"kv": str(attempt.args[-1])}


def gradient_over_kv_heads(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum(2) / num_kv_heads


def gradient_over_heads(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum(2) / grad.shape[1]


def gradient_sum_times_group(grad, num_kv_heads):
    return grad.unflatten(1, (num_kv_heads, -1)).sum(2) * (grad.shape[1] // num_kv_heads)


def gradient_over_sum_and_words(attempt: Attempt) -> bool:
    """[kv_heads, head_dim], or with a 1 in front: the words have been added up too."""
    k_len, _, head_dim = attempt.args[0].shape
    shape, num_kv_heads = list(attempt.got.shape), attempt.args[1]
    return shape == [num_kv_heads, head_dim] or (shape == [1, num_kv_heads, head_dim] and k_len > 1)


def all_heads_in_one(attempt: Attempt) -> bool:
    """[k_len, head_dim] or [k_len, 1, head_dim]: one sum over all heads."""
    k_len, _, head_dim = attempt.args[0].shape
    return list(attempt.got.shape) in ([k_len, head_dim], [k_len, 1, head_dim]) and attempt.args[1] > 1


def kept_a_group_axis(attempt: Attempt) -> bool:
    """[k_len, kv_heads, 1, head_dim], or the whole group still there."""
    k_len, num_heads, head_dim = attempt.args[0].shape
    num_kv_heads = attempt.args[1]
    shapes = ([k_len, num_kv_heads, group, head_dim] for group in (1, num_heads // num_kv_heads))
    return list(attempt.got.shape) in list(shapes)


def gives_every_head(attempt: Attempt) -> bool:
    return attempt.got.shape == attempt.args[0].shape and attempt.args[1] != attempt.args[0].shape[1]


# --- 4.5: pooled projections -------------------------------------------------------------------------------------


def _groups(weight, num_heads, num_kv_heads):
    """[kv_heads, group, head_dim, dim]"""
    return weight.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1))


def pool_sum(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads).sum(1).flatten(0, 1)


def pool_first(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads)[:, 0].flatten(0, 1)


def pool_last(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads)[:, -1].flatten(0, 1)


def pool_first_rows(weight, num_heads, num_kv_heads):
    return weight[: len(weight) // num_heads * num_kv_heads]


def pool_by_remainder(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_heads // num_kv_heads, num_kv_heads, -1)).mean(0).flatten(0, 1)


def pool_neighbouring_rows(weight, num_heads, num_kv_heads):
    """Rows that follow each other are averaged: parts of one head in place of the same part of several."""
    return weight.unflatten(0, (-1, num_heads // num_kv_heads)).mean(1)


def pool_within_heads(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads).mean(2).flatten(0, 1)


def pool_over_root(weight, num_heads, num_kv_heads):
    return pool_sum(weight, num_heads, num_kv_heads) / math.sqrt(num_heads // num_kv_heads)


def pool_by_kv_heads(weight, num_heads, num_kv_heads):
    return pool_sum(weight, num_heads, num_kv_heads) / num_kv_heads


def pool_by_heads(weight, num_heads, num_kv_heads):
    return pool_sum(weight, num_heads, num_kv_heads) / num_heads


def pool_median(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads).median(1).values.flatten(0, 1)


def pool_over_kv_heads(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads).mean(0).flatten(0, 1)


def pool_split_and_averaged_the_other_way(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_heads // num_kv_heads, num_kv_heads, -1)).mean(1).flatten(0, 1)


def pool_into_one_row_each(weight, num_heads, num_kv_heads):
    return weight.unflatten(0, (num_kv_heads, -1)).mean(1)


def pool_first_two(weight, num_heads, num_kv_heads):
    return _groups(weight, num_heads, num_kv_heads)[:, :2].mean(1).flatten(0, 1)


def pool_with_rows_interleaved(weight, num_heads, num_kv_heads):
    """Right means, the rows as [head_dim, kv_heads]."""
    return _groups(weight, num_heads, num_kv_heads).mean(1).transpose(0, 1).flatten(0, 1)


def pool_all_the_same(weight, num_heads, num_kv_heads):
    mean = weight.unflatten(0, (num_heads, -1)).mean(0)
    return mean.repeat(num_kv_heads, 1)


def pooled_columns(attempt: Attempt) -> bool:
    """The columns are fewer, the rows as many as before: inputs were pooled in place of heads."""
    weight, num_heads, num_kv_heads = attempt.args
    rows, columns = attempt.got.shape
    return rows == weight.shape[0] and columns == weight.shape[1] * num_kv_heads // num_heads


def left_in_heads(attempt: Attempt) -> bool:
    """[kv_heads, head_dim, dim], not yet the two dimensions of a weight."""
    weight, num_heads, num_kv_heads = attempt.args
    shape = [num_kv_heads, len(weight) // num_heads, weight.shape[1]]
    return list(attempt.got.shape) in (shape, [shape[0], 1, *shape[1:]])


def one_head_only(attempt: Attempt) -> bool:
    weight, num_heads, num_kv_heads = attempt.args
    return list(attempt.got.shape) == [len(weight) // num_heads, weight.shape[1]] and num_kv_heads > 1
