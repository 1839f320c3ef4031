"""Lesson 03: the pictures, the card, the explorer and the measurements show what they say."""

import re
import xml.etree.ElementTree as ElementTree
from html import unescape

import matplotlib
import pytest

from course_lib.classroom.messages import set_language
from course_lib.lessons import lesson_03
from course_lib.lessons.lesson_03_card import MOST_POINTS, bill_widget, draw_card, save_card
from course_lib.lessons.lesson_03_work import scores_kept
from course_lib.packing import fill_bins
from course_lib.text import load_corpus, load_tokenizer, train_tokenizer
from course_lib.text.build_tokenizer import training_texts


@pytest.fixture(scope="module")
def ours():
    return load_tokenizer()


@pytest.fixture(scope="module")
def usual():
    return train_tokenizer(training_texts(), pattern="gpt2")


def words_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", html))


# --- the token bill ----------------------------------------------------------------------------------------------


def test_the_sentence_of_the_lesson_costs_53_tokens_and_23(usual, ours):
    assert (len(usual.encode(lesson_03.SENTENCE)), len(ours.encode(lesson_03.SENTENCE))) == (53, 23)
    card = words_of(draw_card(lesson_03.SENTENCE, usual, ours))
    assert "GPT-2's pattern: 53 tokens" in card and "This course's pattern: 23 tokens" in card


def test_a_word_of_bangla_costs_half_under_the_courses_pattern(usual, ours):
    rates = {}
    for language in ("bn", "en"):
        texts = [document.text for document in load_corpus(language)]
        words = sum(len(text.split()) for text in texts)
        rates[language] = [round(sum(len(t.encode(x)) for x in texts) / words, 2) for t in (usual, ours)]
    assert rates == {"bn": [4.06, 2.02], "en": [1.46, 1.64]}


@pytest.mark.parametrize("text", [lesson_03.SENTENCE, "আমার ফোনের র\u200d্যাম মাত্র ৪ জিবি।", "ok 👍🏽 <&>"])
def test_the_card_has_a_square_for_each_token(text, usual, ours):
    squares = draw_card(text, usual, ours).count('width="7" height="7"')
    assert squares == len(usual.encode(text)) + len(ours.encode(text))


def test_the_card_never_shows_a_broken_character(usual, ours):
    assert "\ufffd" not in draw_card("আমার ফোনের র\u200d্যাম মাত্র ৪ জিবি। 🇧🇩", usual, ours)


def test_the_boxes_of_a_card_stay_inside_it(usual, ours):
    text = " ".join(["বিশ্ববিদ্যালয়গুলোতে"] * 7)
    for rect in ElementTree.fromstring(draw_card(text, usual, ours)).iter("{http://www.w3.org/2000/svg}rect"):
        assert float(rect.get("x")) + float(rect.get("width")) <= 600


