"""Bad input to the tiny model: the message names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.gqa import KVCache
from course_lib.text import train_tokenizer
from course_lib.tiny_gpt import FeedForward, TinyGPT, evaluate, fit, sample


def small(**changes: Any) -> TinyGPT:
    return TinyGPT(**{"vocab_size": 12, "dim": 8, "num_layers": 1, "num_heads": 2, **changes})


def train(documents: Any, model: Any = None, **arguments: Any) -> Any:
    return fit(model or small(), documents, **{"steps": 1, "progress": False, **arguments})


def read(tokens: Any, model: Any = None, **arguments: Any) -> Any:
    return (model or small())(tokens, **arguments)


def write(prompt: Any = "A", model: Any = None, **arguments: Any) -> str:
    return sample(model or small(vocab_size=4096), prompt, **{"max_new_tokens": 1, **arguments})


def write_twice_with_one_cache() -> None:
    cache = [KVCache()]
    write(cache=cache)
    write(cache=cache)


def read_after_a_refused_call() -> None:
    """The second layer has room for one token only; the first has read three by then."""
    model, cache = small(num_layers=2), [KVCache(), KVCache(max_length=1)]
    with pytest.raises(ValueError, match="max_length"):
        read(ROW, model, cache=cache)
    read(ROW[:, :1], model, cache=cache)


ROW = torch.tensor([[1, 2, 3]])

CASES: dict[str, tuple[Callable[[], object], type[Exception], list[str]]] = {
    "heads that do not divide dim": (
        lambda: small(dim=10, num_heads=4),
        ValueError,
        ["^dim", "multiple of num_heads = 4", "got 10"],
    ),
    "kv heads that do not divide heads": (
        lambda: small(num_heads=4, num_kv_heads=3),
        ValueError,
        ["^num_kv_heads", "divisor of num_heads = 4", "1, 2, 4", "got 3"],
    ),
    "no layer": (lambda: small(num_layers=0), ValueError, ["^num_layers", "at least 1", "got 0"]),
    "half a head": (lambda: small(num_heads=0.5), TypeError, ["^num_heads", "whole number", "0.5"]),
    "positions that are not known": (
        lambda: small(positions="rope"),
        ValueError,
        ["^positions", "'rotary'", "got 'rope'"],
    ),
    "ALiBi as positions": (
        lambda: small(positions="alibi"),
        ValueError,
        ["^positions", "as a bias", "attention_bias=lambda heads", "lesson 05"],
    ),
    "pairs of an odd head": (
        lambda: small(dim=6, positions="rotary"),
        ValueError,
        ["^dim", "even for rotary", "got 3"],
    ),
    "waves of an odd width": (
        lambda: small(dim=7, num_heads=1, positions="sinusoidal"),
        ValueError,
        ["^dim", "even number for sinusoidal", "got 7"],
    ),
    "an attention bias that is none": (
        lambda: small(attention_bias="causal"),
        TypeError,
        ["^attention_bias", "AttentionBias", "str 'causal'", "Causal"],
    ),
    "a factory that makes no bias": (
        lambda: small(attention_bias=lambda heads: None),
        TypeError,
        ["^attention_bias", "NoneType", "function of num_heads"],
    ),
    "a feed-forward that is no module": (
        lambda: small(feed_forward=lambda dim: 3),
        TypeError,
        ["^feed_forward", "returns a module", "int 3"],
    ),
    "one feed-forward for all layers": (
        lambda: small(feed_forward=FeedForward(8)),
        TypeError,
        ["^feed_forward", "function of dim", "FeedForward"],
    ),
    "a feed-forward by its name": (
        lambda: small(feed_forward="swiglu"),
        TypeError,
        ["^feed_forward", "function of dim", "str 'swiglu'"],
    ),
    "a token outside the vocabulary": (
        lambda: read(torch.tensor([[1, 12]])),
        ValueError,
        ["^tokens", "0 to 11", "got 12", "another tokenizer"],
    ),
    "a target where a token should be": (
        lambda: read(torch.tensor([[-100]])),
        ValueError,
        ["^tokens", "got -100"],
    ),
    "tokens that are embedded already": (
        lambda: read(torch.rand(1, 3)),
        TypeError,
        ["^tokens", "int64", "float32"],
    ),
    "tokens without a batch": (
        lambda: read(torch.tensor([1])),
        ValueError,
        ["^tokens", r"\[batch, length\]", r"tokens\[None\]"],
    ),
    "positions of another length": (
        lambda: read(ROW, positions=torch.tensor([[0, 1]])),
        ValueError,
        ["^positions", r"\[1, 3\]", r"\[1, 2\]"],
    ),
    "positions that are no int64": (
        lambda: read(ROW, positions=torch.rand(1, 3)),
        TypeError,
        ["^positions", "int64", "float32"],
    ),
    "a position that was not learned": (
        lambda: read(ROW, small(positions="learned", max_length=2)),
        ValueError,
        ["^positions", "0 to 1", "max_length = 2", "got 2"],
    ),
    "a cache for another number of layers": (
        lambda: read(ROW, cache=[]),
        ValueError,
        ["^cache", "each of the 1 layers", "got 0", "KVCache"],
    ),
    "a cache that is not in a list": (
        lambda: read(ROW, cache=KVCache()),
        TypeError,
        ["^cache", "list of caches", "KVCache", "for _ in model.layers"],
    ),
    "something else than caches": (
        lambda: read(ROW, cache=["a"]),
        TypeError,
        ["^cache", "list of caches", "'a'"],
    ),
    "one cache for all layers": (
        lambda: read(ROW, small(num_layers=2), cache=[KVCache()] * 2),
        ValueError,
        ["^cache", "its own for each layer", "same cache twice"],
    ),
    "caches that have read different tokens": (
        read_after_a_refused_call,
        ValueError,
        ["^cache", r"lengths \[3\] and \[\]", "refused", "new ones"],
    ),
    "an empty corpus": (lambda: train([]), ValueError, ["^documents", "at least one", "got none"]),
    "documents that hold nothing to predict": (
        lambda: train([[], [3]]),
        ValueError,
        ["^documents", "two tokens or more", "got 2 with less"],
    ),
    "an empty corpus to evaluate": (lambda: evaluate(small(), []), ValueError, ["^documents", "got none"]),
    "one text in place of a list": (lambda: train("text"), TypeError, ["^documents", "str", r"\[text\]"]),
    "a document with an id outside the vocabulary": (
        lambda: train([[1, 2], [3, 12]]),
        ValueError,
        [r"^documents\[1\]", "0 to 11", "got 12", r"TinyGPT\(tokenizer.vocab_size\)"],
    ),
    "a text for a model of fewer ids": (lambda: train(["বাংলা"]), ValueError, [r"^documents\[0\]", "0 to 11"]),
    "ids that are no whole numbers": (
        lambda: train([[0.5, 1.0]]),
        TypeError,
        [r"^documents\[0\]", "whole numbers"],
    ),
    "a document that is neither": (lambda: train([None]), TypeError, [r"^documents\[0\]", "NoneType"]),
    "no time": (lambda: train([[1, 2]], seconds=0), ValueError, ["^seconds", "over 0", "got 0"]),
    "no steps": (lambda: train([[1, 2]], steps=0), ValueError, ["^steps", "at least 1", "got 0"]),
    "a learning rate below zero": (lambda: train([[1, 2]], lr=-1.0), ValueError, ["^lr", "over 0", "-1"]),
    "a weight decay below zero": (
        lambda: train([[1, 2]], weight_decay=-0.1),
        ValueError,
        ["^weight_decay", "at least 0", "-0.1"],
    ),
    "a model whose parameters are frozen": (
        lambda: train([[1, 2]], small().requires_grad_(False)),
        ValueError,
        ["^model", "parameters that train", "requires_grad_"],
    ),
    "a context without a target": (
        lambda: train([[1, 2]], context=1),
        ValueError,
        ["^context", "at least 2"],
    ),
    "a tokenizer of another vocabulary": (
        lambda: write(tokenizer=train_tokenizer(["a b"], 258)),
        ValueError,
        ["^tokenizer", "4096", "258", "trained with"],
    ),
    "documents before the model": (
        lambda: fit([[1, 2]], small(), steps=1),  # type: ignore[arg-type]
        TypeError,
        ["^model", "TinyGPT", "got list", r"fit\(model, documents\)"],
    ),
    "evaluating no model": (lambda: evaluate(None, [[1, 2]]), TypeError, ["^model", "NoneType"]),  # type: ignore[arg-type]
    "a module that is no language model": (
        lambda: sample(torch.nn.Linear(2, 2), "A"),  # type: ignore[arg-type]
        TypeError,
        ["^model", "TinyGPT", "got Linear", r"sample\(model, prompt\)"],
    ),
    "a tokenizer by its name": (
        lambda: write(tokenizer="gpt2"),
        TypeError,
        ["^tokenizer", "Tokenizer of course_lib.text", "got str", "Tokenizer.load"],
    ),
    "training with a tokenizer by its name": (
        lambda: train(["A"], small(vocab_size=4096), tokenizer="gpt2"),
        TypeError,
        ["^tokenizer", "got str"],
    ),
    "a prompt of ids": (lambda: write([1, 2]), TypeError, ["^prompt", "list"]),
    "a temperature below zero": (lambda: write(temperature=-1), ValueError, ["^temperature", "0", "-1"]),
    "a top_k of none": (lambda: write(top_k=0), ValueError, ["^top_k", "from 1 to the 4096", "got 0"]),
    "fewer than no tokens": (lambda: write(max_new_tokens=-1), ValueError, ["^max_new_tokens", "at least 0"]),
    "more than was learned": (
        lambda: write(model=small(vocab_size=4096, positions="learned", max_length=4), max_new_tokens=9),
        ValueError,
        ["^max_new_tokens", "at most 3", "4 positions", "got 9"],
    ),
    "a cache that has read a text": (
        write_twice_with_one_cache,
        ValueError,
        ["^cache", "holds nothing yet", "KVCache"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    act, kind, words = CASES[name]
    with pytest.raises(kind) as caught:
        act()
    for word in words:
        assert re.search(word, str(caught.value)), f"{word!r} is not in: {caught.value}"
