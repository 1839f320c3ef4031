"""A checkpoint brings everything back, and stands whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from course_lib.training import adamw, checkpoint_folder
from course_lib.training.checkpoints import SavedRun, latest_checkpoint, read_checkpoint, write_checkpoint

from .parallel_cases import model_of

CONFIG = {"model": {"dim": 24}, "learning_rate": 0.01}
SOUND = ["step-00000001", "step-00000002"]


def model_and_optimizer(seed: int = 0, lr: float = 1e-2) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = model_of(seed, torch.float32)
    return model, adamw(model, lr)


draws = pytest.mark.skipif(
    os.environ.get("COURSE_JAXTYPING") == "1", reason="beartype itself draws from Python's generator"
)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> list[float]:
    """Steps on tokens and with noise from the global generators."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(torch.randint(53, (1, 7)))
        loss = (logits * random.random() * numpy.random.rand()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def write(folder: Path, step: int, run: Any = None, **options: Any) -> Path:
    model, optimizer = run or model_and_optimizer()
    return write_checkpoint(
        folder,
        step=step,
        **{"model": model, "optimizer": optimizer, "config": CONFIG, "state": {"step": step}, **options},
    )


def read(path: Path, run: Any = None, **options: Any) -> SavedRun:
    model, optimizer = run or model_and_optimizer(seed=1)
    return read_checkpoint(path, model, optimizer, **{"config": CONFIG, **options})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@draws
def test_a_run_goes_on_bit_for_bit_generators_included(tmp_path: Path) -> None:
    run = model_and_optimizer()
    train(*run)
    path = write(tmp_path, 2, run)
    wanted = train(*run)
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(99)
    other = model_and_optimizer(seed=5)
    train(*other, steps=1)
    read(path, other)
    assert train(*other) == wanted
    for a, b in zip(run[0].state_dict().values(), other[0].state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_state_comes_back_as_it_was_given(tmp_path: Path) -> None:
    state = {
        "name": "কলম",
        "scale": 0.1 + 0.2,
        "huge": 2**70,
        "none": None,
        "list": [1, [True]],
        "no": float("inf"),
    }
    saved = read(write(tmp_path, 7, state=state))
    assert saved == SavedRun(7, state, CONFIG)


def test_a_checkpoint_holds_three_files_and_no_pickle(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "checkpoints", 100)
    assert path == tmp_path / "new" / "checkpoints" / "step-00000100"
    assert names_in(path) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert json.loads((path / "state.json").read_text(encoding="utf-8"))["content"]["step"] == 100


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    stored = load_file(write(tmp_path, 1) / "model.safetensors")
    assert "embed.weight" in stored and "head.weight" not in stored


@draws
def test_optimiser_state_follows_names_not_the_order_of_parameters(tmp_path: Path) -> None:
    model = model_of(dtype=torch.float32)
    forwards = torch.optim.AdamW([p for _, p in model.named_parameters()], lr=1e-2)
    train(model, forwards)
    path = write(tmp_path, 2, (model, forwards))
    wanted = train(model, forwards)
    again = model_of(1, torch.float32)
    backwards = torch.optim.AdamW([p for _, p in reversed(list(again.named_parameters()))], lr=1e-2)
    read(path, (again, backwards))
    for name, parameter in again.named_parameters():
        assert backwards.state[parameter]["exp_avg"].shape == parameter.shape, name
    assert train(again, backwards) == wanted


@draws
def test_another_optimiser_comes_back_too(tmp_path: Path) -> None:
    def run(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = model_of(seed, torch.float32)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    one = run(0)
    train(*one)
    path = write(tmp_path, 2, one)
    wanted = train(*one)
    other = run(1)
    read(path, other)
    assert train(*other) == wanted


def test_the_newest_are_kept_and_older_ones_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write(tmp_path, step, keep=3)
    assert names_in(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"]
    write(tmp_path, 5, keep=1)
    assert names_in(tmp_path) == ["step-00000005"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-00000005"


def test_going_on_from_an_older_one_drops_the_future_that_was_left(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step, keep=3)
    write(tmp_path, 2, state={"anew": True}, keep=3)
    assert names_in(tmp_path) == SOUND
    assert read(tmp_path / "step-00000002").state == {"anew": True}


def test_steps_are_ordered_as_numbers_beyond_eight_digits(tmp_path: Path) -> None:
    write(tmp_path, 99_999_999)
    write(tmp_path, 100_000_000)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-100000000"


def test_a_folder_without_checkpoints_has_no_latest(tmp_path: Path) -> None:
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "step-00000009").write_text("a file", encoding="utf-8")
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "missing") is None


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs afterwards but what a test starts."""


def moments_of_a_write(monkeypatch: pytest.MonkeyPatch, stop_at: int) -> list[str]:
    """Let every change of the file system from number ``stop_at`` on raise; returns the list of those before it."""
    done: list[str] = []

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) >= stop_at:
                raise Killed
            done.append(name)
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(
        checkpoint_folder, "save_tensors", counted("save_tensors", checkpoint_folder.save_tensors)
    )
    monkeypatch.setattr(checkpoint_folder, "to_disk", counted("to_disk", checkpoint_folder.to_disk))
    monkeypatch.setattr(
        checkpoint_folder, "_folder_to_disk", counted("folder", checkpoint_folder._folder_to_disk)
    )
    monkeypatch.setattr(os, "replace", counted("replace", os.replace))
    monkeypatch.setattr(shutil, "rmtree", counted("rmtree", shutil.rmtree))
    return done


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_write_killed_at_any_moment_leaves_a_whole_checkpoint_and_the_next_one_tidies(
    tmp_path: Path, step: int, keep: int
) -> None:
    moments = 0
    while True:
        folder = tmp_path / str(moments)
        write(folder, 1)
        write(folder, 2)
        with pytest.MonkeyPatch.context() as patch:
            done = moments_of_a_write(patch, moments)
            try:
                write(folder, step, keep=keep, state={"step": step, "new": True})
            except Killed:
                pass
            else:
                break
        newest = latest_checkpoint(folder)
        assert newest is not None and newest.name in ("step-00000002", f"step-{step:08d}")
        saved = read(newest)
        assert saved.state["step"] == saved.step
        assert all(not name.startswith(".") for name in names_in(folder))
        assert all(read(path) for path in folder.iterdir())
        moments += 1
    assert len(done) == moments > 8
    assert done.count("replace") > 1 and "rmtree" in done


def test_a_leftover_of_a_killed_write_is_no_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    write(tmp_path, 1)
    for name in (".saving-abc", ".removing-step-00000000"):
        (tmp_path / name / "step-00000009").mkdir(parents=True)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-00000001"
    assert names_in(tmp_path) == ["step-00000001"]


def test_each_file_and_the_folder_reach_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = moments_of_a_write(monkeypatch, 10_000)
    write(tmp_path, 1)
    assert done[:8] == [
        "save_tensors",
        "to_disk",
        "save_tensors",
        "to_disk",
        "to_disk",
        "folder",
        "replace",
        "folder",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows syncs no folders")
def test_a_drive_that_cannot_sync_folders_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def files_only(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", files_only)
    assert read(write(tmp_path, 1)).step == 1


def test_a_parameter_without_state_yet_has_none_afterwards(tmp_path: Path) -> None:
    run = model_and_optimizer()
    path = write(tmp_path, 1, run)
    other = model_and_optimizer(seed=1)
    train(*other)
    read(path, other)
    assert not other[1].state


def test_counts_and_averages_come_back_in_their_dtypes(tmp_path: Path) -> None:
    run = model_and_optimizer()
    train(*run)
    path = write(tmp_path, 2, run)
    other = model_and_optimizer(seed=1)
    read(path, other)
    for a, b in zip(run[1].state.values(), other[1].state.values(), strict=True):
        assert a.keys() == b.keys() == {"step", "exp_avg", "exp_avg_sq"}
        for key, value in a.items():
            assert isinstance(value, Tensor) and torch.equal(value, b[key]) and value.dtype == b[key].dtype


@pytest.mark.filterwarnings("error")
def test_the_same_circumstances_bring_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(write(tmp_path, 1))


def test_another_thread_count_is_warned_about(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.warns(
            UserWarning, match=rf"threads \(then {threads}, now {threads + 1}\).*not to the bit"
        ):
            read(path)
    finally:
        torch.set_num_threads(threads)


def test_another_pytorch_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, 1)
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.warns(UserWarning, match=r"PyTorch \(then 2\.\S+, now 2.99.0\).*not to the bit"):
        read(path)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "field", ["output", "data", "tokenizer", "evaluate_every", "checkpoint_every", "keep_checkpoints"]
)
def test_where_and_when_files_are_written_may_change_silently(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, 1, config={**CONFIG, field: "old"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(path, config={**CONFIG, field: "new"})


@pytest.mark.parametrize("field", ["device", "compile", "fused", "chunked_loss", "engine"])
def test_how_the_same_is_computed_may_change_with_a_warning(tmp_path: Path, field: str) -> None:
    path = write(tmp_path, 1, config={**CONFIG, field: "old"})
    with pytest.warns(UserWarning, match=rf"{field} \(then 'old', now 'new'\).*not to the bit"):
        read(path, config={**CONFIG, field: "new"})


def test_a_longer_run_is_told_of_its_schedule(tmp_path: Path) -> None:
    path = write(tmp_path, 1, config={**CONFIG, "steps": 100})
    with pytest.warns(UserWarning, match="now has 200 steps, and had 100.*schedule"):
        read(path, config={**CONFIG, "steps": 200})
