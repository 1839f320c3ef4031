"""What ends a run: a sentence that says what to do, and nothing lost that was written."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_lib.models import GPTConfig
from course_lib.text import train_tokenizer
from course_lib.training import Capability, checkpoint_folder, precision, train
from course_lib.training.output import Output
from course_lib.training.parallel import Processes
from course_lib.training.progress import read_log
from course_lib.training.set_up import set_up

from .runs import MODEL, STORIES, Stopped, losses, small, stop_after

pytestmark = [pytest.mark.error_messages, pytest.mark.filterwarnings("ignore:.*split into:UserWarning")]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(Output, "draw", lambda output: None)


def refused(config, kind, *words, **options):
    """The call raises; the message has the words."""
    with pytest.raises(kind) as caught:
        train(config, progress=False, **options)
    for word in words:
        assert caught.match(word)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stopped_run(folder: Path, **changes):
    """A run that ended after step 4 of 6, with a checkpoint of step 3."""
    config = small(output=folder, **changes)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(4))
    return config


BAD = {
    "an empty corpus": ({"data": []}, ValueError, ["data", "at least one document", "none"]),
    "a corpus smaller than a batch": (
        {"data": ["one short text", "and another one"], "held_out": 0},
        ValueError,
        ["^data", "256 tokens of a batch", "batch_tokens"],
    ),
    "a single document": (
        {"data": ["text " * 500]},
        ValueError,
        ["data", "two different documents", "held_out=0"],
    ),
    "a vocabulary below the tokenizer's": (
        {"model": GPTConfig(vocab_size=300, dim=16, num_layers=1, num_heads=2)},
        ValueError,
        ["vocab_size", "4096 ids of the tokenizer", "300", "Build the model for this tokenizer"],
    ),
    "ids of another tokenizer": (
        {"data": [[5000 + i] * 40 for i in range(40)]},
        ValueError,
        [r"^data\[0\]", "0 to 4095", "another tokenizer"],
    ),
    "a tokenizer that is not there": (
        {"tokenizer": "nowhere.json"},
        FileNotFoundError,
        ["no file nowhere.json"],
    ),
    "text that is not there": (
        {"data": Path("nowhere.txt")},
        FileNotFoundError,
        ["nowhere.txt", "no such file"],
    ),
    "text of another kind": ({"data": Path("text.pdf")}, ValueError, [r"\.txt or \.jsonl", "pdf"]),
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_comes_before_anything_is_written(name, tmp_path):
    changes, kind, words = BAD[name]
    refused(small(output=tmp_path / "run", **changes), kind, *words)
    assert not list(tmp_path.iterdir())


def test_a_dict_is_no_config():
    refused({"steps": 3}, TypeError, "config", "TrainConfig", "dict")


def test_a_precision_that_the_device_cannot_train_in_is_refused_with_the_reason(monkeypatch):
    unable = Capability("this card", {"fp16": "its units know no halves"}, None)
    monkeypatch.setattr(precision, "measured_capability", lambda device: unable)
    refused(
        small(precision="fp16"),
        ValueError,
        "precision: fp16 cannot train on this card",
        "no halves",
        "'auto'",
    )


@pytest.mark.parametrize("device", ["meta", "xpu", "hpu"])
def test_a_device_that_does_not_compute_here_is_refused(device):
    refused(
        small(device=device), ValueError, f"device: expected one that computes here, got {device} ", "'cpu'"
    )


@pytest.mark.parametrize("resume", ["my_run", 1, None])
def test_resume_is_no_path(resume):
    refused(small(), TypeError, "resume: expected True or False", "config's output", resume=resume)


def test_what_cannot_be_called_after_a_step_is_refused_before_the_first_one(tmp_path):
    refused(small(output=tmp_path / "run"), TypeError, "on_step", "a function", "int", on_step=5)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("requested", ["fp32", "auto"])
def test_a_gpu_that_is_not_there_is_refused(requested):
    refused(small(device="cuda", precision=requested), ValueError, "device", "finds no GPU", "'cpu'")


def test_rows_that_processes_cannot_share_are_refused():
    with pytest.raises(
        ValueError, match=r"rows_per_step: expected a multiple of the 2 processes.*got 3.*to 4"
    ):
        set_up(small(rows_per_step=3), Processes(rank=0, world_size=2))


def test_a_folder_that_cannot_be_written_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)

    def unread():
        raise AssertionError("the data were read")

    refused(
        small(output=tmp_path / "a" / "b", data=unread),
        OSError,
        "output",
        "can be written",
        "Permission denied",
    )


def test_a_file_in_the_folders_place_is_refused_and_kept(tmp_path):
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    refused(small(output=tmp_path / "run"), OSError, "output", "can be written", "Not a directory")
    refused(small(output=tmp_path / "run" / "below"), OSError, "output", "can be written", "Not a directory")
    assert (tmp_path / "run").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", ["log.jsonl", "model", "checkpoints", "curves.png"])
def test_what_is_not_of_a_run_is_not_overwritten(tmp_path, name):
    (tmp_path / name).mkdir()
    refused(small(output=tmp_path), ValueError, "output", f"has {name} but no run.json", "not overwritten")


def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    stopped_run(tmp_path)
    before = contents(tmp_path)
    refused(
        small(output=tmp_path, learning_rate=2e-3),
        ValueError,
        "learning_rate",
        r"0\.001",
        r"0\.002",
        "another",
    )
    bigger = small(output=tmp_path, model=replace(MODEL, dim=32))
    refused(bigger, ValueError, r"model\.dim", "16", "32")
    assert contents(tmp_path) == before


def test_a_folder_of_another_run_is_refused_before_its_first_checkpoint_as_well(tmp_path):
    config = small(output=tmp_path)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(1))
    before = contents(tmp_path)
    refused(replace(config, seed=1), ValueError, "seed", "then 0, now 1")
    assert contents(tmp_path) == before
    assert losses(train(config, progress=False)) == losses(train(small(), progress=False))


def test_a_run_is_not_begun_anew_over_one_that_is_there(tmp_path):
    config = stopped_run(tmp_path)
    before = contents(tmp_path)
    refused(config, ValueError, "output", "holds a run", "resume=True goes on", resume=False)
    assert contents(tmp_path) == before


def test_fewer_steps_than_are_done_are_refused(tmp_path):
    config = stopped_run(tmp_path)
    before = contents(tmp_path)
    with pytest.warns(UserWarning, match="steps"):
        refused(replace(config, steps=2), ValueError, "steps: expected at least the 3", "has done, got 2")
    assert contents(tmp_path) == before


def test_a_finished_run_without_its_checkpoints_is_not_begun_anew(tmp_path):
    config = small(output=tmp_path)
    train(config, progress=False)
    shutil.rmtree(tmp_path / "checkpoints")
    before = contents(tmp_path)
    refused(config, ValueError, "output", "expected the checkpoint of the run", "not overwritten")
    assert contents(tmp_path) == before


def test_steps_that_the_log_has_lost_are_told(tmp_path):
    config = stopped_run(tmp_path)
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "log.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    with pytest.warns(UserWarning, match=r"log\.jsonl lacks 2 of the 3 steps done") as caught:
        resumed = train(config, progress=False)
    assert caught[0].filename == __file__
    whole = train(small(), progress=False)
    assert [record.step for record in resumed.records] == [1, 4, 5, 6]
    assert losses(resumed)[1:] == losses(whole)[3:]


def test_a_step_in_the_log_without_its_loss_scale_is_named(tmp_path):
    config = stopped_run(tmp_path)
    path = tmp_path / "log.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"loss_scale"', b'"scale"', 1))
    refused(config, ValueError, r"log\.jsonl", "step 1 without loss_scale", "can then resume")


def test_other_documents_than_those_of_the_run_are_refused(tmp_path):
    config = stopped_run(tmp_path)
    before = contents(tmp_path)
    refused(
        replace(config, data=[*STORIES[:-1], "other"]),
        ValueError,
        "data",
        "documents of the run",
        "other ones",
    )
    assert contents(tmp_path) == before


@pytest.mark.filterwarnings("ignore:model. its vocab_size:UserWarning")
def test_another_tokenizer_than_that_of_the_run_is_refused(tmp_path):
    config = stopped_run(tmp_path, tokenizer=train_tokenizer([d.text for d in STORIES], 300))
    other = train_tokenizer([d.text for d in STORIES[:20]], 300)
    refused(replace(config, tokenizer=other), ValueError, "tokenizer of the run", "other ones")


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_truncated_checkpoint_is_refused_and_named(tmp_path, file):
    config = stopped_run(tmp_path)
    path = tmp_path / "checkpoints" / "step-00000003" / file
    path.write_bytes(path.read_bytes()[:-9])
    before = contents(tmp_path)
    refused(config, ValueError, file)
    assert contents(tmp_path) == before


def test_a_run_json_that_was_cut_short_is_refused(tmp_path):
    config = small(output=tmp_path)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(1))
    path = tmp_path / "run.json"
    path.write_bytes(path.read_bytes()[:-9])
    refused(config, ValueError, "run.json", "cannot be read", "whole")


def test_too_little_room_is_found_before_the_first_step(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10**6, 9 * 10**5, 10**5))
    refused(small(output=tmp_path), OSError, "output", "expected room for", "3 checkpoints", "97.7 KiB free")
    assert not (tmp_path / "log.jsonl").exists()


def test_a_disk_that_runs_full_ends_the_run_and_leaves_what_was_written(tmp_path, monkeypatch):
    config = small(output=tmp_path, checkpoint_every=2)
    save = checkpoint_folder.save_tensors

    def full(tensors, path, **options):
        if "step-00000004" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_folder, "save_tensors", full)
        refused(config, OSError, "No space left on device", "step-00000002")
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl") if "loss" in line] == [1, 2, 3, 4]
    resumed = train(config, progress=False)
    assert resumed.resumed_from == 2 and losses(resumed) == losses(train(small(), progress=False))


def test_a_gradient_that_is_not_finite_names_the_step_and_its_rows_and_keeps_what_was_written(tmp_path):
    config = small(output=tmp_path, learning_rate=1e30, warm_up=0, max_norm=None, checkpoint_every=1)
    seen = {}

    def on_step(record):
        seen[record.step] = record

    names = {document.id for document in STORIES}
    with pytest.raises(FloatingPointError, match=r"^step 2: the gradient is (nan|inf)") as caught:
        train(config, progress=False, on_step=on_step)
    message = str(caught.value)
    assert "weights are those before" in message
    assert "rows 2 to 3 of the data" in message and "tokens of" in message
    assert any(name in message for name in names)
    assert list(seen) == [1]
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl") if "loss" in line] == [1]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_the_row_at_fault_is_named_not_its_neighbours(monkeypatch):
    from course_lib.training.row_loss import RowLoss

    forward = RowLoss.forward
    calls = []

    def poisoned(self, batch, targets, reduction="mean"):
        calls.append(reduction)
        loss = forward(self, batch, targets, reduction)
        return loss * torch.nan if calls.count("mean") == 6 else loss

    monkeypatch.setattr(RowLoss, "forward", poisoned)
    refused(
        small(rows_per_step=4),
        FloatingPointError,
        "^step 2: the loss is nan",
        "row 5 of the data",
        "documents",
    )
