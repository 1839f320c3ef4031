"""A saved GPT comes back bit for bit, and a failed save or a foreign file harms nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib.models import GPT, checkpoint

from .made import small, token_ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "tied_head": False,
            "positions": "learned",
            "norm": "layernorm",
            "bias": True,
            "feed_forward": "gelu",
        },
        {"positions": "rotary", "head_dim": 6, "recompute": True, "checkpointing": "layers"},
    ],
)
def test_a_loaded_model_is_the_saved_one_bit_for_bit(
    tmp_path: Path, options: dict[str, Any], dtype: torch.dtype
) -> None:
    model = small(dtype=dtype, **options)
    loaded = GPT.load(model.save(tmp_path / "new" / "model"))
    assert loaded.config == model.config
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(before[n].dtype == after[n].dtype and torch.equal(before[n], after[n]) for n in before)
    assert torch.equal(loaded(token_ids(2, 7)), model(token_ids(2, 7)))
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_a_tied_head_is_stored_once_and_stays_tied(tmp_path: Path) -> None:
    model = small()
    stored = load_file(model.save(tmp_path) / "model.safetensors")
    assert "head.weight" not in stored
    assert sum(tensor.numel() for tensor in stored.values()) == model.num_parameters()
    loaded = GPT.load(tmp_path)
    assert loaded.head.weight is loaded.embed.weight
    loaded(token_ids(1, 5)).sum().backward()
    with torch.no_grad():
        loaded.embed.weight.zero_()
    assert not loaded.head.weight.any()


def test_loading_converts_where_a_dtype_is_asked_for(tmp_path: Path) -> None:
    model = small()
    loaded = GPT.load(model.save(tmp_path), dtype=torch.bfloat16)
    assert torch.equal(loaded.embed.weight, model.embed.weight.bfloat16())
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}


def test_the_folder_holds_config_weights_and_card_and_nothing_else(tmp_path: Path) -> None:
    small().save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["model_type"] == "lean-gpt"


def test_the_card_says_what_the_model_is_and_what_it_was_told(tmp_path: Path) -> None:
    model = small()
    model.save(tmp_path, trained="On বাংলা stories.", license="cc0-1.0", languages=["bn", "en"])
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.startswith('---\nlicense: "cc0-1.0"\nlanguage: ["bn", "en"]\n')
    assert f"{model.num_parameters():,}" in card
    assert "On বাংলা stories." in card
    assert "6 of 4, 2 of keys and values" in card


def test_a_card_without_a_licence_says_so(tmp_path: Path) -> None:
    card = (small().save(tmp_path) / "README.md").read_text(encoding="utf-8")
    assert "license:" not in card
    assert "None is stated" in card


def test_saving_again_keeps_a_card_that_somebody_edited_unless_told_more(tmp_path: Path) -> None:
    model = small()
    (model.save(tmp_path) / "README.md").write_text("edited", encoding="utf-8")
    model.save(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "edited"
    model.save(tmp_path, license="cc0-1.0")
    assert "cc0-1.0" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_saving_over_a_model_replaces_it_and_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    small(seed=1).save(tmp_path)
    newer = small(seed=2, num_layers=3)
    newer.save(tmp_path)
    assert torch.equal(GPT.load(tmp_path).embed.weight, newer.embed.weight)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("interruption", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["save_file", "_write_text", "to_disk"])
def test_an_interrupted_save_leaves_the_older_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, interruption: BaseException
) -> None:
    older = small(seed=1)
    older.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise interruption

    monkeypatch.setattr(checkpoint, step, interrupted)
    with pytest.raises(type(interruption)):
        small(seed=2, num_layers=3).save(tmp_path, license="cc0-1.0")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interrupted_first_save_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "to_disk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_save_that_stops_between_its_files_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(seed=1).save(tmp_path)
    replace, done = os.replace, []

    def one_only(source: Any, target: Any) -> None:
        if done:
            raise OSError(5, "Input/output error")
        done.append(replace(source, target))

    monkeypatch.setattr(checkpoint.os, "replace", one_only)
    with pytest.raises(OSError, match="Input/output error"):
        small(seed=2, norm_eps=1e-3).save(tmp_path)
    with pytest.raises(ValueError, match="of one save, got different configs"):
        GPT.load(tmp_path)


def test_a_model_made_by_other_software_loads_without_our_header(tmp_path: Path) -> None:
    model = small()
    model.save(tmp_path)
    save_file(load_file(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")
    assert torch.equal(GPT.load(tmp_path)(token_ids(1, 5)), model(token_ids(1, 5)))


@pytest.mark.parametrize("start", [b"PK", b"\x80\x04"])
def test_a_sound_file_may_begin_like_a_pickle(tmp_path: Path, start: bytes) -> None:
    model = small()
    path = model.save(tmp_path) / "model.safetensors"
    tensors, room = load_file(path), 8
    for _ in range(2):  # the file begins with the size of its header, which the second time is the one wanted
        save_file(tensors, path, metadata={"padding": "x" * room})
        room += (int.from_bytes(start, "little") - int.from_bytes(path.read_bytes()[:2], "little")) % 65_536
    assert path.read_bytes()[:2] == start
    assert torch.equal(GPT.load(tmp_path)(token_ids(1, 5)), model(token_ids(1, 5)))


def test_a_model_laid_out_on_meta_takes_no_memory_and_keeps_its_slopes() -> None:
    with torch.device("meta"):
        model = GPT(small().config)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.alibi is not None
    assert not model.alibi.slopes.is_meta


@pytest.mark.skipif(os.name != "posix", reason="permissions of this kind are a system's own")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_all_files_of_a_folder_may_be_read_by_those_whom_the_umask_allows(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        small().save(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert set(modes.values()) == {0o666 & ~mask}, modes
