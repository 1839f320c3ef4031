"""A packed row is worth what its documents are worth alone: outputs, gradients, and no leak."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from course_lib.attention import Causal, KeyPadding, Segments, attention
from course_lib.packing import Packed, next_token_targets, pack, unpack

VOCABULARY, DIM, HEADS, KV_HEADS = 11, 12, 4, 2


class Model(nn.Module):
    """One block, every parameter random: embeddings, positions, attention, feed-forward, norm, head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, DIM)
        self.position = nn.Embedding(64, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, DIM + 2 * DIM * KV_HEADS // HEADS)
        self.out = nn.Linear(DIM, DIM)
        self.feed = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.head = nn.Linear(DIM, VOCABULARY)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
        self.double()

    def forward(self, tokens: Tensor, positions: Tensor, bias: object) -> Tensor:
        x = self.token(tokens) + self.position(positions)
        query, key, value = (
            self.qkv(self.norm(x)).unflatten(-1, (-1, DIM // HEADS)).split((HEADS, KV_HEADS, KV_HEADS), dim=2)
        )
        x = x + self.out(attention(query, key, value, bias).flatten(2))
        return self.head(x + self.feed(x))

    def alone(self, tokens: Tensor) -> Tensor:
        """The oracle: one document, its attention written out as a dense softmax."""
        n = len(tokens)
        x = self.token(tokens) + self.position(torch.arange(n))
        query, key, value = (
            self.qkv(self.norm(x)).unflatten(-1, (-1, DIM // HEADS)).split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        )
        heads = []
        for h in range(HEADS):
            shared = h // (HEADS // KV_HEADS)
            scores = query[:, h] @ key[:, shared].T / math.sqrt(DIM // HEADS)
            future = torch.ones(n, n, dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ value[:, shared])
        x = x + self.out(torch.cat(heads, -1))
        return self.head(x + self.feed(x))


def documents(lengths: list[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCABULARY, (n,), generator=generator) for n in lengths]


def gradients(model: Model, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def summed_loss_alone(model: Model, texts: list[Tensor]) -> Tensor:
    return torch.stack(
        [F.cross_entropy(model.alone(t)[:-1], t[1:], reduction="sum") for t in texts if len(t) > 1]
    ).sum()


def packed_logits(model: Model, texts: list[Tensor]) -> Tensor:
    batch = pack(texts)
    return model(batch.tokens, batch.positions, Packed(batch.lengths, inner=Causal()))


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(LENGTHS, st.integers(0, 99))
def test_packed_logits_are_those_of_each_document_alone(lengths: list[int], seed: int) -> None:
    model, texts = Model(seed), documents(lengths, seed)
    for got, text in zip(unpack(packed_logits(model, texts), lengths), texts, strict=True):
        torch.testing.assert_close(got, model.alone(text), rtol=0, atol=1e-10)


@given(LENGTHS.filter(lambda lengths: max(lengths) > 1), st.integers(0, 99))
def test_packed_gradients_are_those_of_one_document_at_a_time(lengths: list[int], seed: int) -> None:
    model, texts = Model(seed), documents(lengths, seed)
    targets = next_token_targets(pack(texts))
    loss = F.cross_entropy(packed_logits(model, texts).flatten(0, 1), targets.flatten(), reduction="sum")
    alone = summed_loss_alone(model, texts)
    torch.testing.assert_close(loss, alone, rtol=0, atol=1e-10)
    for got, expected in zip(gradients(model, loss), gradients(model, alone), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_packed_gradients_are_those_of_the_padded_batch() -> None:
    model, texts = Model(), documents([7, 2, 5])
    real = torch.tensor([[i < len(t) for i in range(7)] for t in texts])
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    logits = model(tokens, torch.arange(7).expand(3, 7), Causal() + KeyPadding(real))
    targets = F.pad(tokens[:, 1:], (0, 1)).masked_fill(~F.pad(real[:, 1:], (0, 1)), -100)
    padded = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    packed = F.cross_entropy(
        packed_logits(model, texts).flatten(0, 1), next_token_targets(pack(texts)).flatten()
    )
    for got, expected in zip(gradients(model, packed), gradients(model, padded), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_single_precision_agrees_with_the_documents_alone() -> None:
    model, texts = Model(), documents([37, 20, 8, 50])
    logits = packed_logits(model.float(), texts)
    model.double()
    for got, text in zip(unpack(logits, [37, 20, 8, 50]), texts, strict=True):
        expected = model.alone(text)
        assert (got.double() - expected).norm() <= 1e-5 * expected.norm()


@given(LENGTHS.filter(lambda lengths: sum(map(bool, lengths)) > 1), st.data())
def test_changing_one_document_leaves_the_others_bit_for_bit(lengths: list[int], data: st.DataObject) -> None:
    model, texts = Model(), documents(lengths)
    changed = data.draw(st.sampled_from([i for i, n in enumerate(lengths) if n]))
    before = unpack(packed_logits(model, texts), lengths)
    texts[changed] = (texts[changed] + 1) % VOCABULARY
    after = unpack(packed_logits(model, texts), lengths)
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(a, b) == (i != changed or lengths[i] == 0)


def test_naive_concatenation_leaks() -> None:
    """What packing is for: with a causal mask over the whole row, document B depends on document A."""
    model, texts = Model(), documents([4, 5])

    def naive() -> Tensor:
        batch = pack(texts)
        return unpack(model(batch.tokens, batch.positions, Causal()), batch.lengths)[1]

    before = naive()
    texts[0] = (texts[0] + 1) % VOCABULARY
    assert (naive() - before).abs().max() > 1e-3


def test_a_nan_in_one_document_stays_there() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 9, 2, 4, generator=generator) for _ in range(3))
    key[0, 5, 0, 0] = math.nan
    first, second, third = unpack(attention(query, key, value, Packed([4, 3, 2], inner=Causal())), [4, 3, 2])
    assert torch.isfinite(first).all() and torch.isfinite(third).all()
    assert torch.isfinite(second[0]).all() and torch.isnan(second[1:, 0]).all()


def qkv(batch: int, q_len: int, k_len: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    query = torch.randn(batch, q_len, 4, 3, generator=generator, dtype=torch.float64)
    key, value = (torch.randn(batch, k_len, 2, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=5), st.booleans())
def test_queries_and_keys_may_have_lengths_of_their_own(pairs: list[tuple[int, int]], causal: bool) -> None:
    q_lengths, k_lengths = [q for q, _ in pairs], [k for _, k in pairs]
    query, key, value = qkv(1, sum(q_lengths), sum(k_lengths))
    inner = Causal("bottom-right") if causal else None
    packed = attention(query, key, value, Packed(q_lengths, k_lengths, inner=inner))
    parts = [
        attention(q[None], k[None], v[None], inner)[0]
        for q, k, v in zip(
            unpack(query, q_lengths), unpack(key, k_lengths), unpack(value, k_lengths), strict=True
        )
    ]
    torch.testing.assert_close(packed[0], torch.cat(parts), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "tiled", "torch_sdpa"])
def test_a_document_without_keys_is_zero_with_zero_gradient(backend: str) -> None:
    query, key, value = qkv(1, 5, 4)
    out = attention(query, key, value, Packed([3, 2], [4, 0]), backend=backend)
    assert out[:, 3:].eq(0).all() and out[:, :3].ne(0).all()
    out.sum().backward()
    assert query.grad is not None and query.grad[:, 3:].eq(0).all() and query.grad.isfinite().all()


@pytest.mark.parametrize("backend", ["reference", "tiled", "torch_sdpa"])
def test_every_row_of_a_batch_is_cut_at_the_same_places(backend: str) -> None:
    query, key, value = qkv(3, 6, 6)
    bias = Packed([2, 4], inner=Causal())
    together = attention(query, key, value, bias, backend=backend)
    alone = [attention(query[i, None], key[i, None], value[i, None], bias) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-12)


def test_packed_is_segments() -> None:
    assert isinstance(Packed([2, 3]), Segments)
    expected = Segments([2, 3], [4, 1], inner=Causal("top-left")).materialize(5, 5)
    assert torch.equal(Packed([2, 3], [4, 1], inner=Causal("top-left")).materialize(5, 5), expected)


def test_packed_means_what_xformers_block_diagonal_causal_mask_means() -> None:
    attn_bias = pytest.importorskip("xformers.ops.fmha.attn_bias")
    mask = attn_bias.BlockDiagonalMask.from_seqlens([2, 0, 3]).make_causal()
    assert torch.equal(Packed([2, 0, 3], inner=Causal()).materialize(5, 5)[0, 0], mask.materialize((5, 5)))


def test_no_documents_are_an_empty_row() -> None:
    batch = pack([])
    assert batch.tokens.shape == batch.positions.shape == (1, 0) and batch.lengths == ()
    assert next_token_targets(batch).shape == (1, 0)
    assert unpack(batch.tokens, batch.lengths) == []
    query, key, value = qkv(1, 0, 0)
    assert attention(query, key, value, Packed(batch.lengths, inner=Causal())).shape == (1, 0, 4, 3)
