"""What is wrong with a checkpoint is said in a sentence that names the tensor and the file."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.models import load_model

from .test_load import saved, sharded, stored_anew

WEIGHT = "model.decoder.layers.0.fc1.weight"


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1])
def test_a_file_cut_short_anywhere_is_named(keep: int, tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"whole safetensors file, got .*model\.safetensors of \d+ bytes"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", [b"\xff" * 4096, b"\x10" + b"\0" * 7 + b"not a header ..." + b"\0" * 64])
def test_garbage_for_a_header_is_named(content: bytes, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors of \d+ bytes, which cannot be read"):
        load_model(tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 30, 2000, -1])
def test_a_bin_cut_short_anywhere_is_named(keep: int, tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"whole file of tensors, got .*pytorch_model\.bin of \d+ bytes"):
        load_model(tmp_path)


class Malicious:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("plain", [False, True])
def test_code_in_a_pickle_is_not_run(plain: bool, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    content, path = {"weight": Malicious(tmp_path / "trace")}, tmp_path / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(content)) if plain else torch.save(content, path)
    with pytest.raises(ValueError, match=r"expected .*pytorch_model\.bin"):
        load_model(tmp_path)
    assert not (tmp_path / "trace").exists()


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    del tensors[WEIGHT]
    stored_anew(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"none for layers\.0\.fc1\.weight"):
        load_model(tmp_path)


def test_an_unknown_tensor_is_named_with_its_file(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    stored_anew(tmp_path, {**tensors, "model.decoder.adapter.weight": torch.ones(3)})
    with pytest.raises(
        ValueError, match=r"model\.decoder\.adapter\.weight in model\.safetensors, which this"
    ):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"), [("opt", WEIGHT), ("bloom", "transformer.h.0.self_attention.query_key_value.weight")]
)
def test_a_tensor_of_another_shape_is_named_with_its_file(kind: str, name: str, tmp_path: Path) -> None:
    _, tensors = saved(tmp_path, kind)
    for wrong in (tensors[name][:-1], tensors[name].T[:-1], tensors[name].flatten(), torch.ones(())):
        stored_anew(tmp_path, {**tensors, name: wrong.contiguous()})
        with pytest.raises(ValueError, match=rf"{name} of shape .* got \[.*\] in .*model\.safetensors"):
            load_model(tmp_path)


def test_whole_numbers_for_weights_are_refused(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    stored_anew(tmp_path, {**tensors, WEIGHT: tensors[WEIGHT].to(torch.int8)})
    with pytest.raises(ValueError, match=rf"{WEIGHT} as floating-point numbers of 16 bits or more, got int8"):
        load_model(tmp_path)


def test_a_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    stored_anew(tmp_path, {**tensors, WEIGHT.removeprefix("model."): tensors[WEIGHT]})
    with pytest.raises(ValueError, match=r"layers\.0\.fc1\.weight once, got it as"):
        load_model(tmp_path)


def test_a_shard_that_is_missing_is_named_with_what_it_holds(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"model-1\.safetensors, which model\.safetensors\.index\.json"
    ):
        load_model(tmp_path)


def test_a_tensor_that_the_index_has_and_its_shard_has_not_is_named(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text(encoding="utf-8"))
    listed["weight_map"]["lost.weight"] = "model-0.safetensors"
    index.write_text(json.dumps(listed), encoding="utf-8")
    with pytest.raises(ValueError, match=r"lost\.weight in .*model-0\.safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": ["b"]}}', '{"weight_map": {}}']
)
def test_a_broken_index_is_named(text: str, tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"index with a .weight_map. .*model\.safetensors\.index\.json"):
        load_model(tmp_path)


def test_an_index_may_not_point_out_of_its_folder(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    listed = json.dumps({"weight_map": {"a": "../model.safetensors"}})
    (tmp_path / "model.safetensors.index.json").write_text(listed, encoding="utf-8")
    with pytest.raises(ValueError, match=r"names of files beside"):
        load_model(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\u0995"])
def test_a_broken_config_is_named(text: str, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected (a )?JSON.*config\.json"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", ["llama", None, ["opt"]])
def test_an_unknown_family_is_answered_with_those_that_are_known(kind: Any, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"'lean-gpt', 'opt', 'bloom', got .*config\.json"):
        load_model(tmp_path)


def test_a_folder_without_config_or_without_weights_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected config\.json in"):
        load_model(tmp_path)
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"got no file of weights"):
        load_model(tmp_path)


def test_a_file_for_a_folder_is_said_to_be(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(ValueError, match=r"got the file .*model\.safetensors\. Pass the folder"):
        load_model(tmp_path / "model.safetensors")


def test_an_id_that_is_not_in_the_cache_is_one_sentence_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"got 'nobody/no-such-model'.*no earlier download"):
        load_model("nobody/no-such-model")
