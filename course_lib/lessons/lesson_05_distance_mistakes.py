"""Wrong answers to the exercises of lesson 05 that count distances, in a pack and behind padding, each as a student
would write it."""

import math

import torch

from course_lib.classroom.exercise import Attempt

INF = math.inf

# --- 5.6 ---------------------------------------------------------------------------------------------------------


def _documents(q_lengths, k_lengths):
    """For each document its slice of queries, its slice of keys, and its distances before anything is hidden."""
    q_start = k_start = 0
    for q_len, k_len in zip(q_lengths, k_lengths, strict=True):
        own = torch.arange(q_len)[:, None] + k_len - q_len
        yield (
            slice(q_start, q_start + q_len),
            slice(k_start, k_start + k_len),
            (own - torch.arange(k_len)).float(),
        )
        q_start, k_start = q_start + q_len, k_start + k_len


def _filled(q_lengths, k_lengths, block, elsewhere=INF):
    distances = torch.full((sum(q_lengths), sum(k_lengths)), elsewhere)
    for rows, columns, within in _documents(q_lengths, k_lengths):
        distances[rows, columns] = block(rows, columns, within)
    return distances


def _hidden(distance, cell=INF):
    return distance.masked_fill(distance < 0, cell)


def _over_the_pack(q_lengths, k_lengths):
    q_total, k_total = sum(q_lengths), sum(k_lengths)
    return (torch.arange(q_total)[:, None] + k_total - q_total - torch.arange(k_total)).float()


def packed_over_the_whole_row(q_lengths, k_lengths):
    """One long document: neither the distances nor what is hidden knows where a document ends."""
    return _hidden(_over_the_pack(q_lengths, k_lengths))


def packed_over_the_whole_row_from_the_top_left(q_lengths, k_lengths):
    return _hidden((torch.arange(sum(q_lengths))[:, None] - torch.arange(sum(k_lengths))).float())


def packed_with_other_documents(q_lengths, k_lengths):
    """Every token knows its place in its own document, and looks into all of them."""
    lengths = list(zip(q_lengths, k_lengths, strict=True))
    own = torch.cat([torch.arange(k_len - q_len, k_len) for q_len, k_len in lengths])
    return _hidden((own[:, None] - torch.cat([torch.arange(k_len) for _, k_len in lengths])).float())


def packed_all_at_the_start(q_lengths, k_lengths):
    """No counter moves on: every document is written over the one before it."""
    distances = torch.full((sum(q_lengths), sum(k_lengths)), INF)
    for _, _, within in _documents(q_lengths, k_lengths):
        distances[: within.shape[0], : within.shape[1]] = _hidden(within)
    return distances


def packed_by_absolute_distance(q_lengths, k_lengths):
    return _over_the_pack(q_lengths, k_lengths).abs()


def packed_counted_over_the_row(q_lengths, k_lengths):
    """Documents are kept apart; distances count over the whole row."""
    whole = _over_the_pack(q_lengths, k_lengths)
    return _filled(
        q_lengths, k_lengths, lambda rows, keys, within: whole[rows, keys].masked_fill(within < 0, INF)
    )


def packed_counted_from_the_top_left(q_lengths, k_lengths):
    """The row's own numbers, i - j, as far as the documents allow."""
    whole = (torch.arange(sum(q_lengths))[:, None] - torch.arange(sum(k_lengths))).float()
    return _filled(
        q_lengths, k_lengths, lambda rows, keys, within: whole[rows, keys].masked_fill(within < 0, INF)
    )


def packed_counted_from_the_top_left_without_sign(q_lengths, k_lengths):
    whole = (torch.arange(sum(q_lengths))[:, None] - torch.arange(sum(k_lengths))).abs().float()
    return _filled(
        q_lengths, k_lengths, lambda rows, keys, within: whole[rows, keys].masked_fill(within < 0, INF)
    )


def packed_top_left(q_lengths, k_lengths):
    """Within each document query 0 stands on key 0."""

    def block(rows, keys, within):
        q_len, k_len = within.shape
        return _hidden((torch.arange(q_len)[:, None] - torch.arange(k_len)).float())

    return _filled(q_lengths, k_lengths, block)


