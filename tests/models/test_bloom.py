"""What a BLOOM computes, whoever else does; its sizes, its config and its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.gqa import KVCache
from course_lib.models import Bloom, BloomConfig
from course_lib.packing import Packed, pack

from .made import gradients, token_ids
from .made_bloom import assert_close, bloom_config, padded_mask, small_bloom

RESIDUALS = pytest.mark.parametrize("after_norm", [False, True])


def _caches(model: Bloom) -> list[KVCache]:
    return [KVCache() for _ in model.layers]


def test_a_layer_at_a_time_gives_the_logits_of_the_whole_model() -> None:
    model = small_bloom()
    tokens = token_ids(2, 9)
    x = model.begin(tokens, torch.arange(9)[None])
    for layer in model.layers:
        x = layer(x, model.attention_bias)
    assert torch.equal(model.head(model.finish(x)), model(tokens))


@RESIDUALS
def test_caches_that_were_truncated_go_on_as_if_the_rest_had_not_been_read(after_norm: bool) -> None:
    model = small_bloom(residual_after_norm=after_norm, dtype=torch.float64)
    tokens, other = token_ids(2, 12), token_ids(2, 5, seed=1)
    caches = _caches(model)
    with torch.no_grad():
        model(tokens, cache=caches)
        for cache in caches:
            cache.truncate((4, 7))
        found = model(other, cache=caches)
        for row, kept in enumerate((4, 7)):
            whole = torch.cat((tokens[row, :kept], other[row]))[None]
            assert_close(found[row], model(whole)[0, kept:], 1e-12)


def test_rows_of_very_different_lengths_write_on_as_each_would_alone() -> None:
    model = small_bloom(dtype=torch.float64, num_heads=12)
    lengths = (300, 1, 257)
    prompts = [token_ids(1, n, seed=n) for n in lengths]
    mask = torch.zeros(3, 300, dtype=torch.int64)
    tokens = torch.zeros(3, 300, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, 300 - lengths[row] :], mask[row, 300 - lengths[row] :] = prompt[0], 1
    new = token_ids(3, 4)
    together, alone = _caches(model), [_caches(model) for _ in lengths]
    with torch.no_grad():
        model(tokens, attention_mask=mask, cache=together)
        for prompt, caches in zip(prompts, alone, strict=True):
            model(prompt, cache=caches)
        for step in range(4):
            found = model(new[:, step : step + 1], cache=together)
            for row, caches in enumerate(alone):
                expected = model(new[row : row + 1, step : step + 1], cache=caches)
                assert_close(found[row], expected[0], 1e-12)


def test_one_token_is_read_alone_and_first() -> None:
    model = small_bloom(dtype=torch.float64)
    tokens, caches = token_ids(1, 3), _caches(model)
    with torch.no_grad():
        pieces = [model(tokens[:, i : i + 1], cache=caches) for i in range(3)]
        assert_close(torch.cat(pieces, 1), model(tokens), 1e-12)
        assert_close(pieces[0], model(tokens[:, :1]), 1e-12)


def test_a_row_of_padding_alone_leaves_the_others_and_the_gradients_finite() -> None:
    model = small_bloom(dtype=torch.float64)
    tokens, mask = token_ids(2, 6), torch.tensor([[1] * 6, [0] * 6])
    logits = model(tokens, attention_mask=mask)
    assert_close(logits[0], model(tokens[:1])[0], 1e-12)
    assert all(bool(g.isfinite().all()) for g in gradients(model, logits).values())


def test_a_packed_row_holds_what_its_texts_say_alone() -> None:
    model = small_bloom(dtype=torch.float64, num_heads=12)
    texts = [token_ids(n, seed=n) for n in (5, 1, 8)]
    batch = pack(texts)
    bias = Packed(batch.lengths, inner=model.attention_bias)
    found = model(batch.tokens, positions=batch.positions, bias=bias)
    expected = torch.cat([model(text[None]) for text in texts], 1)
    assert_close(found, expected, 1e-12)


def test_positions_change_nothing() -> None:
    model = small_bloom()
    tokens = token_ids(2, 7)
    assert torch.equal(model(tokens, positions=torch.full((1, 7), 10**6)), model(tokens))


def test_a_text_longer_than_those_it_was_trained_on_is_read() -> None:
    model = small_bloom(max_length=8)
    assert model(token_ids(1, 40)).shape == (1, 40, 53)


@RESIDUALS
@pytest.mark.parametrize("padding", ["none", "sides", "holes"])
def test_the_gradients_are_those_of_the_slope_of_the_loss(after_norm: bool, padding: str) -> None:
    model = small_bloom(dtype=torch.float64, residual_after_norm=after_norm, num_layers=1).train()
    tokens = token_ids(4, 19)
    mask = padded_mask() if padding != "none" else torch.ones(4, 19, dtype=torch.int64)
    if padding == "holes":
        mask[1, 9:11] = 0
    real = mask.bool()[..., None]

    def loss() -> Tensor:
        return (model(tokens, attention_mask=mask) * real).square().mean()

    names = [name for name, _ in model.named_parameters()]
    found = dict(zip(names, torch.autograd.grad(loss(), list(model.parameters())), strict=True))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        before, step = parameter.detach().clone(), 1e-5
        with torch.no_grad():
            above = parameter.copy_(before + step * direction) is not None and loss()
            below = parameter.copy_(before - step * direction) is not None and loss()
            parameter.copy_(before)
        slope = float(above - below) / (2 * step)
        assert float((found[name] * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_checkpointed_layers_give_the_same_gradients() -> None:
    tokens, mask = token_ids(4, 19), padded_mask()
    plain, saved = small_bloom(), small_bloom(checkpointing="layers")
    expected = gradients(plain, plain(tokens, attention_mask=mask))
    found = gradients(saved, saved(tokens, attention_mask=mask))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)


def test_a_few_steps_of_training_lower_the_loss() -> None:
    model = Bloom(bloom_config(), seed=0)
    tokens = token_ids(4, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        logits = model(tokens[:, :-1]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("560m", 559_214_592),
        ("bloom-1b1", 1_065_314_304),
        ("bigscience/bloom-1b7", 1_722_408_960),
        ("bloomz-3b", 3_002_557_440),
        ("bigscience/bloomz-7b1", 7_069_016_064),
        ("bigscience/bloomz-7b1-mt", 7_069_016_064),
        ("bloomz-p3", 176_247_271_424),
        ("176b", 176_247_271_424),
        ("bigscience/bloom", 176_247_271_424),
        ("BLOOMZ", 176_247_271_424),
    ],
)
def test_a_published_size_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = Bloom(BloomConfig.of_size(name))
    assert model.num_parameters() == parameters


@pytest.mark.parametrize(
    "stored",
    [
        {"n_embed": 24, "n_layer": 3, "num_attention_heads": 6},
        {"hidden_size": 24, "num_hidden_layers": 3, "n_head": 6},
        {"hidden_size": 24, "n_embed": 24, "n_layer": 3, "n_head": 6, "num_attention_heads": 6},
    ],
)
def test_a_size_is_found_under_every_name_that_config_json_has_had_for_it(stored: dict[str, Any]) -> None:
    # And what else a published one says, which concerns the machines it was trained on, or dropout.
    surplus = {
        "attention_softmax_in_fp32": True,
        "hidden_dropout": 0.1,
        "attention_dropout": 0.1,
        "masked_softmax_fusion": True,
        "n_inner": None,
        "offset_alibi": 100,
        "pretraining_tp": 4,
        "slow_but_exact": False,
        "unk_token_id": 0,
        "use_cache": False,
    }
    config = BloomConfig.from_dict({"model_type": "bloom", "seq_length": 2048, **stored, **surplus})
    assert config == BloomConfig(dim=24, num_layers=3, num_heads=6, max_length=2048)


def test_a_config_comes_back_from_json_as_it_was() -> None:
    for options in (
        {},
        {"residual_after_norm": True, "tied_head": False, "norm_eps": 1e-3, "init_std": 0.5},
        {"max_length": 99, "eos_token_id": (2, 7), "pad_token_id": 3, "checkpointing": "layers"},
        {"eos_token_id": None, "bos_token_id": None},
    ):
        config = bloom_config(**options)
        assert BloomConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_transformers_reads_the_config_alike() -> None:
    transformers = pytest.importorskip("transformers")
    config = bloom_config(residual_after_norm=True, norm_eps=1e-3, tied_head=False, pad_token_id=3)
    theirs = transformers.BloomConfig.from_dict(config.to_dict())
    assert BloomConfig.from_dict(theirs.to_dict()) == config


def test_names_and_layout_of_a_checkpoint_come_back_as_they_were() -> None:
    model = small_bloom()
    state = model.state_dict()
    stored = model.to_stored(state)
    assert len(stored) == len(state) - 8  # query, key and value are one: weight and bias, two layers
    for part in Bloom.stored_parts(model.config):
        name = part.stored if part.own == "head.weight" else f"transformer.{part.stored}"
        tensor = stored[name] if part.take is None else part.take(stored[name])
        assert torch.equal(tensor, state[part.own])


def test_one_layer_can_be_brought_into_the_layout_of_a_checkpoint_alone() -> None:
    model = small_bloom()
    state = {own: t for own, t in model.state_dict().items() if own.startswith("layers.1.")}
    whole = model.to_stored(model.state_dict())
    expected = {name: t for name, t in whole.items() if name.startswith("transformer.h.1.")}
    found = model.to_stored(state)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("tied", [True, False])
def test_only_a_tied_head_may_be_missing_from_a_checkpoint(tied: bool) -> None:
    optional = {part.own for part in Bloom.stored_parts(bloom_config(tied_head=tied)) if part.optional}
    assert optional == ({"head.weight"} if tied else set())


def test_the_rows_of_a_fused_weight_are_query_key_and_value_head_by_head() -> None:
    config = BloomConfig(vocab_size=5, dim=6, num_layers=1, num_heads=3)
    fused = torch.arange(18)[:, None] * torch.ones(1, 6)
    parts = {part.own: part for part in Bloom.stored_parts(config)}
    rows = {}
    for which in "qkv":
        part = parts[f"layers.0.attention.{which}_proj.weight"]
        assert part.stored == "h.0.self_attention.query_key_value.weight"
        assert part.take is not None
        rows[which] = part.take(fused)[:, 0].tolist()
    assert rows == {"q": [0, 1, 6, 7, 12, 13], "k": [2, 3, 8, 9, 14, 15], "v": [4, 5, 10, 11, 16, 17]}


@RESIDUALS
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_a_saved_folder_and_gives_the_same_logits(
    after_norm: bool, tied: bool, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    model = small_bloom(residual_after_norm=after_norm, tied_head=tied, max_length=64)
    model.save(tmp_path / "made", languages=["bn"])
    theirs, info = transformers.BloomForCausalLM.from_pretrained(tmp_path / "made", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = token_ids(2, 9)
    with torch.no_grad():
        assert_close(theirs(tokens).logits, model(tokens), 1e-5)


def test_a_saved_folder_says_what_is_in_it(tmp_path: Path) -> None:
    card = (small_bloom().save(tmp_path, languages=["bn"]) / "README.md").read_text(encoding="utf-8")
    assert "# A BLOOM of" in card
    assert "| positions | ALiBi |" in card
    assert "| context | not limited |" in card
    assert "| feed-forward | GELU, 96 wide |" in card


def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    first, same, other = (Bloom(bloom_config(), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.embed.weight, same.embed.weight)
    assert not torch.equal(first.embed.weight, other.embed.weight)
    assert first.head.weight is first.embed.weight
