"""Figures share one look, are shown once and closed, and say their data in a line that machines agree on."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

from course_lib.classroom import figures


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_figure_is_shown_once_in_the_courses_style_and_closed(monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    before = plt.rcParams["font.size"]
    with figures.figure(columns=2) as (fig, axes):
        axes[0].plot([1, 2])
        assert fig.get_facecolor() == (1, 1, 1, 1) and axes[0].lines[0].get_color() == figures.BLUE
        assert tuple(fig.get_size_inches() * fig.dpi) == (600, 340)
    assert len(shown) == 1 and len(shown[0]) == 1
    assert plt.get_fignums() == [] and plt.rcParams["font.size"] == before


def test_a_figure_that_fails_is_closed_and_not_shown(monkeypatch):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(1))
    with pytest.raises(RuntimeError), figures.figure():
        raise RuntimeError
    assert shown == [] and plt.get_fignums() == []


def test_colours_differ_from_the_paper_and_dark_ink_is_dark():
    assert len(set(figures.PALETTE)) == 6
    for colour in figures.PALETTE:
        assert 1.05 / (_luminance(colour) + 0.05) > 1.9
    assert 1.05 / (_luminance(figures.GREY) + 0.05) > 4.5


def test_a_line_is_named_at_its_end(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    with figures.figure() as (_, axes):
        figures.label_end(axes, range(3), [1, 2, 5], "tiled", figures.GREEN)
        assert axes.texts[0].xy == (2, 5) and axes.texts[0].get_color() == figures.GREEN


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**20 - 1, "1 MiB"),
        (64 * 2**20, "64 MiB"), (5 * 2**30, "5 GiB"), (350 * 10**9, "326 GiB"), (3 * 2**40, "3 TiB"),
        (2**51, "2048 TiB"),
    ],
)  # fmt: skip
def test_bytes_are_written_in_binary_units(count, text):
    assert figures.bytes_text(count) == text


def test_bytes_must_be_a_number_of_bytes():
    for count in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="count: expected a number of bytes of 0 or more"):
            figures.bytes_text(count)


def test_a_logarithmic_byte_axis_has_ticks_at_powers_of_two(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    with figures.figure() as (fig, axes):
        axes.plot([1, 2], [2**20, 2**26])
        axes.set_yscale("log", base=2)
        figures.bytes_axis(axes.yaxis)
        fig.canvas.draw()
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert "1 MiB" in labels and "64 MiB" in labels


def test_a_digest_is_rounded_to_significant_digits(capsys):
    figures.digest("MiB", [1.23456, 0.00012345, 123456.0, 0.0, 2, float("inf"), -1.5])
    assert capsys.readouterr().out == "MiB: 1.23, 0.000123, 123000, 0, 2, inf, -1.5\n"


def test_the_same_figure_is_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    for name in ("a", "b"):
        with figures.figure() as (fig, axes):
            axes.plot([1, 2, 3])
            fig.savefig(tmp_path / f"{name}.svg", metadata={"Date": None})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
