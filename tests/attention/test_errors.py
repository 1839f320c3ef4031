"""Bad input: the message names the argument, says what was expected, what came, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
import torch

from course_lib.attention import (
    Band,
    Causal,
    KeyPadding,
    Segments,
    attention,
    available_backends,
    merge_attentions,
)

from .running import qkv

pytestmark = pytest.mark.error_messages


def explains(call: Callable[[], object], *needles: str, kind: type[Exception] = ValueError) -> str:
    """`call` raises `kind` with a message that has every needle (a regular expression) and is a sentence."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for needle in needles:
        assert re.search(needle, message), f"no {needle!r} in: {message}"
    assert len(message.split()) >= 8, f"too short to help: {message}"
    assert any(word in message.lower() for word in ("expected", "cannot", "needs", "made for")), message
    return message


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


Q = randn(2, 5, 4, 8)
K = randn(2, 7, 2, 8)
V = randn(2, 7, 2, 8)

SHAPES: list[tuple[str, tuple[Any, Any, Any], list[str]]] = [
    (
        "query with 3 dimensions",
        (randn(2, 5, 32), K, V),
        ["query", "4", r"\[2, 5, 32\]", "batch, sequence, heads"],
    ),
    ("key with 3 dimensions", (Q, randn(7, 2, 8), V), ["key", r"\[7, 2, 8\]"]),
    ("value with 5 dimensions", (Q, K, randn(2, 7, 2, 1, 8)), ["value", r"\[2, 7, 2, 1, 8\]"]),
    ("key of another batch", (Q, randn(3, 7, 2, 8), randn(3, 7, 2, 8)), ["key", "batch", "2", "3"]),
    (
        "key of batch 1 is not broadcast",
        (Q, randn(1, 7, 2, 8), randn(1, 7, 2, 8)),
        ["key", "batch", "2", "1", "expand"],
    ),
    ("value of another batch", (Q, K, randn(1, 7, 2, 8)), ["value", "batch"]),
    ("value of another length", (Q, K, randn(2, 6, 2, 8)), ["value", "7", "6", "key"]),
    ("value of other heads", (Q, K, randn(2, 7, 4, 8)), ["value", "heads", "2", "4"]),
    ("key of another width", (Q, randn(2, 7, 2, 16), V), ["key", "head_dim", "8", "16"]),
    (
        "heads that the groups do not divide",
        (Q, randn(2, 7, 3, 8), randn(2, 7, 3, 8)),
        ["heads", "3", "4", "divide"],
    ),
    ("more key heads than query heads", (Q, randn(2, 7, 8, 8), randn(2, 7, 8, 8)), ["heads", "8", "4"]),
    (
        "inputs transposed to heads first",
        (Q.transpose(1, 2), K.transpose(1, 2), V),
        ["value", "heads|sequence"],
    ),
]


@pytest.mark.parametrize("asked", [attention, available_backends])
@pytest.mark.parametrize(("tensors", "needles"), [c[1:] for c in SHAPES], ids=[c[0] for c in SHAPES])
def test_shapes_that_do_not_fit(
    asked: Callable[..., object], tensors: tuple[Any, Any, Any], needles: list[str]
) -> None:
    explains(lambda: asked(*tensors), *needles)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "torch_sdpa", "xformers"])
def test_a_bad_shape_is_named_before_any_backend_looks(backend: str) -> None:
    explains(lambda: attention(Q, randn(2, 7, 3, 8), randn(2, 7, 3, 8), backend=backend), "heads", "divide")


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "torch_sdpa"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 3), (6, 4), (2, 4)])
def test_eight_query_heads_over_three_key_heads_never_broadcast(
    backend: str, heads: int, kv_heads: int
) -> None:
    query, key, value = qkv(1, 4, heads=heads, kv_heads=kv_heads, grad=False)
    explains(lambda: attention(query, key, value, backend=backend), "heads", str(heads), str(kv_heads))


DTYPES = [
    ("key in half precision", (Q, K.half(), V), ["key", "float32", "float16", "autocast"]),
    ("value in bfloat16", (Q, K, V.bfloat16()), ["value", "float32", "bfloat16", "autocast"]),
    ("query in float64", (Q.double(), K, V), ["query", "float64", "float32"]),
    ("query of integers", (Q.long(), K, V), ["query", "int64", "float"]),
    ("all of integers", (Q.int(), K.int(), V.int()), ["query", "int32", "float"]),
    ("all of bools", (Q.bool(), K.bool(), V.bool()), ["query", "bool"]),
    ("complex", (Q.cfloat(), K.cfloat(), V.cfloat()), ["query", "complex64"]),
]


