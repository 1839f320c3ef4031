"""Lesson 02: the masks of xFormers, the tiles and the pictures show what is so."""

import pytest
import torch

from course_lib.attention import Causal
from course_lib.attention.xformers_bridge import xformers_ops
from course_lib.lessons import lesson_02
from course_lib.lessons.lesson_02_pictures import count_kinds, tile_kinds

EXAMPLES = lesson_02.mask_examples()


# --- masks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_drawn_mask_is_the_class_it_is_named_after(example):
    ops = xformers_ops()
    if ops is None:
        pytest.skip("xFormers is not installed")
    mask = example.mask()
    assert type(mask).__name__ == example.name
    theirs = mask.materialize((1, 1, example.q_len, example.k_len)).float()
    assert torch.equal(theirs.reshape(example.q_len, example.k_len), example.dense()[0, 0])


def test_the_gallery_has_every_mask_class_of_xformers():
    ops = xformers_ops()
    if ops is None:
        pytest.skip("xFormers is not installed")
    classes = vars(ops.fmha.attn_bias)
    base = classes["AttentionBias"]
    known = {
        name for name, c in classes.items() if isinstance(c, type) and issubclass(c, base) and c is not base
    }
    assert {example.name for example in EXAMPLES} == known
    assert "20 mask classes" in lesson_02.mask_gallery().title


def test_the_gallery_stays_small_enough_for_a_notebook():
    html = lesson_02.mask_gallery()._repr_html_()
    assert len(html.encode()) < 64_000
    assert html.count("<img") == len(EXAMPLES)


# --- pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "tile", "window"), [(12, 4, None), (13, 4, None), (16, 4, 3), (16, 4, 9), (8, 8, None)]
)
def test_a_tile_is_called_what_its_scores_are(n, tile, window):
    mask = Causal(window=window)
    seen = mask.materialize(n, n)[0, 0] == 0
    for i, row in enumerate(tile_kinds(n, n, tile, mask)):
        for j, kind in enumerate(row):
            part = seen[tile * i : tile * (i + 1), tile * j : tile * (j + 1)]
            assert kind == ("whole" if part.all() else "mask" if part.any() else "skip")


def test_the_explorer_counts_the_tiles_of_the_lesson():
    assert count_kinds(tile_kinds(2048, 2048, 256, Causal())) == {"skip": 28, "mask": 8, "whole": 28}
    card = lesson_02.render_tiles_explorer(2048, 256, "off")
    assert "36 of 64 tiles are touched (56 %)" in card
    assert "23 %" in lesson_02.render_tiles_explorer(2048, 256, "256")
    assert "18 %" in lesson_02.render_tiles_explorer(2048, 128, "256")


def test_moving_the_explorer_changes_its_picture(capsys):
    view = lesson_02.tiles_explorer()
    before = view.html
    view.set(window="256")
    assert view.html != before
    assert "window off → 256" in capsys.readouterr().out


def test_the_two_blocks_on_paper_come_out_as_in_the_text():
    words, scores, values = ["a", "b", "c", "d"], [1.0, 3, 4, 2], [8.0, 16, 32, 0]
    figure = lesson_02.pieces_figure(words, scores, values, cut=2)
    for line in ("m=3, l=1.25, o=18", "m=4, l=1.25, o=32", "l=1.875, o=41, output o/l=21.87"):
        assert line in figure.html


def test_the_tiles_of_the_sentence_are_numbered_as_they_are_visited():
    figure = lesson_02.tiles_figure(["a", "b", "c", "d", "e", "f"], tile=2)
    assert "3 skipped, 3 on the diagonal, 3 wholly visible" in figure.title
    assert figure.html.count(">skipped<") == 3
    assert ">6<" in figure.html and ">7<" not in figure.html


def test_the_shares_of_a_query_fill_its_bar():
    figure = lesson_02.shares_figure(["a", "b"], [0.25, 1.0], cut=1)
    assert "0.25" in figure.html and "0.75" in figure.html and "0.00" in figure.html
