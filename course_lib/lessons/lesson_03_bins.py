"""What is asked of an answer to exercise 3.6 of lesson 03: a packing into rows is not unique, so it is judged.

A case takes any answer that keeps every document once, keeps to the capacity, and needs no more rows than best-fit
decreasing does.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from course_lib.classroom.exercise import Attempt, Case
from course_lib.packing import fill_bins


def bins_case(lengths: Sequence[int], capacity: int, label: str) -> Case:
    """The lengths of some documents, and a right answer is any that is as good as `fill_bins`."""
    fewest = len(fill_bins(lengths, capacity))

    def same(got: Any, wanted: Any) -> bool:
        flat = _flat(got)
        return (
            sorted(flat) == list(range(len(lengths)))
            and all(sum(lengths[i] for i in row) <= capacity for row in got)
            and len(got) <= fewest
        )

    return Case((list(lengths), capacity), label=label, same=same)


def _flat(rows: Any) -> list[int]:
    return [i for row in rows for i in row]


def _asked(attempt: Attempt) -> tuple[list[int], int, list[list[int]], list[int]]:
    lengths, capacity = attempt.args
    return lengths, capacity, attempt.got, _flat(attempt.got)


def is_one_flat_list(attempt: Attempt) -> bool:
    return bool(attempt.got) and all(isinstance(part, int) for part in attempt.got)


def is_a_dictionary(attempt: Attempt) -> bool:
    return isinstance(attempt.got, dict)


def holds_pairs(attempt: Attempt) -> bool:
    """(index, length) in place of the index: what `enumerate` gave was kept."""
    return any(isinstance(part, tuple) for row in attempt.got for part in row)


def holds_lengths(attempt: Attempt) -> bool:
    lengths, _, _, flat = _asked(attempt)
    return sorted(flat) == sorted(lengths) and sorted(flat) != list(range(len(lengths)))


def is_numbered_in_sorted_order(attempt: Attempt) -> bool:
    """Rows that would fit if document i were the i-th longest: the numbers of the sorted list were kept."""
    lengths, capacity, rows, flat = _asked(attempt)
    by_size = sorted(lengths, reverse=True)
    return (
        sorted(flat) == list(range(len(lengths)))
        and any(sum(lengths[i] for i in row) > capacity for row in rows)
        and all(sum(by_size[i] for i in row) <= capacity for row in rows)
    )


def counts_from_one(attempt: Attempt) -> bool:
    lengths, _, _, flat = _asked(attempt)
    return bool(lengths) and sorted(flat) == list(range(1, len(lengths) + 1))


def names_no_document(attempt: Attempt) -> bool:
    lengths, _, _, flat = _asked(attempt)
    return any(not 0 <= i < len(lengths) for i in flat)


def loses_documents(attempt: Attempt) -> bool:
    lengths, _, _, flat = _asked(attempt)
    return bool(set(range(len(lengths))) - set(flat))


def lost(attempt: Attempt) -> dict[str, object]:
    lengths, _, _, flat = _asked(attempt)
    document = min(set(range(len(lengths))) - set(flat))
    return {"document": document, "tokens": lengths[document]}


def loses_empty_documents(attempt: Attempt) -> bool:
    lengths, _, _, flat = _asked(attempt)
    missing = set(range(len(lengths))) - set(flat)
    return bool(missing) and all(lengths[i] == 0 for i in missing)


def is_one_list_many_times(attempt: Attempt) -> bool:
    """[[]] * rows: every row is the same list, and so holds everything."""
    lengths, capacity, rows, _ = _asked(attempt)
    first = sorted(rows[0])
    return (
        len(rows) > 1
        and all(sorted(row) == first for row in rows)
        and first == list(range(len(lengths)))
        and sum(lengths) > capacity
    )


def takes_the_first_of_equals(attempt: Attempt) -> bool:
    """lengths.index(n): of several documents of one length it always gives the first."""
    lengths, _, _, flat = _asked(attempt)
    firsts = {lengths.index(n) for n in lengths}
    return (
        len(firsts) < len(flat)
        and set(flat) == firsts
        and sorted(lengths[i] for i in flat) == sorted(lengths)
    )


def cuts_documents(attempt: Attempt) -> bool:
    """One row ends and the next begins with the same document, of which the row had no room for the whole."""
    lengths, _, rows, flat = _asked(attempt)
    whole = all(len(set(row)) == len(row) for row in rows)
    both = sum(bool(a) and bool(b) and a[-1] == b[0] for a, b in pairwise(rows))
    return len(lengths) > 1 and whole and both > 0 and len(flat) - len(set(flat)) == both


def repeats_documents(attempt: Attempt) -> bool:
    _, _, _, flat = _asked(attempt)
    return len(set(flat)) < len(flat)


def overfills(attempt: Attempt) -> bool:
    lengths, capacity, rows, _ = _asked(attempt)
    return any(sum(lengths[i] for i in row) > capacity for row in rows)


def fullest(attempt: Attempt) -> dict[str, object]:
    lengths, capacity, rows, _ = _asked(attempt)
    return {"filled": max(sum(lengths[i] for i in row) for row in rows), "capacity": capacity}


def holds_empty_rows(attempt: Attempt) -> bool:
    return any(not row for row in attempt.got)


def gives_each_its_own(attempt: Attempt) -> bool:
    return len(attempt.got) == len(attempt.args[0]) > 1


def wastes_an_exact_fit(attempt: Attempt) -> bool:
    """The 1 has found the gap that the 8 leaves, and yet 4 does not join 6: `<` where `<=` is meant."""
    return attempt.case.label == "exact_fit" and {2, 3} in [set(row) for row in attempt.got]


def follows_the_order_given(attempt: Attempt) -> bool:
    """Row after row, the documents stand as they came: one that did not fit opened a row, and nobody looked back."""
    lengths, _, _, flat = _asked(attempt)
    return flat == list(range(len(lengths)))


def never_looks_back(attempt: Attempt) -> bool:
    """Longest first, but each only into the row opened last."""
    lengths, _, _, flat = _asked(attempt)
    placed = [lengths[i] for i in flat]
    return placed == sorted(placed, reverse=True) and uses_too_many_rows(attempt)


def row_counts(attempt: Attempt) -> dict[str, object]:
    lengths, capacity = attempt.args
    return {"rows": len(attempt.got), "fewest": len(fill_bins(lengths, capacity))}


def uses_too_many_rows(attempt: Attempt) -> bool:
    return len(attempt.got) > row_counts(attempt)["fewest"]  # type: ignore[operator]


# A fair trial for answers that do not sort: 30 tokens that fill three rows of ten without a gap.
UNSORTED = (2, 5, 4, 7, 1, 3, 8)
EXACT = (6, 4, 8, 1)
TWO_WITH_ROOM = (6, 3, 6)
WITH_NOTHING = (3, 0, 3, 0)
