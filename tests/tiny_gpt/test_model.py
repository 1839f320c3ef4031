"""The tiny model: shapes, exchangeable parts, and packed rows that equal one document at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib.attention import AttentionBias, Causal, Grid, attention
from course_lib.packing import Packed, next_token_targets, pack
from course_lib.tiny_gpt import FeedForward, TinyGPT, packed_loss, rotate, sinusoids

DOCUMENTS = [[5, 9, 2, 11, 7], [3], [8, 8, 1], [], [4, 6, 10, 2, 9, 1, 5]]
POSITIONS = ["none", "learned", "sinusoidal", "rotary"]


class Distance(AttentionBias):
    """-slope * distance to the key, a slope a head: a bias that adds scores, as ALiBi does."""

    per_head = True

    def __init__(self, num_heads: int) -> None:
        self.slopes = torch.arange(1, num_heads + 1) / num_heads

    def tile(self, queries: range, keys: range, grid: Grid) -> Tensor:
        places = torch.arange(queries.start, queries.stop)[:, None] + grid.k_len - grid.q_len
        distances = (places - torch.arange(keys.start, keys.stop)).abs()
        return (-self.slopes[:, None, None] * distances).to(grid.dtype)


def causal_with_distance(num_heads: int) -> AttentionBias:
    return Causal("bottom-right") + Distance(num_heads)


def tiny(**changes: Any) -> TinyGPT:
    """A model of 12 token ids in float64, every parameter random: a norm at 1 or a bias at 0 would hide a fault."""
    model = TinyGPT(**{"vocab_size": 12, "dim": 16, "num_heads": 4, "max_length": 32, **changes}).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return model


def written_out(model: TinyGPT, ids: Tensor) -> Tensor:
    """The logits of one document as the docstrings say, a second time: dense attention, rotation by complex numbers."""
    n, dim = len(ids), model.dim
    angles = torch.arange(n).double()[:, None] * 10000.0 ** (-torch.arange(0, dim, 2).double() / dim)
    x = model.embed.weight[ids]
    if model.positions == "learned":
        x = x + model.position_embed.weight[:n]
    if model.positions == "sinusoidal":
        x = x + 0.02 * torch.cat((angles.sin(), angles.cos()), -1)
    x = x * dim**0.5

    def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias

    def turned(heads: Tensor) -> Tensor:
        half = heads.shape[-1] // 2
        angle = torch.arange(n).double()[:, None, None] * 10000.0 ** (-torch.arange(half).double() / half)
        numbers = torch.complex(heads[..., :half], heads[..., half:])
        numbers = numbers * torch.polar(torch.ones_like(angle), angle)
        return torch.cat((numbers.real, numbers.imag), -1)

    for layer in model.layers:
        own = layer.attention
        inside = normed(layer.attention_norm, x)
        query, key, value = (
            (inside @ p.weight.T).reshape(n, -1, own.head_dim) for p in (own.q_proj, own.k_proj, own.v_proj)
        )
        if model.positions == "rotary":
            query, key = turned(query), turned(key)
        group = query.shape[1] // key.shape[1]
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        heads = []
        for h in range(query.shape[1]):
            scores = (query[:, h] @ key[:, h // group].T / own.head_dim**0.5).masked_fill(future, -torch.inf)
            heads.append(scores.softmax(-1) @ value[:, h // group])
        x = x + torch.cat(heads, -1) @ own.o_proj.weight.T
        feed = layer.feed_forward
        hidden = normed(layer.feed_forward_norm, x) @ feed.up.weight.T + feed.up.bias
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        x = x + hidden @ feed.down.weight.T + feed.down.bias
    return normed(model.norm, x) @ model.embed.weight.T


def gradients(model: TinyGPT, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_logits_have_one_row_a_token_and_one_column_an_id(positions: str, num_kv_heads: int) -> None:
    model = tiny(positions=positions, num_kv_heads=num_kv_heads)
    assert model(torch.randint(0, 12, (3, 7))).shape == (3, 7, 12)
    assert model(torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0, 12)


@pytest.mark.parametrize("positions", POSITIONS)
def test_logits_are_those_of_the_model_written_out(positions: str) -> None:
    model, ids = tiny(positions=positions, num_kv_heads=2), torch.tensor([5, 9, 2, 11, 7, 3, 3])
    torch.testing.assert_close(model(ids[None])[0], written_out(model, ids), rtol=0, atol=1e-10)


def test_before_training_every_token_is_about_as_likely_as_any_other() -> None:
    ids = torch.randint(0, 4096, (1, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = TinyGPT()(ids)
    assert logits.std() < 0.5


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("num_kv_heads", [2, 4])
@pytest.mark.parametrize("attention_bias", [None, causal_with_distance])
def test_a_packed_row_has_the_loss_and_gradient_of_one_document_at_a_time(
    positions: str, num_kv_heads: int, attention_bias: Any
) -> None:
    model = tiny(positions=positions, num_kv_heads=num_kv_heads, attention_bias=attention_bias)
    packed = packed_loss(model, pack(DOCUMENTS))
    total = torch.zeros((), dtype=torch.float64)
    targets = 0
    for document in DOCUMENTS:
        if len(document) > 1:
            ids = torch.tensor([document])
            total = total + nn.functional.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="sum")
            targets += len(document) - 1
    torch.testing.assert_close(packed, total / targets, rtol=0, atol=1e-10)
    apart = gradients(model, total / targets)
    for got, expected in zip(gradients(model, packed), apart, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", POSITIONS)
def test_changing_one_document_changes_no_other(positions: str) -> None:
    model = tiny(positions=positions)
    first, second = pack(DOCUMENTS), pack([[1, 1, 1, 1, 1], *DOCUMENTS[1:]])
    bias = Packed(first.lengths, inner=model.attention_bias)
    before, after = (model(b.tokens, positions=b.positions, bias=bias) for b in (first, second))
    assert torch.equal(before[:, 5:], after[:, 5:])
    assert not torch.allclose(before[:, :5], after[:, :5])


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_that_do_not_restart_change_later_documents(positions: str) -> None:
    model = tiny(positions=positions)
    batch = pack(DOCUMENTS)
    bias = Packed(batch.lengths, inner=model.attention_bias)
    restarted = model(batch.tokens, positions=batch.positions, bias=bias)
    running = model(batch.tokens, bias=bias)
    torch.testing.assert_close(running[:, :5], restarted[:, :5], rtol=0, atol=1e-10)
    assert not torch.allclose(running[:, 5:], restarted[:, 5:])


def test_rotary_scores_depend_on_distance_alone() -> None:
    model = tiny(positions="rotary")
    tokens = torch.randint(0, 12, (2, 9))
    shifted = torch.arange(9)[None] + 100
    torch.testing.assert_close(model(tokens, positions=shifted), model(tokens), rtol=0, atol=1e-10)


def test_rotation_by_position_zero_is_none_and_keeps_every_length() -> None:
    heads = torch.randn(1, 3, 2, 8, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 5000]])
    turned = rotate(heads, positions)
    assert torch.equal(turned[:, 0], heads[:, 0])
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))
    # Number 0 pairs with number 4, and turns by one radian a position.
    cos, sin = (
        torch.tensor([1.0, 1.0], dtype=torch.float64).cos(),
        torch.tensor(1.0, dtype=torch.float64).sin(),
    )
    torch.testing.assert_close(turned[0, 1, :, 0], heads[0, 1, :, 0] * cos - heads[0, 1, :, 4] * sin)


def test_bfloat16_sinusoids_tell_all_positions_apart_by_angles_in_full_precision() -> None:
    waves = sinusoids(torch.arange(1024)[None], 64, torch.bfloat16)[0]
    assert len(waves.unique(dim=0)) == 1024
    assert torch.equal(waves[0], torch.tensor([0.0] * 32 + [1.0] * 32, dtype=torch.bfloat16))


def test_without_positions_the_order_of_earlier_tokens_goes_unseen() -> None:
    model = tiny(positions="none", num_layers=1)
    one, other = (model(torch.tensor([ids]))[:, -1] for ids in ([3, 5, 7, 2], [7, 3, 5, 2]))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_no_token_sees_a_later_one() -> None:
    model = tiny()
    tokens = torch.randint(0, 12, (1, 9))
    changed = tokens.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 12
    assert torch.equal(model(tokens)[:, :5], model(changed)[:, :5])


@pytest.mark.parametrize(
    "attention_bias", [Causal("bottom-right", window=2), lambda heads: Causal("bottom-right", window=2)]
)
def test_the_attention_bias_is_exchanged_by_an_object_or_a_function_of_heads(attention_bias: Any) -> None:
    model = tiny(attention_bias=attention_bias, num_layers=1, positions="none")
    one, other = (model(torch.tensor([ids]))[:, -1] for ids in ([3, 5, 7, 2], [7, 3, 7, 2]))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_a_bias_made_for_the_heads_changes_what_each_of_them_reads() -> None:
    tokens = torch.tensor([[3, 5, 7, 2]])
    plain, distant = tiny(positions="none"), tiny(positions="none", attention_bias=causal_with_distance)
    assert torch.equal(plain.embed.weight, distant.embed.weight)
    assert not torch.allclose(plain(tokens), distant(tokens))


def test_the_feed_forward_is_exchanged_by_a_function_of_dim() -> None:
    model = tiny(feed_forward=lambda dim: FeedForward(dim, 3))
    assert [layer.feed_forward.up.out_features for layer in model.layers] == [3, 3]
    assert model(torch.tensor([[1, 2]])).shape == (1, 2, 12)


def test_attention_is_the_call_of_lessons_one_and_two() -> None:
    layer = tiny(num_kv_heads=2).layers[0].attention
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    query, key, value = (p(x).unflatten(-1, (-1, 4)) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    expected = layer.o_proj(attention(query, key, value, Causal(), backend="reference").flatten(2))
    torch.testing.assert_close(layer(x, Causal(), None, None), expected, rtol=0, atol=1e-10)


def test_the_seed_decides_the_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    one, same, other = TinyGPT(30, 16, 1, 2), TinyGPT(30, 16, 1, 2), TinyGPT(30, 16, 1, 2, seed=1)
    assert torch.equal(torch.rand(3), expected)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(one.embed.weight, other.embed.weight)


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_default_model_has_one_to_three_million_parameters(positions: str) -> None:
    model = TinyGPT(positions=positions)
    assert 1e6 < sum(p.numel() for p in model.parameters()) < 3e6
    assert model.head.weight is model.embed.weight


def test_targets_of_the_packed_loss_never_cross_a_boundary() -> None:
    """The last token of a document may be anything to the loss of the one before."""
    model = tiny()
    batch = pack([[1, 2, 3], [4, 5]])
    bias = Packed(batch.lengths, inner=Causal())
    losses = nn.functional.cross_entropy(
        model(batch.tokens, positions=batch.positions, bias=bias)[0],
        next_token_targets(batch)[0],
        reduction="none",
    )
    assert losses[2] == 0 and losses[4] == 0
    torch.testing.assert_close(packed_loss(model, batch), losses.sum() / 3)