@pytest.mark.parametrize(("tensors", "needles"), [c[1:] for c in DTYPES], ids=[c[0] for c in DTYPES])
def test_dtypes_that_do_not_fit(tensors: tuple[Any, Any, Any], needles: list[str]) -> None:
    explains(lambda: attention(*tensors), *needles)


def test_tensors_on_two_devices() -> None:
    explains(lambda: attention(Q, K.to("meta"), V), "key", "device", "cpu", "meta")
    explains(lambda: attention(Q.to("meta"), K, V), "query", "device", "cpu", "meta")


def test_a_bias_on_another_device() -> None:
    explains(lambda: attention(Q, K, V, randn(5, 7).to("meta")), "bias", "device", "cpu", "meta")


def test_what_is_no_tensor() -> None:
    explains(lambda: attention(Q.tolist(), K, V), "query", "tensor", "list", kind=TypeError)
    explains(lambda: attention(Q, K.numpy(), V), "key", "tensor", "ndarray", kind=TypeError)
    explains(lambda: attention(Q, K, None), "value", "tensor", "NoneType", kind=TypeError)


BIASES = [
    ("3-D is ambiguous", randn(2, 5, 7), ["bias", r"\[2, 5, 7\]", "batch", "heads", r"bias\[:, None\]"]),
    ("1-D", randn(7), ["bias", r"\[7\]", "q_len, k_len"]),
    ("5-D", randn(2, 1, 4, 5, 7), ["bias", r"\[2, 1, 4, 5, 7\]"]),
    ("0-D", torch.tensor(0.0), ["bias"]),
    ("transposed", randn(7, 5), ["bias", r"\[5, 7\]", r"\[7, 5\]"]),
    ("2-D of one row is not broadcast", randn(1, 7), ["bias", r"\[5, 7\]", r"\[1, 7\]"]),
    ("2-D bool of one column", torch.ones(5, 1, dtype=torch.bool), ["bias", r"\[5, 7\]", r"\[5, 1\]"]),
    ("heads of the keys", randn(2, 2, 5, 7), ["bias", r"\[2, 4, 5, 7\]", r"\[2, 2, 5, 7\]"]),
    ("another batch", randn(3, 1, 5, 7), ["bias", r"\[2, 4, 5, 7\]", r"\[3, 1, 5, 7\]"]),
    ("a key too many", randn(1, 1, 5, 8), ["bias", r"\[2, 4, 5, 7\]", r"\[1, 1, 5, 8\]"]),
    ("integers", torch.ones(5, 7, dtype=torch.long), ["bias", "int64", "bool"]),
    ("bytes", torch.ones(2, 1, 1, 7, dtype=torch.uint8), ["bias", "uint8", "bool"]),
]


@pytest.mark.parametrize("where", ["alone", "in a sum", "in a sum, first"])
@pytest.mark.parametrize(("bias", "needles"), [c[1:] for c in BIASES], ids=[c[0] for c in BIASES])
def test_a_tensor_bias_that_does_not_fit(where: str, bias: torch.Tensor, needles: list[str]) -> None:
    def call() -> object:
        causal = Causal("bottom-right")
        total = {
            "alone": lambda: bias,
            "in a sum": lambda: causal + bias,
            "in a sum, first": lambda: bias + causal,
        }
        return attention(Q, K, V, total[where]())

    explains(call, *needles)


@pytest.mark.parametrize("bias", ["causal", 1.0, [[0.0]], True, object()])
def test_a_bias_that_is_no_bias(bias: object) -> None:
    explains(lambda: attention(Q, K, V, bias), "bias", type(bias).__name__, kind=TypeError)
    explains(lambda: Causal("top-left") + bias, "bias", type(bias).__name__, kind=TypeError)


def test_the_class_in_place_of_an_object() -> None:
    explains(lambda: attention(Q, K, V, Causal), "bias", "type|class|Causal", kind=TypeError)


@pytest.mark.parametrize("bias", [Causal(), Causal(window=3), Causal() + KeyPadding(torch.ones(2, 7))])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "torch_sdpa"])
def test_causal_on_a_rectangle_explains_both_corners(bias: Any, backend: str) -> None:
    explains(
        lambda: attention(Q, K, V, bias, backend=backend),
        "bias|Causal",
        "5",
        "7",
        "top-left",
        "bottom-right",
        "align",
        "(?i)cache",
    )