def packed_top_left_without_sign(q_lengths, k_lengths):
    """|i - j| within each document, under the right mask."""

    def block(rows, keys, within):
        q_len, k_len = within.shape
        distance = (torch.arange(q_len)[:, None] - torch.arange(k_len)).abs().float()
        return distance.masked_fill(within < 0, INF)

    return _filled(q_lengths, k_lengths, block)


def packed_with_future(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: within.abs())


def packed_with_negative_future(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: within)


def packed_negative(q_lengths, k_lengths):
    return -_filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within))


def packed_negative_but_inf(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within).neg().abs().neg())


def packed_negative_in_sight(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: (-within).masked_fill(within < 0, INF))


def packed_mask(q_lengths, k_lengths):
    """0 where a query may look."""
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within.clamp(max=0)))


def packed_mask_of_minus_inf(q_lengths, k_lengths):
    return -packed_mask(q_lengths, k_lengths)


def packed_one_too_near(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within - 1))


def packed_from_one(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within) + 1)


def packed_zero_elsewhere(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within, 0.0), 0.0)


def packed_zero_in_other_documents(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within), 0.0)


def packed_zero_in_the_future(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: within.clamp(min=0))


def packed_minus_inf(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: _hidden(within, -INF), -INF)


def packed_hides_own(q_lengths, k_lengths):
    return _filled(q_lengths, k_lengths, lambda rows, keys, within: within.masked_fill(within < 1, INF))


def packed_key_places(q_lengths, k_lengths):
    """The place of each key in its document, in every row."""

    def block(rows, keys, within):
        places = torch.arange(within.shape[1]).float().expand(within.shape)
        return places.masked_fill(within < 0, INF)

    return _filled(q_lengths, k_lengths, block)


def packed_first_document_only(q_lengths, k_lengths):
    distances = torch.full((sum(q_lengths), sum(k_lengths)), INF)
    rows, columns, within = next(iter(_documents(q_lengths, k_lengths)))
    distances[rows, columns] = _hidden(within)
    return distances


def packed_queries_for_keys(q_lengths, k_lengths):
    """A document's columns begin where its rows do."""
    distances = torch.full((sum(q_lengths), sum(k_lengths)), INF)
    start = 0
    for q_len, k_len in zip(q_lengths, k_lengths, strict=True):
        within = _hidden((torch.arange(q_len)[:, None] + k_len - q_len - torch.arange(k_len)).float())
        distances[start : start + q_len, start : start + k_len] = within[:, : sum(k_lengths) - start]
        start += q_len
    return distances


def packed_keys_for_queries(q_lengths, k_lengths):
    """A document's rows begin where its columns do."""
    distances = torch.full((sum(q_lengths), sum(k_lengths)), INF)
    start = 0
    for _, _, within in _documents(q_lengths, k_lengths):
        distances[start : start + within.shape[0], start : start + within.shape[1]] = _hidden(within)
        start += within.shape[1]
    return distances


def large_but_finite(attempt: Attempt) -> bool:
    """Right, except that what is hidden holds a large number."""
    hidden = attempt.wanted.isinf()
    return bool(
        (attempt.got[hidden] > 999).all()
        and torch.equal(attempt.got[~hidden].float(), attempt.wanted[~hidden])
    )


def integers_hold_no_infinity(attempt: Attempt) -> bool:
    text = str(attempt.error)
    return (
        "without overflow" in text
        or "cannot convert float infinity" in text.lower()
        or (attempt.error is None and not attempt.got.is_floating_point() and attempt.got.dtype != torch.bool)
    )


# --- 5.4 ---------------------------------------------------------------------------------------------------------


def _places_of(attention_mask):
    return (attention_mask.cumsum(-1) - 1) * attention_mask


def _by_head(slopes, places):
    return slopes[:, None, None] * places[:, None, None, :]


