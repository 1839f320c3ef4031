"""Bad input to ALiBi: the message names the argument, what was expected, what came, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, KeyPadding, Segments, attention
from course_lib.packing import Packed


def attend(bias: Any, heads: int = 4, kv_heads: int = 2, q_len: int = 5, k_len: int = 5) -> Any:
    query, key = torch.zeros(1, q_len, heads, 4), torch.zeros(1, k_len, kv_heads, 4)
    return attention(query, key, key, bias)


NAME = "^num_heads_or_slopes"
CASES: dict[str, tuple[Callable[[], object], type[Exception], list[str]]] = {
    "no heads": (lambda: alibi_slopes(0), ValueError, ["^num_heads:", "at least 1 head", "got 0"]),
    "fewer than no heads": (lambda: alibi_slopes(-8), ValueError, ["^num_heads:", "at least 1", "got -8"]),
    "half a head": (lambda: alibi_slopes(2.5), TypeError, ["^num_heads:", "whole number", "float 2.5"]),  # type: ignore[arg-type]
    "True heads": (lambda: alibi_slopes(True), TypeError, ["^num_heads:", "whole number", "bool True"]),
    "a word": (lambda: alibi_slopes("8"), TypeError, ["^num_heads:", "whole number", "str '8'"]),  # type: ignore[arg-type]
    "a bias of no heads": (lambda: ALiBi(0), ValueError, [NAME, "at least 1 head", "got 0"]),
    "a bias of nothing": (lambda: ALiBi(None), TypeError, [NAME, "heads", "tensor of slopes", "None"]),
    "a single slope": (lambda: ALiBi(0.5), TypeError, [NAME, "tensor of slopes", "float 0.5"]),
    "a tensor of no dimension": (
        lambda: ALiBi(torch.tensor(0.5)),
        TypeError,
        [NAME, "tensor of slopes", r"tensor\(0.5"],
    ),
    "a list of words": (lambda: ALiBi(["a"]), TypeError, [NAME, r"tensor \[num_heads\]", "list"]),
    "a list of rows": (
        lambda: ALiBi([torch.ones(2), torch.ones(3)]),
        TypeError,
        [NAME, r"tensor \[num_heads\]", "list"],
    ),
    "slopes of two dimensions": (
        lambda: ALiBi(torch.ones(4, 1)),
        ValueError,
        [NAME, r"\[num_heads\]", r"\[4, 1\]", "flatten"],
    ),
    "no slopes": (lambda: ALiBi(torch.ones(0)), ValueError, [NAME, r"\[num_heads\]", r"\[0\]"]),
    "whole numbers": (
        lambda: ALiBi(torch.tensor([1, 2])),
        ValueError,
        [NAME, "floating-point", "int64", r"\.float\(\)"],
    ),
    "complex slopes": (
        lambda: ALiBi(torch.ones(2, dtype=torch.complex64)),
        ValueError,
        [NAME, "floating-point", "complex64"],
    ),
    "a slope of 0": (
        lambda: ALiBi(torch.tensor([0.5, 0.0])),
        ValueError,
        [NAME, "above 0", "got 0.0 for head 1"],
    ),
    "a negative slope": (
        lambda: ALiBi(torch.tensor([-0.5, 0.25])),
        ValueError,
        [NAME, "above 0", "got -0.5 for head 0", "minus sign"],
    ),
    "NaN": (lambda: ALiBi([0.5, float("nan")]), ValueError, [NAME, "finite", "got nan for head 1"]),
    "infinity": (lambda: ALiBi([float("inf")]), ValueError, [NAME, "finite", "got inf for head 0"]),
    "slopes for the kv heads": (
        lambda: attend(ALiBi(2)),
        ValueError,
        ["^bias", "each of the 4 query heads", r"got ALiBi\(2\) with 2", r"make it ALiBi\(4\)"],
    ),
    "slopes for other heads": (
        lambda: attend(Causal() + ALiBi(torch.tensor([0.5, 0.25, 0.125]))),
        ValueError,
        ["^bias", "4 query heads", r"got ALiBi\(slopes \[3\]\) with 3"],
    ),
    "looking at more heads than it has": (
        lambda: ALiBi(8).materialize(3, 3),
        ValueError,
        ["^bias", "1 query heads", "materialize with num_heads=8"],
    ),
    "in a segment, slopes for other heads": (
        lambda: attend(Packed([2, 3], inner=ALiBi(3))),
        ValueError,
        ["inner", "segment 0", "4 query heads", "with 3"],
    ),
    "beside documents with more keys": (
        lambda: attend(Packed([2, 3], [4, 4]) + ALiBi(4), k_len=8),
        ValueError,
        ["^bias", "beside segments", "5 queries and 8 keys", "queries 0 to 1 with keys 0 to 3", "inner="],
    ),
    "beside documents that only together have as many": (
        lambda: attend(Causal() + ALiBi(4) + Packed([2, 3], [3, 2])),
        ValueError,
        ["^bias", "queries 0 to 1 with keys 0 to 2", r"inner=ALiBi\(4\)"],
    ),
    "beside one document with more keys": (
        lambda: attend(ALiBi(4) + Packed([5], [7]), k_len=7),
        ValueError,
        ["^bias", "queries 0 to 4 with keys 0 to 6", "inner="],
    ),
    "beside documents within a document": (
        lambda: attend(Segments([5], inner=Packed([2, 3], [1, 4])) + ALiBi(4)),
        ValueError,
        ["^bias", "queries 0 to 1 with keys 0 to 0", "inner="],
    ),
    "within a document, beside documents of its own": (
        lambda: attend(Segments([5], inner=Packed([2, 3], [1, 4]) + ALiBi(4))),
        ValueError,
        ["inner", "segment 0", "queries 0 to 1 with keys 0 to 0"],
    ),
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


@pytest.mark.filterwarnings("ignore")
def test_keys_that_lie_elsewhere_in_a_padded_cache_are_refused_beside_and_taken_within() -> None:
    pytest.importorskip("xformers", reason="xFormers has wheels for Linux and Windows only")
    from xformers.ops.fmha import attn_bias as xf

    mask = xf.BlockDiagonalPaddedKeysMask.from_seqlens([2, 3], 4, [2, 3])
    with pytest.raises(ValueError, match=r"queries 0 to 1 with keys 0 to 1\. .*inner="):
        attend(mask + ALiBi(4), k_len=8)


def test_a_padding_mask_of_another_batch_is_still_what_is_complained_of() -> None:
    with pytest.raises(ValueError, match="KeyPadding was made for 2 sequences"):
        attend(KeyPadding(torch.ones(2, 5)) + ALiBi(4))
