"""What goes on around a call: warnings, global settings, copies of biases, threads, poisoned tokens, tile edges."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.attention import AttentionBias, Causal, KeyPadding, Segments, attention, available_backends

from .cases import ALL_CASES, HOLES, SYMBOLIC_CASES, Case
from .oracle import assert_agrees, attend, attend_with_gradients, both, causal, matrix, segments
from .running import ALWAYS, BACKENDS, check, may_decline, qkv, randn, run
from .test_properties import FEW, packings


@pytest.fixture
def empty_memory_is_nan() -> Iterator[None]:
    """PyTorch fills what `torch.empty` gives with NaN: whatever is read before it is written shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.isnan(torch.empty(3)).all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("empty_memory_is_nan")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_nothing_is_read_before_it_is_written(backend: str, case: Case) -> None:
    query, key, value = qkv(case.batch, case.q_len, case.k_len, case.heads, head_dim=8)
    scores = case.scores() if case.scores is not None else None
    check(backend, query, key, value, case.make(), visible=case.visible(), scores=scores)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_warning_is_given(backend: str, dtype: torch.dtype) -> None:
    query, key, value = qkv(2, 7, heads=4, kv_heads=2, head_dim=8, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bias in (None, Causal(), KeyPadding(HOLES), Segments([3, 4], inner=Causal())):
            reason = available_backends(query, key, value, bias, training=True).get(backend, "ok")
            if reason == "ok":
                attention(query, key, value, bias, backend=backend).sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_dtype_plays_no_part(backend: str) -> None:
    query, key, value = qkv(2, 7, heads=4, head_dim=8, dtype=torch.float32)
    bias = KeyPadding(HOLES) + Causal()
    may_decline(backend, query, key, value, bias)
    expected = attention(query, key, value, bias, backend=backend)
    torch.set_default_dtype(torch.float64)
    try:
        out = attention(query, key, value, bias, backend=backend)
        assert (Causal() + KeyPadding(HOLES)).materialize(7, 7).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(out, expected)


COPIES = {
    "causal": lambda: Causal("bottom-right", window=3),
    "segments": lambda: Segments([3, 4], inner=Causal("bottom-right", window=3)),
    "padding": lambda: KeyPadding(HOLES),
    "sum": lambda: Causal() + KeyPadding(HOLES) + torch.zeros(7, 7),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_bias_survives_a_copy_as_a_data_loader_makes(name: str, how: str) -> None:
    bias = COPIES[name]()
    copied = copy.deepcopy(bias) if how == "deepcopy" else pickle.loads(pickle.dumps(bias))
    assert torch.equal(copied.materialize(7, 7), bias.materialize(7, 7))


@pytest.mark.parametrize("backend", ALWAYS)
@pytest.mark.parametrize("made", ["under no_grad", "before it was a parameter", "by deepcopy", "by pickle"])
def test_a_dense_bias_trains_however_its_sum_was_made(backend: str, made: str) -> None:
    table = torch.zeros(7, 7, dtype=torch.float64, requires_grad=made != "before it was a parameter")
    with torch.set_grad_enabled(made != "under no_grad"):
        bias = Causal() + table
    if made == "by deepcopy":
        bias = copy.deepcopy(bias)
    elif made == "by pickle":
        bias = pickle.loads(pickle.dumps(bias))
    table.requires_grad_()
    (learnable,) = bias.learnable()
    query, key, value = qkv(2, 7, grad=False)
    grad_out = randn(2, 7, 3, 5, seed=1)
    visible = matrix(causal(), 7, 7)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible, bias=table)
    attention(query, key, value, bias, backend=backend).backward(grad_out)
    assert_agrees(learnable.grad, expected["bias"], "gradient of the bias")


@pytest.mark.parametrize("name", COPIES)
def test_a_bias_shows_what_it_is_and_no_address(name: str) -> None:
    shown = repr(COPIES[name]())
    assert "0x" not in shown
    assert {"causal": "Causal", "segments": "Segments", "padding": "KeyPadding", "sum": "+"}[name] in shown


def test_a_users_bias_shows_no_address_in_a_reason() -> None:
    class Mine(AttentionBias):
        def tile(self, queries: range, keys: range, grid: Any) -> torch.Tensor:
            return torch.zeros(len(queries), len(keys), dtype=grid.dtype)

    query, key, value = qkv(1, 300, grad=False)
    for reason in available_backends(query, key, value, Mine()).values():
        assert "0x" not in reason


@pytest.mark.parametrize(
    "lengths",
    [(3, 4), range(3, 5), torch.tensor([3, 4]), torch.tensor([3, 4], dtype=torch.int32), np.array([3, 4])],
    ids=["tuple", "range", "int64 tensor", "int32 tensor", "array"],
)
def test_segment_lengths_may_be_any_run_of_whole_numbers(lengths: Any) -> None:
    dense = Segments(lengths).materialize(7, 7)
    assert torch.equal(dense[0, 0] == 0, matrix(segments([3, 4]), 7, 7))


def test_changing_the_list_of_lengths_afterwards_changes_no_segments() -> None:
    lengths = [3, 4]
    bias = Segments(lengths)
    lengths[0] = 5
    assert torch.equal(bias.materialize(7, 7)[0, 0] == 0, matrix(segments([3, 4]), 7, 7))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_bias_serves_calls_of_other_sizes_and_dtypes_in_turn(backend: str) -> None:
    bias = Causal("bottom-right")
    for q_len, k_len, dtype in [(7, 7, torch.float32), (1, 9, torch.float64), (3, 5, torch.bfloat16)]:
        query, key, value = qkv(2, q_len, k_len, head_dim=8, dtype=dtype)
        can_see = causal(k_len - q_len)
        check(backend, query, key, value, bias, visible=matrix(can_see, q_len, k_len))


def test_threads_do_not_disturb_each_other() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            query, key, value = qkv(2, 20 + seed, seed=seed)
            visible = matrix(causal(), 20 + seed, 20 + seed)
            for backend in ("tiled", "auto"):
                check(backend, query, key, value, Causal(), visible=visible)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("backend", BACKENDS)
def test_adding_to_the_output_in_place_is_noticed_or_harmless(backend: str) -> None:
    """`out += residual` before the backward."""
    query, key, value = qkv(2, 6)
    may_decline(backend, query, key, value, Causal())
    out = attention(query, key, value, Causal(), backend=backend)
    out += 1
    try:
        (gradient,) = torch.autograd.grad(out.sum(), value)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return
    expected = attend_with_gradients(query, key, value, torch.ones_like(out), visible=matrix(causal(), 6, 6))
    assert_agrees(gradient, expected["value"], "gradient of value")


def test_asking_which_backends_under_autocast_sees_what_autocast_makes_of_the_dtypes() -> None:
    query, key, value = qkv(1, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = available_backends(query, key.bfloat16(), value.half(), training=True)
    assert answer["tiled"] == "ok"


@pytest.mark.parametrize("backend", ALWAYS)
@pytest.mark.parametrize("name", [case.name for case in SYMBOLIC_CASES if case.batch == 2][:3])
def test_a_parameter_is_a_tensor_like_any_other(backend: str, name: str) -> None:
    case = next(case for case in SYMBOLIC_CASES if case.name == name)
    tensors = [torch.nn.Parameter(t.detach()) for t in qkv(2, case.q_len, case.k_len, case.heads)]
    check(backend, *tensors, case.make(), visible=case.visible())


@pytest.mark.parametrize("backend", BACKENDS)
@FEW
@given(
    length=st.sampled_from([5, 9, 70, 130]),
    where=st.sampled_from(["query", "key", "value"]),
    position=st.integers(0, 4),
    from_end=st.booleans(),
    poison=st.sampled_from([float("nan"), float("inf"), -float("inf")]),
    kind=st.sampled_from(["causal", "window", "segments", "padding", "dense", "sum"]),
    seed=st.integers(0, 99),
)
def test_a_poisoned_token_touches_exactly_the_rows_that_see_it(
    backend: str, length: int, where: str, position: int, from_end: bool, poison: float, kind: str, seed: int
) -> None:
    position = length - 1 - position if from_end else position
    query, key, value = qkv(1, length, heads=2, head_dim=8, seed=seed)
    cut = length // 2
    keep = randn(1, length, seed=seed + 7) > -0.5
    mask = randn(length, length, seed=seed + 8) > 0
    packed = matrix(segments([cut, length - cut]), length, length)
    lower, near = matrix(causal(), length, length), matrix(causal(0, 3), length, length)
    bias, visible = {
        "causal": lambda: (Causal(), lower),
        "window": lambda: (Causal(window=3), near),
        "segments": lambda: (Segments([cut, length - cut]), packed),
        "padding": lambda: (KeyPadding(keep), keep.expand(length, length)),
        "dense": lambda: (torch.where(mask, 0.5, -torch.inf), mask),
        "sum": lambda: (
            Causal() + KeyPadding(keep) + mask,
            lower & keep.expand(length, length) & mask,
        ),
    }[kind]()
    visible = visible.reshape(length, length)
    grad_out = randn(1, length, 2, 8, seed=seed + 9)
    expected = attend_with_gradients(query, key, value, grad_out, visible=visible)
    tensors = {"query": query, "key": key, "value": value}
    spoilt = tensors[where].detach().clone()
    spoilt[:, position] = poison
    tensors[where] = spoilt.requires_grad_()
    out = run(backend, *tensors.values(), bias)
    touched = visible[:, position].clone()
    if where == "query":
        touched = torch.zeros(length, dtype=torch.bool)
        touched[position] = visible[position].any()
    assert_agrees(out[:, ~touched], expected["out"][:, ~touched], "rows that do not see it")
    if poison != poison or where == "value":
        assert not torch.isfinite(out[:, touched]).any(), "rows that see it"
    (grad_query,) = torch.autograd.grad(out, tensors["query"], grad_out)
    assert_agrees(
        grad_query[:, ~touched], expected["query"][:, ~touched], "gradient of the queries that do not"
    )


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@settings(parent=FEW, max_examples=15)
@given(
    q_len=st.integers(0, 200),
    k_len=st.integers(1, 260),
    align=st.sampled_from(["top-left", "bottom-right"]),
    window=st.none() | st.integers(1, 200),
    padded=st.tuples(st.integers(0, 259), st.integers(0, 259)),
    heads=st.sampled_from([(64, 1), (64, 64), (3, 1)]),
    seed=st.integers(0, 9),
)
def test_causal_windows_and_padding_over_several_tiles(
    backend: str,
    q_len: int,
    k_len: int,
    align: str,
    window: int | None,
    padded: tuple[int, int],
    heads: tuple[int, int],
    seed: int,
) -> None:
    """One sequence padded left, the other right, any corner: empty and partial tiles of every kind."""
    query, key, value = qkv(2, q_len, k_len, heads[0], heads[1], head_dim=2, seed=seed)
    keep = torch.ones(2, k_len, dtype=torch.long)
    keep[0, : padded[0]] = 0
    keep[1, max(0, k_len - padded[1]) :] = 0
    i = torch.arange(q_len)[:, None] + (k_len - q_len if align == "bottom-right" else 0)
    j = torch.arange(k_len)[None]
    visible = (j <= i) & (j > i - (window or q_len + k_len)) & keep.bool()[:, None, None]
    check(backend, query, key, value, Causal(align, window) + KeyPadding(keep), visible=visible)


@pytest.mark.parametrize("backend", ["tiled", "auto"])
@FEW
@given(
    packing=packings(),
    scale=st.sampled_from([1, 17, 60]),
    window=st.none() | st.integers(1, 90),
    data=st.data(),
)
def test_packings_over_several_tiles(
    backend: str, packing: tuple[list[int], list[int]], scale: int, window: int | None, data: st.DataObject
) -> None:
    q_lengths, k_lengths = ([length * scale for length in lengths] for lengths in packing)
    q_len, k_len = sum(q_lengths), sum(k_lengths)
    query, key, value = qkv(1, q_len, k_len, heads=2, head_dim=3)
    keep = torch.ones(1, k_len, dtype=torch.long)
    keep[:, data.draw(st.integers(0, k_len)) :] = 0
    q_owner = torch.repeat_interleave(torch.arange(len(q_lengths)), torch.tensor(q_lengths))
    k_owner = torch.repeat_interleave(torch.arange(len(k_lengths)), torch.tensor(k_lengths))
    i = torch.cat([torch.arange(q) + k - q for q, k in zip(q_lengths, k_lengths, strict=True)])[:, None]
    j = torch.cat([torch.arange(k) for k in k_lengths])[None]
    visible = (q_owner[:, None] == k_owner[None]) & (j <= i) & (j > i - (window or q_len + k_len))
    visible = visible & keep.bool()
    bias = Segments(q_lengths, k_lengths, inner=Causal("bottom-right", window)) + KeyPadding(keep)
    check(backend, query, key, value, bias, visible=visible)


def test_the_two_oracles_of_this_file_agree() -> None:
    """The vectorised masks above against the predicates."""
    i, j = torch.arange(5)[:, None] + 2, torch.arange(7)[None]
    assert torch.equal((j <= i) & (j > i - 3), matrix(causal(2, 3), 5, 7))
    assert torch.equal((j <= i) & (j < 4), matrix(both(causal(2), lambda i, j: j < 4), 5, 7))
    query, key, value = qkv(1, 5, 7, grad=False)
    seen = matrix(causal(2), 5, 7)
    one, _ = attend(query, key, value, visible=seen)
    other, _ = attend(query, key, value, bias=torch.where(seen, 0.0, -torch.inf))
    assert_agrees(one, other, "out")
