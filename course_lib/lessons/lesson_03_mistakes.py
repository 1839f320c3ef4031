"""Wrong answers to exercises 3.3 and 3.4 of lesson 03 (positions, targets), each written as a student would.

Those to the lengths (3.1) are in `lesson_03_length_mistakes`, those to the mask (3.2) in `lesson_03_mask_mistakes`,
those to the scores (3.5) in `lesson_03_score_mistakes`, the questions asked of bins (3.6) in `lesson_03_bins`.
"""

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt

# --- 3.3 ---------------------------------------------------------------------------------------------------------


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


def _starts(lengths):
    return [sum(lengths[:i]) for i in range(len(lengths))]


def positions_of_the_row(lengths):
    return torch.arange(sum(lengths))


def positions_of_the_row_from_one(lengths):
    return torch.arange(sum(lengths)) + 1


def positions_from_one(lengths):
    return _joined([torch.arange(1, n + 1) for n in lengths])


def positions_from_one_after_the_first(lengths):
    return _joined([torch.arange(n) + (i > 0) for i, n in enumerate(lengths)])


def positions_of_documents(lengths):
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def positions_of_starts(lengths):
    return torch.repeat_interleave(torch.tensor(_starts(lengths)), torch.tensor(lengths))


def positions_counted_down(lengths):
    return _joined([torch.arange(n).flip(0) for n in lengths])


def positions_from_the_end(lengths):
    ends = torch.tensor(lengths).cumsum(0)
    return torch.arange(sum(lengths)) - torch.repeat_interleave(ends, torch.tensor(lengths))


def positions_less_own_length(lengths):
    """The length of a document subtracted, in place of where it starts."""
    return torch.arange(sum(lengths)) - torch.repeat_interleave(torch.tensor(lengths), torch.tensor(lengths))


def positions_less_the_length_before(lengths):
    """Only the length of the document right before is subtracted: right for two documents."""
    before = [0, *lengths[:-1]]
    return torch.arange(sum(lengths)) - torch.repeat_interleave(torch.tensor(before), torch.tensor(lengths))


def positions_as_if_equal(lengths):
    return torch.arange(sum(lengths)) % max(lengths[0], 1)


def positions_as_if_longest(lengths):
    return torch.arange(sum(lengths)) % max(lengths)


def positions_restarted_late(lengths):
    """The first token of a document still counts on: the counter is set back after it is written down."""
    made, position = [], 0
    for i, n in enumerate(lengths):
        for j in range(n):
            made.append(position)
            position += 1
            if i > 0 and j == 0:
                position = 1
    return torch.tensor(made, dtype=torch.int64)


def positions_restarted_one_late(lengths):
    """0 stands on the second token of each document but the first."""
    made, position = [], 0
    for i, n in enumerate(lengths):
        for j in range(n):
            if i > 0 and j == 1:
                position = 0
            made.append(position)
            position += 1
    return torch.tensor(made, dtype=torch.int64)


def positions_restarted_early(lengths):
    """The last token of a document is already 0."""
    ends = {end - 1 for end in torch.tensor(lengths).cumsum(0).tolist()[:-1]}
    made, position = [], 0
    for i in range(sum(lengths)):
        if i in ends:
            position = 0
        made.append(position)
        position += 1
    return torch.tensor(made, dtype=torch.int64)


def positions_padded(lengths):
    """A row for each document, filled up to the longest."""
    return torch.nn.utils.rnn.pad_sequence([torch.arange(n) for n in lengths], batch_first=True)


def positions_of_zeros(lengths):
    return torch.zeros(sum(lengths), dtype=torch.int64)


def restarts_at_regular_distances(attempt: Attempt) -> bool:
    row = torch.arange(len(attempt.wanted))
    return any(torch.equal(attempt.got, row % n) for n in range(2, len(row)))


def stops_at_the_empty_document(attempt: Attempt) -> bool:
    lengths = attempt.args[0]
    before = sum(lengths[: lengths.index(0)])
    return attempt.got.tolist() == attempt.wanted[:before].tolist()


def only_the_last_document(attempt: Attempt) -> bool:
    return attempt.got.tolist() == list(range(attempt.args[0][-1])) != attempt.wanted.tolist()


def only_the_first_document(attempt: Attempt) -> bool:
    return attempt.got.tolist() == list(range(attempt.args[0][0])) != attempt.wanted.tolist()


def has_two_dimensions(attempt: Attempt) -> bool:
    return attempt.got.dim() == 2 and attempt.got.flatten().tolist() == attempt.wanted.tolist()


# --- 3.4 ---------------------------------------------------------------------------------------------------------


def _marked(targets: Tensor, places) -> Tensor:
    targets = targets.clone()
    for place in places:
        if -len(targets) <= place < len(targets):
            targets[place] = -100
    return targets


