"""What an OPT computes, whoever else does; its published sizes, and its config."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.gqa import KVCache
from course_lib.models import OPT, OPTConfig
from course_lib.packing import Packed, pack

from .made import gradients, token_ids
from .made_opt import assert_close, opt_config, padded_mask, small_opt

POST_NORM: dict[str, Any] = {"norm_first": False, "embed_dim": 12}
STYLES = pytest.mark.parametrize("options", [{}, POST_NORM], ids=["pre-norm", "350m"])
PARAMETERS = {
    "125m": 125_239_296,
    "350m": 331_196_416,
    "1.3b": 1_315_758_080,
    "2.7b": 2_651_596_800,
    "6.7b": 6_658_473_984,
    "13b": 12_853_473_280,
    "30b": 29_974_540_288,
    "66b": 65_719_701_504,
    "175b": 174_604_468_224,
}
"""Counted by hand: 4 d² + 8 d² weights, 9 d biases and 4 d norms a layer, and the tables (see the test)."""


@STYLES
def test_a_layer_at_a_time_gives_the_logits_of_the_whole_model(options: dict[str, Any]) -> None:
    model = small_opt(**options)
    tokens = token_ids(2, 9)
    x = model.begin(tokens, torch.arange(9)[None])
    for layer in model.layers:
        x = layer(x, model.attention_bias)
    assert torch.equal(model.head(model.finish(x)), model(tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@STYLES
def test_left_padded_half_precision_has_no_nan_and_the_logits_without_padding(
    dtype: torch.dtype, options: dict[str, Any]
) -> None:
    model = small_opt(dtype=dtype, **options)
    tokens, mask = token_ids(2, 12), torch.ones(2, 12, dtype=torch.int64)
    mask[0, :7] = 0
    with torch.no_grad():
        logits = model(tokens, attention_mask=mask)
        alone = model(tokens[:1, 7:])
    assert bool(logits.isfinite().all())
    assert_close(logits[0, 7:].float(), alone[0].float(), 0.03)


@STYLES
def test_a_row_has_the_logits_that_it_has_alone_wherever_its_padding_is(options: dict[str, Any]) -> None:
    model = small_opt(dtype=torch.float64, **options)
    tokens, mask = token_ids(4, 19), padded_mask()
    mask[0, 4:7] = 0
    logits = model(tokens, attention_mask=mask)
    for row in range(4):
        real = mask[row].bool()
        assert_close(logits[row, real], model(tokens[row, real][None])[0], 1e-12)


def test_positions_given_are_taken_as_they_are() -> None:
    model = small_opt(dtype=torch.float64)
    tokens = token_ids(1, 6)
    with torch.no_grad():
        counted = model(tokens)
        assert torch.equal(model(tokens, positions=torch.arange(6)[None]), counted)
        assert not torch.allclose(model(tokens, positions=torch.arange(5, -1, -1)[None]), counted)


def test_the_first_two_rows_of_the_table_of_positions_belong_to_no_token() -> None:
    model = small_opt()
    tokens, mask = token_ids(4, 19), padded_mask()
    model(tokens, attention_mask=mask).sum().backward()
    gradient = model.position_embed.weight.grad
    assert gradient is not None and not gradient[:2].any() and gradient[2:21].any(1).all()


def test_a_packed_row_holds_what_its_texts_say_alone() -> None:
    model = small_opt(dtype=torch.float64)
    texts = [token_ids(n, seed=n) for n in (5, 1, 8)]
    batch = pack(texts)
    bias = Packed(batch.lengths, inner=model.attention_bias)
    found = model(batch.tokens, positions=batch.positions, bias=bias)
    assert_close(found, torch.cat([model(text[None]) for text in texts], 1), 1e-12)


@STYLES
def test_checkpointed_layers_give_the_same_gradients(options: dict[str, Any]) -> None:
    tokens, mask = token_ids(4, 19), padded_mask()
    plain, saved = small_opt(**options), small_opt(checkpointing="layers", **options)
    expected = gradients(plain, plain(tokens, attention_mask=mask))
    found = gradients(saved, saved(tokens, attention_mask=mask))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)


def test_every_position_up_to_the_last_is_read_through_a_cache() -> None:
    model = small_opt(max_length=12)
    tokens, caches = token_ids(1, 12), [KVCache() for _ in range(2)]
    with torch.no_grad():
        pieces = [model(tokens[:, i : i + 1], cache=caches) for i in range(12)]
        assert_close(torch.cat(pieces, 1), model(tokens), 1e-5)


@pytest.mark.parametrize("size", PARAMETERS)
def test_published_sizes_have_the_parameters_that_a_count_by_hand_finds(size: str) -> None:
    config = OPTConfig.of_size(size)
    d, e, layers = config.dim, config.embed_width, config.num_layers
    a_layer = 12 * d * d + 9 * d + 4 * d
    around = 50272 * e + 2050 * d + (2 * d if config.has_final_norm else 0) + (2 * d * e if e != d else 0)
    with torch.device("meta"):
        counted = OPT(config).num_parameters()
    assert counted == layers * a_layer + around == PARAMETERS[size]


@pytest.mark.parametrize("name", ["350m", "opt-350m", "facebook/opt-350m", "OPT-350M", "facebook/OPT-350m"])
def test_a_published_size_is_found_under_each_of_its_names(name: str) -> None:
    config = OPTConfig.of_size(name)
    assert (config.dim, config.embed_width, config.norm_first, config.has_final_norm) == (
        1024,
        512,
        False,
        False,
    )


@pytest.mark.parametrize("kind", ["iml", "iml-max"])
@pytest.mark.parametrize("size", ["1.3b", "30b", "175b"])
def test_models_tuned_on_instructions_have_the_shape_of_their_size(kind: str, size: str) -> None:
    assert OPTConfig.of_size(f"facebook/opt-{kind}-{size}") == OPTConfig.of_size(size)


@pytest.mark.parametrize(
    "options",
    [
        {},
        POST_NORM,
        {"final_norm": False},
        {"activation": "gelu", "bias": False, "norm_affine": False, "tied_head": False},
        {"hidden_features": 40, "checkpointing": "layers", "eos_token_id": (3, 4), "pad_token_id": None},
    ],
)
def test_a_config_comes_back_from_json(options: dict[str, Any]) -> None:
    config = opt_config(**options)
    assert OPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_config_of_transformers_says_the_same_as_ours() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.OPTConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096, word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )  # fmt: skip
    assert OPTConfig.from_dict(theirs.to_dict()) == OPTConfig.of_size("350m")
    assert OPTConfig.from_dict(transformers.OPTConfig().to_dict()) == OPTConfig.of_size("125m")


def test_a_config_with_nothing_in_it_is_what_transformers_takes_it_for() -> None:
    assert OPTConfig.from_dict({"model_type": "opt"}) == OPTConfig.of_size("125m")


def test_end_tokens_are_one_or_several_or_none() -> None:
    assert opt_config().end_token_ids == (2,)
    assert opt_config(eos_token_id=[3, 4]).end_token_ids == (3, 4)
    assert opt_config(eos_token_id=None).end_token_ids == ()


def test_the_same_seed_draws_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, again, other = (OPT(opt_config(), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.layers[1].attention.q_proj.weight, again.layers[1].attention.q_proj.weight)
    assert not torch.equal(one.layers[1].attention.q_proj.weight, other.layers[1].attention.q_proj.weight)


def test_an_untrained_opt_guesses_and_a_few_steps_lower_its_loss() -> None:
    model = OPT(opt_config(), seed=0)
    tokens = token_ids(4, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        logits = model(tokens)[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(torch.tensor(53.0).log().item(), abs=0.05)
    assert losses[-1] < losses[0] - 0.3


def test_a_tied_head_is_stored_once_and_an_untied_one_beside_the_embedding(tmp_path: Any) -> None:
    from safetensors import safe_open

    for tied in (True, False):
        small_opt(tied_head=tied).save(tmp_path / str(tied))
        with safe_open(tmp_path / str(tied) / "model.safetensors", "pt") as file:
            names = set(file.keys())
        assert ("lm_head.weight" in names) is not tied
        assert "model.decoder.embed_tokens.weight" in names


@pytest.mark.parametrize("tied", [True, False])
@STYLES
def test_each_tensor_is_found_once_under_its_stored_name(options: dict[str, Any], tied: bool) -> None:
    model = small_opt(tied_head=tied, **options)
    state, parts = model.state_dict(), OPT.stored_parts(model.config)
    assert [part.own for part in parts] == list(state)
    assert len({part.stored for part in parts}) == len(parts)
    assert [part.own for part in parts if part.optional] == (["head.weight"] if tied else [])
    stored = model.to_stored(state)
    for part in parts:
        name = part.stored if part.own == "head.weight" else f"model.decoder.{part.stored}"
        assert torch.equal(stored[name], state[part.own])


def test_stored_names_are_those_of_published_checkpoints() -> None:
    parts = {part.own: part.stored for part in OPT.stored_parts(opt_config(**POST_NORM))}
    assert parts["embed.weight"] == "embed_tokens.weight"
    assert parts["project_in.weight"] == "project_in.weight"
    assert parts["layers.1.attention.o_proj.bias"] == "layers.1.self_attn.out_proj.bias"
    assert parts["layers.1.feed_forward_norm.weight"] == "layers.1.final_layer_norm.weight"
    assert not [stored for stored in parts.values() if stored.startswith("final_layer_norm")]
    assert OPT.stored_name("norm.bias") == "final_layer_norm.bias"


def test_the_published_175b_is_described_without_memory_for_it() -> None:
    config = OPTConfig.of_size("175b")
    parts = OPT.stored_parts(config)
    assert len(parts) == 96 * 16 + 5


@STYLES
def test_flops_a_token_are_those_that_pytorch_counts(options: dict[str, Any]) -> None:
    model = small_opt(**options)
    with FlopCounterMode(display=False) as counter:
        model(token_ids(2, 8)).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    products = sum(n for op, n in counts.items() if "mm" in str(op) and "bmm" not in str(op))
    attention = 12 * 2 * 24 * (8 + 1) / 2  # two layers, six heads of four
    assert model.flops_per_token(8) * 16 == products + attention * 16


@torch.no_grad()
def test_padding_counts_neither_as_positions_nor_towards_the_limit() -> None:
    model = small_opt(max_length=8, dtype=torch.float64)
    tokens, mask = token_ids(2, 11), torch.ones(2, 11, dtype=torch.int64)
    mask[0, :3] = 0
    mask[1] = 0  # nothing but padding
    logits = model(tokens, attention_mask=mask)
    assert bool(logits.isfinite().all())
    assert_close(logits[0, 3:], model(tokens[:1, 3:])[0], 1e-12)


def test_replaced_sizes_are_followed_by_what_depends_on_them() -> None:
    config = replace(opt_config(), dim=48)
    assert (config.hidden_width, config.embed_width, config.head_width) == (192, 48, 8)
