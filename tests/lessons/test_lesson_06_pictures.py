"""Lesson 06: the pictures and the explorer show what they say, and the comparison is a fair one."""

import math

import pytest
import torch

from course_lib.bench.saved import saved_bytes
from course_lib.classroom.figures import bytes_text
from course_lib.lessons import lesson_06, lesson_06_experiment
from course_lib.lessons.lesson_06_xformers import EagerSwiGLU
from course_lib.swiglu import SwiGLU
from course_lib.tiny_gpt import FitResult

EXPECTED = {
    "ReLU": max(1.5, 0.0),
    "GELU": 1.5 * 0.5 * (1 + math.erf(1.5 / math.sqrt(2))),
    "SiLU": 1.5 / (1 + math.exp(-1.5)),
    "sigmoid": 1 / (1 + math.exp(-1.5)),
}


@pytest.mark.parametrize("activation", EXPECTED)
def test_the_explorer_shows_what_passes(activation):
    html = lesson_06.render_activation(activation, 1.5, -2.0)
    passed = -2.0 * EXPECTED[activation]
    assert f"gives {EXPECTED[activation]:.2f}" in html
    assert f"{passed:.2f} passes" in html


def test_the_explorer_names_a_gate_that_learns_nothing():
    assert "learns nothing" in lesson_06.render_activation("ReLU", -1.0, 2.0)
    assert "learns nothing" not in lesson_06.render_activation("SiLU", -1.0, 2.0)


def test_the_explorer_names_the_turned_sign():
    assert "the sign turns" in lesson_06.render_activation("SiLU", -1.0, 2.0)
    assert "the sign turns" not in lesson_06.render_activation("SiLU", 1.0, 2.0)


@pytest.mark.parametrize("gate", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("up", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("activation", EXPECTED)
def test_the_explorer_can_be_drawn_at_every_corner(activation, gate, up):
    html = lesson_06.render_activation(activation, gate, up)
    assert "nan" not in html.lower()
    assert "-0.00" not in html


def test_moving_a_control_of_the_explorer_changes_its_picture(capsys):
    explorer = lesson_06.activation_explorer()
    explorer.set(gate=-1.5)
    assert "the picture has changed" in capsys.readouterr().out


def test_the_block_figure_gives_both_shares():
    html = lesson_06.block_figure(100, 200, 192).html
    assert "33%" in html and "67%" in html


def test_the_dimmer_shows_every_word_and_what_passes():
    html = lesson_06.dimmer_figure(["সূর্য", "যায়"], [4.0, -4.0], [2.0, -4.0]).html
    assert "সূর্য" in html and "7.86" in html and "0.29" in html


def test_the_widths_figure_draws_equal_areas():
    html = lesson_06.widths_figure(192, 768, 512).html
    assert html.count("294,912") >= 2


def test_the_saved_figure_says_what_is_measured():
    html = lesson_06.saved_figure(tokens=64, dim=96, hidden=256).html
    x = torch.randn(64, 96, requires_grad=True)
    for recompute in (False, True):
        layer = SwiGLU(96, 256, recompute=recompute)
        assert bytes_text(saved_bytes(lambda layer=layer: layer(x))) in html


def test_all_contestants_have_the_same_number_of_weights():
    weights = {
        name: sum(p.numel() for p in make(lesson_06_experiment.DIM).parameters() if p.dim() == 2)
        for name, make in lesson_06.FEED_FORWARDS.items()
    }
    assert len(set(weights.values())) == 1, weights


def test_a_comparison_gives_one_loss_for_each_seed_and_can_be_repeated():
    first = lesson_06.compare(("ReLU", "SwiGLU"), seeds=2, steps=2, progress=False)
    assert {name: len(losses) for name, losses in first.items()} == {"ReLU": 2, "SwiGLU": 2}
    assert first == lesson_06.compare(("ReLU", "SwiGLU"), seeds=2, steps=2, progress=False)
    assert first["ReLU"][0] != first["ReLU"][1]


def test_a_comparison_leaves_the_threads_as_they_were():
    before = torch.get_num_threads()
    lesson_06.compare(("GELU",), seeds=1, steps=1, progress=False)
    assert torch.get_num_threads() == before


def test_a_comparison_refuses_a_name_it_does_not_know():
    with pytest.raises(ValueError, match=r"names: expected names among ReLU.*got 'Swish'"):
        lesson_06.compare(("Swish",))


def test_a_comparison_refuses_one_text_and_no_seeds():
    with pytest.raises(TypeError, match=r"names: expected several names.*\('SwiGLU',\)"):
        lesson_06.compare("SwiGLU")
    with pytest.raises(ValueError, match="seeds: expected at least 1, got 0"):
        lesson_06.compare(("SwiGLU",), seeds=0)


def test_an_interrupted_comparison_ends_and_gives_the_threads_back(monkeypatch):
    def interrupted(*args, **settings):
        return FitResult((3.0,), 512, 0.1, interrupted=True)

    monkeypatch.setattr(lesson_06_experiment, "fit", interrupted)
    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        lesson_06.compare(("GELU",), seeds=1, steps=1, progress=False)
    assert torch.get_num_threads() == before


def test_what_was_measured_beforehand_has_eight_seeds_and_no_winner():
    before = lesson_06.measured_beforehand()
    assert {len(losses) for losses in before.values()} == {8}
    assert lesson_06.winner(before) is None


@pytest.mark.parametrize("bias", [False, True])
def test_the_stand_in_for_xformers_does_what_xformers_does(bias):
    theirs_class = pytest.importorskip("xformers.ops").SwiGLU
    theirs, stand_in = theirs_class(8, 16, 4, bias=bias), EagerSwiGLU(8, 16, 4, bias=bias)
    stand_in.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(stand_in(x), theirs(x))
    assert saved_bytes(lambda: stand_in(x)) == saved_bytes(lambda: theirs(x))
    for module in (stand_in, theirs):
        with pytest.raises(RuntimeError, match="cannot reshape"):
            module(torch.zeros(2, 0, 8))


def test_without_xformers_there_is_the_stand_in(monkeypatch):
    from course_lib.lessons import lesson_06_xformers

    monkeypatch.setattr(lesson_06_xformers, "xformers_ops", lambda: None)
    assert lesson_06.xformers_swiglu() is EagerSwiGLU
