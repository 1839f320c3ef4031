"""Lesson 01: the pictures and the explorer show what they say."""

import pytest
import torch

from course_lib.attention import Causal
from course_lib.lessons import lesson_01
from course_lib.lessons.lesson_01_pictures import WORDS


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize("window", ["off", "1", "3"])
def test_the_explorer_fills_as_many_cells_as_the_mask_lets_through(align, window):
    for queries in range(1, 7):
        for keys in range(1, 7):
            width = None if window == "off" else int(window)
            visible = int((Causal(align, width).materialize(queries, keys) == 0).sum())
            html = lesson_01.render_mask_explorer(queries, keys, align, window)
            assert html.count("•") == visible
            assert f"{visible} of {queries * keys} cells" in html


def test_the_explorer_says_which_queries_see_nothing():
    assert "see nothing: 2" in lesson_01.render_mask_explorer(6, 4, "bottom-right", "off")
    assert "see nothing" not in lesson_01.render_mask_explorer(4, 6, "bottom-right", "off")


def test_the_explorer_names_the_wrong_corner_for_a_cache():
    assert "For a cache this is wrong" in lesson_01.render_mask_explorer(2, 5, "top-left", "off")
    assert "For a cache" not in lesson_01.render_mask_explorer(2, 5, "bottom-right", "off")


def test_the_explorer_shows_the_sentence_word_by_word():
    html = lesson_01.render_mask_explorer(6, 6, "bottom-right", "off")
    assert all(word in html for word in WORDS)


def test_moving_a_control_of_the_explorer_changes_its_picture(capsys):
    explorer = lesson_01.mask_explorer()
    explorer.set(align="bottom-right")
    assert "the picture has changed" in capsys.readouterr().out


def test_weights_of_zero_are_left_blank():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    html = lesson_01.weights_figure([("causal", weights)], ["এক", "দুই"]).html
    assert "3 of 4 cells are above 0" in html
    assert "0.00" not in html


def test_the_tiles_above_the_diagonal_are_counted_as_hidden():
    assert "28 are wholly hidden" in lesson_01.tiles_figure(2048, 256).html


def test_a_score_grid_with_equal_scores_can_be_drawn():
    assert "0.0" in lesson_01.scores_figure(torch.zeros(2, 2), ["এক", "দুই"]).html
