from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.text import shuffled


@given(st.lists(st.integers()), st.integers(1, 20), st.integers())
def test_every_item_comes_out_exactly_once(items: list[int], buffer_size: int, seed: int) -> None:
    assert Counter(shuffled(items, buffer_size=buffer_size, seed=seed)) == Counter(items)


def test_the_seed_alone_decides_the_order() -> None:
    first = list(shuffled(range(100), buffer_size=16, seed=3))
    assert first == list(shuffled(range(100), buffer_size=16, seed=3))
    assert first != list(shuffled(range(100), buffer_size=16, seed=4))
    assert first[:8] == [7, 4, 11, 18, 2, 0, 21, 8]  # on every Python, or a course's numbers would move


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert list(shuffled("নদীর", buffer_size=1, seed=0)) == list("নদীর")


def test_no_more_than_the_buffer_is_ever_taken_from_the_stream() -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield taken

    for given_out, _ in enumerate(shuffled(source(), buffer_size=10, seed=0)):
        assert taken - given_out <= 10


def test_an_endless_stream_can_be_shuffled() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    stream = shuffled(endless(), buffer_size=100, seed=0)
    assert len({next(stream) for _ in range(1000)}) == 1000


def test_a_large_buffer_mixes_evenly() -> None:
    first = Counter(next(shuffled(range(4), buffer_size=4, seed=seed)) for seed in range(2000))
    assert all(400 < count < 600 for count in first.values())


@pytest.mark.error_messages
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"buffer_size": 0, "seed": 0}, ValueError, "buffer_size: expected at least 1 item, got 0"),
        ({"buffer_size": 2.0, "seed": 0}, TypeError, "buffer_size: expected an int, got float 2.0"),
        ({"buffer_size": 2, "seed": None}, TypeError, "seed: expected an int, got NoneType None"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(
    arguments: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        shuffled(iter([]), **arguments)
