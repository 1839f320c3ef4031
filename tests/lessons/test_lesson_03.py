"""Lesson 03: the exercises on lengths, positions, targets and cost know their wrong answers and take each right one."""

import unicodedata
from itertools import accumulate, chain

import regex
import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_03
from course_lib.lessons import lesson_03_length_mistakes as counts
from course_lib.lessons import lesson_03_mistakes as wrong
from course_lib.packing import PackedBatch, next_token_targets, pack
from course_lib.text import graphemes

# --- 3.1 ---------------------------------------------------------------------------------------------------------


def counts_by_regex(text, tokenizer):
    return len(text), len(regex.findall(r"\X", text)), len(bytes(text, "utf-8")), len(tokenizer.encode(text))


def counts_in_a_list(text, tokenizer):
    return [
        len(text),
        sum(1 for _ in graphemes(text)),
        len(text.encode()),
        sum(len(p.ids) for p in tokenizer.pieces(text)),
    ]


def counts_in_a_tensor(text, tokenizer):
    return torch.tensor(
        [len(list(text)), len(graphemes(text)), len(text.encode("utf8")), len(tokenizer.encode(text))]
    )


def the_things_themselves(text, tokenizer):
    return text, graphemes(text), text.encode("utf-8"), tokenizer.encode(text)


def only_the_ids(text, tokenizer):
    return len(text), len(graphemes(text)), len(text.encode("utf-8")), tokenizer.encode(text)


def in_the_order_of_the_picture(text, tokenizer):
    points, letters, size, tokens = lesson_03.text_lengths(text, tokenizer)
    return letters, points, tokens, size


def without_marks_and_joiners(text, tokenizer):
    points, _, size, tokens = lesson_03.text_lengths(text, tokenizer)
    return points, sum(unicodedata.category(c)[0] not in "MC" for c in text), size, tokens


def three_numbers(text, tokenizer):
    return lesson_03.text_lengths(text, tokenizer)[:3]


def in_a_dictionary(text, tokenizer):
    return dict(
        zip(("points", "graphemes", "bytes", "tokens"), lesson_03.text_lengths(text, tokenizer), strict=True)
    )


def of_a_character_by_ord(text, tokenizer):
    raise UnicodeDecodeError("utf-8", b"\xe0", 0, 1, "unexpected end of data")


def test_exercise_3_1_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.1",
        wrong={
            "things": [the_things_themselves, only_the_ids],
            "bytes_by_len": [counts.counts_with_bytes_by_len],
            "utf16": [counts.counts_in_utf16, counts.counts_in_utf16_with_mark],
            "utf32": [counts.counts_in_utf32],
            "bits": [counts.counts_in_bits],
            "byte_order_mark": [counts.counts_with_byte_order_mark],
            "graphemes_by_len": [counts.counts_with_graphemes_by_len],
            "without_marks": [counts.counts_without_marks],
            "only_letters": [counts.counts_of_letters],
            "graphemes_twice": [counts.counts_of_graphemes_twice],
            "swapped": [counts.counts_swapped],
            "pieces": [counts.counts_of_pieces],
            "words": [counts.counts_of_words, counts.counts_of_words_by_space],
            "before_bpe": [counts.counts_before_bpe],
            "specials": [counts.counts_with_one_special, counts.counts_with_two_specials],
            "distinct": [counts.counts_of_distinct_tokens],
            "vocabulary": [counts.counts_of_the_vocabulary],
            "decoded_one_by_one": [counts.counts_of_text_by_ids],
            "normalised": [counts.counts_after_normalising],
            "stripped": [counts.counts_after_stripping],
            "order": [in_the_order_of_the_picture],
            "common.wrong_answer": [without_marks_and_joiners],
            "common.wrong_length": [three_numbers],
            "common.wrong_type": [in_a_dictionary],
            "common.crashed": [of_a_character_by_ord],
        },
        right=[counts_by_regex, counts_in_a_list, counts_in_a_tensor],
    )


# --- 3.3 ---------------------------------------------------------------------------------------------------------


def positions_by_loop(lengths):
    made = []
    for n in lengths:
        for j in range(n):
            made.append(j)
    return torch.tensor(made)


def positions_by_subtraction(lengths):
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    return torch.arange(sum(lengths)) - torch.repeat_interleave(starts, torch.tensor(lengths))


def positions_by_library(lengths):
    return pack([[0] * n for n in lengths]).positions[0]


def positions_in_int32(lengths):
    return positions_by_loop(lengths).int()


def positions_in_one_range_and_two_dimensions(lengths):
    return lesson_03.restarting_positions(lengths)[None]


def positions_of_the_first(lengths):
    for n in lengths:
        return torch.arange(n)


def positions_as_floats(lengths):
    return lesson_03.restarting_positions(lengths).float()


def positions_in_a_list(lengths):
    return list(chain.from_iterable(range(n) for n in lengths))


def positions_document_by_document(lengths):
    return [torch.arange(n) for n in lengths]


def test_exercise_3_3_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.3",
        wrong={
            "one_range": [wrong.positions_of_the_row],
            "from_one": [wrong.positions_from_one],
            "one_range_from_one": [wrong.positions_of_the_row_from_one],
            "later_from_one": [wrong.positions_from_one_after_the_first, wrong.positions_restarted_late],
            "one_late": [wrong.positions_restarted_one_late],
            "one_early": [wrong.positions_restarted_early],
            "documents": [wrong.positions_of_documents],
            "starts": [wrong.positions_of_starts],
            "counted_down": [wrong.positions_counted_down],
            "from_the_end": [wrong.positions_from_the_end],
            "own_length": [wrong.positions_less_own_length],
            "length_before": [wrong.positions_less_the_length_before],
            "as_if_equal": [wrong.positions_as_if_equal, wrong.positions_as_if_longest],
            "return_in_loop": [positions_of_the_first],
            "two_dimensions": [positions_in_one_range_and_two_dimensions],
            "common.float_for_integer": [positions_as_floats],
            "common.list_for_tensor": [positions_in_a_list, positions_document_by_document],
            "padded": [wrong.positions_padded],
        },
        right=[positions_by_loop, positions_by_subtraction, positions_by_library, positions_in_int32],
    )


