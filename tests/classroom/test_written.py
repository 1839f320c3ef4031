"""What a model wrote is shown whole, escaped, and with its prompt set off."""

import re

import pytest

from course_lib.classroom.written import written

SAMPLES = [
    ("Bangla", "একদিন", " রহিম নদীর ধারে গেল।"),
    ("English", "One day", " Rahim went to the river."),
]


def _plain(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def test_every_sample_is_shown_whole_in_its_order():
    text = _plain(written(SAMPLES).html)
    assert "Banglaএকদিন রহিম নদীর ধারে গেল।EnglishOne day Rahim went to the river." in text


def test_the_prompt_is_set_off_by_more_than_colour():
    html = written(SAMPLES).html
    assert re.search(r"<b style=\"text-decoration:underline[^>]*>একদিন</b> রহিম", html)


def test_a_prompt_within_the_continuation_is_not_said_twice():
    whole = [(label, prompt, prompt + rest) for label, prompt, rest in SAMPLES]
    assert written(whole).html == written(SAMPLES).html


def test_a_prompt_that_sample_has_normalised_is_found_in_the_continuation():
    html = written(
        [("Bangla", "প\u09c7\u09be ", "প\u09cbস্ট")]
    ).html  # ে + া is one sign in what sample() gives
    assert _plain(html).endswith("Banglaপ\u09cbস্ট")


def test_markup_in_labels_prompts_and_texts_is_escaped():
    html = written([("<i>", "<b>", "<script>&")], title="<u>").html
    assert (
        "&lt;i&gt;" in html and "&lt;b&gt;" in html and "&lt;script&gt;&amp;" in html and "&lt;u&gt;" in html
    )
    assert "<script" not in html


def test_each_text_names_its_language():
    assert re.findall(r'lang="(\w+)"', written(SAMPLES).html) == ["bn", "en"]


def test_the_table_is_named_by_its_caption_and_rows_by_their_labels():
    html = written(SAMPLES, title="After a minute").html
    assert re.search(r"<caption[^>]*>After a minute</caption>", html)
    assert html.count('<th scope="row"') == 2


def test_paper_and_ink_follow_the_theme():
    html = written(SAMPLES).html
    assert "background:var(--jp-layout-color1,#ffffff)" in html
    assert "color:var(--jp-content-font-color1,#1f1f1f)" in html


def test_a_terminal_gets_the_same_as_lines():
    assert repr(written(SAMPLES)).splitlines() == [
        "What the model wrote",
        "Bangla: একদিন রহিম নদীর ধারে গেল।",
        "English: One day Rahim went to the river.",
    ]


def test_an_empty_prompt_and_a_silent_model_are_shown():
    html = written([("no prompt", "", "One day."), ("silent", "One day", "")]).html
    assert html.count("<b ") == 1 and "One day." in html


def test_no_sample_is_an_error():
    with pytest.raises(ValueError, match=r"samples: expected at least one \(label, prompt, continuation\)"):
        written([])


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ("abc", r"samples\[0\]: expected \(label, prompt, continuation\), got str"),
        (("Bangla", "একদিন"), r"samples\[0\]: expected \(label, prompt, continuation\), got tuple"),
        (("Bangla", "একদিন", 3), r"samples\[0\]: expected the continuation as text, got int"),
    ],
)
def test_a_sample_that_is_not_three_texts_is_an_error(sample, message):
    with pytest.raises(TypeError, match=message):
        written([sample])
