"""Every mask object of xFormers goes through attention() on a CPU, forward and backward, meaning the same."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .oracle import assert_agrees, attend, both, causal, matrix, picture, segments, top_left
from .running import BACKENDS, check, qkv, randn, run
from .xformers_cases import MASKS, Mask, block_diagonal, xf

pytest.importorskip("xformers", reason="xFormers has wheels for Linux and Windows only")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_the_predicate_is_xformers_own_matrix(mask: Mask) -> None:
    """What the other tests of this file compare with is what xFormers itself materialises."""
    visible = matrix(mask.can_see, mask.q_len, mask.k_len)
    if mask.looks is not None:
        assert picture(visible) == mask.looks
    theirs = mask.make().materialize((mask.q_len, mask.k_len))
    assert torch.equal(theirs == 0, visible)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_an_xformers_mask_goes_through_attention_forward_and_backward(backend: str, mask: Mask) -> None:
    visible = matrix(mask.can_see, mask.q_len, mask.k_len)
    query, key, value = qkv(1, mask.q_len, mask.k_len, heads=4, kv_heads=2, head_dim=8)
    check(backend, query, key, value, mask.make(), visible=visible)


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_auto_agrees_with_xformers_own_reference(mask: Mask) -> None:
    from xformers.attn_bias_utils import ref_attention

    query, key, value = qkv(1, mask.q_len, mask.k_len, heads=3, head_dim=8, dtype=torch.float32, grad=False)
    out = attention(query, key, value, mask.make())
    theirs = ref_attention(query, key, value, mask.make())
    alive = matrix(mask.can_see, mask.q_len, mask.k_len).any(-1)
    assert_agrees(out[:, alive], theirs[:, alive].double(), "out")
    assert (out[:, ~alive] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_xformers_causal_mask_serves_any_batch(backend: str) -> None:
    query, key, value = qkv(3, 5, 8)
    check(
        backend, query, key, value, xf().LowerTriangularFromBottomRightMask(), visible=matrix(causal(3), 5, 8)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 5, 7), (5, 7)], ids=str)
def test_an_xformers_causal_mask_with_a_tensor_trains_the_tensor(
    backend: str, shape: tuple[int, ...]
) -> None:
    query, key, value = qkv(2, 5, 7)
    dense = randn(*shape, seed=7, grad=True)
    for bias in (xf().LowerTriangularMask().add_bias(dense), xf().LowerTriangularMaskWithTensorBias(dense)):
        check(backend, query, key, value, bias, visible=matrix(causal(), 5, 7), scores=dense)


@pytest.mark.parametrize("backend", BACKENDS)
def test_xformers_masks_add_to_ours_and_to_tensors_in_either_order(backend: str) -> None:
    query, key, value = qkv(2, 7)
    keep = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    dense = randn(1, 3, 7, 7, seed=8, grad=True)
    lower = xf().LowerTriangularMask()
    padded = matrix(causal(), 7, 7) & keep.bool()[:, None, None]
    check(backend, query, key, value, lower + KeyPadding(keep), visible=padded)
    check(backend, query, key, value, KeyPadding(keep) + lower, visible=padded)
    two = both(segments([3, 4]), causal())
    check(backend, query, key, value, block_diagonal([3, 4]) + Causal(), visible=matrix(two, 7, 7))
    check(backend, query, key, value, Segments([3, 4]) + lower, visible=matrix(two, 7, 7))
    check(
        backend, query, key, value, dense + Segments([3, 4]) + lower, visible=matrix(two, 7, 7), scores=dense
    )
    window = xf().LowerTriangularFromBottomRightMask().make_local_attention(2)
    both_ways = matrix(both(causal(0, 2), segments([3, 4])), 7, 7)
    check(
        backend,
        query,
        key,
        value,
        Segments([3, 4], inner=window),
        visible=matrix(segments([3, 4], inner=top_left(2)), 7, 7),
    )
    check(backend, query, key, value, window + Segments([3, 4]) + dense, visible=both_ways, scores=dense)


@pytest.mark.parametrize("backend", BACKENDS)
def test_moving_a_causal_block_diagonal_mask_keeps_it_causal(backend: str) -> None:
    """A fault that xFormers once had: `.to(device)` gave back the plain block-diagonal class."""
    query, key, value = qkv(1, 7)
    mask = block_diagonal([3, 4]).make_causal().to(torch.device("cpu"))
    check(backend, query, key, value, mask, visible=matrix(segments([3, 4], inner=top_left()), 7, 7))
    local_mask = block_diagonal([3, 4]).make_local_attention(2).to(torch.device("cpu"))
    check(backend, query, key, value, local_mask, visible=matrix(segments([3, 4], inner=top_left(2)), 7, 7))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_from_a_list_of_tensors_packs_and_splits(backend: str) -> None:
    documents = [randn(1, n, 2, 4, seed=n) for n in (3, 1, 5)]
    mask, packed = xf().BlockDiagonalMask.from_tensor_list(documents)
    causal_mask = mask.make_causal()
    out = run(backend, packed, packed, packed, causal_mask)
    for document, part in zip(documents, causal_mask.split(out), strict=True):
        n = document.shape[1]
        expected, _ = attend(document, document, document, visible=matrix(causal(), n, n))
        assert_agrees(part, expected, "document")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_xformers_masks_serve_training_in_low_precision(mask: Mask, dtype: torch.dtype) -> None:
    visible = matrix(mask.can_see, mask.q_len, mask.k_len)
    query, key, value = qkv(1, mask.q_len, mask.k_len, heads=2, head_dim=8, dtype=dtype)
    check("auto", query, key, value, mask.make(), visible=visible)


def test_a_block_diagonal_mask_whose_lengths_do_not_sum_is_refused() -> None:
    """xFormers itself does not notice."""
    query, key, value = qkv(1, 9, grad=False)
    with pytest.raises(ValueError, match=r"7.*9|9.*7"):
        attention(query, key, value, block_diagonal([3, 4]))
    with pytest.raises(ValueError, match=r"8"):
        attention(query, key, value, xf().BlockDiagonalGappyKeysMask.from_seqlens([4, 5], [0, 4, 8], [2, 3]))


def test_an_unknown_xformers_bias_is_refused_by_name() -> None:
    class Strange(xf().AttentionBias):
        pass

    query, key, value = qkv(1, 4, grad=False)
    with pytest.raises((ValueError, TypeError), match="Strange"):
        attention(query, key, value, Strange())
