"""Lesson 05: the pictures, the plots and the explorer show what they say, and the dense bias is what it stands for."""

import math

import pytest
import torch

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal
from course_lib.lessons import lesson_05
from course_lib.lessons.lesson_05_memory import alibi_work, alibi_workspaces, dense_bias
from course_lib.lessons.lesson_05_pictures import WORDS


@pytest.fixture
def plots(monkeypatch):
    """matplotlib without a window."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")


# --- the explorer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12, 16])
@pytest.mark.parametrize("show", ["fine", "weights"])
def test_the_explorer_has_a_bar_for_every_head_and_all_the_words(heads, show):
    html = lesson_05.render_slopes_explorer(heads, 1, 6, show)
    assert f"Slopes of {heads} heads" in html
    assert all(word in html for word in WORDS)


def test_the_explorer_writes_the_fine_of_each_step():
    html = lesson_05.render_slopes_explorer(8, 1, 6, "fine")
    assert all(f"−{steps / 2:.2f}" in html for steps in range(1, 6))


def test_weights_of_the_explorer_sum_to_one_for_the_last_word():
    html = lesson_05.render_slopes_explorer(8, 1, 3, "weights")
    expected = torch.tensor([-1.0, -0.5, 0.0]).softmax(0)
    assert all(f"{weight:.2f}" in html for weight in expected.tolist())
    assert f"{float(expected[-1]):.0%}" in html


def test_a_head_past_the_last_shows_the_last():
    past, last = (lesson_05.render_slopes_explorer(4, head, 5, "fine") for head in (16, 4))
    assert past == last


def test_slopes_that_are_no_unit_fraction_are_written_as_decimals():
    html = lesson_05.render_slopes_explorer(12, 9, 6, "fine")
    assert "0.707" in html and "1/2" in html


def test_moving_a_control_of_the_explorer_changes_its_picture(capsys):
    explorer = lesson_05.slopes_explorer()
    explorer.set(heads=6)
    assert "the picture has changed" in capsys.readouterr().out


# --- dials and packs ---------------------------------------------------------------------------------------------


def test_a_hand_turns_by_the_same_angle_from_word_to_word():
    html = lesson_05.dials_figure(["এক", "দুই", "তিন"], turns=(math.pi / 2, 0.1)).html
    assert html.count("<circle") == 6
    assert 'y2="38.0"' in html  # the first hand points up: 28 above the middle of its dial


def test_the_pack_hides_the_other_document():
    html = lesson_05.pack_figure([["ক", "খ"], ["গ", "ঘ"]], slope=0.5).html
    assert "10 of 16 cells are visible" in html
    assert "6 of 16 cells are visible" in html


# --- plots -------------------------------------------------------------------------------------------------------


def test_the_waves_say_how_much_of_a_turn_training_has_seen(plots, capsys):
    lesson_05.waves_figure(pairs=[0, 28], dim=96, length=128, trained=64)
    assert "share of a turn seen in training: 1, 0.047" in capsys.readouterr().out


def test_reach_halves_where_it_says(plots, capsys):
    lesson_05.reach_figure(alibi_slopes(4))
    assert f"{math.log(2) * 4:.2f}" in capsys.readouterr().out


def test_extrapolation_says_which_kind_rises_for_every_seed(plots, capsys):
    losses = {"ALiBi": [[2.0, 1.9], [2.0, 2.1]], "rotary": [[2.0, 2.2], [2.1, 2.3]]}
    lesson_05.extrapolation_figure(losses, [64, 128], 64)
    printed = capsys.readouterr().out
    assert "ALiBi: higher at 128 than at 64 for every seed: False" in printed
    assert "rotary: higher at 128 than at 64 for every seed: True" in printed


def test_added_loss_is_judged_beyond_training_only(plots, capsys):
    added = {"ALiBi": torch.zeros(8), "learned": torch.tensor([0.0] * 4 + [1.0] * 4)}
    lesson_05.added_figure(added, step=2, trained=4)
    printed = capsys.readouterr().out
    assert "ALiBi: a longer past harms: False" in printed
    assert "learned: a longer past harms: True" in printed


def test_rounding_counts_the_values_it_draws(plots, capsys):
    lesson_05.rounding_figure(0, 256)
    assert "in bfloat16: 256" in capsys.readouterr().out


def test_the_table_says_whether_trained_rows_stand_out(plots, capsys):
    table = torch.ones(8, 4)
    table[:4] *= 3
    lesson_05.table_figure(table, 4)
    assert "True" in capsys.readouterr().out


def test_the_memory_plot_takes_fewer_dense_points_than_lengths(plots, capsys):
    lesson_05.memory_figure([512, 1024], [2**22, 2**24], [2**22], [2**23, 2**23])
    assert "dense bias, predicted, MiB: 4, 16" in capsys.readouterr().out


# --- what is measured --------------------------------------------------------------------------------------------


def test_the_dense_bias_is_causal_alibi_written_out():
    ours = (Causal() + ALiBi(6)).materialize(9, 9, num_heads=6)[0]
    assert torch.equal(dense_bias(9, 6), ours)


def test_both_forms_that_are_measured_give_the_same_output_and_gradients():
    results = []
    for form in ("dense", "tiled"):
        torch.manual_seed(0)
        results.append(alibi_work(length=70, form=form, num_heads=2, head_dim=8)())
    for dense, tiled in zip(*results, strict=True):
        assert torch.allclose(dense, tiled, atol=1e-5)


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="form: expected one of 'dense', 'tiled', got 'sparse'"):
        alibi_workspaces([64], form="sparse")
