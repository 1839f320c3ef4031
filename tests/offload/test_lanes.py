"""Lanes work beside each other and each in order; errors and ends reach whoever waits."""

from __future__ import annotations

import threading

import pytest

from course_lib.offload.lanes import Lanes
from course_lib.offload.trace import Trace


def test_jobs_of_a_lane_come_one_after_another():
    done: list[int] = []
    with Lanes(Trace()) as lanes:
        futures = [lanes.submit("load weights", "load", i, 0, done.append, i) for i in range(50)]
        for future in futures:
            future.result(10)
    assert done == list(range(50))


def test_two_lanes_work_beside_each_other():
    there = threading.Barrier(2, timeout=10)  # passes only where both wait at once
    with Lanes(Trace()) as lanes:
        one = lanes.submit("load weights", "load", 0, 0, there.wait)
        other = lanes.submit("load cache", "load", 0, 0, there.wait)
        assert {one.result(10), other.result(10)} == {0, 1}


@pytest.mark.parametrize("overlap", [True, False])
def test_what_a_job_raises_reaches_whoever_waits_for_it(overlap):
    def broken() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), Lanes(Trace(), overlap=overlap) as lanes:
        lanes.submit("load weights", "load", 0, 0, broken).result(10)


def test_without_overlap_a_job_is_done_when_it_is_handed_in():
    with Lanes(Trace(), overlap=False) as lanes:
        assert (
            lanes.submit("load weights", "load", 0, 0, threading.current_thread).result(0)
            is threading.current_thread()
        )
        assert lanes.submit("load weights", "load", 0, 0, lambda: 7).done()


def test_after_an_error_no_job_begins_and_none_is_left_at_work():
    begun, free = threading.Event(), threading.Event()
    ran: list[int] = []

    def first() -> None:
        begun.set()
        free.wait(10)
        ran.append(0)

    with pytest.raises(KeyboardInterrupt), Lanes(Trace()) as lanes:
        lanes.submit("load weights", "load", 0, 0, first)
        lanes.submit("load weights", "load", 1, 0, ran.append, 1)
        begun.wait(10)
        threading.Timer(0.05, free.set).start()
        raise KeyboardInterrupt
    assert ran == [0]


def test_the_trace_tells_lane_layer_and_bytes_of_every_job():
    trace = Trace()
    with Lanes(trace) as lanes:
        lanes.submit("load weights", "weights", 3, 4096, lambda: None).result(10)
        with trace.event("compute", "layer", 3):
            pass
    loaded, computed = trace.events
    assert (loaded.lane, loaded.kind, loaded.layer, loaded.bytes) == ("load weights", "weights", 3, 4096)
    assert 0 <= loaded.start_s <= loaded.end_s <= computed.start_s <= computed.end_s == trace.seconds
    assert trace.total("weights") == trace.total(lane="load weights") == 4096 and trace.total("layer") == 0
    assert trace.counts() == {"weights": 1, "layer": 1}


def test_the_picture_has_a_row_for_each_lane_and_a_colour_for_each_kind():
    trace = Trace()
    for lane, kind in (("compute", "layer"), ("load weights", "weights"), ("compute", "head")):
        with trace.event(lane, kind, 0):
            pass
    ax = trace.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["compute", "load weights"]
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"layer", "weights", "head"}


def test_an_empty_trace_cannot_be_drawn():
    with pytest.raises(ValueError, match="trace: expected events to draw"):
        Trace().plot()