def _ends(lengths):
    return [sum(lengths[: i + 1]) - 1 for i, n in enumerate(lengths) if n]


def targets_that_wrap(tokens, lengths):
    return tokens.roll(-1)


def targets_that_cross(tokens, lengths):
    return _marked(tokens.roll(-1), [len(tokens) - 1])


def targets_that_wrap_inside(tokens, lengths):
    """Each document rolled by itself: its last token is to predict its first."""
    return torch.cat([document.roll(-1) for document in tokens.split(list(lengths))])


def targets_without_first(tokens, lengths):
    """-100 on the first token of each document in place of the last."""
    return _marked(
        tokens.roll(-1), [end + 1 - n for end, n in zip(_ends(lengths), filter(None, lengths), strict=True)]
    )


def targets_without_first_nor_last(tokens, lengths):
    starts = [end + 1 - n for end, n in zip(_ends(lengths), filter(None, lengths), strict=True)]
    return _marked(tokens.roll(-1), [*starts, *_ends(lengths)])


def targets_marked_one_late(tokens, lengths):
    """The sums of the lengths taken for the last tokens: each is the first of the next document."""
    return _marked(tokens.roll(-1), [end + 1 for end in _ends(lengths)])


def targets_marked_one_late_and_at_the_end(tokens, lengths):
    return _marked(tokens.roll(-1), [*(end + 1 for end in _ends(lengths)), len(tokens) - 1])


def targets_marked_one_early(tokens, lengths):
    return _marked(tokens.roll(-1), [end - 1 for end in _ends(lengths)])


def targets_marked_inside(tokens, lengths):
    """All but the very last end."""
    return _marked(tokens.roll(-1), _ends(lengths)[:-1])


def targets_before(tokens, lengths):
    """The token before each: rolled the other way."""
    return _marked(
        tokens.roll(1), [end + 1 - n for end, n in zip(_ends(lengths), filter(None, lengths), strict=True)]
    )


def targets_before_unmarked(tokens, lengths):
    return tokens.roll(1)


def targets_unshifted(tokens, lengths):
    """The tokens themselves, as for a model that shifts them inside."""
    return tokens.clone()


def targets_unshifted_without_first(tokens, lengths):
    return _marked(tokens, _starts(lengths))


def targets_marked_on_both_sides(tokens, lengths):
    return _marked(tokens.roll(-1), [*_ends(lengths), *(end + 1 for end in _ends(lengths)[:-1])])


def targets_marked_at_own_lengths(tokens, lengths):
    """Lengths taken for places: -100 at n - 1 of the row, for each document's n."""
    return _marked(tokens.roll(-1), [n - 1 for n in lengths])


def targets_marked_at_own_lengths_and_at_the_end(tokens, lengths):
    return _marked(tokens.roll(-1), [*(n - 1 for n in lengths), len(tokens) - 1])


def targets_before_with_marked_ends(tokens, lengths):
    return _marked(tokens.roll(1), _ends(lengths))


def targets_of_itself(tokens, lengths):
    return _marked(tokens, _ends(lengths))


def targets_two_ahead(tokens, lengths):
    return _marked(tokens.roll(-2), _ends(lengths))


def targets_of_nothing(tokens, lengths):
    return torch.full_like(tokens, -100)


def targets_of_the_last_token(tokens, lengths):
    """The last token of each document as the target of all of it."""
    last = [document[-1:].expand(len(document)) for document in tokens.split(list(lengths))]
    return _marked(torch.cat(last), _ends(lengths))


def targets_without_ends(tokens, lengths):
    """One target less for each document, so that the rest no longer lines up with the logits."""
    return torch.cat([document[1:] for document in tokens.split(list(lengths))])


def is_one_shorter(attempt: Attempt) -> bool:
    return attempt.got.dim() == 1 and len(attempt.got) == len(attempt.wanted) - 1


def marks_ends_with_another_number(attempt: Attempt) -> bool:
    if attempt.got.is_floating_point():
        return False  # a matter of its dtype first
    ends = attempt.wanted == -100
    same_elsewhere = bool((attempt.got[~ends] == attempt.wanted[~ends]).all())
    marks = set(attempt.got[ends].tolist())
    return (
        same_elsewhere and len(marks) == 1 and -100 not in marks and not marks & set(attempt.args[0].tolist())
    )


def marks_empty_documents(attempt: Attempt) -> bool:
    """One -100 for every document, although an empty one has no last token."""
    tokens, lengths = attempt.args
    parts = [[*document[1:].tolist(), -100] for document in tokens.split(lengths)]
    return 0 in lengths and attempt.got.tolist() == [target for part in parts for target in part]


def index_past_the_end(attempt: Attempt) -> bool:
    return isinstance(attempt.error, IndexError)
