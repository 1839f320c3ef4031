"""Lesson 08: what it predicts and draws says what it should, and its measurements are those of the ladder."""

import math

import matplotlib.pyplot as plt
import pytest
import torch

from course_lib.bench.ladder import RUNGS, Workload, batches
from course_lib.lessons import lesson_08
from course_lib.lessons.lesson_08_explorer import DOCUMENTS
from course_lib.lessons.lesson_08_measure import Climb, Machine, _kind
from course_lib.lessons.lesson_08_predict import PARTS, lengths_like
from course_lib.models import GPT

TINY = Workload(width=48, layers=1, documents=2, cut=24)
MACHINE = Machine(products=1e9, half_products=4e9, memory=1e9)


@pytest.fixture(autouse=True)
def no_windows():
    plt.switch_backend("Agg")


def test_the_batch_figure_counts_tokens_and_slots():
    html = lesson_08.batch_figure([8, 2, 5]).html
    assert "15 of 24 slots" in html
    assert "38% are padding" in html


def test_packing_is_predicted_by_its_tokens_and_scores_alone():
    lengths = [20, 10, 2]
    before, after = (
        lesson_08.work_of(RUNGS[number], RUNGS[number].config(TINY), lengths) for number in (1, 2)
    )
    tokens, scores = lesson_08.LESSON.exercises["8.2"].solution(lengths)
    assert before["layers"].flop / after["layers"].flop == pytest.approx(tokens)
    assert before["head and loss"].bytes / after["head and loss"].bytes == pytest.approx(tokens)
    assert before["attention"].flop / after["attention"].flop == pytest.approx(scores)


def test_the_predicted_products_are_those_of_the_model():
    rung, lengths = RUNGS[2], [9, 9]
    config = rung.config(TINY)
    model = GPT(config)
    work = lesson_08.work_of(rung, config, lengths)
    products = work["layers"].flop + work["head and loss"].flop
    assert products / sum(lengths) == pytest.approx(
        model.flops_per_token(9) - 12 * config.num_layers * config.dim * 5
    )


def test_half_precision_changes_the_prediction_from_its_rung_on():
    lengths = [[24, 12]]
    slow = lesson_08.predicted(TINY, lengths, Machine(1e9, 1e9, 1e9))
    fast = lesson_08.predicted(TINY, lengths, MACHINE)
    assert slow["packing"] == fast["packing"]
    assert slow["AMP"] > fast["AMP"]


@pytest.mark.parametrize("padding", [0.0, 0.3, 0.65, 0.9])
def test_lengths_have_the_padding_that_was_asked_for(padding):
    lengths = lengths_like(DOCUMENTS, 2048, padding)
    assert max(lengths) == 2048
    assert 1 - sum(lengths) / (len(lengths) * 2048) == pytest.approx(padding, abs=0.02)


def test_a_batch_of_padding_alone_is_refused():
    with pytest.raises(ValueError, match="padding: expected a share from 0 to under 1, got 1"):
        lengths_like(8, 64, 1.0)


@pytest.mark.parametrize("show", ["time", "memory"])
@pytest.mark.parametrize("longest", [64, 2048])
@pytest.mark.parametrize("padding", [0, 90])
@pytest.mark.parametrize("kv_heads", [1, 6])
def test_the_explorer_can_be_drawn_at_every_corner(show, longest, padding, kv_heads):
    html = lesson_08.render_ladder(show, longest, padding, 50272, kv_heads, 8.0)
    assert "nan" not in html.lower()
    assert all(rung.name in html for rung in RUNGS)


def test_the_explorer_says_what_is_left_at_the_top():
    html = lesson_08.render_ladder("time", 512, 65, 4096, 2, 1.0)
    assert any(f"part at the top: {part}, " in html for part in PARTS)


def test_moving_a_control_of_the_explorer_changes_its_picture(capsys):
    view = lesson_08.ladder_explorer()
    view.set(padding=0)
    view.set(show="memory")
    assert capsys.readouterr().out.count("the picture has changed") == 2


