"""Lesson 06: the exercises on the gate, the fair width and the verdict know their wrong answers."""

import math
import statistics

import torch
import torch.nn.functional as F

from course_lib.classroom.contract import assert_exercise
from course_lib.lessons import lesson_06
from course_lib.lessons import lesson_06_mistakes as wrong
from course_lib.lessons import lesson_06_mistakes_verdict as wrong_verdict
from course_lib.swiglu import SwiGLU, matched_hidden_features

# --- 6.1 ---------------------------------------------------------------------------------------------------------


def swiglu_by_loop(x, w1, w2, w3):
    out = torch.zeros(len(x), len(w3))
    for t in range(len(x)):
        for i in range(len(w1)):
            gate, up = torch.dot(w1[i], x[t]), torch.dot(w2[i], x[t])
            out[t] += gate * torch.sigmoid(gate) * up * w3[:, i]
    return out


def swiglu_by_linear(x, w1, w2, w3):
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w2), w3)


def swiglu_by_einsum(x, w1, w2, w3):
    gate = torch.einsum("td,hd->th", x, w1)
    up = torch.einsum("td,hd->th", x, w2)
    return torch.einsum("th,oh->to", gate / (1 + torch.exp(-gate)) * up, w3)


def swiglu_fused(x, w1, w2, w3):
    gate, up = (x @ torch.cat((w1, w2)).T).chunk(2, -1)
    return (up * F.silu(gate)) @ w3.T


def swiglu_by_library(x, w1, w2, w3):
    layer = SwiGLU(w1.shape[1], len(w1), len(w3), bias=False)
    layer.load_state_dict({"w1.weight": w1, "w2.weight": w2, "w3.weight": w3})
    return layer(x).detach()


def swiglu_by_exp_ratio(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate * gate.exp() / (1 + gate.exp()) * (x @ w2.T)) @ w3.T


def swiglu_by_math(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate / (1 + math.exp(-gate)) * (x @ w2.T)) @ w3.T


def swiglu_gelu_by_sigmoid(x, w1, w2, w3):
    gate = x @ w1.T
    return (gate * torch.sigmoid(1.702 * gate) * (x @ w2.T)) @ w3.T


def swiglu_fused_backwards(x, w1, w2, w3):
    up, gate = (x @ torch.cat((w1, w2)).T).chunk(2, -1)
    return (F.silu(gate) * up) @ w3.T


def swiglu_by_torch_glu(x, w1, w2, w3):
    return F.glu(x @ torch.cat((w2, w1)).T) @ w3.T


def test_exercise_6_1_names_each_wrong_answer():
    assert_exercise(
        lesson_06.LESSON,
        "6.1",
        wrong={
            "math_exp": [swiglu_by_math],
            "swapped": [wrong.swiglu_swapped, swiglu_fused_backwards],
            "sigmoid": [wrong.swiglu_sigmoid, swiglu_by_torch_glu],
            "other_activation": [
                wrong.swiglu_relu,
                wrong.swiglu_gelu,
                wrong.swiglu_gelu_tanh,
                wrong.swiglu_gelu_quick,
                wrong.swiglu_tanh,
                swiglu_gelu_by_sigmoid,
                lambda x, w1, w2, w3: (F.mish(x @ w1.T) * (x @ w2.T)) @ w3.T,
                lambda x, w1, w2, w3: (F.hardswish(x @ w1.T) * (x @ w2.T)) @ w3.T,
                lambda x, w1, w2, w3: (F.leaky_relu(x @ w1.T) * (x @ w2.T)) @ w3.T,
            ],
            "up_bent": [
                wrong.swiglu_sigmoid_of_up,
                wrong.swiglu_relu_of_up,
                wrong.swiglu_gelu_of_up,
                lambda x, w1, w2, w3: F.glu(torch.cat((x @ w1.T, x @ w2.T), -1)) @ w3.T,
            ],
            "gate_twice": [wrong.swiglu_gate_times_silu],
            "softmax": [wrong.swiglu_softmax],
            "both": [wrong.swiglu_both],
            "no_activation": [wrong.swiglu_bilinear],
            "silu_of_product": [wrong.swiglu_silu_of_product, wrong.swiglu_silu_of_gate_and_product],
            "added": [wrong.swiglu_added],
            "one_alone": [
                wrong.swiglu_gate_alone,
                wrong.swiglu_linear_gate_alone,
                wrong.swiglu_up_alone,
                wrong.swiglu_linear_up_alone,
            ],
            "same_twice": [wrong.swiglu_up_from_gate, wrong.swiglu_up_from_up],
            "silu_at_end": [wrong.swiglu_silu_at_end, wrong.swiglu_silu_twice_at_end],
            "silu_of_input": [
                wrong.swiglu_silu_of_input,
                wrong.swiglu_silu_of_input_everywhere,
                wrong.swiglu_silu_of_weights,
            ],
            "no_w3": [wrong.swiglu_without_w3],
            "w3_first": [wrong.swiglu_w3_first, wrong.swiglu_w3_on_each],
            "other_sign": [
                wrong.swiglu_other_sign,
                lambda x, w1, w2, w3: ((x @ w1.T) / (1 + (x @ w1.T).exp()) * (x @ w2.T)) @ w3.T,
            ],
            "residual": [wrong.swiglu_residual],
            "concatenated": [wrong.swiglu_concatenated],
            "overflow": [swiglu_by_exp_ratio],
            "sizes": [
                lambda x, w1, w2, w3: (F.silu(x @ w1) * (x @ w2)) @ w3,
                lambda x, w1, w2, w3: (F.silu(x @ w1.T) * (x @ w2.T)) @ w3,
                lambda x, w1, w2, w3: (F.silu(x @ w1.T) @ (x @ w2.T)) @ w3.T,
                lambda x, w1, w2, w3: F.silu(x * w1) * (x * w2) @ w3.T,
            ],
            "common.axes_swapped": [lambda x, w1, w2, w3: swiglu_by_linear(x, w1, w2, w3).T],
            "common.wrong_shape": [
                lambda x, w1, w2, w3: (F.silu(x @ w1.T) * (x @ w2.T)).mean(-1, keepdim=True),
            ],
            "common.wrong_value": [lambda x, w1, w2, w3: ((x @ w1.T > 0) * (x @ w2.T)) @ w3.T],
            "common.list_for_tensor": [lambda x, w1, w2, w3: swiglu_by_linear(x, w1, w2, w3).tolist()],
        },
        right=[swiglu_by_loop, swiglu_by_linear, swiglu_by_einsum, swiglu_fused, swiglu_by_library],
    )