def test_the_card_is_a_file_that_stands_by_itself(usual, ours, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    save_card("আমরা পহেলা বৈশাখ উদ্\u200cযাপন করি।", usual, ours)
    drawing = (tmp_path / "token_bill.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(drawing)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "উদ্\u200cযাপন" in root.find("{http://www.w3.org/2000/svg}title").text
    assert f"{len(drawing.encode('utf-8'))} bytes" in capsys.readouterr().out


def test_away_from_the_notebook_the_card_says_its_whole_path(usual, ours, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("COURSE_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    save_card("নদী", usual, ours)
    assert str(tmp_path / "token_bill.svg") in capsys.readouterr().out
    (tmp_path / "03_packing.ipynb").touch()
    save_card("নদী", usual, ours)
    assert capsys.readouterr().out.startswith("token_bill.svg is saved beside this notebook")


@pytest.mark.parametrize(
    "text", ["\x00ok\x01", "a\ud800b", "\ufffeok", "<b>&\"'", "\u200d", "👨\u200d👩\u200d👧 🇧"]
)
def test_any_text_makes_a_card_that_is_xml(text, usual, ours):
    assert ElementTree.fromstring(draw_card(text, usual, ours)).tag.endswith("svg")


def test_a_word_of_more_tokens_than_a_line_holds_stays_inside_the_card(usual, ours):
    for text in ("ক্ষ্ম্য" * 20, "ক\u09cd" * 80):
        drawing = draw_card(text, usual, ours)
        for rect in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}rect"):
            assert float(rect.get("x")) + float(rect.get("width")) <= 600


@pytest.mark.parametrize(
    ("text", "message"), [("  \n", "Type a sentence"), ("a" * (MOST_POINTS + 1), "up to 160")]
)
def test_a_text_that_makes_no_card_is_answered_with_a_sentence(text, message, usual, ours):
    with pytest.raises(ValueError, match=message):
        draw_card(text, usual, ours)


def test_typing_a_sentence_changes_the_card_and_a_bad_one_is_answered_in_it(usual, ours, capsys):
    bill = bill_widget(usual, ours)
    bill.set(text="নদীর ধারে বসে রহিম মাছ ধরছে।")
    assert "the picture has changed" in capsys.readouterr().out
    bill.set(text="")
    assert 'role="alert"' in bill.html


# --- the packing explorer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "scores"), [("padded", "160,000"), ("one causal row", "133,225"), ("packed", "55,833")]
)
def test_the_explorer_counts_the_scores_of_each_way(way, scores):
    html = lesson_03.render_packing_explorer("37, 120, 8, 200", way, 256)
    assert f"A head makes {scores} scores." in words_of(html)


def test_the_explorer_says_what_padding_wastes_and_what_leaks():
    assert "54% of these are padding" in lesson_03.render_packing_explorer("37, 120, 8, 200", "padded", 256)
    assert "58% of the visible cells" in lesson_03.render_packing_explorer(
        "37, 120, 8, 200", "one causal row", 256
    )
    assert "Rows of at most 256: 2." in lesson_03.render_packing_explorer("37, 120, 8, 200", "packed", 256)


def test_the_explorer_draws_a_triangle_for_each_document():
    html = lesson_03.render_packing_explorer("5 6 7", "packed", 16)
    assert html.count("<path ") == 3
    assert (
        lesson_03.render_packing_explorer("5 6 7", "one causal row", 16).count("<path ") == 4
    )  # and one that leaks


def test_the_explorer_reads_a_python_list():
    assert lesson_03.render_packing_explorer("[5, 6]", "padded", 256) == lesson_03.render_packing_explorer(
        "5 6", "padded", 256
    )


def test_a_small_leak_is_not_called_none():
    assert "0.2% of the visible cells" in lesson_03.render_packing_explorer("1, 1000", "one causal row", 16)


def test_a_text_of_any_length_gets_a_short_answer():
    with pytest.raises(ValueError, match="…") as caught:
        lesson_03.render_packing_explorer("9" * 5000, "padded", 16)
    assert len(str(caught.value)) < 250


def test_the_explorer_reads_bangla_digits():
    assert lesson_03.render_packing_explorer("৩৭, ১২০", "padded", 256) == lesson_03.render_packing_explorer(
        "37,120", "padded", 256
    )


@pytest.mark.parametrize(
    ("lengths", "way", "message"),
    [
        ("", "padded", "expected whole numbers such as 37, 120, 8, 200, got ''"),
        ("three, 4", "padded", "expected whole numbers"),
        ("3 0", "padded", "up to 9 documents of 1 to 1000 tokens"),
        ("1 " * 10, "packed", "up to 9 documents"),
        ("300", "packed", "a document of 300 tokens does not fit a row of 256"),
    ],
)
def test_the_explorer_says_what_it_cannot_draw(lengths, way, message):
    with pytest.raises(ValueError, match=message):
        lesson_03.render_packing_explorer(lengths, way, 256)


def test_moving_the_explorer_changes_its_picture(capsys):
    explorer = lesson_03.packing_explorer()
    explorer.set(way="packed")
    assert "the picture has changed" in capsys.readouterr().out


# --- figures -----------------------------------------------------------------------------------------------------


def test_the_padded_figure_counts_its_padding():
    figure = lesson_03.padded_figure(["ছোট", "long"], [3, 9])
    assert repr(figure) == "A padded batch of 2 documents: 12 tokens and 6 of padding, 33%."
    assert "ছোট" in figure.html


def test_the_mask_figure_marks_every_cell_that_leaks():
    html = lesson_03.masks_figure([["এক", "দুই"], ["three"]]).html
    assert html.count("×") == 2 and "in 2 of them one document reads another" in html
    assert html.count("•") == 4 + 4


def test_the_bins_figure_says_how_much_is_empty():
    lengths = [5, 5, 6]
    assert "2 rows of 10 tokens; 20% is empty" in repr(
        lesson_03.bins_figure(lengths, fill_bins(lengths, 10), 10)
    )


def test_the_lengths_figure_shows_the_middle_document():
    figure = lesson_03.lengths_figure({"Bangla": [(3, 2, 9, 1), (30, 20, 90, 10), (300, 200, 900, 100)]})
    assert "points: Bangla 30; graphemes: Bangla 20; bytes: Bangla 90; tokens: Bangla 10" in repr(figure)


def test_the_cost_figure_shows_three_counts():
    assert repr(lesson_03.cost_figure([3, 1])) == "Scores: padded 18, one_row 16, packed 10."


@pytest.mark.parametrize("steps", [1, 25])
def test_the_loss_figure_draws_each_step_and_the_mean_of_every_ten(steps, monkeypatch):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []
    monkeypatch.setattr(
        plt, "show", lambda: drawn.extend(len(line.get_xdata()) for line in plt.gca().lines[:2])
    )
    lesson_03.loss_figure([8.0 - 0.1 * i for i in range(steps)], 4096, 5.0)
    assert drawn == [steps, -(-steps // 10)]


def test_pictures_speak_bangla_too(usual, ours):
    set_language("bn")
    try:
        html = draw_card(lesson_03.SENTENCE, usual, ours) + lesson_03.render_packing_explorer(
            "3 4", "packed", 16
        )
    finally:
        set_language("en")
    assert "৫৩টি টোকেন" in html and "কিছু ফাঁস হচ্ছে না" in html
    assert "মেমোরিতে টোকেন" in html and "tokens in memory" not in html


# --- what is measured --------------------------------------------------------------------------------------------


def test_the_scores_kept_are_those_of_the_formulas():
    lengths = [37, 20, 60]
    assert scores_kept(lengths, "padded") == 3 * 60**2
    assert scores_kept(lengths, "one row") == 117**2
    assert scores_kept(lengths, "packed") == 37**2 + 20**2 + 60**2
    assert scores_kept(lengths, "one row", backend="auto") == 0


def test_each_way_of_laying_out_is_timed():
    assert set(lesson_03.seconds_of([8, 20], num_heads=1, head_dim=8, rounds=1)) == {
        "padded",
        "one row",
        "packed",
    }
