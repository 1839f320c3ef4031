"""Reading ahead keeps the order, never fills a buffer that is in use, and tells what went wrong."""

from __future__ import annotations

import threading

import pytest

from course_lib.offload.lanes import Lanes
from course_lib.offload.read_ahead import Load, ReadAhead
from course_lib.offload.trace import Trace


def filled(lanes: Lanes, buffers: list[list[int]]) -> ReadAhead[int, list[int]]:
    """Loading key k puts k into the buffer."""
    return ReadAhead(
        lanes, "load weights", "weights", buffers, lambda key: Load(key, 8, lambda own: own.append(key))
    )


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_buffer_holds_what_is_taken_until_it_is_given_back(count, overlap):
    buffers: list[list[int]] = [[] for _ in range(count)]
    with Lanes(Trace(), overlap=overlap) as lanes:
        ahead = filled(lanes, buffers)
        ahead.expect(range(20))
        for key in range(20):
            with ahead.take(key) as buffer:
                assert buffer[-1] == key
    assert sorted(key for buffer in buffers for key in buffer) == list(range(20))


def test_as_many_are_loaded_ahead_as_there_are_buffers():
    loaded = threading.Semaphore(0)
    with Lanes(Trace()) as lanes:
        ahead: ReadAhead[int, None] = ReadAhead(
            lanes, "load weights", "weights", [None] * 3, lambda key: Load(key, 0, lambda _: loaded.release())
        )
        ahead.expect(range(9))
        assert all(loaded.acquire(timeout=10) for _ in range(3)) and not loaded.acquire(timeout=0.05)
        with ahead.take(0):
            assert not loaded.acquire(timeout=0.05)
        assert loaded.acquire(timeout=10)


def test_what_is_under_way_when_it_stops_is_the_beginning_of_what_comes_next():
    with Lanes(Trace()) as lanes:
        ahead = filled(lanes, [[], []])
        ahead.expect([0, 1, 2, 0, 1, 2])
        for key in (0, 1, 2):
            with ahead.take(key):
                pass
        ahead.stop()
        ahead.expect([0, 1, 2])
        for key in (0, 1, 2):
            with ahead.take(key) as buffer:
                assert buffer[-1] == key
    assert lanes.trace.counts()["weights"] == 6


def test_a_failed_load_raises_where_it_is_taken():
    def broken(_: object) -> None:
        raise OSError("cannot read")

    with Lanes(Trace()) as lanes:
        ahead: ReadAhead[int, None] = ReadAhead(
            lanes, "load weights", "weights", [None], lambda key: Load(key, 0, broken)
        )
        ahead.expect([0])
        with pytest.raises(OSError, match="cannot read"), ahead.take(0):
            pass


def test_taking_out_of_turn_is_an_error_and_not_another_layers_weights():
    with Lanes(Trace()) as lanes:
        ahead = filled(lanes, [[]])
        ahead.expect([0, 1])
        with pytest.raises(RuntimeError, match="1 is taken before its turn"), ahead.take(1):
            pass
        with pytest.raises(RuntimeError, match=r"\[0\] are being loaded, and \[1\] come next"):
            ahead.expect([1])
