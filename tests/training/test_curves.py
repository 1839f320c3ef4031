"""The picture of a run shows its numbers, whatever they are."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

from course_lib.training.curves import curves_figure, write_curves


def run(steps=80):
    return [
        dict(step=i, loss=8 / i, learning_rate=1e-3 / i, tokens=4000, seconds=2.0)
        for i in range(1, steps + 1)
    ]


def test_the_loss_of_each_step_and_the_held_out_losses_are_drawn():
    figure = curves_figure(run(), [(0, 8.3), (80, 2.1)])
    raw, smooth, held_out = figure.axes[0].get_lines()
    assert list(raw.get_ydata()) == [8 / i for i in range(1, 81)]
    assert len(smooth.get_ydata()) == 80
    assert list(held_out.get_xydata().ravel()) == [0, 8.3, 80, 2.1]


def test_the_smoothed_loss_is_the_mean_of_the_last_fortieth_of_the_run():
    smooth = curves_figure(run(80)).axes[0].get_lines()[1].get_ydata()
    assert smooth[0] == pytest.approx(8)
    assert smooth[9] == pytest.approx((8 / 9 + 8 / 10) / 2)


def test_below_are_the_learning_rate_and_the_tokens_a_second():
    figure = curves_figure(run())
    assert [axes.get_title(loc="left") for axes in figure.axes[1:]] == ["learning rate", "tokens a second"]
    assert figure.axes[1].get_lines()[0].get_ydata()[3] == pytest.approx(1e-3 / 4)
    assert figure.axes[2].get_lines()[0].get_ydata() == pytest.approx(np.full(80, 2000.0))


def test_speed_is_tokens_over_seconds_and_no_mean_of_quotients():
    records = [
        dict(step=1, loss=1.0, tokens=100, seconds=1.0),
        dict(step=2, loss=1.0, tokens=100, seconds=3.0),
    ] * 40
    for number, record in enumerate(records):
        records[number] = record | {"step": number}
    speed = curves_figure(records).axes[1].get_lines()[0].get_ydata()
    assert speed[-1] == pytest.approx(200 / 4)


def test_records_may_be_objects_as_train_makes_them():
    figure = curves_figure([SimpleNamespace(**record) for record in run(3)])
    assert list(figure.axes[0].get_lines()[0].get_xdata()) == [1, 2, 3]


def test_lines_of_the_log_without_a_loss_are_left_out():
    figure = curves_figure([{"step": 0, "held_out": 8.0}, *run(3), {"step": 3, "held_out": 2.0}])
    assert list(figure.axes[0].get_lines()[0].get_xdata()) == [1, 2, 3]


def test_a_panel_without_numbers_is_left_out():
    assert len(curves_figure([{"step": 1, "loss": 2.0}]).axes) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_does_not_spread_into_the_mean(value):
    records = run(80)
    records[40]["loss"] = value
    smooth = curves_figure(records).axes[0].get_lines()[1].get_ydata()
    assert np.isfinite(smooth).all()


def test_held_out_losses_alone_are_drawn():
    assert len(curves_figure([], [(0, 8.0)]).axes[0].get_lines()) == 1


def test_nothing_to_draw_is_refused():
    with pytest.raises(
        ValueError, match="records: expected at least one step or held-out loss to draw, got none"
    ):
        curves_figure([])


def test_the_png_is_600_pixels_wide_and_equal_for_equal_numbers(tmp_path):
    first = write_curves(tmp_path / "a.png", run(), [(0, 8.0)]).read_bytes()
    assert first[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(first[16:20], "big") == 600
    assert write_curves(tmp_path / "b.png", run(), [(0, 8.0)]).read_bytes() == first
    assert write_curves(tmp_path / "b.png", run(), [(0, 2.0)]).read_bytes() != first


def test_an_interrupted_write_leaves_the_older_picture(tmp_path, monkeypatch):
    before = write_curves(tmp_path / "curves.png", run(3)).read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_curves(tmp_path / "curves.png", run(5))
    assert (tmp_path / "curves.png").read_bytes() == before
