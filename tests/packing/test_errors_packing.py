"""Bad input to packing: the message names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from course_lib.attention import Causal, attention
from course_lib.packing import Packed, PackedBatch, fill_bins, next_token_targets, pack, unpack

ROW = torch.zeros(1, 5, 2, 4)
IDS = torch.tensor([1, 2])


def attend(lengths: Any, k_lengths: Any = None, inner: Any = None, batch: int = 1) -> Any:
    row = ROW.expand(batch, -1, -1, -1)
    return attention(row, row, row, Packed(lengths, k_lengths, inner=inner))


CASES: dict[str, tuple[Callable[[], object], type[Exception], list[str]]] = {
    "lengths that add up to less": (
        lambda: attend([2, 2]),
        ValueError,
        ["lengths", "add up to the 5 tokens", "2 lengths for 4", "padding"],
    ),
    "lengths that add up to more": (lambda: attend([4, 2]), ValueError, ["lengths", "5 tokens", "for 6"]),
    "lengths of all rows of a batch": (
        lambda: attend([5, 2, 3], batch=2),
        ValueError,
        ["5 tokens of a row", "all 2 rows", r"flatten\(0, 1\)\[None\]"],
    ),
    "key lengths that miss keys": (lambda: attend([2, 3], [2, 2]), ValueError, ["k_lengths", "5 keys", "4"]),
    "a document too few in k_lengths": (
        lambda: Packed([2, 3], [5]),
        ValueError,
        ["k_lengths", "one length a document, 2 as in lengths", "got 1"],
    ),
    "a negative length": (lambda: Packed([6, -1]), ValueError, [r"^lengths\[1\]", "0 or more", "-1"]),
    "a length that is no whole number": (
        lambda: Packed([2.0, 3]),
        TypeError,
        [r"^lengths\[0\]", "float 2.0"],
    ),
    "one number in place of lengths": (lambda: Packed(5), TypeError, ["^lengths", "int 5"]),
    "an inner bias that fits no rectangle": (
        lambda: attend([2, 3], [3, 2], inner=Causal()),
        ValueError,
        ["inner", "segment 0", "align"],
    ),
    "one padded tensor": (
        lambda: pack(torch.zeros(2, 3, dtype=torch.int64)),
        TypeError,
        ["sequences", "list of 1-D tensors", r"\[2, 3\]", "without their padding"],
    ),
    "one padded array": (
        lambda: pack(np.zeros((2, 3), dtype=np.int64)),
        TypeError,
        ["sequences", "list of 1-D tensors", r"ndarray of shape \[2, 3\]", "without their padding"],
    ),
    "text in place of sequences": (lambda: pack("abc"), TypeError, ["sequences", "str", "tokenizer.encode"]),
    "texts in place of ids": (
        lambda: pack([IDS, "abc"]),
        TypeError,
        [r"sequences\[1\]", "token ids", "str", "tokenizer.encode"],
    ),
    "a number in place of sequences": (lambda: pack(3), TypeError, ["sequences", "list", "int"]),
    "numbers in place of sequences": (
        lambda: pack([1, 2]),
        ValueError,
        [r"sequences\[0\]", "one dimension", r"\[\]", r"in a list: \[ids\]"],
    ),
    "a sequence of two dimensions": (
        lambda: pack([IDS, torch.zeros(2, 3, dtype=torch.int64)]),
        ValueError,
        [r"sequences\[1\]", "one dimension", r"\[2, 3\]"],
    ),
    "ids that are no whole numbers": (
        lambda: pack([IDS, torch.tensor([1.5])]),
        TypeError,
        [r"sequences\[1\]", "whole numbers", "float32"],
    ),
    "bools in place of ids": (
        lambda: pack([torch.tensor([True])]),
        TypeError,
        [r"sequences\[0\]", "whole numbers", "bool"],
    ),
    "something else in place of ids": (
        lambda: pack([{"a": 1}]),
        TypeError,
        [r"sequences\[0\]", "1-D tensor or a list", "dict"],
    ),
    "ids within ids": (
        lambda: pack([[1, [2, 3]]]),
        TypeError,
        [r"sequences\[0\]", "list of token ids", "list of which no tensor"],
    ),
    "an id beyond 64 bits": (
        lambda: pack([IDS, [2**70]]),
        TypeError,
        [r"sequences\[1\]", "list of token ids", "[Oo]verflow"],
    ),
    "sequences on two devices": (
        lambda: pack([IDS, IDS.to("meta")]),
        ValueError,
        ["sequences", "one device", "cpu and meta", "to\\(device\\)"],
    ),
    "unpacking lengths that do not add up": (
        lambda: unpack(ROW, [2, 2]),
        ValueError,
        ["lengths", "5 tokens", "2 lengths for 4"],
    ),
    "unpacking several rows": (
        lambda: unpack(torch.zeros(2, 5), [2, 3]),
        ValueError,
        ["tensor", "one packed row", r"\[2, 5\]", r"i : i \+ 1"],
    ),
    "unpacking one dimension": (lambda: unpack(torch.zeros(5), [5]), ValueError, ["tensor", "row", r"\[5\]"]),
    "unpacking a list": (lambda: unpack([[1, 2]], [2]), TypeError, ["tensor", "list"]),
    "targets of a bare tensor": (
        lambda: next_token_targets(IDS[None]),
        TypeError,
        ["batch", "PackedBatch", "Tensor", "documents end"],
    ),
    "targets of a batch whose lengths are wrong": (
        lambda: next_token_targets(PackedBatch(IDS[None], IDS[None], (3,))),
        ValueError,
        ["lengths", "2 tokens", "for 3"],
    ),
    "a document longer than a row": (
        lambda: fill_bins([3, 9, 4], 8),
        ValueError,
        [r"lengths\[1\]", "at most the capacity, 8", "got 9", "Cut"],
    ),
    "a negative length for a bin": (
        lambda: fill_bins([3, -1], 8),
        ValueError,
        [r"lengths\[1\]", "0 or more"],
    ),
    "no capacity": (lambda: fill_bins([0], 0), ValueError, ["capacity", "at least 1", "got 0"]),
    "a capacity that is no whole number": (lambda: fill_bins([3], 8.0), TypeError, ["capacity", "float 8.0"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_answered_with_a_sentence(case: str) -> None:
    call, kind, needles = CASES[case]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert ("expected" in message or "needs" in message) and len(message.split()) >= 8, message
    for needle in needles:
        assert re.search(needle, message), f"no {needle!r} in: {message}"
