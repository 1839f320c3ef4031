"""Widgets: controls move the picture through observe, and a static picture stands in where no kernel runs."""

import base64
import re
import sys
from xml.etree import ElementTree

import pytest

from course_lib.classroom import messages, svg
from course_lib.classroom.widgets import Card, card, choice, entry, slider, toggle


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setattr(messages, "_chosen", ["en"])


def render(n: int, align: str, word: str, causal: bool) -> str:
    allowed = [[not causal or j <= i for j in range(n)] for i in range(n)]
    return svg.card(svg.grid(allowed, [word] * n, [word] * n, title=f"{n} {align} {word}"))


@pytest.fixture
def made() -> Card:
    return card(
        render,
        slider("n", 2, 1, 4, label="words"),
        choice("align", "top-left", ["top-left", "bottom-right"]),
        entry("word", "নদীর"),
        toggle("causal", True),
    )


def test_setting_a_value_moves_the_control_and_its_observer_redraws(made, capsys):
    before = made.html
    made.set(n=3)
    assert made._widgets["n"].value == 3 and made._picture.value == made.html == render(
        3, "top-left", "নদীর", True
    )
    assert made.html != before
    assert capsys.readouterr().out == "n 2 → 3: the picture has changed.\n"


def test_a_control_moved_by_hand_redraws_too(made):
    made._repr_mimebundle_()
    made._widgets["align"].value = "bottom-right"
    made._widgets["word"].value = "ধারে"
    made._widgets["causal"].value = False
    assert made._picture.value == render(2, "bottom-right", "ধারে", False)
    assert made.values == {"n": 2, "align": "bottom-right", "word": "ধারে", "causal": False}


def test_a_broken_wire_would_be_seen(made, capsys):
    made._build()
    made._widgets["n"].unobserve_all()
    made.set(n=3)
    assert capsys.readouterr().out == "n 2 → 2: the picture is the same.\n"


def test_several_values_are_set_together(made, capsys):
    made.set(n=4, causal=False)
    assert capsys.readouterr().out == "n 2 → 4, causal True → False: the picture has changed.\n"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"m": 1}, "m: no such control; this widget has n, align, word, causal"),
        ({"n": 9}, "n: expected int from 1 to 4, got 9"),
        ({"n": 2.5}, "n: expected int from 1 to 4, got 2.5"),
        ({"n": True}, "n: expected int from 1 to 4, got True"),
        ({"align": "middle"}, r"align: expected one of \['top-left', 'bottom-right'\], got 'middle'"),
        ({"causal": 1}, "causal: expected True or False, got 1"),
        ({"word": 5}, "word: expected a string, got 5"),
    ],
)
def test_a_value_that_a_control_does_not_take_is_refused_and_nothing_moves(made, values, words):
    with pytest.raises(ValueError, match=words):
        made.set(causal=False, **values) if "causal" not in values else made.set(**values)
    assert made.values["causal"] is True


def test_first_values_and_names_are_checked_where_the_widget_is_made():
    with pytest.raises(ValueError, match="n: expected int from 1 to 4, got 7"):
        slider("n", 7, 1, 4)
    with pytest.raises(TypeError, match=r"missing a required argument|unexpected keyword argument 'm'"):
        card(render, slider("m", 2, 1, 4))


def test_a_float_slider_takes_floats():
    made = card(lambda t: f"<b>{t}</b>", slider("t", 1.0, 0.0, 2.0, step=0.25))
    made.set(t=1.25)
    assert made.html == "<b>1.25</b>"


def test_values_that_do_not_go_together_are_explained_in_the_picture():
    def picky(n: int) -> str:
        if n > 2:
            raise ValueError("n: at most 2 <words>")
        return "fine"

    made = card(picky, slider("n", 1, 1, 4))
    made.set(n=3)
    assert made.html == '<p role="alert">n: at most 2 &lt;words&gt;</p>'


def test_it_shows_a_widget_and_beside_it_the_static_picture(made):
    bundle = made._repr_mimebundle_()
    assert bundle["text/plain"] == "Card(n=2, align='top-left', word='নদীর', causal=True)"
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert view == {"version_major": 2, "version_minor": 0, "model_id": made._view.model_id}
    assert "words = 2, align = top-left, word = নদীর" in bundle["text/html"]
    assert bundle["text/html"] == made._repr_mimebundle_()["text/html"]


