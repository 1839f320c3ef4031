"""What does not fit is refused by a sentence that names it and says what would."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib.gqa import KVCache
from course_lib.models import GPT, GPTConfig
from course_lib.packing import Packed

from .made import config, small, token_ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim: expected a whole number of at least 1, got 0"),
        ({"dim": 2.5}, "dim: expected a whole number, got float 2.5"),
        ({"num_kv_heads": 4}, r"num_kv_heads: expected a divisor of num_heads = 6 \(1, 2, 3, 6\), got 4"),
        ({"dim": 25}, "dim: expected a multiple of num_heads = 6, got 25. Pass head_dim="),
        ({"positions": "sinusoidal"}, "positions: expected one of 'alibi', 'rotary', 'learned', 'none', got"),
        ({"feed_forward": "relu"}, "feed_forward: expected one of 'swiglu', 'gelu', got 'relu'"),
        ({"norm": None}, "norm: expected one of 'rmsnorm', 'layernorm', got None"),
        ({"checkpointing": True}, "checkpointing: expected one of 'none', 'layers', got True"),
        ({"tied_head": 1}, "tied_head: expected True or False, got 1"),
        ({"end_token_ids": 2}, "end_token_ids: expected a tuple of token ids, got 2"),
        (
            {"end_token_ids": (2, 53)},
            "end_token_ids: expected ids from 0 to 52, those of vocab_size = 53, got 53",
        ),
        ({"pad_token_id": -1}, "pad_token_id: expected a whole number of at least 0, got -1"),
        ({"norm_eps": 0.0}, "norm_eps: expected a number above 0, got 0.0"),
        ({"init_std": float("nan")}, "init_std: expected a number above 0, got nan"),
        ({"rope_theta": "10000"}, "rope_theta: expected a number, got str '10000'"),
        ({"positions": "rotary", "head_dim": 5}, "head_dim: expected an even number for rotary positions"),
        ({"feed_forward": "gelu", "recompute": True}, "recompute: expected False with feed_forward = 'gelu'"),
    ],
)
def test_a_config_that_fits_nothing_is_refused_by_field(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        config(**options)


def test_unknown_and_missing_keys_of_a_config_are_named() -> None:
    values = config().to_dict()
    with pytest.raises(ValueError, match=r"got also dropout, n_head. Was it written by a later version"):
        GPTConfig.from_dict({**values, "dropout": 0.1, "n_head": 6})
    del values["dim"]
    with pytest.raises(ValueError, match=r"config: expected at least vocab_size, dim.*got none for dim"):
        GPTConfig.from_dict(values)
    with pytest.raises(TypeError, match=r"config: expected a dict of the fields, got str"):
        GPTConfig.from_dict("config.json")  # type: ignore[arg-type]


def test_a_model_needs_a_config() -> None:
    with pytest.raises(TypeError, match=r"config: expected a GPTConfig, got dict"):
        GPT({"dim": 24})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (torch.zeros(1, 3), {}, "tokens: expected an int64 tensor"),
        (torch.tensor([1, 2]), {}, r"tokens: expected \[batch, length\], got shape \[2\]"),
        (torch.tensor([[53]]), {}, "tokens: expected ids from 0 to 52, the vocabulary of this model, got 53"),
        (
            token_ids(2, 3),
            {"attention_mask": torch.ones(2, 4)},
            "attention_mask: expected .* as tokens, got shape",
        ),
        (token_ids(2, 3), {"attention_mask": torch.full((2, 3), 2)}, "attention_mask: expected only 1"),
        (
            token_ids(2, 3),
            {"positions": torch.zeros(2, 4, dtype=torch.int64)},
            "positions: expected .batch or 1",
        ),
        (token_ids(2, 3), {"positions": torch.zeros(2, 3)}, "positions: expected an int64 tensor"),
        (token_ids(2, 3), {"bias": "causal"}, "bias: expected an AttentionBias, a tensor"),
        (token_ids(2, 3), {"bias": Packed([1, 1])}, "lengths: expected lengths that add up to the 3 tokens"),
        (token_ids(2, 3), {"cache": KVCache()}, "cache: expected a list of caches, one for each layer"),
        (
            token_ids(2, 3),
            {"cache": [KVCache()]},
            "cache: expected one cache for each of the 2 layers, got 1",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    tokens: torch.Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        small()(tokens, **options)


def test_past_the_last_learned_position_stands_a_sentence() -> None:
    model = small(positions="learned", max_length=4)
    with pytest.raises(
        ValueError, match=r"positions: expected 0 to 3, those learned by .* max_length = 4, got 4"
    ):
        model(token_ids(1, 5))
    caches = [KVCache() for _ in model.layers]
    model(token_ids(1, 4), cache=caches)
    with pytest.raises(ValueError, match=r"positions: expected 0 to 3"):
        model(token_ids(1, 1), cache=caches)


def test_a_packed_row_without_positions_is_refused_where_they_are_learned() -> None:
    with pytest.raises(ValueError, match=r"positions: expected those of the packed row, which restart"):
        small(positions="learned")(token_ids(1, 5), bias=Packed([2, 3]))


@pytest.mark.parametrize(
    ("length", "message"), [(0, "expected at least 1 token, got 0"), ("8", "got str '8'")]
)
def test_flops_need_a_length(length: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        small().flops_per_token(length)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"folder: expected the folder of a saved model, got .*nowhere"
    ):
        GPT.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"folder: expected config.json in .*, which has none"):
        GPT.load(tmp_path)


def test_a_model_of_another_family_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "opt"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected a model of type 'lean-gpt', got 'opt'"):
        GPT.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "expected JSON in"), ("[]", "expected a JSON object in .*, got list")]
)
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str, message: str) -> None:
    small().save(tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        GPT.load(tmp_path)


def test_an_edited_config_no_longer_fits_its_weights(tmp_path: Path) -> None:
    small().save(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "positions": "none"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected config.json and model.safetensors of one save"):
        GPT.load(tmp_path)
    path.write_text(json.dumps({**values, "dropout": 0.1}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"got also dropout"):
        GPT.load(tmp_path)


def _rewrite(folder: Path, **changes: torch.Tensor | None) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **changes}
    save_file({n: t for n, t in tensors.items() if t is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm.weight": None}, "expected the 18 tensors of the model .* got none for norm.weight in"),
        ({"extra": torch.zeros(2)}, "got unexpected extra in"),
        ({"norm.weight": torch.zeros(25)}, r"expected norm.weight of shape \[24\], .* got \[25\]"),
        ({"norm.weight": torch.zeros(24).half()}, "expected all weights in one of F16, BF16, F32, F64, got"),
        ({"norm.weight": torch.zeros(24).long()}, "expected all weights in one of .* I64 .norm.weight."),
    ],
)
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    small().save(tmp_path)
    _rewrite(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        GPT.load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 100, 5000])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = small().save(tmp_path) / "model.safetensors"
    assert path.stat().st_size > kept
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=f"expected a whole safetensors file, got .* of {kept} bytes"):
        GPT.load(tmp_path)


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (exec, ("raise SystemExit('a pickle ran')",))

    path = small().save(tmp_path) / "model.safetensors"
    for number, written in enumerate(("pickle", "torch")):
        if written == "pickle":
            path.write_bytes(pickle.dumps(Trap(), protocol=number + 4))
        else:
            torch.save({"norm.weight": torch.zeros(24)}, path)
        with pytest.raises(ValueError, match=r"got a pickle under the name .* is not: ask its author"):
            GPT.load(tmp_path)
    path.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"expected model.safetensors in .*, got only pytorch_model.bin"):
        GPT.load(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine", encoding="utf-8")
    with pytest.raises(
        OSError, match=r"folder: expected a folder that can be written and has room, got .*model"
    ):
        small().save(tmp_path / "model")
    assert (tmp_path / "model").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"license": None}, "license: expected text, got NoneType"),
        (
            {"languages": "bn"},
            r"languages: expected a list of codes such as \['bn', 'en'\], got the text 'bn'",
        ),
        ({"languages": [1]}, r"languages\[0\]: expected text, got int 1"),
    ],
)
def test_a_card_that_cannot_be_written_is_refused_before_anything_is(
    tmp_path: Path, told: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        small().save(tmp_path / "model", **told)
    assert not (tmp_path / "model").exists()


def test_weights_of_several_dtypes_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = small()
    model.norm.bfloat16()
    message = (
        r"model: expected weights of one .* got float32 .*, bfloat16 \(norm.weight\). Convert them first"
    )
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