def test_causal_on_a_rectangle_inside_segments_and_in_materialize() -> None:
    explains(lambda: Causal().materialize(5, 7), "5", "7", "top-left", "bottom-right")
    segments = Segments([2, 3], [2, 5], inner=Causal())
    explains(lambda: attention(Q, K, V, segments), "3", "5", "top-left", "bottom-right")


@pytest.mark.parametrize("align", ["bottom_right", "left", "", "TOP-LEFT", 1, True])
def test_an_unknown_corner(align: Any) -> None:
    explains(
        lambda: Causal(align),
        "align",
        "top-left",
        "bottom-right",
        re.escape(repr(align)),
        kind=(ValueError, TypeError),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [0, -1, -100])
def test_a_window_that_hides_the_query_itself(window: int) -> None:
    explains(lambda: Causal(window=window), "window", "1", str(window))


@pytest.mark.parametrize("window", [1.5, "3", True, 3.0])
def test_a_window_that_is_no_whole_number(window: Any) -> None:
    explains(lambda: Causal(window=window), "window", type(window).__name__, kind=(ValueError, TypeError))  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [numpy.int64(3), numpy.uint8(3), torch.tensor(3)], ids=repr)
def test_a_window_may_be_any_whole_number(window: Any) -> None:
    assert repr(Causal(window=window)) == "Causal(window=3)"


@pytest.mark.parametrize(
    ("limits", "needles"), [((-1, 0), ["left", "-1"]), ((None, 1.5), ["right", "float"])]
)
def test_a_band_whose_limits_are_none(limits: tuple[Any, Any], needles: list[str]) -> None:
    explains(lambda: Band(*limits, "top-left"), *needles, kind=(ValueError, TypeError))  # type: ignore[arg-type]


def test_a_sparse_tensor() -> None:
    explains(lambda: attention(Q.detach().to_sparse(), K, V), "query", "sparse")
    explains(lambda: attention(Q, K, V, torch.ones(5, 7).to_sparse()), "bias", "sparse", "to_dense")


LENGTHS = [
    ("negative", lambda: Segments([3, -1, 5]), ["q_lengths", "-1"]),
    ("negative keys", lambda: Segments([3, 4], [8, -1]), ["k_lengths", "-1"]),
    ("fractions", lambda: Segments([3.0, 4.0]), ["q_lengths", "float"]),
    ("bool", lambda: Segments([True, 3]), ["q_lengths", "bool"]),
    ("text", lambda: Segments("34"), ["q_lengths", "str"]),
    ("one number", lambda: Segments(7), ["q_lengths", "int"]),
    ("None", lambda: Segments(None), ["q_lengths", "None"]),
    ("a table", lambda: Segments(torch.tensor([[3, 4]])), ["q_lengths"]),
    ("a table of NumPy", lambda: Segments(numpy.ones((2, 2), int)), [r"q_lengths\[0\]", "ndarray"]),
    ("tensors of fractions", lambda: Segments([torch.tensor(2.0)]), [r"q_lengths\[0\]", "Tensor"]),
    ("a tensor of fractions", lambda: Segments(torch.tensor([3.0, 4.0])), ["q_lengths", "float"]),
    ("fewer key lengths", lambda: Segments([3, 4], [7]), ["k_lengths", "2", "1"]),
    ("an inner that is no bias", lambda: Segments([3, 4], inner="causal"), ["inner|bias", "str"]),
]


@pytest.mark.parametrize(("make", "needles"), [c[1:] for c in LENGTHS], ids=[c[0] for c in LENGTHS])
def test_segment_lengths_that_are_none(make: Callable[[], object], needles: list[str]) -> None:
    explains(make, *needles, kind=(ValueError, TypeError))  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "torch_sdpa"])
def test_segment_lengths_that_do_not_sum(backend: str) -> None:
    explains(
        lambda: attention(Q, K, V, Segments([2, 2], [3, 4]), backend=backend), "q_lengths|quer", "4", "5"
    )
    explains(lambda: attention(Q, K, V, Segments([2, 3], [3, 3]), backend=backend), "k_lengths|key", "6", "7")
    explains(lambda: attention(Q, K, V, Segments([2, 3]), backend=backend), "k_lengths|key", "5", "7")
    explains(lambda: attention(Q, K, V, Segments([]), backend=backend), "0", "5")
    explains(lambda: Segments([2, 3]).materialize(5, 7), "5", "7")


