"""BLOOM against transformers' with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.alibi import alibi_slopes
from course_lib.gqa import KVCache
from course_lib.models import generate

from .made import gradients, token_ids
from .made_bloom import assert_close, from_stored, padded_mask, twins, without_float32

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
HEADS = pytest.mark.parametrize("heads", [6, 12])
RESIDUALS = pytest.mark.parametrize("after_norm", [False, True])


def _twins(
    dtype: torch.dtype, heads: int, after_norm: bool, patch: pytest.MonkeyPatch, **options: Any
) -> tuple[Any, Any]:
    if dtype == torch.float64:
        without_float32(patch)
    return twins(dtype, heads=heads, apply_residual_connection_post_layernorm=after_norm, **options)


@DTYPES
@HEADS
@RESIDUALS
def test_logits_and_gradients_are_those_of_transformers(
    dtype: torch.dtype, tolerance: float, heads: int, after_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _twins(dtype, heads, after_norm, monkeypatch)
    tokens = token_ids(2, 19)
    logits, expected = ours(tokens), theirs(tokens).logits
    assert_close(logits, expected, tolerance)
    found = gradients(ours, logits)
    wanted = from_stored(gradients(theirs, expected), ours.config)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        # That of a key's bias is 0, and what is found rounds: the softmax does not feel it.
        assert_close(found[name], gradient, tolerance, max(float(gradient.abs().max()), 1.0))


@DTYPES
@HEADS
@RESIDUALS
def test_padding_on_either_side_leaves_the_logits_of_transformers(
    dtype: torch.dtype, tolerance: float, heads: int, after_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _twins(dtype, heads, after_norm, monkeypatch)
    tokens, mask = token_ids(4, 19), padded_mask()
    with torch.no_grad():
        found, expected = ours(tokens, attention_mask=mask), theirs(tokens, attention_mask=mask).logits
    assert_close(found[mask.bool()], expected[mask.bool()], tolerance)


@DTYPES
def test_padding_between_tokens_is_skipped_as_transformers_skips_it(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _twins(dtype, 12, False, monkeypatch)
    tokens, mask = token_ids(4, 19), padded_mask()
    mask[1, 9:11] = mask[3, 4] = mask[3, 6:9] = 0
    with torch.no_grad():
        found, expected = ours(tokens, attention_mask=mask), theirs(tokens, attention_mask=mask).logits
    assert_close(found[mask.bool()], expected[mask.bool()], tolerance)


@HEADS
@RESIDUALS
@pytest.mark.parametrize("padded", [False, True])
def test_a_text_read_in_pieces_through_caches_has_the_logits_of_transformers(
    heads: int, after_norm: bool, padded: bool
) -> None:
    ours, theirs = twins(heads=heads, apply_residual_connection_post_layernorm=after_norm)
    tokens = token_ids(4, 19)
    mask = padded_mask() if padded else torch.ones(4, 19, dtype=torch.int64)
    mask[1, 9:11] = int(not padded)
    caches = [KVCache() for _ in ours.layers]
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask).logits
        pieces = [
            ours(tokens[:, start:stop], attention_mask=mask[:, start:stop], cache=caches)
            for start, stop in ((0, 8), (8, 9), (9, 10), (10, 18), (18, 19))
        ]
    assert_close(torch.cat(pieces, 1)[mask.bool()], expected[mask.bool()], 1e-5)


@HEADS
@RESIDUALS
def test_sixty_four_greedy_tokens_are_those_of_transformers(heads: int, after_norm: bool) -> None:
    ours, theirs = twins(heads=heads, apply_residual_connection_post_layernorm=after_norm)
    with torch.no_grad():  # or the biases decide every token, which is then always the same
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(0.2)
            elif parameter.dim() == 1:
                parameter.add_(1)
            elif "embeddings" not in name:
                parameter.mul_(3)
    ours.load_state_dict(from_stored(theirs.state_dict(), ours.config))
    tokens, mask = token_ids(4, 19), torch.ones(4, 19, dtype=torch.int64)
    # transformers goes on after the last column, which must be a token.
    mask[1, :6] = mask[2, :18] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 64, "do_sample": False}
    expected = theirs.generate(tokens, **options, eos_token_id=None, pad_token_id=0)
    assert torch.equal(generate(ours, tokens, **options, stop=()), expected)
    assert expected.shape == (4, 83)
    assert len(expected[:, 19:].unique()) >= 10


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 8), (3, 80), (20, 2), (112, 2)])
def test_any_number_of_heads_has_the_logits_of_transformers(heads: int, head_dim: int) -> None:
    ours, theirs = twins(heads=heads, head_dim=head_dim)
    tokens, mask = token_ids(4, 19), padded_mask()
    with torch.no_grad():
        found, expected = ours(tokens, attention_mask=mask), theirs(tokens, attention_mask=mask).logits
    assert_close(found[mask.bool()], expected[mask.bool()], 1e-5)


def test_slopes_are_those_of_transformers_for_every_count_of_heads() -> None:
    modeling = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for heads in range(1, 129):
        expected = modeling._get_alibi_slopes(heads, torch.device("cpu"))
        # Powers of a rounded base there, rounded powers here.
        torch.testing.assert_close(alibi_slopes(heads), expected, rtol=1e-5, atol=0)


def test_an_untied_head_is_read_from_its_own_weight() -> None:
    ours, theirs = twins(tie_word_embeddings=False)
    assert not torch.equal(ours.head.weight, ours.embed.weight)
    tokens = token_ids(2, 19)
    with torch.no_grad():
        assert_close(ours(tokens), theirs(tokens).logits, 1e-5)


def test_bfloat16_is_as_near_the_exact_logits_as_transformers_is() -> None:
    exact, _ = twins(torch.float64, heads=12)
    ours, theirs = twins(torch.bfloat16, heads=12)
    exact.load_state_dict(ours.state_dict())  # the same rounded weights
    tokens, mask = token_ids(4, 19), padded_mask()
    with torch.no_grad():
        expected = exact(tokens, attention_mask=mask)[mask.bool()]
        own = (ours(tokens, attention_mask=mask)[mask.bool()] - expected).abs().mean()
        other = (theirs(tokens, attention_mask=mask).logits[mask.bool()] - expected).abs().mean()
    assert own <= 1.1 * other