# --- 3.4 ---------------------------------------------------------------------------------------------------------


def targets_by_loop(tokens, lengths):
    made, start = [], 0
    for n in lengths:
        made += [*tokens[start + 1 : start + n].tolist(), *([-100] if n else [])]
        start += n
    return torch.tensor(made)


def targets_by_slices(tokens, lengths):
    targets = torch.full_like(tokens, -100)
    start = 0
    for n in lengths:
        if n > 1:
            targets[start : start + n - 1] = tokens[start + 1 : start + n]
        start += n
    return targets


def targets_by_library(tokens, lengths):
    return next_token_targets(PackedBatch(tokens[None], tokens[None], tuple(lengths)))[0]


def targets_by_split(tokens, lengths):
    end = torch.tensor([-100])
    return torch.cat([torch.cat([d[1:], end]) for d in tokens.split(lengths) if len(d)])


def targets_in_place(tokens, lengths):
    """Right, but the row itself is overwritten."""
    ends = [end - 1 for end in accumulate(lengths)]
    tokens[:-1] = tokens[1:].clone()
    tokens[ends] = -100
    return tokens


def targets_marked_at_the_sums(tokens, lengths):
    targets = tokens.roll(-1)
    targets[torch.tensor(lengths).cumsum(0)] = -100
    return targets


def targets_marked_at_the_python_sums(tokens, lengths):
    targets = tokens.roll(-1)
    for end in accumulate(lengths):
        targets[end] = -100
    return targets


def targets_one_shorter(tokens, lengths):
    return tokens[1:]


def targets_ended_by_zero(tokens, lengths):
    targets = lesson_03.packed_targets(tokens, lengths)
    return targets.masked_fill(targets == -100, 0)


def targets_ended_by_minus_one(tokens, lengths):
    targets = lesson_03.packed_targets(tokens, lengths)
    return targets.masked_fill(targets == -100, -1)


def targets_as_floats(tokens, lengths):
    return lesson_03.packed_targets(tokens, lengths).float()


def targets_in_a_list(tokens, lengths):
    return lesson_03.packed_targets(tokens, lengths).tolist()


def targets_in_two_dimensions(tokens, lengths):
    return lesson_03.packed_targets(tokens, lengths)[None]


def test_exercise_3_4_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.4",
        wrong={
            "index_past_the_end": [targets_marked_at_the_sums, targets_marked_at_the_python_sums],
            "drops_ends": [wrong.targets_without_ends],
            "shorter": [targets_one_shorter],
            "wraps": [wrong.targets_that_wrap],
            "crosses": [wrong.targets_that_cross],
            "wraps_inside": [wrong.targets_that_wrap_inside],
            "first_for_last": [wrong.targets_without_first],
            "first_and_last": [wrong.targets_without_first_nor_last],
            "one_late": [wrong.targets_marked_one_late, wrong.targets_marked_one_late_and_at_the_end],
            "one_early": [wrong.targets_marked_one_early],
            "not_the_last": [wrong.targets_marked_inside],
            "before": [wrong.targets_before, wrong.targets_before_with_marked_ends],
            "itself": [wrong.targets_of_itself],
            "two_ahead": [wrong.targets_two_ahead],
            "all_ignored": [wrong.targets_of_nothing],
            "last_for_all": [wrong.targets_of_the_last_token],
            "other_number": [targets_ended_by_zero, targets_ended_by_minus_one],
            "common.modified_input": [targets_in_place],
            "common.float_for_integer": [targets_as_floats],
            "common.list_for_tensor": [targets_in_a_list],
            "common.wrong_shape": [targets_in_two_dimensions],
        },
        right=[targets_by_loop, targets_by_slices, targets_by_library, targets_by_split],
    )


# --- 3.5 ---------------------------------------------------------------------------------------------------------


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


def test_exercise_3_5_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.5",
        wrong={
            "ratio": [
                lambda lengths: len(lengths) * max(lengths) ** 2 / sum(n * n for n in lengths),
                lambda lengths: sum(n * n for n in lengths) / (len(lengths) * max(lengths) ** 2),
            ],
            "swapped": [wrong.scores_swapped],
            "one_causal_row": [wrong.scores_of_one_causal_row],
            "mean": [wrong.scores_by_mean],
            "tokens": [wrong.scores_of_tokens],
            "packed_tokens": [wrong.scores_of_packed_tokens],
            "one_document": [wrong.scores_of_one_document],
            "padded_row": [wrong.scores_of_padded_row],
            "documents_squared": [wrong.scores_with_documents_squared],
            "half": [
                wrong.scores_of_triangles,
                wrong.scores_of_halves,
                wrong.scores_rounded_halves,
                wrong.scores_of_packed_triangles,
            ],
            "real_rows": [wrong.scores_of_real_rows],
            "longest_columns": [wrong.scores_of_longest_columns],
            "bytes": [wrong.scores_in_bytes],
            "times_two": [wrong.scores_doubled],
            "xor": [wrong.scores_of_xor],
            "no_padding": [wrong.scores_without_padding],
            "common.wrong_type": [lambda lengths: sum(n * n for n in lengths)],
            "common.wrong_answer": [lambda lengths: (0, 0)],
        },
        right=[counts_by_loop, counts_by_tensor, counts_as_a_list, counts_by_dot_product],
    )