# --- 6.2 ---------------------------------------------------------------------------------------------------------


def matched_by_library(dim, expansion, multiple_of):
    return matched_hidden_features(dim, expansion=expansion, multiple_of=multiple_of)


def matched_by_integers(dim, expansion, multiple_of):
    return -(-2 * expansion * dim // (3 * multiple_of)) * multiple_of


def matched_by_loop(dim, expansion, multiple_of):
    hidden = multiple_of
    while 3 * dim * hidden < 2 * dim * expansion * dim:
        hidden += multiple_of
    return hidden


def matched_by_ceil_first(dim, expansion, multiple_of):
    hidden = math.ceil(expansion * dim * 2 / 3)
    return (hidden + multiple_of - 1) // multiple_of * multiple_of


def matched_float_floor_division(dim, expansion, multiple_of):
    return -(-2 * expansion * dim / 3 // multiple_of) * multiple_of


def test_exercise_6_2_names_each_wrong_answer():
    assert_exercise(
        lesson_06.LESSON,
        "6.2",
        wrong={
            "a_float": [
                matched_float_floor_division,
                lambda d, e, m: float(matched_by_library(d, e, m)),
                lambda d, e, m: torch.ceil(torch.tensor(2 * e * d / 3 / m)) * m,
            ],
            "same_width": [wrong.matched_same_width, wrong.matched_same_width_unrounded],
            "no_expansion": [wrong.matched_without_expansion, wrong.matched_without_expansion_unrounded],
            "always_four": [wrong.matched_always_four],
            "half": [wrong.matched_half],
            "third": [wrong.matched_third],
            "inverted": [wrong.matched_inverted],
            "three_quarters": [wrong.matched_three_quarters],
            "both_halves": [wrong.matched_both_halves, wrong.matched_both_halves_rounded_once],
            "down": [wrong.matched_down, wrong.matched_ceil_then_down],
            "nearest": [wrong.matched_nearest],
            "one_more": [wrong.matched_one_more],
            "remainder": [wrong.matched_remainder_added],
            "power_of_two": [wrong.matched_by_mask],
            "biases": [wrong.matched_with_biases],
            "rounded_fraction": list(wrong.ROUNDED_FRACTIONS),
            "cut_first": [wrong.matched_cut_first],
            "no_multiple": [
                wrong.matched_not_a_multiple,
                wrong.matched_cut,
                wrong.matched_unrounded,
                wrong.matched_rounded,
                wrong.matched_eight_thirds,
            ],
            "always_eight": [wrong.matched_always_eight],
            "times_multiple": [wrong.matched_times_multiple],
            "in_multiples": [wrong.matched_in_multiples],
            "parameters": [wrong.matched_parameters, wrong.matched_gated_parameters],
            "rounded_early": [
                wrong.matched_rounded_early,
                wrong.matched_third_rounded_early,
                wrong.matched_rounded_wide,
                wrong.matched_cut_expansion,
                wrong.matched_cut_expansion_unrounded,
            ],
            "common.not_the_same": [lambda d, e, m: 7],
        },
        right=[
            lambda d, e, m: math.ceil(2 / 3 * e * d / m) * m,
            matched_by_library,
            matched_by_integers,
            matched_by_loop,
            matched_by_ceil_first,
        ],
    )


# --- 6.3 ---------------------------------------------------------------------------------------------------------


def winner_by_sorting(losses):
    names = sorted(losses, key=lambda name: max(losses[name]))
    first = names[0]
    return first if max(losses[first]) < min(min(losses[name]) for name in names[1:]) else None


def winner_by_counting(losses):
    for name in losses:
        beaten = 0
        for other in losses:
            if other != name and sorted(losses[name])[-1] < sorted(losses[other])[0]:
                beaten += 1
        if beaten == len(losses) - 1:
            return name


def winner_by_every_pair(losses):
    names = [
        name
        for name in losses
        if all(a < b for other in losses if other != name for a in losses[name] for b in losses[other])
    ]
    return names[0] if names else None


def _by_median_runs(losses):
    return min(losses, key=lambda name: statistics.median(losses[name]))


def winner_returned_too_early(losses):
    for name in losses:
        for other in losses:
            if other != name:
                return name if max(losses[name]) < min(losses[other]) else None


def winner_among_the_gated(losses):
    others = [name for name in losses if name != "ReLU"]
    return next((name for name in others if max(losses[name]) < min(losses["ReLU"])), None)


def winner_by_a_threshold(losses):
    first, second = sorted(losses, key=lambda name: statistics.mean(losses[name]))[:2]
    return first if statistics.mean(losses[second]) - statistics.mean(losses[first]) > 0.05 else None


def test_a_verdict_that_is_no_name_is_shown_as_it_was_given():
    for answer, shown in (("nobody", "'nobody'"), (False, "False"), (3.5, "3.5"), (["GLU"], "['GLU']")):
        found = lesson_06.LESSON.examine(
            "6.3", lambda losses, answer=answer: winner_by_sorting(losses) or answer
        )
        assert shown in found.text, found.text


def test_exercise_6_3_names_each_wrong_answer():
    assert_exercise(
        lesson_06.LESSON,
        "6.3",
        wrong={
            "true": [lambda losses: winner_by_sorting(losses) is not None or None],
            "word": [
                lambda losses: winner_by_sorting(losses) or "None",
                lambda x: winner_by_sorting(x) or "",
            ],
            "false": [
                lambda losses: winner_by_sorting(losses) or False,
                lambda x: winner_by_sorting(x) or [],
            ],
            "number": [lambda losses: min(min(own) for own in losses.values())],
            "list": [lambda losses: sorted(losses), lambda losses: [winner_by_sorting(losses)]],
            "largest": [wrong_verdict.winner_of_largest, wrong_verdict.winner_above_all],
            "mean": [wrong_verdict.winner_by_mean, wrong_verdict.winner_by_median, _by_median_runs],
            "best_run": [wrong_verdict.winner_by_best_run],
            "worst_run": [wrong_verdict.winner_by_worst_run, wrong_verdict.winner_worst_below_worst],
            "one_seed": [wrong_verdict.winner_by_first_seed, wrong_verdict.winner_by_last_seed],
            "second": [wrong_verdict.winner_over_second],
            "any": [wrong_verdict.winner_over_any],
            "tie": [wrong_verdict.winner_or_tie],
            "mean_below": [wrong_verdict.winner_mean_below_all],
            "below_means": [wrong_verdict.winner_worst_below_means],
            "gap": [
                wrong_verdict.winner_by_gap_and_spread,
                wrong_verdict.winner_by_gap_and_own_spread,
                wrong_verdict.winner_by_deviation,
                wrong_verdict.winner_by_bars,
                wrong_verdict.winner_by_sample_deviation,
            ],
            "pairs": [
                wrong_verdict.winner_seed_by_seed,
                wrong_verdict.winner_of_most_seeds,
                wrong_verdict.winner_of_a_majority,
            ],
            "too_early": [winner_returned_too_early, winner_among_the_gated],
            "no_win": [
                winner_by_a_threshold,
                lambda x: next((n for n in x if all(min(x[n]) < max(o) for o in x.values())), None),
            ],
            "printed": [lambda losses: print(winner_by_sorting(losses))],
            "itself": [
                wrong_verdict.winner_against_itself,
                lambda x: next((n for n in x if all(max(x[n]) < min(o) for o in x.values())), None),
            ],
        },
        right=[winner_by_sorting, winner_by_counting, winner_by_every_pair],
    )
