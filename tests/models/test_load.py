"""load_model: whatever way a checkpoint is laid out, the model is the same, and in transformers too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from course_lib.models import GPT, OPT, Bloom, load_model
from course_lib.models.hub import hub_folder
from course_lib.models.open_checkpoint import open_checkpoint

from .made import small, token_ids
from .made_bloom import small_bloom
from .made_opt import assert_close, small_opt
from .made_opt import twins as opt_twins

MAKE = {"opt": small_opt, "bloom": small_bloom, "lean-gpt": small}
TOKENS = token_ids(2, 9)


def saved(folder: Path, kind: str = "opt", **options: Any) -> tuple[Any, dict[str, Tensor]]:
    """A model that was saved in ``folder``, and the tensors that are stored there."""
    model = MAKE[kind](**options).eval()
    model.save(folder)
    return model, load_file(folder / "model.safetensors")


def stored_anew(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")


def sharded(folder: Path, tensors: dict[str, Tensor], kind: str = "safetensors", count: int = 3) -> None:
    """In place of the one file, shards with an index."""
    (folder / "model.safetensors").unlink()
    stem = "model" if kind == "safetensors" else "pytorch_model"
    weight_map = {name: f"{stem}-{i % count}.{kind}" for i, name in enumerate(tensors)}
    for file in sorted(set(weight_map.values())):
        part = {name: tensors[name].clone() for name, own in weight_map.items() if own == file}
        save_file(part, folder / file) if kind == "safetensors" else torch.save(part, folder / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / f"{stem}.{kind}.index.json").write_text(json.dumps(index), encoding="utf-8")


def assert_loads(folder: Path, model: Any) -> None:
    found = load_model(folder)
    assert type(found) is type(model) and not found.training
    torch.testing.assert_close(found(TOKENS), model(TOKENS), rtol=0, atol=0)


@pytest.mark.parametrize("kind", MAKE)
def test_a_saved_model_of_every_family_is_loaded_with_equal_logits(kind: str, tmp_path: Path) -> None:
    assert_loads(tmp_path, saved(tmp_path, kind)[0])


@pytest.mark.parametrize("kind", ["opt", "bloom"])
@pytest.mark.parametrize("files", ["safetensors", "bin"])
def test_shards_of_either_kind_make_the_same_model(kind: str, files: str, tmp_path: Path) -> None:
    model, tensors = saved(tmp_path, kind)
    sharded(tmp_path, tensors, files)
    assert_loads(tmp_path, model)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_single_bin_makes_the_same_model_also_in_the_format_of_old(legacy: bool, tmp_path: Path) -> None:
    model, tensors = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    assert_loads(tmp_path, model)


def test_safetensors_are_read_where_a_bin_lies_beside_them(tmp_path: Path) -> None:
    model, _ = saved(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    assert_loads(tmp_path, model)


@pytest.mark.parametrize("prefix", ["", "decoder.", "model.decoder.", "module.model.decoder."])
@pytest.mark.parametrize("shape", ["125m", "350m"])
def test_every_prefix_of_published_opts_is_understood(prefix: str, shape: str, tmp_path: Path) -> None:
    model, tensors = saved(tmp_path, **({"norm_first": False, "embed_dim": 12} if shape == "350m" else {}))
    stored_anew(tmp_path, {prefix + name.removeprefix("model.decoder."): t for name, t in tensors.items()})
    assert_loads(tmp_path, model)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_every_prefix_of_published_blooms_is_understood(prefix: str, tmp_path: Path) -> None:
    model, tensors = saved(tmp_path, "bloom")
    stored_anew(tmp_path, {prefix + name.removeprefix("transformer."): t for name, t in tensors.items()})
    assert_loads(tmp_path, model)


def test_a_tied_head_may_be_stored_once_or_twice_and_is_one_tensor(tmp_path: Path) -> None:
    model, tensors = saved(tmp_path)
    tensors = {name: t for name, t in tensors.items() if name != "lm_head.weight"}
    for stored in (tensors, {**tensors, "lm_head.weight": tensors["model.decoder.embed_tokens.weight"]}):
        stored_anew(tmp_path, stored)
        assert_loads(tmp_path, model)
        found = load_model(tmp_path)
        assert found.head.weight is found.embed.weight


def test_a_tied_head_stored_with_other_numbers_is_named(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1
    stored_anew(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"lm_head\.weight in .*model\.safetensors.*tie_word_embeddings"):
        load_model(tmp_path)


def test_mixed_dtypes_become_the_one_that_most_numbers_have(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    stored_anew(tmp_path, {n: t if t.dim() == 1 else t.half() for n, t in tensors.items()})
    assert {p.dtype for p in load_model(tmp_path).parameters()} == {torch.float16}
    assert {p.dtype for p in load_model(tmp_path, dtype=torch.bfloat16).parameters()} == {torch.bfloat16}


def test_constants_of_older_software_are_passed_over(tmp_path: Path) -> None:
    model, tensors = saved(tmp_path)
    stored_anew(tmp_path, {**tensors, "decoder.version": torch.ones(1)})
    assert_loads(tmp_path, model)


@pytest.mark.parametrize("limit", ["50GB", "4KB"])
def test_what_transformers_saves_is_loaded_with_its_logits(limit: str, tmp_path: Path) -> None:
    _, theirs = opt_twins()
    theirs.save_pretrained(tmp_path, max_shard_size=limit)
    assert len(list(tmp_path.glob("*.safetensors"))) > (1 if limit == "4KB" else 0)
    with torch.no_grad():
        assert_close(load_model(tmp_path)(TOKENS), theirs(TOKENS).logits, 1e-5)


@pytest.mark.parametrize(("kind", "name"), [("opt", "OPTForCausalLM"), ("bloom", "BloomForCausalLM")])
def test_what_is_saved_here_is_loaded_by_transformers_with_equal_logits(
    kind: str, name: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    model, _ = saved(tmp_path, kind)
    theirs = getattr(transformers, name).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert_close(theirs(TOKENS).logits, model(TOKENS), 1e-5)


def test_a_tensor_is_read_alone_by_the_name_in_the_file(tmp_path: Path) -> None:
    _, tensors = saved(tmp_path)
    sharded(tmp_path, tensors)
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.model_type == "opt" and set(checkpoint.names()) == set(tensors)
        assert checkpoint.nbytes == sum(t.nbytes for t in tensors.values())
        for name, tensor in tensors.items():
            assert checkpoint.shape(name) == tuple(tensor.shape) and checkpoint.dtype(name) == tensor.dtype
            assert torch.equal(checkpoint.tensor(name), tensor)


def test_loading_a_family_gives_its_class(tmp_path: Path) -> None:
    for kind, family in (("opt", OPT), ("bloom", Bloom), ("lean-gpt", GPT)):
        saved(tmp_path / kind, kind)
        assert type(load_model(tmp_path / kind)) is family


@pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is Linux's")
@pytest.mark.parametrize("files", ["safetensors", "bin"])
def test_loading_shards_holds_the_model_and_little_else(files: str, tmp_path: Path) -> None:
    """48 MB in three shards: a copy of even one shard would be seen."""
    _, tensors = saved(tmp_path, vocab_size=8192, dim=384, num_layers=5)
    size = sum(t.nbytes for t in tensors.values())
    sharded(tmp_path, tensors, files)
    code = f"""
import threading, time
from course_lib.bench.memory import resident_bytes
from course_lib.models import load_model
import os
pid, peak, done = os.getpid(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, resident_bytes(pid)); time.sleep(0.0005)
before = resident_bytes(pid)
thread = threading.Thread(target=watch); thread.start()
model = load_model({str(tmp_path)!r})
done = True; thread.join()
print(peak - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) <= 1.1 * size + 6 * 2**20  # threads and tables of the first call


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_offline_a_model_downloaded_before_is_found_in_the_cache(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    commit = "0123456789" * 4
    folder = offline / "models--facebook--opt-tiny"
    model, _ = saved(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit, encoding="utf-8")
    whole = hub.snapshot_download
    monkeypatch.setattr(hub, "snapshot_download", lambda *a, **k: whole(*a, cache_dir=offline, **k))
    assert hub_folder("facebook/opt-tiny").name == commit
    found = load_model("facebook/opt-tiny")
    torch.testing.assert_close(found(TOKENS), model(TOKENS), rtol=0, atol=0)
    assert hub_folder("facebook/opt-tiny", revision=commit).name == commit
