import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_lib.text import normalize_bangla

BANGLA_PIECES = st.lists(
    st.sampled_from([*map(chr, range(0x0981, 0x09FF)), "\u200c", "\u200d", "।", "|", " ", "\n", "a", '"'])
).map("".join)


@pytest.mark.parametrize(
    ("typed", "joined"),
    [
        ("নদী\u09ac\u09bc", "নদীর"),
        ("\u09ac\u09bc\u09beত", "রাত"),
        ("ক\u09cd\u09ac\u09bcম", "ক্রম"),
        ("হঠা\u09a4\u09cd\u200d", "হঠাৎ"),
        ("উ\u09a4\u09cd\u200dসব", "উৎসব"),
        ("ভ\u09b0\u09cd\u09a4\u09cd\u200dসনা", "ভর্ৎসনা"),
        ("ক\u09c7\u09beন", "কোন"),
        ("ক\u09be\u09c7ন", "কোন"),
        ("ম\u09c7\u09d7", "মৌ"),
        ("ম\u09d7\u09c7", "মৌ"),
        ("\u09b0\u200c\u09cd\u09afাম", "\u09b0\u200d\u09cd\u09afাম"),
    ],
)
def test_a_word_typed_in_another_way_gets_its_usual_spelling(typed: str, joined: str) -> None:
    assert normalize_bangla(typed) == joined


@pytest.mark.parametrize("single", ["\u09dc", "\u09dd", "\u09df"])
def test_letters_with_a_dot_are_two_code_points_as_nfc_wants_them(single: str) -> None:
    assert normalize_bangla(single) == unicodedata.normalize("NFD", single)
    assert len(normalize_bangla(single)) == 2


@pytest.mark.parametrize(
    "word",
    [
        "\u09b0\u200d\u09cd\u09afাম",  # ZWJ: র‍্যাম
        "উদ\u09cd\u200cযাপন",  # ZWNJ: উদ্‌যাপন
        "ক\u09cd\u200dষ",  # a half form asked for
        "\u09a4\u09cd\u200cপর",  # ত with a visible hasant is not ৎ
        "\u09f0\u09f1",  # Assamese letters
        "\u09a4\u09cd\u200d\u09be",  # as ৎ, the sign after it would lose its letter
        "কাা",  # a doubled sign shows: it is a typing error, not a spelling
        "অ\u09cd\u09afাপ",
        "আমি যাব না। তুমি যাবে।",
        "কখনও॥",
        "১,২৩,৪৫৬ টাকা",
    ],
)
def test_what_the_reader_sees_is_left_alone(word: str) -> None:
    assert normalize_bangla(word) == word


def test_a_joiner_that_joins_nothing_is_removed() -> None:
    assert normalize_bangla("র\u200d\u200d\u09cd\u09afাম") == "র\u200d\u09cd\u09afাম"
    assert normalize_bangla("উদ\u09cd\u200c\u200cযাপন") == "উদ\u09cd\u200cযাপন"
    assert normalize_bangla("র\u200c\u200c\u09cd\u09afাম") == "র\u200d\u09cd\u09afাম"
    assert normalize_bangla("\u200cআমি \u200dতুমি") == "আমি তুমি"


@pytest.mark.parametrize(
    "text", ["a\u200d\u200db", "\u200cfe", "👩\u200d\u200d👧", "\u0645\u200c\u200c\u0631"]
)
def test_joiners_of_other_scripts_are_none_of_its_business(text: str) -> None:
    assert normalize_bangla(text) == text


def test_a_bar_after_a_bangla_word_is_a_danda() -> None:
    assert normalize_bangla("আমি যাব না| তুমি যাবে|") == "আমি যাব না। তুমি যাবে।"
    assert normalize_bangla("সে বলল, “যাব|”\nআমি|") == "সে বলল, “যাব।”\nআমি।"


@pytest.mark.parametrize("line", ["নাম | বয়স |", "| নাম| বয়স|", "হ্যাঁ|না", "a| b|", "x | y", "cat| বিড়াল"])
def test_a_bar_in_a_table_or_outside_bangla_stays_a_bar(line: str) -> None:
    assert normalize_bangla(line) == unicodedata.normalize("NFC", line)


@given(st.one_of(st.text(), BANGLA_PIECES))
@example("\u09be\u09be\u09c7\u09c7")
@example("র\u200c\u200c\u09cd\u09afাম")
@example("ক\u200d\u200d\u200c\u200c\u09bcব")
@settings(max_examples=300)
def test_normalising_twice_is_normalising_once_and_gives_nfc(text: str) -> None:
    once = normalize_bangla(text)
    assert normalize_bangla(once) == once
    assert unicodedata.is_normalized("NFC", once)


@given(st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x02FF)))
def test_latin_text_only_passes_nfc(text: str) -> None:
    assert normalize_bangla(text) == unicodedata.normalize("NFC", text)


@given(
    st.text(
        st.characters(min_codepoint=0x1F000, max_codepoint=0x1FAFF) | st.just("\u200d") | st.just("\ufe0f")
    )
)
def test_emoji_keep_their_joiners(text: str) -> None:
    assert normalize_bangla(text) == unicodedata.normalize("NFC", text)


@pytest.mark.error_messages
def test_bytes_are_refused_with_what_to_do() -> None:
    with pytest.raises(
        TypeError, match=r"text: expected a str, got bytes; decode bytes with \.decode\('utf-8'\)"
    ):
        normalize_bangla("নদী".encode())  # type: ignore[arg-type]
