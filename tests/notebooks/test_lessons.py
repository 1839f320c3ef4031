"""The whole course as pages: readable without a network, and a table that says what each lesson took."""

import re
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.classroom.notebooks import lessons, page
from course_lib.classroom.notebooks.execute import Failure
from tests.notebooks.samples import NAME, TITLE, bare_notebook, good_notebook, write

BODY = r"""## 1 · Which `weights`?

Scores $\frac{q k^\top}{\sqrt{d}}$, then

$$\sum_j e^{s_{ij}} < \infty$$

Hidden: e<sup>−∞</sup> = 0, and H<sub>2</sub>O with <img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="a dot">.

See [the next lesson](02_b.ipynb#1-x), [here](#1-·-Which-weights?), `$HOME`,
[the code](../course_lib/attention/tiled.py)."""

SHOW = """from IPython.display import display
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
view = {'model_id': 'f00', 'version_major': 2, 'version_minor': 0}
print('from 1 to 2')"""

WIDGET = """display({'application/vnd.jupyter.widget-view+json': view, 'text/plain': 'slider',
         'text/html': '<div role="img" aria-label="three">তিন</div>'}, raw=True)"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two lessons that run and one that fails, in a folder whose name is Bangla with a space."""
    folder = tmp_path_factory.mktemp("x") / "আমার কোর্স"
    first = new_notebook(
        cells=[
            new_markdown_cell(TITLE),
            new_markdown_cell(BODY),
            new_code_cell(SHOW, metadata={"tags": ["figure"]}),
            new_markdown_cell('*It rises, নদী & "more".*'),
            new_code_cell(WIDGET, metadata={"tags": ["widget"]}),
        ]
    )
    write(first, folder / "notebooks" / NAME)
    write(bare_notebook("x = 1", "raise ValueError('no <rivers>')", "2"), folder / "notebooks" / "02_b.ipynb")
    write(bare_notebook("print('last')"), folder / "notebooks" / "03_c.ipynb")
    output = folder / "build"
    status = lessons.main([str(folder / "notebooks")], output=output)
    return status, output


def test_one_failing_lesson_fails_the_command_and_the_others_still_run(built):
    status, output = built
    assert status == 1
    assert "last" in (output / "03_c.html").read_text(encoding="utf-8")
    soup = BeautifulSoup((output / "02_b.html").read_text(encoding="utf-8"), "html.parser")
    assert "This lesson stopped in code cell 2: ValueError: no <rivers>" in soup.select_one(".stopped").text
    index = BeautifulSoup((output / "index.html").read_text(encoding="utf-8"), "html.parser")
    rows = [[cell.text for cell in row.select("td")] for row in index.select("tbody tr")]
    assert [row[0] for row in rows] == ["01 · A sample", "02_b", "03_c"]
    assert [row[-1] for row in rows] == ["runs", "failed", "runs"]
    assert rows[0][1] == "You will see one lesson that keeps every rule."
    assert all(re.fullmatch(r"\d+:\d\d", row[2]) and re.fullmatch(r"\d\.\d\d GB", row[3]) for row in rows)


def test_a_page_asks_nothing_of_the_network(built):
    soup = BeautifulSoup((built[1] / "01_sample.html").read_text(encoding="utf-8"), "html.parser")
    assert soup.select("script[src], link[href], iframe") == []
    assert all(image["src"].startswith("data:") for image in soup.select("img"))
    assert "@import" not in soup.text and not re.search(r"url\(\s*['\"]?https?:", str(soup))


def test_formulas_are_drawn_and_code_is_not_taken_for_one(built):
    soup = BeautifulSoup((built[1] / "01_sample.html").read_text(encoding="utf-8"), "html.parser")
    assert [math["display"] for math in soup.select("math")] == ["inline", "block"]
    assert soup.select("math mfrac") and soup.select("math msqrt")
    assert any(code.text == "$HOME" for code in soup.select("code"))


@pytest.mark.parametrize(
    ("formula", "holds"),
    [
        (r"\text{head\_dim}", "<mtext>head_dim</mtext>"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "<mtable"),
        (r"a < b", "&#x0003C;"),
        (r"\unknown{<x>}", r"<code>\unknown{&lt;x&gt;}</code>"),
        ("a & b", "<code>a &amp; b</code>"),
        ("{", "<code>{</code>"),
    ],
)
def test_a_formula_is_drawn_or_shown_as_it_was_written(formula, holds):
    assert holds in page._mathml(formula, "inline")


def test_html_inside_a_sentence_keeps_its_words(built):
    _, output = built
    soup = BeautifulSoup((output / NAME).with_suffix(".html").read_text(encoding="utf-8"), "html.parser")
    assert [tag.text for tag in soup.select("p sup, p sub")] == ["−∞", "2"]
    assert soup.select_one("p img[alt='a dot']") is not None


def test_pictures_speak_their_captions_and_widgets_leave_theirs(built):
    soup = BeautifulSoup((built[1] / "01_sample.html").read_text(encoding="utf-8"), "html.parser")
    assert [image["alt"] for image in soup.select(".jp-OutputArea img")] == ['It rises, নদী & "more".']
    assert soup.select_one('[aria-label="three"]').text == "তিন"
    assert "model_id" not in " ".join(element.text for element in soup.select(".jp-OutputArea"))


def test_links_lead_to_pages_and_files(built):
    soup = BeautifulSoup((built[1] / "01_sample.html").read_text(encoding="utf-8"), "html.parser")
    targets = [link["href"] for link in soup.select("main a")]
    assert [unquote(target) for target in targets[1:]] == [
        "02_b.html#1-x",
        "#1-·-Which-weights?",
        "../course_lib/attention/tiled.py",
    ]
    assert soup.find(id="1-·-Which-weights?") is not None
    assert [link["href"] for link in soup.select("nav a")] == ["index.html", "02_b.html"]


def test_bangla_has_fonts_to_fall_back_on(built):
    text = (built[1] / "01_sample.html").read_text(encoding="utf-8")
    for family in ("Noto Sans Bengali", "Nirmala UI", "Kohinoor Bangla"):
        assert text.count(family) >= 2  # in prose and in code


@pytest.mark.parametrize(
    ("name", "seconds", "gigabytes", "failure", "verdict"),
    [
        ("01_a", 59.0, 1.9, None, "runs"),
        ("01_a", 61.0, 1.9, None, "over 60 s"),
        ("03_a", 61.0, 1.9, None, "runs"),
        ("03_a", 121.0, 2.1, None, "over 120 s, over 2 GB"),
        ("01_a", 1.0, 0.1, Failure(2, "x"), "failed"),
    ],
)
def test_a_lesson_over_its_limits_is_marked(name, seconds, gigabytes, failure, verdict, tmp_path):
    path = tmp_path / f"{name}.ipynb"
    result = lessons.Result(path, path, "t", "", seconds, int(gigabytes * 1e9), failure)
    assert result.verdict == verdict


def test_a_stale_page_does_not_stand_for_a_notebook_that_cannot_be_read(tmp_path, capsys):
    path = write(good_notebook(), tmp_path / NAME)
    path.write_text("{", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "01_sample.html").write_text("old", encoding="utf-8")
    assert lessons.main([str(path)], output=tmp_path / "out") == 1
    assert not (tmp_path / "out" / "01_sample.html").exists()
    assert "0 of 1 lessons run" in capsys.readouterr().out
