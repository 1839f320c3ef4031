"""Files and settings that do not fit a checkpoint are named, and harm nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from course_lib.training import adamw, checkpoint_folder
from course_lib.training.checkpoints import latest_checkpoint, write_checkpoint

from .parallel_cases import model_of
from .test_checkpoints import CONFIG, everything_in, model_and_optimizer, names_in, read, train, write

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """Of two checkpoints with different content."""
    run = model_and_optimizer()
    for step in (1, 2):
        train(*run, steps=1)
        path = write(tmp_path, step, run)
    return path


def refused(path: Path, error: type[Exception] = ValueError, **options: Any) -> str:
    """The sentence with which it is, once nothing is found to have changed by it."""
    run = model_and_optimizer(seed=1)
    train(*run, steps=1)
    before = [tensor.clone() for tensor in run[0].state_dict().values()]
    moments = [state["exp_avg"].clone() for state in run[1].state.values()]
    drawn = torch.get_rng_state()
    with pytest.raises(error) as caught:
        read(path, run, **options)
    assert all(torch.equal(a, b) for a, b in zip(before, run[0].state_dict().values(), strict=True))
    assert all(torch.equal(a, b["exp_avg"]) for a, b in zip(moments, run[1].state.values(), strict=True))
    assert torch.equal(drawn, torch.get_rng_state())
    return str(caught.value)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_file_that_is_cut_short_is_named_with_the_whole_checkpoint_beside_it(
    newest: Path, file: str, share: float
) -> None:
    content = (newest / file).read_bytes()
    (newest / file).write_bytes(content[: int(len(content) * share)])
    sentence = refused(newest)
    assert file in sentence and "cut short or damaged" in sentence
    assert sentence.endswith(
        " step-00000001 beside it is whole: remove step-00000002, and the run goes on from there."
    )


@pytest.mark.parametrize("file", FILES)
def test_a_single_changed_bit_is_found(newest: Path, file: str) -> None:
    content = bytearray((newest / file).read_bytes())
    place = content.rindex(b"true") if b"true" in content else len(content) - 40
    content[place] ^= 1
    (newest / file).write_bytes(content)
    assert file in refused(newest)


def test_a_state_edited_by_hand_is_found(newest: Path) -> None:
    text = (newest / "state.json").read_text(encoding="utf-8")
    assert text.count('"learning_rate": 0.01') == 1
    (newest / "state.json").write_text(
        text.replace('"learning_rate": 0.01', '"learning_rate": 0.02'), encoding="utf-8"
    )
    assert "damaged, or edited by hand" in refused(newest)


@pytest.mark.parametrize("file", FILES[:2])
def test_files_of_two_saves_are_found_and_named(newest: Path, file: str) -> None:
    shutil.copy(newest.parent / "step-00000001" / file, newest / file)
    sentence = refused(newest)
    assert file in sentence and "of another save, of step 1" in sentence


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(newest: Path, file: str) -> None:
    (newest / file).unlink()
    sentence = refused(newest, FileNotFoundError)
    assert f"expected {file} in {newest}" in sentence and "step-00000001 beside it is whole" in sentence


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    assert "There is no whole one beside it" in refused(tmp_path / "step-00000001", FileNotFoundError)


def test_a_damaged_checkpoint_is_not_offered_in_place_of_another(newest: Path) -> None:
    for path in newest.parent.iterdir():
        (path / "model.safetensors").write_bytes(b"")
    assert "There is no whole one beside it: copy it anew, or start the run anew." in refused(newest)


def test_a_checkpoint_of_a_later_format_says_so(newest: Path) -> None:
    state = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    state["content"]["format"] = 2
    state["sha256"] = checkpoint_folder._checksum(state["content"])
    (newest / "state.json").write_text(json.dumps(state), encoding="utf-8")
    assert "expected format 1, got 2" in refused(newest)


def test_a_config_of_another_training_names_each_field_with_both_values(newest: Path) -> None:
    sentence = refused(newest, config={"model": {"dim": 32}, "learning_rate": 0.01, "seed": 3})
    assert "model.dim (then 24, now 32), seed (then 'nothing', now 3)" in sentence
    assert "learning_rate" not in sentence
    assert "train into another folder" in sentence


def test_a_model_of_other_shapes_is_named_by_tensor(newest: Path) -> None:
    model = model_of(dtype=torch.float32, hidden_features=40)
    with pytest.raises(
        ValueError, match=r"layers\.0\.feed_forward.* as in the checkpoint, float32 \[.*got float32"
    ):
        read(newest, (model, adamw(model, 1e-2)))


def test_a_model_of_other_tensors_is_named_by_tensor(newest: Path) -> None:
    model = model_of(dtype=torch.float32, tied_head=False)
    with pytest.raises(ValueError, match=r"head.weight only in the model"):
        read(newest, (model, adamw(model, 1e-2)))


def test_an_optimiser_of_another_model_is_refused(tmp_path: Path) -> None:
    model, _ = model_and_optimizer()
    _, optimizer = model_and_optimizer()
    with pytest.raises(ValueError, match="optimizer: expected one of the parameters of model"):
        write(tmp_path, 1, (model, optimizer))
    assert not names_in(tmp_path)


def test_an_optimiser_of_fewer_parameters_is_refused(newest: Path) -> None:
    model, _ = model_and_optimizer()
    with pytest.raises(ValueError, match=r"optimizer: expected one that moves .*, as in the checkpoint"):
        read(newest, (model, torch.optim.AdamW([next(model.parameters())])))


@pytest.mark.parametrize(("option", "value"), [("step", -1), ("keep", 0)])
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, option: str, value: int) -> None:
    model, optimizer = model_and_optimizer()
    options: dict[str, Any] = {"step": 1, "keep": 1, option: value}
    with pytest.raises(ValueError, match=f"{option}: "):
        write_checkpoint(tmp_path, model=model, optimizer=optimizer, config={}, state={}, **options)


@pytest.mark.parametrize(
    "interruption",
    [OSError(28, "No space left on device"), SafetensorError("No space left on device"), KeyboardInterrupt()],
)
@pytest.mark.parametrize("function", ["save_tensors", "to_disk", "_write_state", "_folder_to_disk"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    newest: Path, monkeypatch: pytest.MonkeyPatch, function: str, interruption: BaseException
) -> None:
    before = everything_in(newest.parent)

    def fails(*arguments: Any, **options: Any) -> None:
        raise interruption

    monkeypatch.setattr(checkpoint_folder, function, fails)
    with pytest.raises(
        KeyboardInterrupt if isinstance(interruption, KeyboardInterrupt) else OSError
    ) as caught:
        write(newest.parent, 3)
    assert everything_in(newest.parent) == before
    assert names_in(newest.parent) == ["step-00000001", "step-00000002"]
    if isinstance(caught.value, OSError):
        assert re.search(
            r"has room for 0\.\d MiB, got .*No space left on device\. The checkpoint of step 3 was not written; "
            r"step-00000002, which is there, is whole\.",
            str(caught.value),
        )


def test_a_replacement_that_fails_between_its_two_renames_is_undone(
    newest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, replace, calls = everything_in(newest.parent), os.replace, []

    def second_fails(source: Any, target: Any) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        write(newest.parent, 2, state={"new": True})
    assert everything_in(newest.parent) == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_disk_that_fills_while_writing_leaves_what_was_there(newest: Path) -> None:
    import resource

    before = everything_in(newest.parent)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match="The checkpoint of step 3 was not written"):
            write(newest.parent, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert everything_in(newest.parent) == before
    assert names_in(newest.parent) == ["step-00000001", "step-00000002"]


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("mine", encoding="utf-8")
    with pytest.raises(OSError, match=r"checkpoints and: .*There was none before it"):
        write(tmp_path / "checkpoints", 1)
    assert (tmp_path / "checkpoints").read_text(encoding="utf-8") == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named_and_can_still_be_read(newest: Path) -> None:
    newest.parent.chmod(0o555)
    try:
        with pytest.raises(OSError, match=r"Permission denied.*step-00000002, which is there, is whole"):
            write(newest.parent, 3)
        assert latest_checkpoint(newest.parent) == newest
        assert read(newest).step == 2
    finally:
        newest.parent.chmod(0o755)


def test_a_state_that_json_cannot_hold_writes_nothing(newest: Path) -> None:
    with pytest.raises(TypeError, match=r"state: .*Tensor"):
        write(newest.parent, 3, state={"scale": torch.ones(1)})
    assert names_in(newest.parent) == ["step-00000001", "step-00000002"]
    assert read(newest).config == CONFIG
