"""Wrong answers to lesson 04's exercise on a cache's room, to be recognised by what they give and leave behind.

What is compared: (the result, the room afterwards, whether the result lies in the room).
"""

import torch

from course_lib.classroom.exercise import Attempt


def append_by_cat(room, length, new):
    return torch.cat((room[:length], new))


def append_to_all_of_the_room(room, length, new):
    return torch.cat((room, new))


def append_at_start(room, length, new):
    room[: len(new)] = new
    return room[: length + len(new)]


def append_at_end(room, length, new):
    room[len(room) - len(new) :] = new
    return room[: length + len(new)]


def append_one_early(room, length, new):
    start = max(length - 1, 0)
    room[start : start + len(new)] = new
    return room[: start + len(new)]


def append_over_the_last(room, length, new):
    start = max(length - 1, 0)
    room[start : start + len(new)] = new
    return room[: length + len(new)]


def append_one_late(room, length, new):
    stop = min(length + 1 + len(new), len(room))
    room[stop - len(new) : stop] = new
    return room[: length + len(new)]


def append_and_give_all(room, length, new):
    room[length : length + len(new)] = new
    return room


def append_and_give_new(room, length, new):
    room[length : length + len(new)] = new
    return room[length : length + len(new)]


def append_and_give_new_itself(room, length, new):
    room[length : length + len(new)] = new
    return new


def append_and_give_one_too_few(room, length, new):
    room[length : length + len(new)] = new
    return room[: length + len(new) - 1]


def append_and_give_old(room, length, new):
    room[length : length + len(new)] = new
    return room[:length]


def append_and_copy(room, length, new):
    room[length : length + len(new)] = new
    return room[: length + len(new)].clone()


def append_only_the_first(room, length, new):
    room[length] = new[0]
    return room[: length + len(new)]


def append_only_the_last(room, length, new):
    room[length] = new[-1]
    return room[: length + len(new)]


def append_first_and_one_longer(room, length, new):
    room[length] = new[0]
    return room[: length + 1]


def append_one_longer(room, length, new):
    room[length : length + len(new)] = new
    return room[: length + 1]


def append_nothing(room, length, new):
    return room[: length + len(new)]


def append_added(room, length, new):
    room[length : length + len(new)] += new
    return room[: length + len(new)]


def new_rows(attempt: Attempt) -> dict[str, object]:
    return {"count": str(len(attempt.args[-1]))}


def gives_no_rows(attempt: Attempt) -> bool:
    """What comes back is no tensor, so it was not taken apart with the room; nothing at all has common words."""
    seen = attempt.got
    observed = isinstance(seen, tuple) and len(seen) == 3 and isinstance(seen[2], bool)
    return attempt.returned and seen is not None and not observed


def right_but_elsewhere(attempt: Attempt) -> bool:
    """The right numbers come back, and the room was never written."""
    result, room, _ = attempt.got
    wanted = attempt.wanted[0]
    return result.shape == wanted.shape and torch.equal(result, wanted) and torch.equal(room, attempt.args[0])


def right_but_a_copy(attempt: Attempt) -> bool:
    """Everything is right but for where the result lies."""
    (result, room, shares), (wanted, wanted_room, _) = attempt.got, attempt.wanted
    return not shares and torch.equal(result, wanted) and torch.equal(room, wanted_room)


def gives_other_rows(attempt: Attempt) -> bool:
    return attempt.got[0].shape != attempt.wanted[0].shape


def row_counts(attempt: Attempt) -> dict[str, object]:
    return {"given": str(list(attempt.got[0].shape)), "taken": str(list(attempt.wanted[0].shape))}


def wrote_elsewhere(attempt: Attempt) -> bool:
    return not torch.equal(attempt.got[1], attempt.wanted[1])


def first_wrong_row(attempt: Attempt) -> dict[str, object]:
    wrong = (attempt.got[1] != attempt.wanted[1]).flatten(1).any(1)
    return {"row": str(int(wrong.nonzero()[0]))}


def several_into_one_row(attempt: Attempt) -> bool:
    """`room[length] = new`: works for one token, and not for two."""
    return isinstance(attempt.error, RuntimeError) and "expand" in str(attempt.error)
