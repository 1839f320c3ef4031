"""Wrong answers to exercise 3.1 of lesson 03, four lengths of a text, each written as a student would."""

import re
import sys
import unicodedata

from course_lib.classroom.exercise import Attempt
from course_lib.text import graphemes, normalize_bangla


def _counts(text, tokenizer):
    return len(text), len(graphemes(text)), len(text.encode("utf-8")), len(tokenizer.encode(text))


def counts_with_bytes_by_len(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, points, tokens


def counts_in_utf16(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, len(text.encode("utf-16-le")), tokens


def counts_in_utf16_with_mark(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, len(text.encode("utf-16")), tokens


def counts_in_utf32(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, 4 * points, tokens


def counts_in_bits(text, tokenizer):
    points, letters, size, tokens = _counts(text, tokenizer)
    return points, letters, 8 * size, tokens


def counts_with_byte_order_mark(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, len(text.encode("utf-8-sig")), tokens


def counts_with_graphemes_by_len(text, tokenizer):
    points, _, size, tokens = _counts(text, tokenizer)
    return points, points, size, tokens


def counts_without_marks(text, tokenizer):
    """Vowel signs and hasant left out: each consonant of a conjunct counts by itself."""
    points, _, size, tokens = _counts(text, tokenizer)
    return points, sum(unicodedata.category(c)[0] != "M" for c in text), size, tokens


def counts_of_letters(text, tokenizer):
    points, _, size, tokens = _counts(text, tokenizer)
    return points, sum(c.isalpha() for c in text), size, tokens


def counts_of_word_characters(text, tokenizer):
    points, _, size, tokens = _counts(text, tokenizer)
    return points, len(re.findall(r"\w", text)), size, tokens


def counts_without_spaces(text, tokenizer):
    _, letters, size, tokens = _counts(text, tokenizer)
    return len(text.replace(" ", "")), letters, size, tokens


def counts_of_graphemes_without_spaces(text, tokenizer):
    points, _, size, tokens = _counts(text, tokenizer)
    return points, sum(not letter.isspace() for letter in graphemes(text)), size, tokens


def counts_of_three_bytes_each(text, tokenizer):
    points, letters, _, tokens = _counts(text, tokenizer)
    return points, letters, 3 * points, tokens


def counts_swapped(text, tokenizer):
    points, letters, size, tokens = _counts(text, tokenizer)
    return letters, points, size, tokens


def counts_of_graphemes_twice(text, tokenizer):
    _, letters, size, tokens = _counts(text, tokenizer)
    return letters, letters, size, tokens


def counts_of_pieces(text, tokenizer):
    """`tokens(text)` shows whole letters, so it may hold fewer pieces than there are tokens."""
    return *_counts(text, tokenizer)[:3], len(tokenizer.tokens(text))


def counts_of_words(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(text.split())


def counts_of_words_by_space(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(text.split(" "))


def counts_before_bpe(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(tokenizer.pattern_pieces(text))


def counts_with_one_special(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(tokenizer.encode(text)) + 1


def counts_with_two_specials(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(tokenizer.encode(text)) + 2


def counts_of_distinct_tokens(text, tokenizer):
    return *_counts(text, tokenizer)[:3], len(set(tokenizer.encode(text)))


def counts_of_the_vocabulary(text, tokenizer):
    return *_counts(text, tokenizer)[:3], tokenizer.vocab_size


def counts_of_text_by_ids(text, tokenizer):
    """Each id decoded by itself, and the letters of what comes out counted: � for a cut character."""
    return *_counts(text, tokenizer)[:3], sum(len(tokenizer.decode([i])) for i in tokenizer.encode(text))


def counts_word_by_word(text, tokenizer):
    """Each word encoded without the space that belongs to its first token."""
    return *_counts(text, tokenizer)[:3], sum(len(tokenizer.encode(word)) for word in text.split())


def counts_after_normalising(text, tokenizer):
    return _counts(normalize_bangla(text), tokenizer)


def counts_after_stripping(text, tokenizer):
    return _counts(text.strip(), tokenizer)


def holds_things(attempt: Attempt) -> bool:
    """The letters, bytes or ids themselves, where their number is asked for."""
    return isinstance(attempt.got, (tuple, list)) and any(
        isinstance(part, (str, bytes, list)) for part in attempt.got
    )


def measures_the_object(attempt: Attempt) -> bool:
    """sys.getsizeof, which counts the header of the Python object too."""
    return attempt.got[2] == sys.getsizeof(attempt.args[0])


def right_in_another_order(attempt: Attempt) -> bool:
    return sorted(attempt.got) == sorted(attempt.wanted)


def repeats_another_number(attempt: Attempt) -> bool:
    """The first three are right, and the number of tokens is one of them again."""
    *others, tokens = attempt.got
    return list(others) == list(attempt.wanted[:3]) and tokens in others
