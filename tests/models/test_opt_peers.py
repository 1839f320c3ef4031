"""OPT against transformers' with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.gqa import KVCache
from course_lib.models import generate

from .made import gradients, token_ids
from .made_opt import PARTS, assert_close, from_stored, padded_mask, twins

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
KINDS = pytest.mark.parametrize("kind", PARTS)


@DTYPES
@KINDS
def test_logits_and_gradients_are_those_of_transformers(
    dtype: torch.dtype, tolerance: float, kind: str
) -> None:
    ours, theirs = twins(dtype, **PARTS[kind])
    tokens = token_ids(2, 19)
    tokens[tokens == 1] = 2  # transformers gives its padding token no gradient
    logits, expected = ours(tokens), theirs(tokens).logits
    assert_close(logits, expected, tolerance)
    found, wanted = gradients(ours, logits), gradients(theirs, expected)
    named = from_stored(wanted, found)
    assert named.keys() == found.keys()
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in named.items():
        # By the largest of all: that of a key's bias is 0, and what is found rounds.
        rows = slice(None)
        if name == "embed.weight" and ours.config.tied_head is False:
            rows = slice(2, None)
        assert float((found[name] - gradient)[rows].abs().max()) <= 10 * tolerance * largest, name


@DTYPES
@KINDS
def test_padding_on_either_side_leaves_the_logits_of_transformers(
    dtype: torch.dtype, tolerance: float, kind: str
) -> None:
    ours, theirs = twins(dtype, **PARTS[kind])
    tokens, mask = token_ids(4, 19), padded_mask()
    with torch.no_grad():
        found, expected = ours(tokens, attention_mask=mask), theirs(tokens, attention_mask=mask).logits
    assert_close(found[mask.bool()], expected[mask.bool()], tolerance)


@KINDS
@pytest.mark.parametrize("padded", [False, True])
def test_a_text_read_in_pieces_through_caches_has_the_logits_of_transformers(kind: str, padded: bool) -> None:
    ours, theirs = twins(**PARTS[kind])
    tokens = token_ids(4, 19)
    mask = padded_mask() if padded else torch.ones(4, 19, dtype=torch.int64)
    caches = [KVCache() for _ in ours.layers]
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask).logits
        pieces = [
            ours(tokens[:, start:stop], attention_mask=mask[:, start:stop], cache=caches)
            for start, stop in ((0, 8), (8, 9), (9, 10), (10, 18), (18, 19))
        ]
    assert_close(torch.cat(pieces, 1)[mask.bool()], expected[mask.bool()], 1e-5)


@KINDS
def test_sixty_four_greedy_tokens_are_those_of_transformers(kind: str) -> None:
    ours, theirs = twins(**PARTS[kind])
    with torch.no_grad():  # or the biases decide every token, which is then always the same
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(0.2)
            elif parameter.dim() == 1:
                parameter.add_(1)
            elif "embed_tokens" not in name:
                parameter.mul_(4)
    ours.load_state_dict(from_stored(theirs.state_dict(), ours.state_dict()))
    tokens, mask = token_ids(4, 19), torch.ones(4, 19, dtype=torch.int64)
    # transformers goes on after the last column, which must be a token.
    mask[1, :6] = mask[2, :18] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 64, "do_sample": False}
    expected = theirs.generate(tokens, **options, eos_token_id=None, pad_token_id=0)
    assert torch.equal(generate(ours, tokens, **options, stop=()), expected)
    assert expected.shape == (4, 83)
    assert len(expected[:, 19:].unique()) >= 10


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_near_the_exact_logits_as_transformers_is(half: torch.dtype) -> None:
    exact, _ = twins(torch.float64)
    ours, theirs = twins(half)
    exact.load_state_dict(ours.state_dict())  # the same rounded weights
    tokens, mask = token_ids(4, 19), padded_mask()
    with torch.no_grad():
        expected = exact(tokens, attention_mask=mask)[mask.bool()]
        own = (ours(tokens, attention_mask=mask)[mask.bool()] - expected).abs().mean()
        other = (theirs(tokens, attention_mask=mask).logits[mask.bool()] - expected).abs().mean()
    assert own <= 1.15 * other


@KINDS
def test_transformers_reads_the_folder_and_finds_the_same_logits(kind: str, tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    ours, _ = twins(**PARTS[kind])
    ours.save(tmp_path)
    theirs = transformers.OPTForCausalLM.from_pretrained(tmp_path).eval()
    tokens = token_ids(2, 19)
    with torch.no_grad():
        assert_close(theirs(tokens).logits, ours(tokens), 1e-6)
