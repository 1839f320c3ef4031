"""The corpus itself: what is true of every document, in both languages."""

import re
import unicodedata
from collections import Counter, defaultdict
from itertools import combinations

import regex

from course_lib.text import Document, graphemes, load_corpus, looks_like_bijoy, normalize_bangla
from course_lib.text.build_tokenizer import DATA, build

DOCUMENTS = load_corpus()
BANGLA = [document for document in DOCUMENTS if document.language in ("bn", "mixed")]


def share_of_letters(document: Document, script: str) -> float:
    letters = regex.findall(r"\p{L}", document.text)
    return len(regex.findall(rf"\p{{L}}(?<=\p{{{script}}})", document.text)) / len(letters)


def normalized(words: set[str]) -> set[str]:
    return set(map(normalize_bangla, words))


def test_there_are_at_least_a_hundred_documents_in_each_language() -> None:
    count = Counter(document.language for document in DOCUMENTS)
    assert count["bn"] >= 100
    assert count["en"] >= 100
    assert count["mixed"] >= 5
    assert count["banglish"] >= 5


def test_ids_titles_and_texts_are_unique() -> None:
    for field in ("id", "text"):
        repeated = [
            value for value, n in Counter(getattr(document, field) for document in DOCUMENTS).items() if n > 1
        ]
        assert repeated == []


def test_lengths_run_from_one_line_to_a_page() -> None:
    for language in ("bn", "en"):
        lengths = sorted(len(document.text.split()) for document in load_corpus(language))
        assert lengths[0] <= 20
        assert lengths[-1] >= 250
        assert lengths[-1] <= 900


def test_there_are_many_topics_and_none_rules() -> None:
    for language in ("bn", "en"):
        topics = Counter(document.topic for document in load_corpus(language))
        assert len(topics) >= 6
        assert max(topics.values()) <= 0.4 * sum(topics.values())


def test_no_two_documents_share_much_of_their_wording() -> None:
    holders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    size = {}
    for document in DOCUMENTS:
        words = regex.findall(r"[\p{L}\p{M}\u200c\u200d]+", document.text.lower())
        grams = {tuple(words[start : start + 4]) for start in range(len(words) - 3)}
        size[document.id] = len(grams)
        for gram in grams:
            holders[gram].add(document.id)
    shared = Counter(pair for ids in holders.values() for pair in combinations(sorted(ids), 2))
    alike = {pair: n for pair, n in shared.items() if n > 0.15 * min(size[pair[0]], size[pair[1]])}
    assert alike == {}


def test_text_and_title_are_spelt_in_the_one_usual_way() -> None:
    for document in DOCUMENTS:
        for text in (document.text, document.title):
            assert text == normalize_bangla(text) == text.strip(), document.id
            # Two spaces in a row are the indentation of code, or a slip.
            assert not re.search(r"\S {2}|[^\S\n]\n|\n{3}|\t|\r", text), document.id
            assert not set("\ufffd\u25cc\ufeff\u00ad\u09f0\u09f1") & set(text), document.id
            unseen = {
                character for character in text if unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn")
            }
            assert unseen <= {"\n"}, document.id


def test_no_grapheme_is_half() -> None:
    for document in DOCUMENTS:
        for character in graphemes(document.text):
            where = f"{document.id}: {character!r}"
            assert not unicodedata.category(character[0]).startswith("M"), where
            assert character[0] not in "\u200c\u200d", where
            assert not re.search(
                "[\u09be-\u09cc]{2}|\u09cd\u09cd|[\u0981-\u0983][\u09be-\u09cd]", character
            ), where


def test_joiners_stand_beside_a_hasant_where_they_do_something() -> None:
    for document in BANGLA:
        assert not re.search("(?<!\u09cd)[\u200c\u200d](?!\u09cd)", document.text), document.id


def test_the_language_is_what_the_tag_says() -> None:
    for document in DOCUMENTS:
        bangla, latin = share_of_letters(document, "Bengali"), share_of_letters(document, "Latin")
        expected = {
            "bn": bangla >= 0.95,
            "mixed": bangla >= 0.3 and latin >= 0.03,
            "en": latin >= 0.98,
            "banglish": latin == 1,
        }
        assert expected[document.language], f"{document.id}: {bangla:.2f} Bangla, {latin:.2f} Latin"


def test_documents_are_written_in_sentences() -> None:
    for document in DOCUMENTS:
        marks = "।?!…" if document.language in ("bn", "mixed") else ".?!…:"
        # A letter or a notice ends with the name of its writer.
        assert set(marks) & set(document.text[-120:]), document.id


def test_sentences_of_bangla_end_in_a_danda_right_after_the_word() -> None:
    assert sum("।" in document.text for document in load_corpus("bn")) >= 0.95 * len(load_corpus("bn"))
    for document in BANGLA:
        assert "|" not in document.text and not re.search(r"\s[।,?!]", document.text), document.id


def test_the_words_are_those_of_bangladesh_and_of_today() -> None:
    west_bengal = {"জল", "জলে", "জলের", "জলটা", "জলটুকু", "লঙ্কা", "স্নান", "মাসি", "পিসি", "দিদা", "ঠাকুমা", "কাকিমা"}
    sadhu = {"তাহার", "তাহাকে", "তাহারা", "ইহা", "ইহার", "উহা", "উহার", "করিয়াছে", "হইয়াছে", "বলিলেন", "কহিলেন"}
    for document in BANGLA:
        words = set(regex.findall(r"[\p{L}\p{M}\u200c\u200d]+", document.text))
        assert not words & normalized(west_bengal | sadhu), document.id


def test_no_document_is_taken_for_bijoy() -> None:
    assert [document.id for document in DOCUMENTS if looks_like_bijoy(document.text)] == []


def test_the_shipped_tokenizer_is_what_corpus_and_stories_give() -> None:
    tokenizer, recipe = build()
    message = "the corpus or the stories changed: run `python -m course_lib.text.build_tokenizer`"
    assert tokenizer.to_json() == (DATA / "tokenizer.json").read_text(encoding="utf-8"), message
    assert recipe["corpus_documents"] == len(DOCUMENTS)