def test_the_static_picture_is_an_image_since_sanitizers_drop_inline_svg(made):
    html = made._repr_mimebundle_()["text/html"]
    assert "<svg" not in html and 'alt="2 top-left নদীর"' in html
    drawing = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode("utf-8")
    assert ElementTree.fromstring(drawing).attrib["role"] == "img" and "নদীর" in drawing


def test_colab_gets_the_widget_alone(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    assert set(made._repr_mimebundle_()) == {"text/plain", "application/vnd.jupyter.widget-view+json"}


def test_without_ipywidgets_the_picture_remains_and_set_still_works(made, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert set(made._repr_mimebundle_()) == {"text/plain", "text/html"}
    made.set(n=3)
    assert capsys.readouterr().out == "n 2 → 3: the picture has changed.\n" and made.html == render(
        3, "top-left", "নদীর", True
    )


def test_every_control_has_a_label_and_no_output_widget_is_used(made):
    made._build()
    kinds = [type(widget).__name__ for widget in made._view.children]
    assert kinds == ["IntSlider", "Dropdown", "Text", "Checkbox", "HTML"]
    assert [widget.description for widget in made._view.children[:-1]] == ["words", "align", "word", "causal"]


def test_the_values_shown_are_escaped():
    made = card(lambda word: svg.card(caption=word), entry("word", "<script>"))
    assert "<script>" not in made._repr_mimebundle_()["text/html"]


def _drawn(html: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(re.search(r"<svg.*</svg>", html)[0]).iter())


def _texts(html: str) -> list[str]:
    return [element.text for element in _drawn(html) if element.tag.endswith("text")]


def test_a_grid_has_a_dot_in_each_allowed_cell_and_both_languages_beside_it():
    picture = svg.grid([[True, False], [True, True]], ["নদীর", "&"], ["বসে", "<i>"], title="a <mask>")
    assert sorted(_texts(picture)) == sorted(["নদীর", "&", "বসে", "<i>", "•", "•", "•"])
    assert "<title>a &lt;mask&gt;</title>" in picture and 'role="img"' in picture


def test_a_grid_can_hold_scores_and_rings():
    picture = svg.grid([[True, False]], ["q"], ["a", "b"], title="t", cells=[["0.5", "x"]], ringed=[(0, 1)])
    assert "0.5" in _texts(picture) and "x" not in _texts(picture)
    assert picture.count(svg.ORANGE) == 1


def test_long_column_words_are_turned():
    assert "rotate(-90" in svg.grid([[True]], ["a"], ["attention"], title="t")
    assert "rotate" not in svg.grid([[True]], ["a"], ["on"], title="t")


def test_a_grid_with_labels_that_do_not_fit_is_refused():
    with pytest.raises(ValueError, match="grid: 1 rows and 2 columns of labels for a grid of 1 x 1"):
        svg.grid([[True]], ["a"], ["a", "b"], title="t")


def test_an_empty_grid_is_drawn():
    assert _texts(svg.grid([], [], [], title="nothing")) == []


def test_bars_are_as_long_as_their_values_and_labelled():
    picture = svg.bars(
        [("tiled", 1, "4 MiB"), ("reference", 4, "16 MiB"), ("none", 0, "0 B")], title="memory"
    )
    widths = [float(e.attrib["width"]) for e in _drawn(picture) if e.tag.endswith("rect")][1:]
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01) and widths[2] == 1
    assert _texts(picture) == ["tiled", "4 MiB", "reference", "16 MiB", "none", "0 B"]
    with pytest.raises(ValueError, match="bars: expected values of 0 or more, got nan for 'x'"):
        svg.bars([("x", float("nan"), "")], title="t")


def test_a_picture_in_a_cell_says_its_title_where_only_text_can_be():
    shown = svg.Picture(svg.card(svg.bars([("a", 1, "1")], title="t")), title="one bar")
    assert (
        repr(shown) == "one bar"
        and shown._repr_html_().startswith("<div")
        and "<img alt=" in shown._repr_html_()
    )
