"""ALiBi over sequences with padding between their tokens."""

from __future__ import annotations

import pytest
import torch

from course_lib.alibi import alibi_slopes
from course_lib.attention import Causal, KeyPadding, attention
from course_lib.gqa import KVCache
from course_lib.models.alibi_at import ALiBiAt, has_holes

from .made import gradients, small, token_ids


def test_alibi_among_real_tokens_is_alibi_on_the_tokens_without_the_padding() -> None:
    real = torch.tensor([[1, 1, 0, 1, 0, 0, 1], [0, 1, 1, 0, 1, 1, 0]]).bool()
    bias = ALiBiAt(alibi_slopes(6), real).materialize(7, 7, num_heads=6, dtype=torch.float64)
    distance = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    expected = -alibi_slopes(6).double()[:, None, None] * distance
    for row in range(2):
        kept = real[row].nonzero().flatten()
        torch.testing.assert_close(bias[row][:, kept][:, :, kept], expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("row", "holes"),
    [
        ([], False),
        ([0, 0, 0], False),
        ([1, 1, 1], False),
        ([0, 1, 1], False),
        ([1, 1, 0], False),
        ([0, 1, 0], False),
        ([1, 0, 1], True),
        ([0, 1, 0, 0, 1, 0], True),
    ],
)
def test_padding_on_the_sides_of_a_row_is_no_hole(row: list[int], holes: bool) -> None:
    assert has_holes(torch.tensor([row, [0] * len(row)]).bool()) is holes


def test_every_way_to_compute_it_agrees_with_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    real = torch.rand(2, 90, generator=generator) < 0.7
    bias = KeyPadding(real) + (Causal() + ALiBiAt(alibi_slopes(6), real))
    heads = [
        torch.randn(2, 90, 6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    ]
    weight = torch.randn(2, 90, 6, 4, generator=generator, dtype=torch.float64)

    def outcome(backend: str) -> list[torch.Tensor]:
        out = attention(heads[0], heads[1], heads[2], bias, backend=backend)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), heads)]

    expected = outcome("reference")
    for backend in ("tiled", "auto"):
        for found, wanted in zip(outcome(backend), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_a_gpt_with_alibi_reads_around_holes_as_its_cache_does() -> None:
    model = small(dtype=torch.float64, positions="alibi")
    tokens, mask = token_ids(2, 9), torch.tensor([[1] * 9, [0, 1, 1, 0, 0, 1, 1, 0, 1]])
    real = mask.bool()
    whole = model(tokens, attention_mask=mask)
    cached = model(tokens, attention_mask=mask, cache=[KVCache() for _ in model.layers])
    alone = model(tokens[1:, real[1]])
    torch.testing.assert_close(whole[real], cached[real], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole[1, real[1]], alone[0], rtol=1e-12, atol=1e-12)
    assert all(bool(g.isfinite().all()) for g in gradients(model, whole).values())
