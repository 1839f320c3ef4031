"""Lesson 00: the self-test knows its wrong answers, the exercise its wrong functions, and the pictures count
right."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.classroom.messages import LANGUAGES, current_language, set_language
from course_lib.lessons import lesson_00
from course_lib.lessons import lesson_00_mistakes as wrong
from course_lib.lessons.lesson_00_glossary import TERMS
from course_lib.lessons.lesson_00_pictures import FORMATS, LONGEST_TEXT
from course_lib.text import graphemes, load_tokenizer


@pytest.fixture
def bangla():
    before = current_language()
    set_language("bn")
    yield
    set_language(before)


# --- the self-test -----------------------------------------------------------------------------------------------


def test_question_0_1_names_each_wrong_answer():
    scores = torch.tensor([0.0, math.log(2), math.log(5)])
    assert_exercise(
        lesson_00.LESSON,
        "0.1",
        wrong={
            "scores": [scores, [0, 0.69, 1.61]],
            "no_exponential": [(scores / scores.sum()).tolist()],
            "not_divided": [scores.exp().tolist(), (1, 2, 5)],
            "by_largest": [(scores - scores.max()).exp()],
            "logarithm": [scores.log_softmax(0)],
            "base_two": [(2**scores / (2**scores).sum()).tolist()],
            "one_each": [scores.sigmoid()],
            "winner": [[0, 0, 1]],
            "per_cent": [[12.5, 25, 62.5], (12, 25, 63), "12.5%, 25%, 62.5%"],
            "turned_round": [[0.625, 0.25, 0.125], [0.25, 0.125, 0.625]],
            "minus": [(-scores).softmax(0)],
            "even": [[1 / 3] * 3],
            "not_three": [0.625, [0.125, 0.625], "five eighths", {0.125, 0.25, 0.625}],
            "not_one": [[0.5, 0.25, 0.625]],
            "common.answer_wrong": [[0.2, 0.3, 0.5], object()],
        },
        right=[
            scores.softmax(0),
            [0.13, 0.25, 0.63],
            (1 / 8, 2 / 8, 5 / 8),
            "1/8, 1/4, 5/8",
            ".125, .25, .625",
            "১/৮, ১/৪, ৫/৮",
            np.array([0.125, 0.25, 0.625]),
            [Fraction(1, 8), Fraction(1, 4), "5/8"],
        ],
    )


def test_question_0_2_names_each_wrong_answer():
    query, key = torch.zeros(2, 5, 8), torch.zeros(2, 7, 8)
    assert_exercise(
        lesson_00.LESSON,
        "0.2",
        wrong={
            "keys_first": [(key @ query.mT).shape],
            "no_batch": [(5, 7), (1, 5, 7)],
            "over_words": [[2, 8, 8]],
            "place_by_place": [[2, 5, 8], (2, 7, 8)],
            "batches_crossed": [(query[:, None] @ key.mT).shape],
            "keeps_width": [(2, 5, 7, 8)],
            "turned_key": [key.mT.shape],
            "counted": [70],
            "other_order": [(5, 7, 2)],
            "does_work": ["error", "5 and 7 do not fit", "৫ আর ৭ মেলে না"],
            "common.answer_wrong": [(2, 12, 8), (5, 8, 7), 2],
        },
        right=[
            (query @ key.mT).shape,
            [2, 5, 7],
            query @ key.mT,
            "[2, 5, 7]",
            "2 X 5 X 7",
            torch.tensor([2, 5, 7]),
            np.array([2, 5, 7]),
        ],
    )


def test_question_0_3_names_each_wrong_answer():
    assert_exercise(
        lesson_00.LESSON,
        "0.3",
        wrong={
            "keys": [(4,), [1, 4], (1, 1, 1, 4), 4, "[4]"],
            "queries": [(4, 1), (1, 4, 1), [1, 1, -1, 1]],
            "batch": [(4, 1, 1, 1)],
            "says_it_works": ["the heads", "a 4 below the heads"],
            "not_four": [(2, 4, 1, 1), (2, 4, 4, 4), (1, 1, 1)],
            "common.answer_wrong": [(4, 1, 1, 1, 1), (2, 2), (1, 4, 1, 1, 1)],
        },
        right=[(4, 1, 1), [1, 4, 1, 1], (-1, 1, 1), torch.zeros(4)[:, None, None], "4, 1, 1"],
    )


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1)])
def test_the_answer_to_0_3_multiplies_each_head_by_its_own_number(shape):
    scores = torch.ones(2, 4, 4, 4)
    slopes = torch.tensor([2.0, 3.0, 5.0, 7.0])
    product = scores * slopes.view(shape)
    assert all(bool((product[:, head] == slopes[head]).all()) for head in range(4))


def test_question_0_4_names_each_wrong_answer():
    w = torch.tensor(5.0, requires_grad=True)
    for _ in range(3):
        (4 * w).backward()
    assert_exercise(
        lesson_00.LESSON,
        "0.4",
        wrong={
            "replaced": [4, torch.tensor(4.0)],
            "first_lost": [8],
            "multiplied": [4**3],
            "loss": [20.0],
            "losses": [60],
            "every_round": [[4, 8, 12], [4, 4, 4]],
            "added_twice": [4 + 8 + 12],
            "weight": [5],
            "cleared": [0, "0"],
            "a_step": [-12, 5 - 12],
            "common.answer_wrong": [3, 15, "twelve"],
        },
        right=[w.grad, 12, "12", [12.0]],
    )


def test_question_0_5_names_each_wrong_answer():
    probabilities = torch.tensor([1 / 2, 1 / 4, 1 / 8])
    assert_exercise(
        lesson_00.LESSON,
        "0.5",
        wrong={
            "summed": [-probabilities.log2().sum()],
            "negative": [
                probabilities.log2().mean(),
                -6,
                probabilities.log().mean(),
                probabilities.log().sum(),
            ],
            "nats": [-probabilities.log().mean(), -probabilities.log().sum(), 1.39],
            "mean_probability": [probabilities.mean(), 7 / 8],
            "log_of_mean": [-probabilities.mean().log2(), -probabilities.mean().log()],
            "perplexity": [4],
            "product": [1 / 64, "1/64"],
            "last_only": [3],
            "not_averaged": [(1, 2, 3), -probabilities.log2()],
            "one_minus": [(1 - probabilities).mean()],
            "base_ten": [-probabilities.log10().mean(), -probabilities.log10().sum()],
            "common.answer_wrong": [1.5, "two"],
        },
        right=[-probabilities.log2().mean(), 2, "2 bits", 2.0],
    )


def test_the_self_test_points_to_what_to_read_for_a_missed_question(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    lesson_00.self_test()
    assert "Nothing is answered yet" in capsys.readouterr().out
    lesson_00.check_slopes((1, 4))
    lesson_00.check_loss(2)
    capsys.readouterr()
    lesson_00.self_test()
    told = capsys.readouterr().out
    assert "1 of 5 right" in told
    assert "Broadcasting semantics" in told
    assert "CrossEntropyLoss" not in told
    assert "torch.matmul" not in told


def test_the_self_test_says_so_when_all_five_are_right(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    for name in ("0.1", "0.2", "0.3", "0.4", "0.5"):
        getattr(lesson_00, f"check_{lesson_00.LESSON.exercises[name].name}")(
            lesson_00.LESSON.exercises[name].solution()
        )
    capsys.readouterr()
    lesson_00.self_test()
    told = capsys.readouterr().out
    assert "5 of 5 right" in told
    assert "You have what the course needs." in told


# --- 0.6 ---------------------------------------------------------------------------------------------------------


def by_view(x, num_heads):
    batch, sequence, width = x.shape
    return x.view(batch, sequence, num_heads, width // num_heads).transpose(1, 2)


def by_permute(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3).contiguous()


def by_stacking_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def by_splitting_widths(x, num_heads):
    return torch.stack(x.split(x.shape[-1] // num_heads, -1), 1)


def by_loop(x, num_heads):
    batch, sequence, width = x.shape
    size = width // num_heads
    out = torch.empty(batch, num_heads, sequence, size)
    for head in range(num_heads):
        out[:, head] = x[:, :, head * size : (head + 1) * size]
    return out


def by_swapaxes(x, num_heads):
    return x.unflatten(2, (num_heads, x.size(2) // num_heads)).swapaxes(1, 2)


def computes_and_forgets(x, num_heads):
    heads = by_view(x, num_heads)
    heads.contiguous()


def test_exercise_0_6_names_each_wrong_answer():
    assert_exercise(
        lesson_00.LESSON,
        "0.6",
        wrong={
            "reshaped": [
                wrong.reshaped,
                lambda x, num_heads: x.view(x.size(0), num_heads, x.size(1), -1),
                lambda x, num_heads: x.flatten(1).unflatten(1, (num_heads, x.size(1), -1)),
            ],
            "turned_then_reshaped": [wrong.turned_then_reshaped],
            "not_exchanged": [
                wrong.not_exchanged,
                wrong.not_exchanged_interleaved,
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1), 2),
            ],
            "interleaved": [
                wrong.interleaved,
                lambda x, num_heads: torch.stack([x[..., head::num_heads] for head in range(num_heads)], 1),
            ],
            "heads_for_head_dim": [
                wrong.heads_for_head_dim,
                lambda x, num_heads: torch.stack(x.split(num_heads, -1), 1),
            ],
            "width_before_words": [
                wrong.width_before_words,
                lambda x, num_heads: by_view(x, num_heads).mT,
            ],
            "heads_before_batch": [
                wrong.heads_before_batch,
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1)),
            ],
            "copied": [wrong.copied, lambda x, num_heads: torch.stack([x] * num_heads, 1)],
            "one_head_only": [wrong.first_head],
            "glued": [lambda x, num_heads: by_view(x, num_heads).flatten(0, 1)],
            "glued_words": [wrong.glued_words],
            "unchanged": [wrong.unchanged],
            "in_a_list": [wrong.in_a_list, lambda x, num_heads: x.chunk(num_heads, -1)],
            "common.axes_swapped": [
                lambda x, num_heads: x.unflatten(-1, (num_heads, -1)).transpose(0, 1),
                lambda x, num_heads: torch.stack(x.chunk(num_heads, -1), -1),
            ],
            "sizes_do_not_fit": [
                lambda x, num_heads: x.view(1, 3, 2, 4).transpose(1, 2),
                lambda x, num_heads: x.view(*x.shape[:2], num_heads, x.shape[-1]).transpose(1, 2),
            ],
            "common.crashed": [lambda x, num_heads: x.transpose(1, 4)],
            "common.returned_nothing": [computes_and_forgets],
        },
        right=[by_view, by_permute, by_stacking_chunks, by_splitting_widths, by_loop, by_swapaxes],
    )


def test_a_wrong_reshape_mixes_words_in_each_head():
    words = torch.arange(3.0)[:, None].expand(3, 8)[None]  # every number of word m is m
    assert wrong.reshaped(words, 2)[0, 0].unique().tolist() == [0, 1]
    assert all(lesson_00.split_heads(words, 2)[0, :, m].unique().tolist() == [m] for m in range(3))


# --- pictures and explorers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["নদীর ধারে বসে রহিম মাছ ধরছে।", "র‍্যাম", "river", "a\n\tb 🙂", '<b> & "c"'])
def test_the_token_explorer_counts_what_the_tokenizer_gives(text):
    html = lesson_00.render_tokens(text)
    ids = load_tokenizer().encode(text)
    points = f"{len(graphemes(text))} letters, {len(text)} code points"
    assert f"{points}, {len(text.encode('utf-8'))} bytes, {len(ids)} tokens" in html
    assert "�" not in html
    assert "<b>" not in html


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦", "বিশ্ববিদ্যালয়গুলোর", "donaudampfschifffahrt" * 4])
def test_every_box_of_the_token_explorer_fits_into_its_picture(text):
    html = lesson_00.render_tokens(text)
    boxes = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html)
    assert all(float(x) + float(width) <= 580 for x, width in boxes)


def test_the_token_explorer_asks_for_text_and_refuses_a_book():
    with pytest.raises(ValueError, match="Type a word"):
        lesson_00.render_tokens("  ")
    with pytest.raises(ValueError, match=f"at most {LONGEST_TEXT}"):
        lesson_00.render_tokens("ক" * (LONGEST_TEXT + 1))


def test_the_token_figure_shows_letters_and_never_half_of_one():
    html = lesson_00.token_figure(["র‍্যাম", "river"]).html
    assert "2 letters, 6 code points, 18 bytes" in html
    assert ">র‍্যা<" in html
    assert "�" not in html


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("number", ["0.1", "1001", "-3", "65504", "1/3", "1e-5", "0", "-0.0"])
def test_the_number_explorer_shows_the_bits_that_torch_keeps(name, number):
    html = lesson_00.render_number(number, name)
    wanted = float(Fraction(number)) if "/" in number else float(number)
    kept = torch.tensor(wanted, dtype=torch.float64).to(FORMATS[name])
    size = torch.finfo(FORMATS[name]).bits
    bits = "".join(f"{byte:08b}" for byte in reversed(kept.reshape(1).view(torch.uint8).tolist()))
    assert len(bits) == size
    assert f"bits {bits}" in html
    assert ("Kept exactly" in html) == (float(kept) == wanted)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("number", ["0.1", "1001", "-3", "65504", "1e-4"])
def test_the_formula_below_the_bits_is_the_stored_number(name, number):
    html = lesson_00.render_number(number, name)
    sign, times, power = re.search(r"bits are (−?)([\d.]+) × 2\^(-?\d+) = ", html).groups()
    value = (-1 if sign else 1) * float(times) * 2 ** int(power)
    assert value == pytest.approx(float(torch.tensor(float(number)).to(FORMATS[name])), rel=1e-4)


def test_the_number_explorer_says_where_a_format_ends():
    assert "becomes infinity" in lesson_00.render_number("70000", "fp16")
    assert "becomes infinity" not in lesson_00.render_number("70000", "bf16")
    assert "becomes 0" in lesson_00.render_number("1e-8", "fp16")
    assert "loses digits" in lesson_00.render_number("1e-5", "fp16")
    assert "becomes infinity" in lesson_00.render_number("1e39", "fp32")
    assert "not a number" in lesson_00.render_number("nan", "fp32")


@pytest.mark.parametrize("typed", ["২৫০", "250.0", "২,৫০", "500/2", " 250 "])
def test_a_number_may_be_typed_as_people_type_it(typed):
    assert "= 250." in lesson_00.render_number(typed, "fp16")


@pytest.mark.parametrize("typed", ["", "ten", "1/0", "1/2/3"])
def test_what_is_no_number_is_refused_with_an_example(typed):
    with pytest.raises(ValueError, match="is not a number"):
        lesson_00.render_number(typed, "fp16")


def test_the_formats_are_drawn_a_cell_a_bit():
    html = lesson_00.formats_figure().html
    for dtype in FORMATS.values():
        fraction = round(-math.log2(torch.finfo(dtype).eps))
        assert f"fraction, {fraction}<" in html
        assert f"exponent, {torch.finfo(dtype).bits - 1 - fraction}<" in html
    assert html.count("<rect") == 32 + 16 + 16 + 1  # and the paper
    assert "largest 65,504 · step near 1: 0.00098 · near 1,000: 0.5" in html


def test_the_steps_near_1000_are_those_between_neighbours():
    for dtype in FORMATS.values():
        step = torch.finfo(dtype).eps * 2**9
        here = torch.tensor(1000.0, dtype=dtype)
        assert float(here + step) == 1000 + step
        assert float((here.double() + step / 4).to(dtype)) == 1000


def test_the_picture_of_heads_counts_places_in_memory():
    html = lesson_00.heads_figure([["রহিম", "মাছ"], ["আমি", "যাব"]], num_heads=2, head_dim=3).html
    assert "[2, 2, 2, 3]" in html
    assert all(f">{place}<" in html for place in range(2 * 2 * 2 * 3))


def test_moving_a_control_of_the_explorers_changes_their_pictures(capsys):
    lesson_00.token_explorer().set(text="নদী")
    lesson_00.number_explorer().set(format="fp16")
    assert capsys.readouterr().out.count("the picture has changed") == 2


# --- the glossary ------------------------------------------------------------------------------------------------


def test_the_glossary_is_in_alphabetical_order_without_repeats():
    names = [term.english for term in TERMS]
    assert names == sorted(set(names))
    assert len({term.bangla for term in TERMS}) == len(TERMS)


def test_every_term_has_a_line_in_both_languages():
    before = current_language()
    try:
        for language in LANGUAGES:
            set_language(language)
            html = lesson_00.glossary().html
            assert all(term.line and term.bangla in html for term in TERMS)
            assert f'lang="{language}"' in html
    finally:
        set_language(before)


def test_a_term_is_found_by_either_name(capsys):
    lesson_00.meaning("Masks")
    lesson_00.meaning("মাস্ক")
    one, other = capsys.readouterr().out.splitlines()
    assert one == other
    assert one.startswith("mask · মাস্ক · ")
    assert one.endswith(" · lesson 01")


def test_an_unknown_term_is_answered_with_those_that_look_like_it(capsys):
    lesson_00.meaning("ofloading")
    assert "Did you mean: offloading" in capsys.readouterr().out
    lesson_00.meaning("xyzzy")
    assert "lesson.glossary() shows all terms" in capsys.readouterr().out


def test_the_pictures_speak_bangla(bangla):
    assert "টোকেন" in lesson_00.render_tokens("river")
    assert "অক্ষর" in lesson_00.token_figure(["river"]).html
    assert "শব্দকোষ" in lesson_00.glossary().html
