"""Checkpoints that were harmed on their way: named where it can be known, and nothing is left open."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.models import load_model

from .made_opt import PARTS, twins
from .test_load import TOKENS, saved, sharded, stored_anew

FILE = "model.safetensors"


def header_of(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the data of a safetensors file begin, and its header."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return 8 + length, json.loads(data[8 : 8 + length])


def with_byte(path: Path, place: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([value]))


@pytest.mark.parametrize("place", [0, 3, 7, 8, 9])
def test_a_flipped_byte_at_the_beginning_is_refused(place: int, tmp_path: Path) -> None:
    """The length of the header, and the first of its signs."""
    saved(tmp_path)
    path = tmp_path / FILE
    with_byte(path, place, path.read_bytes()[place] ^ 0x55)
    with pytest.raises(ValueError, match=r"path: |folder: "):
        load_model(tmp_path)


def test_offsets_that_lie_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / FILE
    begin, header = header_of(path)
    data = path.read_bytes()[begin:]
    names = [name for name in header if name != "__metadata__"]
    header[names[0]]["data_offsets"], header[names[1]]["data_offsets"] = (
        header[names[1]]["data_offsets"],
        [0, len(data) + 4],
    )
    text = json.dumps(header).encode("utf-8")
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load_model(tmp_path)


def test_a_pickle_under_the_name_of_safetensors_is_not_opened(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    (tmp_path / FILE).unlink()  # not overwritten: the tensors are mapped from it
    torch.save(tensors, tmp_path / FILE)
    with pytest.raises(ValueError, match=r"got a pickle under the name .*model\.safetensors"):
        load_model(tmp_path)


def test_nan_in_a_tied_head_that_is_stored_twice_is_equal_to_itself(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    embedding = tensors["model.decoder.embed_tokens.weight"]
    embedding[3, 2] = float("nan")
    stored_anew(tmp_path, {**tensors, "lm_head.weight": embedding.clone()})
    model = load_model(tmp_path)
    assert model.head.weight is model.embed.weight and bool(model.embed.weight[3, 2].isnan())


def test_a_tensor_that_lies_in_another_shard_than_the_index_says_is_named(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    path = tmp_path / (FILE + ".index.json")
    index = json.loads(path.read_text(encoding="utf-8"))
    name = next(name for name, file in index["weight_map"].items() if file == "model-0.safetensors")
    index["weight_map"][name] = "model-1.safetensors"
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"expected {name} in .*model-1\.safetensors.* got it in model-0\.safetensors"
    ):
        load_model(tmp_path)


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_shard_that_is_cut_short_is_named(cut: int, tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    path = tmp_path / "model-1.safetensors"
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(ValueError, match=r"model-1\.safetensors of \d+ bytes"):
        load_model(tmp_path)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what a process has open")
@pytest.mark.parametrize("harm", ["none", "cut", "shape", "missing", "config"])
def test_nothing_stays_open_whatever_happens(harm: str, tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    if harm == "cut":
        os.truncate(tmp_path / "model-2.safetensors", 300)
    elif harm in ("shape", "config"):
        config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
        config |= {"ffn_dim": 13} if harm == "shape" else {"hidden_size": "wide"}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    elif harm == "missing":
        (tmp_path / "model-2.safetensors").unlink()
    before = open_files()
    for _ in range(3):
        if harm == "none":
            load_model(tmp_path)
        else:
            with pytest.raises((ValueError, FileNotFoundError)):
                load_model(tmp_path)
    assert open_files() == before


def test_files_that_are_links_are_followed_as_the_hubs_cache_has_them(tmp_path: Path) -> None:
    model, _ = saved(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for path in (tmp_path / "blobs").iterdir():
        try:
            (tmp_path / "snapshot" / path.name).symlink_to(path)
        except OSError:
            pytest.skip("this system makes no links")
    torch.testing.assert_close(load_model(tmp_path / "snapshot")(TOKENS), model(TOKENS), rtol=0, atol=0)


@pytest.mark.parametrize("options", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("shard", ["20KB", "10GB"])
def test_every_variant_that_transformers_saves_has_its_logits(
    options: dict[str, Any], shard: str, tmp_path: Path
) -> None:
    _, theirs = twins(**options)
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / (FILE + ".index.json")).exists() == (shard == "20KB")
    with torch.no_grad():
        torch.testing.assert_close(load_model(tmp_path)(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)


def test_a_model_whose_config_names_its_dtype_either_way_is_loaded_as_stored(tmp_path: Path) -> None:
    saved(tmp_path, dtype=torch.bfloat16)
    path = tmp_path / "config.json"
    for key in ("torch_dtype", "dtype"):
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, key: "float32"}), encoding="utf-8")
        _drop_own_header(tmp_path)
        assert load_model(tmp_path).embed.weight.dtype == torch.bfloat16


def _drop_own_header(folder: Path) -> None:
    from safetensors.torch import load_file

    stored_anew(folder, load_file(folder / FILE))