MASKS = [
    ("one dimension", lambda: KeyPadding(torch.ones(7)), ["attention_mask", r"\[7\]", "batch, k_len"]),
    ("four dimensions", lambda: KeyPadding(torch.ones(2, 1, 1, 7)), ["attention_mask", r"\[2, 1, 1, 7\]"]),
    ("a two", lambda: KeyPadding(torch.tensor([[0, 1, 2]])), ["attention_mask", "2", "0", "1"]),
    ("additive", lambda: KeyPadding(torch.tensor([[0.0, -torch.inf]])), ["attention_mask", "inf"]),
    ("a probability", lambda: KeyPadding(torch.tensor([[0.5, 1.0]])), ["attention_mask", r"0\.5"]),
    ("NaN", lambda: KeyPadding(torch.tensor([[float("nan"), 1.0]])), ["attention_mask", "nan"]),
    ("a list", lambda: KeyPadding([[1, 1, 0]]), ["attention_mask", "list"]),
]


@pytest.mark.parametrize(("make", "needles"), [c[1:] for c in MASKS], ids=[c[0] for c in MASKS])
def test_a_padding_mask_that_is_none(make: Callable[[], object], needles: list[str]) -> None:
    explains(make, *needles, kind=(ValueError, TypeError))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(2, 5), (1, 7), (3, 7), (2, 8)])
def test_a_padding_mask_of_other_sequences(shape: tuple[int, int]) -> None:
    explains(
        lambda: attention(Q, K, V, KeyPadding(torch.ones(shape))),
        "KeyPadding|attention_mask",
        "2",
        "7",
        *map(str, shape),
    )


@pytest.mark.parametrize("backend", ["flash", "", "Auto", "sdpa", None, 3])
def test_an_unknown_backend_lists_the_known_ones(backend: Any) -> None:
    message = explains(
        lambda: attention(Q, K, V, backend=backend),
        "backend",
        re.escape(repr(backend)),
        kind=(ValueError, TypeError),  # type: ignore[arg-type]
    )
    for name in ("auto", "reference", "tiled", "torch_sdpa", "xformers"):
        assert name in message


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf")])
def test_a_scale_that_is_not_finite(scale: float) -> None:
    explains(lambda: attention(Q, K, V, scale=scale), "scale", str(scale))


def test_a_scale_beyond_the_range_of_a_float() -> None:
    explains(lambda: attention(Q, K, V, scale=10**400), "scale", "finite", "inf")


@pytest.mark.parametrize("scale", ["0.5", True, torch.tensor([0.5, 0.5]), [1.0]])
def test_a_scale_that_is_no_number(scale: Any) -> None:
    explains(
        lambda: attention(Q, K, V, scale=scale), "scale", type(scale).__name__, kind=(ValueError, TypeError)
    )  # type: ignore[arg-type]


def test_merge_of_parts_that_do_not_fit() -> None:
    out, lse = randn(2, 5, 4, 8), randn(2, 4, 5)
    explains(lambda: merge_attentions([], []), "outs", "0")
    explains(lambda: merge_attentions([out, out], [lse]), "outs|lses", "2", "1")
    explains(
        lambda: merge_attentions([out, randn(2, 6, 4, 8)], [lse, randn(2, 4, 6)]),
        r"outs\[1\]",
        r"\[2, 6, 4, 8\]",
    )
    explains(lambda: merge_attentions([out], [randn(2, 5, 4)]), r"lses\[0\]", r"\[2, 4, 5\]", r"\[2, 5, 4\]")


def test_merge_of_what_is_no_tensor() -> None:
    out, lse = randn(2, 5, 4, 8), randn(2, 4, 5)
    for outs, lses, name in (
        ([out.detach().numpy()], [lse], "outs"),
        ([out], [[0.0]], "lses"),
        ([out], [lse.long()], "lses"),
    ):
        explains(partial(merge_attentions, outs, lses), rf"{name}\[0\]", "tensor", kind=TypeError)  # type: ignore[arg-type]


def test_merge_given_one_tensor_in_place_of_a_list_says_so() -> None:
    """A tensor iterates over its batch, so this must not pass for a list of parts."""
    explains(
        lambda: merge_attentions(randn(2, 5, 4, 8), randn(2, 4, 5)), "outs", kind=(ValueError, TypeError)
    )  # type: ignore[arg-type]


def test_an_xformers_grouped_layout_is_told_how_to_become_ours() -> None:
    explains(lambda: attention(randn(2, 5, 2, 2, 8), K, V), "query", "5", "flatten|4 dimensions")


def test_a_refused_call_leaves_nothing_behind() -> None:
    """After an error the same biases and tensors still work."""
    bias = Causal("bottom-right")
    explains(lambda: attention(Q, randn(2, 7, 3, 8), randn(2, 7, 3, 8), bias), "heads")
    assert attention(Q, K, V, bias).shape == Q.shape
