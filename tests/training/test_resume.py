"""A run that is killed at any moment goes on with the losses that it would have had, to the bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from course_lib.training.checkpoints import latest_checkpoint
from course_lib.training.progress import read_log

from . import resume_cases as cases
from .together import Outcome, together

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_in(tmp_path_factory.mktemp("uninterrupted"))


def run_in(folder: Path, count: int = 1, **options: Any) -> dict[str, Any]:
    """A run of ``count`` processes to its end; what the first one found."""
    outcomes = together(cases.train_here, str(folder / "run"), options, folder=folder, count=count)
    assert all(outcome.error == "" and outcome.value for outcome in outcomes), outcomes
    return outcomes[0].value


def kill_in(folder: Path, *moment: int | None, count: int = 1, **options: Any) -> None:
    """The same, killed at a step or at a change of the checkpoints' files."""
    outcomes = together(cases.train_here, str(folder / "run"), options, *moment, folder=folder, count=count)
    assert outcomes == [Outcome()] * count


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert len(wanted["steps"]) == cases.STEPS
    for key in ("steps", "held_out", "weights"):
        assert found[key] == wanted[key]


def test_a_run_killed_at_random_steps_goes_on_to_the_bit(
    tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    for step in sorted(random.Random(7).sample(range(1, cases.STEPS), 3)):
        kill_in(tmp_path, step)
    found = run_in(tmp_path)
    assert found["resumed_from"] > 0
    assert_same(found, uninterrupted)


@pytest.mark.parametrize("moment", random.Random(7).sample(range(18), 3))
def test_a_run_killed_while_it_writes_a_checkpoint_goes_on_to_the_bit(
    tmp_path: Path, uninterrupted: dict[str, Any], moment: int
) -> None:
    kill_in(tmp_path, None, moment)
    found = run_in(tmp_path)
    assert_same(found, uninterrupted)
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())] == [
        "step-00000009",
        "step-00000012",
    ]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_and_its_loss_scale_go_on_to_the_bit(tmp_path: Path, precision: str) -> None:
    (tmp_path / "whole").mkdir()
    wanted = run_in(tmp_path / "whole", precision=precision)
    kill_in(tmp_path, 7, precision=precision)
    found = run_in(tmp_path, precision=precision)
    assert found["resumed_from"] == 6
    assert_same(found, wanted)
    assert all((step[3] > 1) == (precision == "fp16") for step in found["steps"])


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_two_processes_that_are_killed_go_on_to_the_bit_and_agree_with_one(
    tmp_path: Path, uninterrupted: dict[str, Any], engine: str
) -> None:
    (tmp_path / "whole").mkdir()
    wanted = run_in(tmp_path / "whole", 2, engine=engine)
    kill_in(tmp_path, 8, count=2, engine=engine)
    found = run_in(tmp_path, 2, engine=engine)
    assert found["resumed_from"] == 6
    assert_same(found, wanted)
    for two, one in zip(found["steps"], uninterrupted["steps"], strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    for (_, two), (_, one) in zip(found["held_out"], uninterrupted["held_out"], strict=True):
        assert two == pytest.approx(one, rel=1e-4)


def test_a_run_of_two_processes_goes_on_in_one_and_the_other_way(
    tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    kill_in(tmp_path, 4, count=2, engine="fsdp")
    kill_in(tmp_path, 7)
    found = run_in(tmp_path, 2, engine="ddp")
    assert found["resumed_from"] == 6
    for mixed, one in zip(found["steps"], uninterrupted["steps"], strict=True):
        assert mixed == pytest.approx(one, rel=1e-4)


COMMAND = (
    *("-m", "course_lib", "train", "--steps", "40", "--dim", "16", "--layers", "1", "--heads", "2"),
    *("--batch-tokens", "128", "--max-length", "64", "--checkpoint-every", "3", "--precision", "fp32"),
    *("--evaluate-every", "20", "--device", "cpu", "--quiet"),
)


@pytest.mark.slow
def test_the_command_killed_from_outside_at_random_moments_goes_on_to_the_bit(
    tmp_path: Path, repository: Path
) -> None:
    def start(output: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *COMMAND, "--output", str(output)]
        return subprocess.Popen(command, cwd=repository, env=environment)

    assert start(tmp_path / "whole").wait(200) == 0
    draw = random.Random(11)
    for _ in range(3):
        process = start(tmp_path / "killed")
        log = tmp_path / "killed" / "log.jsonl"
        length = log.stat().st_size if log.exists() else 0
        while process.poll() is None and (not log.exists() or log.stat().st_size <= length):
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        latest_checkpoint(tmp_path / "killed" / "checkpoints")
    assert start(tmp_path / "killed").wait(200) == 0

    def numbers(output: Path) -> list[tuple[Any, ...]]:
        kept = ("step", "loss", "norm", "held_out")
        return [tuple(record.get(key) for key in kept) for record in read_log(output / "log.jsonl")]

    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
    # Their tensors: safetensors writes the two entries of the header in an order that changes from process to process.
    killed, whole = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("killed", "whole"))
    assert killed.keys() == whole.keys()
    assert all(torch.equal(killed[name], whole[name]) for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_torchrun_trains_and_goes_on(tmp_path: Path, repository: Path, engine: str) -> None:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(*COMMAND, "--output", str(tmp_path / "run"), "--rows-per-step", "2", "--engine", engine),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode("utf-8")
    steps = [record["step"] for record in read_log(tmp_path / "run" / "log.jsonl") if "loss" in record]
    assert steps == list(range(1, 41))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
