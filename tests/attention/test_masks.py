"""Every bias, in every backend, against the predicate that says what it means."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import AttentionBias, Causal, KeyPadding, Segments, attention

from .cases import ALL_CASES, CAUSAL_CASES, HOLES, SUM_CASES, SYMBOLIC_CASES, Case
from .oracle import bottom_right, causal, matrix, picture, segments, top_left
from .running import ALWAYS, BACKENDS, check, qkv, randn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_a_bias_masks_what_its_predicate_says_forward_and_backward(backend: str, case: Case) -> None:
    query, key, value = qkv(case.batch, case.q_len, case.k_len, case.heads, head_dim=5, value_dim=6)
    scores = case.scores() if case.scores is not None else None
    check(backend, query, key, value, case.make(), visible=case.visible(), scores=scores)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CAUSAL_CASES + SUM_CASES, ids=str)
def test_a_bias_serves_grouped_queries(backend: str, case: Case) -> None:
    query, key, value = qkv(case.batch, case.q_len, case.k_len, heads=6, kv_heads=2, head_dim=8)
    check(backend, query, key, value, case.make(), visible=case.visible())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SYMBOLIC_CASES, ids=str)
def test_a_bias_serves_inference_without_gradients(backend: str, case: Case) -> None:
    query, key, value = qkv(case.batch, case.q_len, case.k_len, case.heads, dtype=torch.float32, grad=False)
    check(backend, query, key, value, case.make(), visible=case.visible())


@pytest.mark.parametrize("case", SYMBOLIC_CASES, ids=str)
def test_materialize_is_the_predicate(case: Case) -> None:
    dense = case.make().materialize(case.q_len, case.k_len)
    assert dense.dtype == torch.float32
    assert dense.device.type == "cpu"
    assert dense.ndim == 4
    assert dense.shape[0] in (1, case.batch)
    assert dense.shape[1] == 1
    assert dense.shape[2:] == (case.q_len, case.k_len)
    visible = case.visible()
    expected = torch.where(visible, 0.0, -torch.inf)
    assert torch.equal(
        dense.expand(torch.broadcast_shapes(dense.shape, expected.shape)), expected.expand_as(dense)
    )


@pytest.mark.parametrize("case", [c for c in ALL_CASES if not c.symbolic and "+" in c.name], ids=str)
def test_materialize_of_a_sum_adds_the_dense_part(case: Case) -> None:
    dense = case.make().materialize(case.q_len, case.k_len, num_heads=case.heads, dtype=torch.float64)
    assert dense.ndim == 4
    assert dense.shape[0] in (1, case.batch)
    assert dense.shape[1] in (1, case.heads)
    assert dense.shape[2:] == (case.q_len, case.k_len)
    scores = case.scores() if case.scores is not None else torch.zeros(())
    expected = torch.where(case.visible(), scores, -torch.inf)
    shape = torch.broadcast_shapes(dense.shape, expected.shape)
    torch.testing.assert_close(dense.expand(shape), expected.expand(shape).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "bias",
    [
        Causal(),
        Segments([2, 3], inner=Causal()),
        KeyPadding(HOLES[:, :5]),
        Causal() + KeyPadding(HOLES[:, :5]),
    ],
    ids=["causal", "segments", "padding", "sum"],
)
def test_materialize_obeys_dtype_and_device(bias: AttentionBias, dtype: torch.dtype) -> None:
    dense = bias.materialize(5, 5, num_heads=4, dtype=dtype, device=torch.device("cpu"))
    assert dense.dtype == dtype
    assert dense.shape[1] in (1, 4)
    assert set(dense.unique().tolist()) == {0.0, -torch.inf}
    assert bias.materialize(5, 5, device="meta").device.type == "meta"


def test_causal_has_the_pictures_of_its_two_corners() -> None:
    def seen(bias: AttentionBias, q_len: int, k_len: int) -> str:
        return picture(bias.materialize(q_len, k_len)[0, 0] == 0)

    assert seen(Causal("top-left"), 3, 5) == "1..../11.../111.."
    assert seen(Causal("bottom-right"), 3, 5) == "111../1111./11111"
    assert seen(Causal("bottom-right"), 5, 3) == ".../.../1../11./111"
    assert seen(Causal("bottom-right", window=2), 3, 5) == ".11../..11./...11"
    assert seen(Segments([2, 3]), 5, 5) == "11.../11.../..111/..111/..111"
    assert seen(Segments([2, 1], [3, 2], inner=Causal("top-left")), 3, 5) == "1..../11.../...1."
    assert seen(Segments([2, 1], [3, 2], inner=Causal("bottom-right")), 3, 5) == "11.../111../...11"


def test_the_predicates_of_the_oracle_have_those_pictures_too() -> None:
    assert picture(matrix(causal(), 3, 5)) == "1..../11.../111.."
    assert picture(matrix(causal(2), 3, 5)) == "111../1111./11111"
    assert picture(matrix(causal(2, 2), 3, 5)) == ".11../..11./...11"
    assert picture(matrix(segments([2, 1], [3, 2], top_left()), 3, 5)) == "1..../11.../...1."
    assert picture(matrix(segments([2, 1], [3, 2], bottom_right()), 3, 5)) == "11.../111../...11"


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_cached_decoding_step_sees_every_key_with_bottom_right(backend: str) -> None:
    query, key, value = qkv(2, 1, 9)
    check(backend, query, key, value, Causal("bottom-right"), visible=torch.ones(1, 9, dtype=torch.bool))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_query_with_top_left_sees_only_the_first_key(backend: str) -> None:
    query, key, value = qkv(2, 1, 9)
    check(backend, query, key, value, Causal("top-left"), visible=torch.arange(9)[None] == 0)


@pytest.mark.parametrize("backend", ALWAYS)
def test_masks_hold_across_many_tiles(backend: str) -> None:
    """Longer than any sensible tile, and not a multiple of one."""
    q_len, k_len = 300, 531
    query, key, value = qkv(1, q_len, k_len, heads=2, head_dim=4)
    lengths_q, lengths_k = [1, 130, 0, 69, 100], [140, 1, 90, 200, 100]
    for bias, can_see in [
        (Causal("top-left"), causal()),
        (Causal("bottom-right"), causal(k_len - q_len)),
        (Causal("bottom-right", window=77), causal(k_len - q_len, 77)),
        (Causal("top-left", window=130), causal(0, 130)),
        (
            Segments(lengths_q, lengths_k, inner=Causal("bottom-right")),
            segments(lengths_q, lengths_k, bottom_right()),
        ),
        (
            Segments(lengths_q, lengths_k, inner=Causal("top-left", 50)),
            segments(lengths_q, lengths_k, top_left(50)),
        ),
    ]:
        check(backend, query, key, value, bias, visible=matrix(can_see, q_len, k_len))


@pytest.mark.parametrize("backend", ALWAYS)
def test_a_bool_mask_equals_the_same_mask_as_minus_infinity(backend: str) -> None:
    query, key, value = qkv(2, 6, 8, dtype=torch.float32, grad=False)
    mask = randn(2, 3, 6, 8, seed=4) > 0
    as_float = torch.where(mask, 0.0, -torch.inf)
    a = attention(query, key, value, mask, backend=backend)
    b = attention(query, key, value, as_float, backend=backend)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_adding_biases_leaves_the_summands_as_they_were() -> None:
    left, right = Causal(), KeyPadding(HOLES)
    before = left.materialize(7, 7).clone(), right.materialize(7, 7).clone()
    _ = left + right
    _ = right + left
    assert torch.equal(left.materialize(7, 7), before[0])
    assert torch.equal(right.materialize(7, 7), before[1])


def test_key_padding_keeps_its_meaning_when_the_users_mask_changes_later() -> None:
    """A generation loop reuses its mask tensor; inputs are never modified either way."""
    mask = HOLES.clone()
    bias = KeyPadding(mask)
    query, key, value = qkv(2, 7, grad=False)
    attention(query, key, value, bias)
    assert torch.equal(mask, HOLES)