def _climb() -> Climb:
    seconds = {rung.name: [1.0 / (rung.number + 1), 2.0 / (rung.number + 1)] for rung in RUNGS}
    return Climb(seconds, {name: [8.0, 7.0, 6.0] for name in seconds}, [30, 60], "fp32")


def test_the_speed_of_a_rung_is_all_its_tokens_by_all_its_seconds():
    assert _climb().speed("naive") == 30.0


def test_ratios_are_taken_within_a_round():
    assert _climb().ratios("naive", "efficient attention") == [2.0, 2.0]


def test_the_plots_print_what_they_show(capsys):
    climb = _climb()
    lesson_08.speeds_figure(climb)
    lesson_08.gains_figure(climb, {rung.name: 1.0 for rung in RUNGS})
    lesson_08.curves_figure({name: [(1.0, 8.0), (2.0, 7.0)] for name in ("a", "b", "c")})
    lesson_08.profile_figure({"naive": {"matrix products": 0.75, "the rest": 0.25}})
    lesson_08.roofline_figure(MACHINE, {"sum": (0.1, 1e8)}, {"naive": 1e7})
    out = capsys.readouterr().out
    assert "real tokens a second: 30, 60, 90" in out
    assert "medians: 2, 1.5, 1.3" in out
    assert "a, losses: 8, 7" in out
    assert "naive: 0.75, 0.25" in out


def test_three_times_is_more_with_more_padding(capsys):
    lesson_08.three_times_figure()
    for line in capsys.readouterr().out.splitlines():
        gains = [float(word) for word in line.split(": ")[1].split(", ")]
        assert gains == sorted(gains)


def test_a_climb_gives_every_rung_the_same_rounds_and_the_first_rungs_the_same_losses():
    climb = lesson_08.climb(RUNGS[:3], TINY, rounds=2, precision="fp32", progress=False)
    assert climb.tokens == [sum(map(len, batch)) for batch in batches(TINY, 3)[1:]]
    assert {len(own) for own in climb.seconds.values()} == {2}
    for losses in climb.losses.values():
        assert losses == pytest.approx(climb.losses["naive"], abs=1e-4)


def test_a_climb_of_no_rounds_is_refused():
    with pytest.raises(ValueError, match="rounds: expected at least 1, got 0"):
        lesson_08.climb(rounds=0)


def test_a_frozen_run_changes_only_its_last_layer_and_norm():
    workload = Workload(width=48, layers=2, documents=2, cut=24)
    run = lesson_08.frozen(RUNGS[-1], workload, batches(workload, 2), precision="fp32")
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    points = lesson_08.curve(run, 1)
    changed = {name for name, p in run.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed and all(name.startswith(("layers.1.", "norm.")) for name in changed)
    assert len(points) == 1 and points[0][0] > 0


def test_shares_of_a_profile_add_up_to_one_and_products_are_among_them():
    shares = lesson_08.profile_of(RUNGS[-1], TINY, precision="fp32", steps=1)
    assert math.isclose(sum(shares.values()), 1)
    assert shares["matrix products"] > 0 and shares["optimiser"] > 0


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("mm", "matrix products"),
        ("_softmax_backward_data", "softmax"),
        ("nll_loss_forward", "softmax"),
        ("copy_", "copies and casts"),
        ("_fused_adamw_", "optimiser"),
        ("gelu_backward", "the rest"),
    ],
)
def test_an_operation_is_known_by_its_kind(operation, kind):
    assert _kind(operation) == kind


def test_the_measured_memory_of_a_rung_is_near_its_budget():
    measured = lesson_08.measured_memory([RUNGS[1]], precision="fp32")
    budget = lesson_08.memory_budgets(precision="fp32")["efficient attention"]
    assert measured["efficient attention"] == pytest.approx(budget.peak, rel=0.1)