def bloom_counts_padding(attention_mask, slopes):
    places = torch.arange(attention_mask.shape[-1]).expand(attention_mask.shape)
    return _by_head(slopes, places)


def bloom_counts_padding_and_hides_it(attention_mask, slopes):
    return _by_head(slopes, torch.arange(attention_mask.shape[-1]) * attention_mask)


def bloom_from_one(attention_mask, slopes):
    return _by_head(slopes, attention_mask.cumsum(-1) * attention_mask)


def bloom_from_one_padding_too(attention_mask, slopes):
    return _by_head(slopes, attention_mask.cumsum(-1))


def bloom_padding_kept(attention_mask, slopes):
    return _by_head(slopes, attention_mask.cumsum(-1) - 1)


def bloom_padding_clamped(attention_mask, slopes):
    """Right for left padding; padding on the right goes on counting what came before it."""
    return _by_head(slopes, (attention_mask.cumsum(-1) - 1).clamp(min=0))


def bloom_padding_taken_off(attention_mask, slopes):
    """arange less the number of padding tokens: right where all padding is on the left."""
    padding = (1 - attention_mask).sum(-1, keepdim=True)
    return _by_head(slopes, (torch.arange(attention_mask.shape[-1]) - padding).clamp(min=0))


def bloom_padding_taken_off_and_hidden(attention_mask, slopes):
    padding = (1 - attention_mask).sum(-1, keepdim=True)
    return _by_head(slopes, (torch.arange(attention_mask.shape[-1]) - padding) * attention_mask)


def bloom_negative(attention_mask, slopes):
    return -_by_head(slopes, _places_of(attention_mask))


def bloom_from_the_end(attention_mask, slopes):
    last = attention_mask.sum(-1, keepdim=True) - 1
    return _by_head(slopes, (last - _places_of(attention_mask)) * attention_mask)


def bloom_distance_to_the_end(attention_mask, slopes):
    return -bloom_from_the_end(attention_mask, slopes)


def bloom_without_slopes(attention_mask, slopes):
    return _by_head(torch.ones_like(slopes), _places_of(attention_mask))


def bloom_one_slope(attention_mask, slopes):
    return _by_head(slopes[:1].expand(len(slopes)), _places_of(attention_mask))


def bloom_minus_one_first(attention_mask, slopes):
    """cumsum(mask - 1): counts the padding, backwards."""
    return _by_head(slopes, (attention_mask - 1).cumsum(-1))


def bloom_over_the_batch(attention_mask, slopes):
    """cumsum down the batch, dim 0."""
    return _by_head(slopes, (attention_mask.cumsum(0) - 1) * attention_mask)


def bloom_mask_hidden(attempt: Attempt) -> bool:
    """Padding as -inf or a large number: that is the mask's work."""
    return bool((attempt.got < -1000).any())


def no_axis_of_queries(attempt: Attempt) -> bool:
    """[batch, heads, k_len]."""
    return attempt.got.shape == (attempt.wanted.shape[0], attempt.wanted.shape[1], attempt.wanted.shape[3])


def expanded_queries(attempt: Attempt) -> bool:
    """[batch, heads, k_len, k_len]: all rows written out, each the same."""
    got, wanted = attempt.got, attempt.wanted
    return got.shape == (*wanted.shape[:2], wanted.shape[3], wanted.shape[3]) and torch.allclose(
        got, wanted.expand_as(got)
    )


def matrix_of_distances(attempt: Attempt) -> bool:
    """[batch or 1, heads, k_len, k_len], rows that differ."""
    wanted = attempt.wanted.shape
    return attempt.got.shape[-3:] == (wanted[1], wanted[3], wanted[3])


def batch_and_heads_in_one(attempt: Attempt) -> bool:
    """[batch * heads, 1, k_len], as older code of transformers has it."""
    wanted = attempt.wanted.shape
    return attempt.got.shape == (wanted[0] * wanted[1], 1, wanted[3])


def heads_do_not_broadcast(attempt: Attempt) -> bool:
    return "must match the size of tensor" in str(attempt.error)
