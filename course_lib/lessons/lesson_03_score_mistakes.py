"""Wrong answers to exercise 3.5 of lesson 03, the scores of a padded and of a packed batch."""

from collections.abc import Callable, Sequence

from course_lib.classroom.exercise import Attempt, Mistake


def _padded(lengths):
    return len(lengths) * max(lengths) ** 2


def _packed(lengths):
    return sum(n * n for n in lengths)


def scores_of_one_causal_row(lengths):
    return _padded(lengths), sum(lengths) ** 2


def scores_by_mean(lengths):
    return _padded(lengths), sum(lengths) ** 2 / len(lengths)


def scores_of_tokens(lengths):
    return len(lengths) * max(lengths), sum(lengths)


def scores_of_packed_tokens(lengths):
    return _padded(lengths), sum(lengths)


def scores_of_one_document(lengths):
    return max(lengths) ** 2, _packed(lengths)


def scores_of_padded_row(lengths):
    """The padded documents as one long row."""
    return (len(lengths) * max(lengths)) ** 2, _packed(lengths)


def scores_with_documents_squared(lengths):
    return len(lengths) ** 2 * max(lengths), _packed(lengths)


def scores_of_triangles(lengths):
    return len(lengths) * max(lengths) * (max(lengths) + 1) // 2, sum(n * (n + 1) // 2 for n in lengths)


def scores_of_halves(lengths):
    return _padded(lengths) / 2, _packed(lengths) / 2


def scores_rounded_halves(lengths):
    return _padded(lengths) // 2, _packed(lengths) // 2


def scores_of_packed_triangles(lengths):
    return _padded(lengths), sum(n * (n + 1) // 2 for n in lengths)


def scores_of_real_rows(lengths):
    """Padded queries left out, padded keys counted."""
    return sum(lengths) * max(lengths), _packed(lengths)


def scores_of_longest_columns(lengths):
    return _padded(lengths), sum(lengths) * max(lengths)


def scores_swapped(lengths):
    return _packed(lengths), _padded(lengths)


def scores_in_bytes(lengths):
    return 4 * _padded(lengths), 4 * _packed(lengths)


def scores_doubled(lengths):
    """n * 2 where n ** 2 is meant."""
    return len(lengths) * max(lengths) * 2, sum(n * 2 for n in lengths)


def scores_of_xor(lengths):
    """n ^ 2, which is not a power in Python."""
    return len(lengths) * (max(lengths) ^ 2), sum(n ^ 2 for n in lengths)


def scores_without_padding(lengths):
    return _packed(lengths), _packed(lengths)


def _close(number: object, other: float) -> bool:
    return abs(float(number) - other) < 1e-6 * max(abs(other), 1)  # type: ignore[arg-type]


def padded_is(formula: Callable[[Sequence[int]], float]) -> Callable[[Attempt], bool]:
    """Whether the padded count is wrong, and what `formula` gives; whatever the packed one is."""
    return lambda attempt: _takes(attempt, 0, formula)


def packed_is(formula: Callable[[Sequence[int]], float]) -> Callable[[Attempt], bool]:
    return lambda attempt: _takes(attempt, 1, formula)


def _takes(attempt: Attempt, which: int, formula: Callable[[Sequence[int]], float]) -> bool:
    number = attempt.got[which]
    return not _close(number, attempt.wanted[which]) and _close(number, formula(attempt.args[0]))


def is_a_ratio(attempt: Attempt) -> bool:
    ratio = _padded(attempt.args[0]) / _packed(attempt.args[0])
    return abs(float(attempt.got) - ratio) < 1e-6 * ratio or abs(float(attempt.got) - 1 / ratio) < 1e-6


TWO_AT_ONCE = [  # both counts wrong, or one of them in a way that needs no name above; the padded one first
    Mistake("padded_total", when=padded_is(lambda n: sum(n) ** 2)),
    Mistake("padded_mean", when=padded_is(lambda n: sum(n) ** 2 / len(n))),
    Mistake("one_document", when=padded_is(lambda n: max(n) ** 2)),
    Mistake("padded_row", when=padded_is(lambda n: (len(n) * max(n)) ** 2)),
    Mistake("padded_tokens", when=padded_is(lambda n: len(n) * max(n))),
    Mistake("half", when=padded_is(lambda n: len(n) * max(n) * (max(n) + 1) // 2)),
    Mistake("half", when=padded_is(lambda n: len(n) * max(n) * (max(n) - 1) // 2)),
    Mistake("one_causal_row", when=packed_is(lambda n: sum(n) ** 2)),
    Mistake("one_causal_row", when=packed_is(lambda n: sum(n) * (sum(n) + 1) // 2)),
    Mistake("mean", when=packed_is(lambda n: len(n) * (sum(n) // len(n)) ** 2)),
    Mistake("half", when=packed_is(lambda n: sum(k * k for k in n) // 2)),
    Mistake("half", when=packed_is(lambda n: sum(k * (k - 1) // 2 for k in n))),
]
