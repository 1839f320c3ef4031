"""The pictures, the explorers and the glossary of lesson 00."""

import math
import re
from fractions import Fraction

import pytest
import torch

from course_lib.classroom.messages import LANGUAGES, current_language, set_language
from course_lib.lessons import lesson_00
from course_lib.lessons.lesson_00_glossary import TERMS
from course_lib.lessons.lesson_00_pictures import FORMATS, LONGEST_TEXT
from course_lib.text import graphemes, load_tokenizer


@pytest.fixture
def bangla():
    before = current_language()
    set_language("bn")
    yield
    set_language(before)


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
    assert names == sorted(set(names), key=str.lower)
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
