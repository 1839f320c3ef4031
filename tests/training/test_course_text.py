"""The course's text as data: how much of what, in which order, and that a run's config remembers it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby

import pytest

from course_lib.text import load_corpus, stories
from course_lib.training import CourseText, TrainConfig
from course_lib.training.held_out import split_documents

from .runs import MODEL


def test_stories_stand_together_one_language_a_document_and_none_is_lost():
    documents = list(CourseText(stories=60, corpus_copies=0, stories_together=3).documents())
    told = [story for document in documents for story in document.text.split("\n\n")]
    assert Counter(told) == Counter(story.text for story in stories(60))
    for language in ("bn", "en"):
        own = [document for document in documents if document.language == language]
        assert [document.text.count("\n\n") + 1 for document in own] == [1, 2, 3] * 5
    language_of = {story.text: story.language for story in stories(60)}
    assert all({language_of[t] for t in d.text.split("\n\n")} == {d.language} for d in documents)


def test_a_last_document_of_fewer_stories_is_kept():
    documents = list(CourseText(stories=4, corpus_copies=0, stories_together=5).documents())
    assert [document.text.count("\n\n") + 1 for document in documents] == [1, 1, 1, 1]


def test_copies_of_the_corpus_are_spread_out_each_in_an_order_of_its_own():
    text = CourseText(stories=3000, corpus_copies=3)
    corpus = {document.id for document in load_corpus()}
    found = [document.id for document in text.documents()]
    order = [name for name in found if name in corpus]
    copies = [order[i : i + len(corpus)] for i in range(0, len(order), len(corpus))]
    assert len(copies) == 3 and all(set(copy) == corpus for copy in copies)
    assert copies[0] != copies[1] != copies[2]
    runs = [len(list(group)) for is_corpus, group in groupby(found, corpus.__contains__) if is_corpus]
    assert max(runs[:-1]) == 1


def test_a_copy_of_a_held_out_document_is_held_out_too():
    split = split_documents(CourseText(stories=500, corpus_copies=3), 0.1)
    held = {document.text for document in split.held_out}
    assert len(held) > 50 and held.isdisjoint(document.text for document in split.training())


def test_a_config_remembers_the_text_through_json():
    config = TrainConfig(model=MODEL, steps=1, data=CourseText(stories=70, stories_together=2))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_words_say_how_often_what_is_read():
    assert str(CourseText()) == "the course's corpus and 4,000 of its stories, in Bangla and English"
    assert "read 9 times a pass" in str(CourseText(corpus_copies=9))
    assert str(CourseText(stories=5, corpus_copies=0)).startswith("the course's 5 stories")
    assert str(CourseText(stories=0)) == "the course's corpus, in Bangla and English"


ERRORS = {
    "nothing to read": ({"stories": 0, "corpus_copies": 0}, ["stories", "at least 1", "got 0"]),
    "fewer than none": ({"stories": -1}, ["stories", "-1"]),
    "no story together": ({"stories_together": 0}, ["stories_together", "0"]),
    "half a copy": ({"corpus_copies": 0.5}, ["corpus_copies", "0.5"]),
}


@pytest.mark.parametrize(("values", "words"), ERRORS.values(), ids=ERRORS)
def test_errors(values, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        CourseText(**values)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_field_is_named():
    with pytest.raises(ValueError, match="got also poems"):
        CourseText.from_dict({"poems": 3})
