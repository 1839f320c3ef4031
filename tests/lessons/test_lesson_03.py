"""Lesson 03: the exercises on lengths, positions and targets know their wrong answers and take each right one."""

import sys
import unicodedata
from itertools import accumulate, chain

import numpy as np
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


def counts_in_a_numpy_array(text, tokenizer):
    return np.array(lesson_03.text_lengths(text, tokenizer))


def of_the_object_in_memory(text, tokenizer):
    return len(text), len(graphemes(text)), sys.getsizeof(text), len(tokenizer.encode(text))


def of_each_character_encoded_by_itself(text, tokenizer):
    return *lesson_03.text_lengths(text, tokenizer)[:3], sum(len(tokenizer.encode(c)) for c in text)


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
            "only_letters": [counts.counts_of_letters, counts.counts_of_word_characters],
            "without_spaces": [counts.counts_without_spaces, counts.counts_of_graphemes_without_spaces],
            "three_each": [counts.counts_of_three_bytes_each],
            "object_size": [of_the_object_in_memory],
            "graphemes_twice": [counts.counts_of_graphemes_twice],
            "swapped": [counts.counts_swapped],
            "pieces": [counts.counts_of_pieces],
            "words": [counts.counts_of_words, counts.counts_of_words_by_space],
            "before_bpe": [counts.counts_before_bpe],
            "specials": [counts.counts_with_one_special, counts.counts_with_two_specials],
            "distinct": [counts.counts_of_distinct_tokens],
            "vocabulary": [counts.counts_of_the_vocabulary],
            "one_by_one": [counts.counts_of_text_by_ids, of_each_character_encoded_by_itself],
            "word_by_word": [counts.counts_word_by_word],
            "normalised": [counts.counts_after_normalising],
            "stripped": [counts.counts_after_stripping],
            "order": [in_the_order_of_the_picture],
            "no_tokens": [lambda text, tokenizer: (*lesson_03.text_lengths(text, tokenizer)[:3], len(text))],
            "common.wrong_answer": [without_marks_and_joiners],
            "common.wrong_length": [three_numbers],
            "common.wrong_type": [in_a_dictionary],
            "common.crashed": [of_a_character_by_ord],
        },
        right=[counts_by_regex, counts_in_a_list, counts_in_a_tensor, counts_in_a_numpy_array],
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


def positions_of_the_last(lengths):
    for n in lengths:
        positions = torch.arange(n)
    return positions


def positions_up_to_the_empty_document(lengths):
    return positions_by_loop(lengths[: lengths.index(0)] if 0 in lengths else lengths)


def positions_as_if_of_mean_length(lengths):
    return torch.arange(sum(lengths)) % max(sum(lengths) // len(lengths), 1)


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
            "as_if_equal": [
                wrong.positions_as_if_equal,
                wrong.positions_as_if_longest,
                positions_as_if_of_mean_length,
            ],
            "all_zero": [wrong.positions_of_zeros],
            "stops_at_empty": [positions_up_to_the_empty_document],
            "last_only": [positions_of_the_last],
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


def targets_with_nan(tokens, lengths):
    targets = lesson_03.packed_targets(tokens, lengths).float()
    return targets.masked_fill(targets == -100, torch.nan)


def targets_read_past_the_end(tokens, lengths):
    return torch.stack([tokens[i + 1] for i in range(len(tokens))])


def targets_with_one_mark_a_document(tokens, lengths):
    end = torch.tensor([-100])
    return torch.cat([torch.cat([document[1:], end]) for document in tokens.split(lengths)])


def targets_one_more_than_the_tokens(tokens, lengths):
    """tokens + 1 is the next id, not the next token."""
    return (tokens + 1).masked_fill(lesson_03.packed_targets(tokens, lengths) == -100, -100)


def targets_in_a_list(tokens, lengths):
    return lesson_03.packed_targets(tokens, lengths).tolist()


def targets_in_two_dimensions(tokens, lengths):
    return lesson_03.packed_targets(tokens, lengths)[None]


def test_exercise_3_4_names_each_wrong_answer():
    assert_exercise(
        lesson_03.LESSON,
        "3.4",
        wrong={
            "index_past_the_end": [
                targets_marked_at_the_sums,
                targets_marked_at_the_python_sums,
                targets_read_past_the_end,
            ],
            "empty_marked": [targets_with_one_mark_a_document],
            "drops_ends": [wrong.targets_without_ends],
            "shorter": [targets_one_shorter],
            "wraps": [wrong.targets_that_wrap],
            "crosses": [wrong.targets_that_cross],
            "wraps_inside": [wrong.targets_that_wrap_inside],
            "first_for_last": [wrong.targets_without_first],
            "first_and_last": [wrong.targets_without_first_nor_last],
            "one_late": [wrong.targets_marked_one_late, wrong.targets_marked_one_late_and_at_the_end],
            "one_early": [wrong.targets_marked_one_early],
            "both_sides": [wrong.targets_marked_on_both_sides],
            "own_length": [
                wrong.targets_marked_at_own_lengths,
                wrong.targets_marked_at_own_lengths_and_at_the_end,
            ],
            "unshifted": [wrong.targets_unshifted, wrong.targets_unshifted_without_first],
            "not_the_last": [wrong.targets_marked_inside],
            "before": [
                wrong.targets_before,
                wrong.targets_before_with_marked_ends,
                wrong.targets_before_unmarked,
            ],
            "itself": [wrong.targets_of_itself],
            "two_ahead": [wrong.targets_two_ahead],
            "all_ignored": [wrong.targets_of_nothing],
            "last_for_all": [wrong.targets_of_the_last_token],
            "other_number": [targets_ended_by_zero, targets_ended_by_minus_one],
            "common.modified_input": [targets_in_place],
            "common.float_for_integer": [targets_as_floats, targets_with_nan],
            "common.wrong_value": [targets_one_more_than_the_tokens],
            "common.list_for_tensor": [targets_in_a_list],
            "common.wrong_shape": [targets_in_two_dimensions],
        },
        right=[targets_by_loop, targets_by_slices, targets_by_library, targets_by_split],
    )
