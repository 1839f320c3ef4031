import re

import pytest

from course_lib.text import Document, load_corpus, normalize_bangla, python_topics


def test_the_corpus_is_the_same_documents_in_the_same_order_each_time() -> None:
    assert load_corpus() == load_corpus()
    assert [document for language in ("bn", "en") for document in load_corpus(language)] == [
        document for document in load_corpus() if document.language in ("bn", "en")
    ]


def test_a_language_selects_its_documents() -> None:
    for language in ("bn", "en", "mixed", "banglish"):
        chosen = load_corpus(language)
        assert chosen and {document.language for document in chosen} == {language}
    assert sum(len(load_corpus(language)) for language in ("bn", "en", "mixed", "banglish")) == len(
        load_corpus()
    )


def test_a_document_cannot_be_changed_by_accident() -> None:
    document = Document("a", "bn", "rivers", "নদী", "পদ্মা।")
    with pytest.raises(AttributeError):
        document.text = "মেঘনা।"  # type: ignore[misc]


def test_pythons_topics_are_clean_english_documents() -> None:
    topics = python_topics()
    assert len(topics) >= 40
    assert [topic.id for topic in topics] == sorted(topic.id for topic in topics)
    for topic in topics:
        assert (topic.language, topic.topic) == ("en", "python")
        assert topic.text.startswith(topic.title) and topic.title
        assert topic.text == normalize_bangla(topic.text).strip()
        assert not re.search(
            r"^\s*[*=+~^-]{4,}|\+---|Related help topics|\n\n\n|[^\S\n]$", topic.text, re.MULTILINE
        )


def test_a_paragraph_of_pythons_topics_is_one_line_and_code_keeps_its_own() -> None:
    [statement] = [topic for topic in python_topics() if topic.id == "python-assert"]
    assert (
        "Assert statements are a convenient way to insert debugging assertions into a program:"
        in statement.text
    )
    assert "if __debug__:\n    if not expression: raise AssertionError" in statement.text


def test_no_topic_of_python_stands_inside_another() -> None:
    topics = python_topics()
    for topic in topics:
        assert [other.id for other in topics if topic.text in other.text] == [topic.id]


@pytest.mark.error_messages
def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(
        ValueError, match="language: expected one of 'bn', 'en', 'mixed', 'banglish' or None, got 'hi'"
    ):
        load_corpus("hi")
