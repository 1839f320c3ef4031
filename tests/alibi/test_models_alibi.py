"""ALiBi in a model: packed training, the KV cache, and text written with and without one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import AttentionBias, Causal, attention
from course_lib.gqa import GroupedQueryAttention, KVCache
from course_lib.packing import Packed, next_token_targets, pack
from course_lib.tiny_gpt import TinyGPT, sample

from .oracle import randn

DOCUMENTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7], [9, 3]]


def causal_alibi(heads: int) -> AttentionBias:
    return Causal("bottom-right") + ALiBi(heads)


def tiny(**changes: object) -> TinyGPT:
    """12 token ids, 6 heads of which pairs share keys, float64, every parameter random."""
    settings = {"vocab_size": 12, "dim": 24, "num_heads": 6, "num_kv_heads": 3, "positions": "none"}
    model = TinyGPT(**{**settings, "attention_bias": causal_alibi, **changes}).double()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return model


def packed_loss(model: TinyGPT, documents: list[list[int]]) -> Tensor:
    batch = pack(documents)
    logits = model(
        batch.tokens, positions=batch.positions, bias=Packed(batch.lengths, inner=model.attention_bias)
    )
    return nn.functional.cross_entropy(logits.flatten(0, 1), next_token_targets(batch).flatten())


def test_a_packed_row_trains_as_one_document_at_a_time() -> None:
    model = tiny()
    total, targets = torch.zeros((), dtype=torch.float64), 0
    for document in DOCUMENTS:
        ids = torch.tensor([document])
        total = total + nn.functional.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="sum")
        targets += len(document) - 1
    packed = packed_loss(model, DOCUMENTS)
    torch.testing.assert_close(packed, total / targets, rtol=0, atol=1e-10)
    parameters = list(model.parameters())
    apart = torch.autograd.grad(total / targets, parameters)
    for got, expected in zip(torch.autograd.grad(packed, parameters), apart, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_the_loss_of_packed_rows_falls_and_slopes_may_train_along() -> None:
    slopes = nn.Parameter(alibi_slopes(6))
    model = tiny(attention_bias=Causal("bottom-right") + ALiBi(slopes), seed=1)
    optimizer = torch.optim.Adam([*model.parameters(), slopes], lr=0.01)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = packed_loss(model, DOCUMENTS)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert not torch.equal(slopes.detach(), alibi_slopes(6))


def test_without_positions_alibi_alone_tells_the_model_where_words_stand() -> None:
    with_alibi, without = tiny(), tiny(attention_bias=Causal("bottom-right"))
    tokens, swapped = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[2, 1, 3, 4]])
    one_layer = {"num_layers": 1}
    without, with_alibi = tiny(attention_bias=Causal("bottom-right"), **one_layer), tiny(**one_layer)
    torch.testing.assert_close(without(tokens)[:, -1], without(swapped)[:, -1], rtol=0, atol=1e-10)
    assert not torch.allclose(with_alibi(tokens)[:, -1], with_alibi(swapped)[:, -1], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("steps", [[9], [4, 1, 0, 3, 1], [1] * 9])
def test_with_a_cache_the_logits_are_those_of_reading_all_at_once(steps: list[int]) -> None:
    model = tiny()
    tokens = torch.randint(0, 12, (2, 9), generator=torch.Generator().manual_seed(8))
    cache = [KVCache(block_size=4) for _ in model.layers]
    parts = [model(part, cache=cache) for part in tokens.split(steps, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), rtol=0, atol=1e-10)


def test_a_sample_is_the_same_with_and_without_a_cache() -> None:
    model = tiny(vocab_size=4096)
    plain = sample(model, "এক দিন", max_new_tokens=12, seed=5)
    assert sample(model, "এক দিন", max_new_tokens=12, seed=5, cache=[KVCache(), KVCache()]) == plain


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_of_uneven_lengths_read_on_from_one_cache_as_each_would_alone(side: str) -> None:
    """Prompts of 3, 8 and 5 tokens, padded on either side, then two tokens each, then one, as a sampler feeds them."""
    layer = GroupedQueryAttention(24, 6, 3).double()
    texts = [randn(1, n + 3, 24, seed=n) for n in (3, 8, 5)]
    mask = torch.zeros(3, 8, dtype=torch.long)
    prompt = torch.zeros(3, 8, 24, dtype=torch.float64)
    for row, text in enumerate(texts):
        n = text.shape[1] - 3
        at = slice(8 - n, 8) if side == "left" else slice(0, n)
        mask[row, at], prompt[row, at] = 1, text[0, :n]
    cache = KVCache(block_size=4)
    read = [layer(prompt, ALiBi(6), cache, attention_mask=mask)]
    for start, stop in ((-3, -1), (-1, None)):
        new = torch.cat([text[:, start:stop] for text in texts])
        read.append(layer(new, ALiBi(6), cache))
    for row, text in enumerate(texts):
        together = torch.cat([read[0][row][mask[row].bool()], read[1][row], read[2][row]])
        alone = layer(text, Causal() + ALiBi(6))[0]
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_gradients_flow_through_a_cache_of_uneven_lengths() -> None:
    layer = GroupedQueryAttention(24, 6, 3).double()
    slopes = alibi_slopes(6).double().requires_grad_()
    texts = [randn(1, n, 24, seed=n) for n in (3, 5)]
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    prompt = torch.zeros(2, 4, 24, dtype=torch.float64)
    prompt[0, :2], prompt[1] = texts[0][0, :2], texts[1][0, :4]
    cache = KVCache()
    first = layer(prompt, ALiBi(slopes), cache, attention_mask=mask)
    last = layer(torch.cat([text[:, -1:] for text in texts]), ALiBi(slopes), cache)
    leaves = [*layer.parameters(), slopes]
    cached = first[mask.bool()].square().sum() + last.square().sum()
    alone = sum(layer(text, Causal() + ALiBi(slopes)).square().sum() for text in texts)
    got, expected = torch.autograd.grad(cached, leaves), torch.autograd.grad(alone, leaves)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


def test_a_decoding_step_equals_the_last_row_of_the_whole() -> None:
    query, key, value = (randn(2, 40, 6, 8, seed=i) for i in range(3))
    whole = attention(query, key, value, Causal() + ALiBi(6))
    step = attention(query[:, -1:], key, value, ALiBi(6))
    torch.testing.assert_close(step, whole[:, -1:], rtol=0, atol=1e-10)
