"""Bad input to the stream: the message names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.text import stories
from course_lib.training import TokenStream

IDS = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]]

CASES: dict[str, tuple[dict[str, Any], type[Exception], list[str]]] = {
    "no document": ({"documents": []}, ValueError, ["documents", "at least one", "none"]),
    "documents without a target": (
        {"documents": [[1], []]},
        ValueError,
        ["two tokens or more", "got 2 with"],
    ),
    "a corpus smaller than a batch": (
        {"batch_tokens": 11},
        ValueError,
        ["documents", "11 tokens of a batch", "got 10 in all", "batch_tokens to 10"],
    ),
    "one text": ({"documents": "text"}, TypeError, ["documents", "str", r"\[text\]"]),
    "one Document": ({"documents": next(stories(1))}, TypeError, ["documents", "one Document"]),
    "one tensor": ({"documents": torch.arange(9)}, TypeError, ["documents", r"\[ids\]"]),
    "a number": ({"documents": 7}, TypeError, ["documents", "got int"]),
    "a generator": ({"documents": stories(3)}, TypeError, ["generator", "spent", "lambda: read_documents"]),
    "ids of floats": ({"documents": [[0.5, 1.0]]}, TypeError, [r"documents\[0\]", "whole numbers"]),
    "an id outside of the vocabulary": (
        {"documents": [[1, 2], [3, 5000]]},
        ValueError,
        [r"documents\[1\]", "0 to 4095", "5000", "another tokenizer"],
    ),
    "a vocabulary smaller than the tokenizer's": (
        {"vocab_size": 100},
        ValueError,
        ["vocab_size", "4096 ids", "100", "Build the model for this tokenizer"],
    ),
    "a context over the batch": ({"context": 9}, ValueError, ["context", "batch_tokens, 8", "got 9"]),
    "a context of one": ({"context": 1}, ValueError, ["context", "at least 2", "1"]),
    "a batch of one": ({"batch_tokens": 1}, ValueError, ["batch_tokens", "at least 2"]),
    "half a batch": ({"batch_tokens": 8.5}, TypeError, ["batch_tokens", "whole number", "float"]),
    "an empty buffer": ({"buffer_size": 0}, ValueError, ["buffer_size", "at least 1"]),
    "no pass": ({"passes": 0}, ValueError, ["passes", "at least 1"]),
    "a seed of text": ({"seed": "7"}, TypeError, ["seed", "str"]),
    "a rank past the last": ({"rank": 2, "world_size": 2}, ValueError, ["rank", "0 to 1", "got 2"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_says_what_is_wrong(name):
    changes, kind, words = CASES[name]
    arguments = {"documents": IDS, "batch_tokens": 8, **changes}
    with pytest.raises(kind) as caught:
        next(TokenStream(arguments.pop("documents"), **arguments))
    for word in words:
        assert caught.match(word)


def test_a_corpus_too_small_is_refused_again_and_again():
    stream = TokenStream(IDS, batch_tokens=11)
    for _ in range(2):
        with pytest.raises(ValueError, match="got 10 in all"):
            next(stream)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed=0, but this stream has seed=1"),
        ({"batch_tokens": 9}, "batch_tokens=8, but this stream has batch_tokens=9"),
        ({"documents": [[1, 2, 3, 4, 5, 7], [7, 8, 9, 11]]}, "other documents"),
        ({"documents": [IDS[0]]}, "other documents"),
    ],
)
def test_a_state_of_another_stream_is_refused_and_changes_nothing(changes, words):
    taken = TokenStream(IDS, batch_tokens=8, context=6)
    next(taken)
    arguments = {"documents": IDS, "batch_tokens": 8, "context": 6, **changes}
    stream = TokenStream(arguments.pop("documents"), **arguments)
    before = stream.state_dict()
    with pytest.raises(ValueError, match=f"state: .*{words}"):
        stream.load_state_dict(taken.state_dict())
    assert stream.state_dict() == before


@pytest.mark.parametrize("state", [{}, {"settings": {}, "checksum": 0, "next": None}])
def test_a_state_that_is_something_else_is_refused(state):
    with pytest.raises(ValueError, match=r"state: expected what state_dict\(\) of a TokenStream gives"):
        TokenStream(IDS, batch_tokens=8).load_state_dict(state)
