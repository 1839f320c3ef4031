"""An offloaded model writes what the model in memory writes, wherever its bytes lie."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.models import GPT, OPT, Bloom, BloomConfig, GPTConfig, OPTConfig, generate, load_model
from course_lib.offload import OffloadedModel, OffloadPolicy
from course_lib.offload.tensor_store import TensorStore

CONFIGS = {
    "opt": OPTConfig(vocab_size=211, dim=32, num_layers=3, num_heads=4, max_length=128, init_std=0.3),
    "opt-350m": OPTConfig(
        vocab_size=211,
        dim=32,
        num_layers=2,
        num_heads=4,
        max_length=128,
        embed_dim=12,
        norm_first=False,
        init_std=0.3,
    ),
    "opt untied": OPTConfig(
        vocab_size=211, dim=32, num_layers=2, num_heads=4, max_length=128, tied_head=False, init_std=0.3
    ),
    "bloom": BloomConfig(vocab_size=211, dim=36, num_layers=2, num_heads=6, init_std=0.3),
    "gpt": GPTConfig(
        vocab_size=211, dim=32, num_layers=3, num_heads=4, num_kv_heads=2, max_length=128, init_std=0.3
    ),
}
CLASSES = {OPTConfig: OPT, BloomConfig: Bloom, GPTConfig: GPT}
HERE, MIXED, DISK = (1, 0, 0), (0.3, 0.2, 0.5), (0, 0, 1)
POLICIES = [
    (HERE, HERE, HERE, 7, 1),
    (HERE, DISK, MIXED, 2, 3),
    (MIXED, MIXED, MIXED, 3, 2),
    (MIXED, HERE, DISK, 1, 1),
    (DISK, HERE, HERE, 2, 4),
    (DISK, MIXED, HERE, 7, 1),
    (DISK, DISK, DISK, 3, 3),
]
"""Weights, cache, activations, batch_size, num_batches."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved model of every kind, all of its numbers random."""
    found = {}
    for name, config in CONFIGS.items():
        model = CLASSES[type(config)](config, seed=1)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        found[name] = tmp_path_factory.mktemp("models") / name
        model.save(found[name])
    return found


def prompts(padding: str | None, count: int = 7) -> tuple[Tensor, Tensor | None]:
    tokens = torch.randint(0, 211, (count, 20), generator=torch.Generator().manual_seed(3))
    if padding is None:
        return tokens, None
    mask = torch.ones_like(tokens)
    for row in range(count):
        mask[row, slice(0, 2 * row) if padding == "left" else slice(20 - 2 * row, 20)] = 0
    return tokens, mask


def offloaded(folder: Path, tmp_path: Path, **policy: Any) -> OffloadedModel:
    return OffloadedModel.from_pretrained(
        folder, policy=OffloadPolicy(**policy), offload_dir=tmp_path / "offload"
    )


def written(model: Any, padding: str | None, **settings: Any) -> Tensor:
    tokens, mask = prompts(padding)
    settings = {"max_new_tokens": 20, "stop": (), **settings}
    if isinstance(model, OffloadedModel):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.generate(tokens, attention_mask=mask, **settings)
    return generate(model, tokens, attention_mask=mask, **settings)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("padding", [None, "left", "right"])
def test_every_split_writes_the_tokens_of_the_model_in_memory(
    name: str, padding: str | None, folders: dict[str, Path], tmp_path: Path
) -> None:
    wanted = written(load_model(folders[name]), padding)
    for weights, cache, activations, batch_size, num_batches in POLICIES:
        policy = dict(
            weights=weights,
            cache=cache,
            activations=activations,
            batch_size=batch_size,
            num_batches=num_batches,
        )
        with offloaded(folders[name], tmp_path, **policy) as model:
            assert torch.equal(written(model, padding), wanted), policy


@pytest.mark.parametrize("settings", [
    {"do_sample": True, "temperature": 0.8, "top_p": 0.9, "seed": 5},
    {"stop": [7, 9, 11]},
    {"max_new_tokens": 1},
    {"max_new_tokens": 0},
    {"stop": None},
])  # fmt: skip
def test_sampling_and_stops_are_those_of_generate(
    settings: dict[str, Any], folders: dict[str, Path], tmp_path: Path
) -> None:
    wanted = written(load_model(folders["opt"]), "left", **settings)
    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1), batch_size=3, num_batches=2) as model:
        assert torch.equal(written(model, "left", **settings), wanted)


def test_without_overlap_the_same_is_done_one_after_another(folders: dict[str, Path], tmp_path: Path) -> None:
    policy = dict(
        weights=(0.2, 0, 0.8), cache=(0.5, 0, 0.5), activations=(0.5, 0, 0.5), batch_size=4, num_batches=2
    )
    with offloaded(folders["opt"], tmp_path, **policy) as beside:
        wanted = written(beside, None)
    with offloaded(folders["opt"], tmp_path, **policy, overlap=False) as alone:
        assert torch.equal(written(alone, None), wanted)
        ends = 0.0
        for event in sorted(alone.trace.events, key=lambda event: event.start_s):
            if event.lane == "load weights":
                assert event.start_s >= ends
                ends = event.end_s


