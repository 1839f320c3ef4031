from hypothesis import given
from hypothesis import strategies as st

from course_lib.text import graphemes
from course_lib.text.graphemes import finished_length


def test_a_long_bangla_word_has_the_characters_a_reader_counts() -> None:
    word = "বিশ্ববিদ্যালয়"
    assert (len(word), len(word.encode("utf-8"))) == (14, 42)
    assert graphemes(word) == ["বি", "শ্ব", "বি", "দ্যা", "ল", "য়"]


def test_a_conjunct_a_family_and_a_flag_are_one_grapheme_each() -> None:
    assert graphemes("ক্ষস্ত্রী") == ["ক্ষ", "স্ত্রী"]
    assert graphemes("👨‍👩‍👧🇧🇩🇮🇳e\u0301\r\n") == ["👨‍👩‍👧", "🇧🇩", "🇮🇳", "e\u0301", "\r\n"]


def test_joiners_stay_with_the_letters_they_serve() -> None:
    assert graphemes("র‍্যাম") == ["র‍্যা", "ম"]
    assert graphemes("উদ্‌যাপন") == ["উ", "দ্‌", "যা", "প", "ন"]


@given(st.text())
def test_graphemes_join_to_the_text(text: str) -> None:
    assert "".join(graphemes(text)) == text


@given(st.text(), st.text())
def test_what_is_called_finished_stays_so_whatever_follows(text: str, more: str) -> None:
    finished = text[: finished_length(text)]
    pieces = graphemes(finished)
    assert graphemes(text + more)[: len(pieces)] == pieces


def test_a_line_end_closes_a_grapheme_and_a_carriage_return_does_not() -> None:
    assert finished_length("নদী\n") == 4
    assert finished_length("a\r") == 1
