"""Shuffling a stream that does not fit in memory."""

import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def shuffled(items: Iterable[Item], *, buffer_size: int, seed: int) -> Iterator[Item]:
    """Yield every item exactly once, in an order drawn from ``seed``, holding at most ``buffer_size`` of
    them.

    The buffer is filled, then each new item takes the place of one drawn at random. With ``buffer_size=1``
    the order stays; with a buffer as long as the stream it is a full shuffle; in between an item comes out at
    most ``buffer_size - 1`` places early, and usually about ``buffer_size`` places late. Same items, size and
    seed: same order, on every Python.

    Raises ValueError if ``buffer_size`` is below 1, TypeError if it or ``seed`` is not an int.
    """
    for name, value in (("buffer_size", buffer_size), ("seed", seed)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}: expected an int, got {type(value).__name__} {value!r}")
    if buffer_size < 1:
        raise ValueError(
            f"buffer_size: expected at least 1 item, got {buffer_size}; 1 keeps the order, 1000 mixes well"
        )
    return _shuffled(iter(items), buffer_size, random.Random(seed))


def _shuffled(items: Iterator[Item], buffer_size: int, generator: random.Random) -> Iterator[Item]:
    buffer: list[Item] = []
    for item in items:
        buffer.append(item)
        if len(buffer) == buffer_size:
            yield _take_one(buffer, generator)
    while buffer:
        yield _take_one(buffer, generator)


def _take_one(buffer: list[Item], generator: random.Random) -> Item:
    index = generator.randrange(len(buffer))
    buffer[index], buffer[-1] = buffer[-1], buffer[index]
    return buffer.pop()