@pytest.mark.parametrize("weights", [(1, 0, 0), (0.5, 0, 0.5), (0.13, 0.3, 0.57), (0, 0, 1)])
def test_the_placed_shares_are_those_asked_for(
    weights: tuple[float, float, float], folders: dict[str, Path], tmp_path: Path
) -> None:
    with offloaded(folders["opt"], tmp_path, weights=weights, cache=weights, activations=weights) as model:
        written(model, None)
        placed = model.placement()
    for name in ("weights", "cache", "activations"):
        assert placed[name] == pytest.approx(weights, abs=0.02), name


def test_a_layer_is_read_once_for_all_batches_of_a_block(folders: dict[str, Path], tmp_path: Path) -> None:
    def weight_bytes(**policy: int) -> int:
        with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1), **policy) as model:
            written(model, None, max_new_tokens=4)
            return sum(event.bytes for event in model.trace.events if event.lane == "load weights")

    together, one_by_one = (
        weight_bytes(batch_size=2, num_batches=4),
        weight_bytes(batch_size=2, num_batches=1),
    )
    assert one_by_one == 4 * together > 0


def test_prompts_one_by_one_with_weights_on_disk_are_warned_about(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1)) as model:
        tokens, _ = prompts(None)
        with pytest.warns(UserWarning, match="7 prompts in blocks of 1: .* read 7 times in each step"):
            model.generate(tokens, max_new_tokens=1, stop=())


def test_the_file_of_weights_is_made_once_and_removed_on_request(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1)):
        pass
    (made,) = (tmp_path / "offload").glob("*.tensors")
    before = made.stat().st_mtime_ns
    model = offloaded(folders["opt"], tmp_path)
    assert made.stat().st_mtime_ns == before
    model.remove()
    assert list((tmp_path / "offload").iterdir()) == []


def test_another_checkpoint_or_dtype_is_another_file(folders: dict[str, Path], tmp_path: Path) -> None:
    offloaded(folders["opt"], tmp_path).close()
    OffloadedModel.from_pretrained(
        folders["opt"], policy=OffloadPolicy(), dtype=torch.bfloat16, offload_dir=tmp_path / "offload"
    ).close()
    offloaded(folders["opt untied"], tmp_path).close()
    assert len(list((tmp_path / "offload").glob("*.tensors"))) == 3


def test_no_scratch_file_is_left(folders: dict[str, Path], tmp_path: Path) -> None:
    with offloaded(folders["gpt"], tmp_path, cache=(0, 0, 1), activations=(0, 0, 1), batch_size=4) as model:
        written(model, None)
    assert {path.suffix for path in (tmp_path / "offload").iterdir()} == {".tensors", ".lock"}


def test_a_disk_that_fails_ends_the_run_with_its_error(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = itertools.count()
    whole = TensorStore.read_range

    def failing(store: TensorStore, *where: Any) -> None:
        if next(reads) == 5:
            raise OSError(5, "Input/output error")
        whole(store, *where)

    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1), cache=(0, 0, 1), batch_size=7) as model:
        monkeypatch.setattr(TensorStore, "read_range", failing)
        began = time.monotonic()
        with pytest.raises(OSError, match="Input/output error"):
            written(model, None)
        assert time.monotonic() - began < 20
        monkeypatch.undo()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("load weights")]
        assert torch.equal(written(model, None), written(load_model(folders["opt"]), None)), "it can go on"


def test_what_a_caller_raises_ends_the_run(folders: dict[str, Path], tmp_path: Path) -> None:
    def interrupted(new: Any) -> None:
        if new.step == 3:
            raise KeyboardInterrupt

    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1), cache=(0, 0, 1), batch_size=7) as model:
        with pytest.raises(KeyboardInterrupt):
            written(model, None, on_token=interrupted)
        assert torch.equal(written(model, None), written(load_model(folders["opt"]), None))


def test_each_token_is_told_with_the_number_of_its_prompt(folders: dict[str, Path], tmp_path: Path) -> None:
    told: dict[int, list[int]] = {row: [] for row in range(7)}
    with offloaded(folders["opt"], tmp_path, batch_size=2, num_batches=2) as model:
        found = written(model, "left", on_token=lambda new: told[new.row].append(new.token))
    assert [told[row] for row in range(7)] == found[:, 20:].tolist()


@pytest.mark.error_messages
def test_faults_are_told_before_any_work(folders: dict[str, Path], tmp_path: Path) -> None:
    with offloaded(folders["opt"], tmp_path, weights=(0, 0, 1)) as model:
        with pytest.raises(ValueError, match=r"max_new_tokens: expected at most .* 128 positions"):
            written(model, None, max_new_tokens=200)
        assert model.trace.events == []
    with pytest.raises(TypeError, match="policy: expected an OffloadPolicy, got tuple"):
        OffloadedModel.from_pretrained(folders["opt"], policy=(0, 0, 1), offload_dir=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weight_bits: expected None"):
        offloaded(folders["opt"], tmp_path, weight_bits=4)
    with pytest.raises(FileNotFoundError):
        offloaded(tmp_path / "nowhere", tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_in_half_precision_the_same_batches_write_the_same_tokens(
    dtype: torch.dtype, folders: dict[str, Path], tmp_path: Path
) -> None:
    wanted = written(load_model(folders["opt"], dtype=dtype), None)
    with OffloadedModel.from_pretrained(
        folders["opt"],
        policy=OffloadPolicy(weights=(0, 0, 1), batch_size=7),
        dtype=dtype,
        offload_dir=tmp_path,
    ) as model:
        assert torch.equal(written(model, None), wanted)
