"""The GPT with itself: packed, padded, cached and checkpointed it is the same model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import Causal
from course_lib.gqa import KVCache
from course_lib.models import GPT
from course_lib.models.gpt_config import CHOICES
from course_lib.packing import Packed, next_token_targets, pack, unpack

from .made import VOCABULARY, config, gradients, small, token_ids

POSITIONS = pytest.mark.parametrize("positions", CHOICES["positions"])


@POSITIONS
@given(lengths=st.lists(st.integers(0, 13), min_size=1, max_size=5))
def test_a_packed_row_gives_each_document_the_logits_it_has_alone(positions: str, lengths: list[int]) -> None:
    model = small(positions=positions, dtype=torch.float64)
    documents = [token_ids(n, seed=i) for i, n in enumerate(lengths)]
    batch = pack(documents)
    bias = Packed(batch.lengths, inner=model.attention_bias)
    packed = unpack(model(batch.tokens, positions=batch.positions, bias=bias), batch.lengths)
    for document, logits in zip(documents, packed, strict=True):
        torch.testing.assert_close(logits, model(document[None])[0], rtol=0, atol=1e-10)


@POSITIONS
@pytest.mark.parametrize("side", ["left", "right"])
def test_real_tokens_of_a_padded_batch_have_the_logits_and_gradients_they_have_alone(
    positions: str, side: str
) -> None:
    model = small(positions=positions)
    lengths = [9, 4, 1]
    documents = [token_ids(n, seed=n) for n in lengths]
    tokens, mask = torch.full((3, 9), VOCABULARY - 1), torch.zeros(3, 9, dtype=torch.int64)
    for row, document in enumerate(documents):
        place = slice(9 - len(document), None) if side == "left" else slice(len(document))
        tokens[row, place], mask[row, place] = document, 1
    real = model(tokens, attention_mask=mask)[mask.bool()]
    alone = torch.cat([model(document[None])[0] for document in documents])
    torch.testing.assert_close(real, alone, rtol=1e-5, atol=1e-5)
    expected = gradients(model, alone)
    for name, gradient in gradients(model, real).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_a_half_precision_left_padded_batch_is_finite() -> None:
    model = small(dtype=torch.bfloat16, positions="rotary")
    mask = torch.tensor([[0] * 6 + [1] * 3, [1] * 9])
    assert model(token_ids(2, 9), attention_mask=mask).isfinite().all()


@POSITIONS
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_logits_with_a_cache_are_those_without_after_a_padded_prompt(positions: str, side: str) -> None:
    model = small(positions=positions, dtype=torch.float64)
    lengths = [7, 3, 5]
    documents = [token_ids(n + 4, seed=n) for n in lengths]
    tokens, mask = torch.zeros(3, 7, dtype=torch.int64), torch.zeros(3, 7, dtype=torch.int64)
    for row, (document, n) in enumerate(zip(documents, lengths, strict=True)):
        place = slice(7 - n, None) if side == "left" else slice(n)
        tokens[row, place], mask[row, place] = document[:n], 1
    caches = [KVCache() for _ in model.layers]
    prompt = model(tokens, attention_mask=mask, cache=caches)
    following = torch.stack([d[n:] for d, n in zip(documents, lengths, strict=True)])
    steps = [model(following[:, :1], cache=caches), model(following[:, 1:], cache=caches)]
    for row, document in enumerate(documents):
        found = torch.cat([prompt[row][mask[row].bool()], *(step[row] for step in steps)])
        torch.testing.assert_close(found, model(document[None])[0], rtol=0, atol=1e-10)
    assert caches[0].host_lengths == (11, 7, 9)


@POSITIONS
def test_no_token_sees_a_later_one(positions: str) -> None:
    model = small(positions=positions, dtype=torch.float64)
    tokens = token_ids(1, 12)
    changed = tokens.clone()
    changed[0, 7] = (tokens[0, 7] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("positions", ["alibi", "rotary", "none"])
def test_a_model_without_a_table_reads_past_its_max_length(positions: str) -> None:
    model = small(positions=positions, max_length=4)
    assert model(token_ids(1, 9)).isfinite().all()


def test_the_order_of_earlier_tokens_matters_with_every_kind_of_positions() -> None:
    for positions in ("alibi", "rotary", "learned"):
        model = small(positions=positions, num_layers=1, dtype=torch.float64)
        logits = model(torch.tensor([[1, 2, 3], [2, 1, 3]]))[:, -1]
        assert (logits[0] - logits[1]).abs().max() > 1e-3, positions


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu"])
def test_checkpointing_changes_neither_logits_nor_gradients(feed_forward: str) -> None:
    kept = small(feed_forward=feed_forward)
    again = small(feed_forward=feed_forward, checkpointing="layers")
    batch = pack([token_ids(9), token_ids(5)])
    bias = Packed(batch.lengths, inner=kept.attention_bias)
    outs = [model(batch.tokens, positions=batch.positions, bias=bias) for model in (kept, again)]
    assert torch.equal(*outs)
    found, expected = gradients(again, outs[1]), gradients(kept, outs[0])
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_checkpointing_keeps_less_for_the_backward() -> None:
    def kept(model: GPT) -> int:
        sizes: dict[int, int] = {}

        def pack_hook(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
            model.hidden(token_ids(4, 32)).sum()
        return sum(sizes.values())

    assert kept(small(num_layers=6, checkpointing="layers")) < kept(small(num_layers=6)) / 3


def test_a_cache_with_checkpointing_holds_each_token_once() -> None:
    model = small(checkpointing="layers")
    caches = [KVCache() for _ in model.layers]
    model(token_ids(2, 5), cache=caches).sum().backward()
    assert [cache.host_lengths for cache in caches] == [(5, 5), (5, 5)]


@pytest.mark.parametrize(
    "options",
    [{}, {"recompute": True, "checkpointing": "layers"}, {"feed_forward": "gelu", "norm": "layernorm"}],
)
@POSITIONS
def test_autocast_to_bfloat16_trains_with_gradients_near_those_of_float32(
    positions: str, options: dict[str, Any]
) -> None:
    model = GPT(config(positions=positions, **options))
    batch = pack([token_ids(20), token_ids(11)])
    bias = Packed(batch.lengths, inner=model.attention_bias)
    found = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(batch.tokens, positions=batch.positions, bias=bias)
            loss = F.cross_entropy(logits.flatten(0, 1), next_token_targets(batch).flatten())
        assert logits.dtype == (torch.bfloat16 if enabled else torch.float32)
        found.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    assert F.cosine_similarity(*found, dim=0) > 0.99


@pytest.mark.compiled
@pytest.mark.parametrize("positions", ["alibi", "rotary"])
def test_a_compiled_model_has_the_logits_and_gradients_of_the_plain_one_and_warns_of_nothing(
    positions: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = small(positions=positions)
    compiled = torch.compile(model, backend="aot_eager")
    batch = pack([token_ids(9), token_ids(5)])
    bias = Packed(batch.lengths, inner=model.attention_bias)
    outs = [each(batch.tokens, positions=batch.positions, bias=bias) for each in (compiled, model)]
    torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)
    found, expected = (gradients(model, out) for out in outs)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-4)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_head_over_hidden_states_gives_the_logits() -> None:
    model = small()
    tokens = token_ids(2, 6)
    assert torch.equal(model.head(model.hidden(tokens)), model(tokens))


def test_an_empty_batch_has_empty_logits() -> None:
    model = small()
    assert model(token_ids(0, 5)).shape == (0, 5, VOCABULARY)
    assert model(token_ids(2, 0)).shape == (2, 0, VOCABULARY)


def test_a_bias_of_ones_own_takes_the_place_of_the_models() -> None:
    model = small(positions="none")
    tokens = token_ids(1, 9)
    windowed = model(tokens, bias=Causal(window=3))
    torch.testing.assert_close(windowed[:, :3], model(tokens)[:, :3], rtol=0, atol=1e-5)
    assert (windowed[:, 3:] - model(tokens)[:, 3:]).abs().max() > 1e-3


def test_the_seed_decides_the_weights_and_the_global_generator_stays() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, second, other = GPT(config(), seed=1), GPT(config(), seed=1), GPT(config(), seed=2)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.embed.weight, other.embed.weight)


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu"])
def test_what_a_layer_adds_begins_smaller_by_the_root_of_the_number_of_additions(feed_forward: str) -> None:
    model = GPT(config(dim=96, num_layers=8, feed_forward=feed_forward, norm="layernorm", bias=True))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert bool((parameter == (1.0 if "norm.weight" in name else 0.0)).all()), name
            continue
        added = any(part in name for part in ("o_proj", "w3", "down"))
        expected = 0.02 / 4 if added else 0.02
        assert math.isclose(parameter.std().item(), expected, rel_tol=0.1), name


def test_a_fresh_model_gives_every_token_about_the_same_chance() -> None:
    model = GPT(config(dim=96, num_layers=4))
    tokens = token_ids(4, 32)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), token_ids(4, 32, seed=1).flatten())
    assert abs(loss.item() - math.log(VOCABULARY)) < 0.15


@POSITIONS
def test_a_packed_row_is_learned_by_heart(positions: str) -> None:
    model = GPT(config(positions=positions, dim=48, recompute=True, checkpointing="layers"))
    batch = pack([token_ids(20, seed=1), token_ids(11, seed=2)])
    bias, targets = Packed(batch.lengths, inner=model.attention_bias), next_token_targets(batch).flatten()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        logits = model(batch.tokens, positions=batch.positions, bias=bias)
        loss = F.cross_entropy(logits.flatten(0, 1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2


def test_parameters_are_counted_once_and_with_or_without_the_tables() -> None:
    tied, untied = small(tied_head=True), small(tied_head=False)
    table = VOCABULARY * 24
    assert untied.num_parameters() - tied.num_parameters() == table
    assert untied.num_parameters(embeddings=False) == tied.num_parameters(embeddings=False)
    assert tied.num_parameters() - tied.num_parameters(embeddings=False) == table
    learned = small(positions="learned")
    assert learned.num_parameters() - learned.num_parameters(embeddings=False) == table + 64 * 24


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu"])
def test_swiglu_and_gelu_have_about_as_many_parameters(feed_forward: str) -> None:
    model = small(dim=96, feed_forward=feed_forward)
    feed_forwards = sum(p.numel() for n, p in model.named_parameters() if "feed_forward." in n)
    assert math.isclose(feed_forwards, 2 * 8 * 96 * 96, rel_tol=0.02)


@pytest.mark.parametrize("options", [{}, {"feed_forward": "gelu", "bias": True, "positions": "learned"}])
def test_flops_a_token_are_those_that_pytorch_counts(options: dict[str, Any]) -> None:
    model = small(**options)
    tokens = token_ids(2, 8)
    with FlopCounterMode(display=False) as counter:
        model(tokens).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    products = sum(n for op, n in counts.items() if "mm" in str(op) and "bmm" not in str(op))
    attention = 12 * 2 * 24 * (8 + 1) / 2  # two layers, six heads of four
    assert model.flops_per_token(8) * 16 == products + attention * 16


def test_replacing_the_feed_forward_of_a_config_replaces_its_width() -> None:
    swiglu = config(dim=96)
    assert (swiglu.hidden_width, replace(swiglu, feed_forward="gelu").hidden_width) == (256, 384)
    assert replace(swiglu, num_heads=12).head_width == 8


def test_a_config_comes_back_from_its_dict() -> None:
    given_config = config(positions="rotary", head_dim=6, bias=True)
    assert type(given_config).from_dict(given_config.to_dict()) == given_config


def test_end_and_padding_tokens_come_back_from_json_and_are_written_only_where_set() -> None:
    assert (config().end_token_ids, config().pad_token_id) == ((), None)
    assert not {"end_token_ids", "pad_token_id"} & config().to_dict().keys()
    ended = config(end_token_ids=(0, 7), pad_token_id=1)
    assert type(ended).from_dict(json.loads(json.dumps(ended.to_dict()))) == ended
