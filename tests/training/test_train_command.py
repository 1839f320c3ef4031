"""``python -m course_lib train``: exit codes, what it says, and that it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.models import GPT
from course_lib.training import run
from course_lib.training.__main__ import main
from course_lib.training.output import Output
from course_lib.training.progress import read_log

from .runs import STORIES

SIZES = ["--dim", "16", "--layers", "1", "--heads", "2", "--max-length", "64"]
PACE = ["--steps", "4", "--batch-tokens", "256", "--precision", "fp32", "--checkpoint-every", "2"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "my text.txt"
    path.write_text("\n\n".join(story.text for story in STORIES), encoding="utf-8")
    return path


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(Output, "draw", lambda output: None)


def command(text: Path, *more: object) -> list[str]:
    return ["--data", str(text), *SIZES, *PACE, *map(str, more)]


def said(capsys) -> tuple[str, str]:
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.usefixtures("undrawn")
def test_it_trains_on_the_readers_text_and_says_where_the_model_is(text, tmp_path, capsys):
    out = tmp_path / "my run"
    assert main(command(text, "--output", out)) == 0
    shown, errors = said(capsys)
    assert "4 steps" in shown and "tokens/s" in shown and str(out / "model") in shown
    assert "note: my text-1 has " in errors and "Traceback" not in errors and "stream.py" not in errors
    assert GPT.load(out / "model").config.num_kv_heads == 1


@pytest.mark.usefixtures("undrawn")
def test_quiet_says_nothing(text, tmp_path, capsys):
    assert main(command(text, "--output", tmp_path / "run", "--quiet", "--max-length", "512")) == 0
    assert said(capsys) == ("", "")


def test_without_an_output_nothing_is_written(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command(text, "--quiet")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["my text.txt"]


def test_a_dry_run_shows_config_memory_and_time_and_writes_nothing(text, tmp_path, capsys):
    assert (
        main(command(text, "--dry-run", "--output", tmp_path / "run", "--watts", "100", "--price", "9")) == 0
    )
    shown, _ = said(capsys)
    for words in (
        "batch_tokens",
        "dim=16",
        "activations",
        "peak",
        "4 steps take about",
        "kWh",
        "100 W",
        "cost",
    ):
        assert words in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("undrawn")
def test_ctrl_c_says_how_to_go_on_and_that_goes_on(text, tmp_path, capsys, monkeypatch):
    take_step = run.take_step

    def interrupted(*arguments):
        record = take_step(*arguments)
        if record.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return record

    out = tmp_path / "my run"
    with monkeypatch.context() as patch:
        patch.setattr(run, "take_step", interrupted)
        assert main(command(text, "--output", out)) == 130
    shown, _ = said(capsys)
    assert "stopped after step 3 of 4" in shown
    assert f"python -m course_lib train --resume '{out}'" in shown
    assert main(["--resume", str(out)]) == 0
    assert "goes on after step 3 of 4" in said(capsys)[0]
    assert [line["step"] for line in read_log(out / "log.jsonl") if "loss" in line] == [1, 2, 3, 4]
    whole = tmp_path / "whole"
    assert main(command(text, "--output", whole, "--quiet")) == 0
    both = [[line["loss"] for line in read_log(f / "log.jsonl") if "loss" in line] for f in (out, whole)]
    assert both[0] == both[1]


@pytest.mark.usefixtures("undrawn")
def test_the_same_command_goes_on(text, tmp_path, capsys):
    again = command(text, "--output", tmp_path / "run")
    assert main(again) == 0
    capsys.readouterr()
    assert main(again) == 0
    assert "all 4 steps of this run are done" in said(capsys)[0]


ERRORS = {
    "text that is not there": (["--data", "nowhere.txt"], ["nowhere.txt", "no such file"]),
    "heads that do not fit": (["--dim", "30", "--heads", "4"], ["dim", "multiple of num_heads"]),
    "no step": (["--steps", "0"], ["steps", "at least 1"]),
    "no run to resume": (["--resume", "nowhere"], ["nowhere", "no run.json"]),
    "a folder below a file": (["--output", "{text}/run"], ["output", "can be written"]),
    "a context over a row": (["--batch-tokens", "1"], ["batch_tokens", "at least 2"]),
    "a device of another kind": (["--device", "quantum"], ["device", "quantum"]),
    "no GPU": (["--device", "cuda:99"], ["device"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_a_sentence_and_exit_code_2(name, text, capsys):
    more, words = ERRORS[name]
    arguments = [part.format(text=text) for part in more]
    given = arguments if name == "no run to resume" else ["--data", str(text), *SIZES, *PACE, *arguments]
    assert main(given) == 2
    shown, errors = said(capsys)
    (line,) = errors.splitlines()
    assert line.startswith("train: ") and "Traceback" not in errors and not shown
    for word in words:
        assert word in line


def test_resuming_takes_no_other_model(tmp_path, capsys):
    assert main(["--resume", str(tmp_path), "--dim", "32", "--kv-heads", "2", "--output", "x"]) == 2
    assert "leave out --dim, --kv-heads, --output" in said(capsys)[1]


def test_want_of_memory_is_a_sentence_too(text, capsys, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(run, "take_step", full)
    assert main(command(text, "--quiet")) == 2
    assert "--batch-tokens" in said(capsys)[1]


def test_the_help_names_every_option_with_its_default(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = said(capsys)[0]
    for words in ("--resume", "--dry-run", "--engine", "(400)", "(4096)", "(0.001)", "torchrun"):
        assert words in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--data", "nowhere.txt"], "no such file"),
        (["--rows-per-step", "3"], "multiple of the 2 processes"),
        (["--device", "meta"], "device"),
        (["--learning-rate", "1e9", "--steps", "30", "--rows-per-step", "2"], "the loss is nan"),
    ],
)
def test_what_all_processes_find_is_said_once(text, more, words):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run(
        [*launch, "course_lib", "train", *command(text, "--rows-per-step", "2", *more)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("train: ")]
    assert done.returncode and words in line


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_two_processes_under_torchrun_have_the_losses_of_one(text, tmp_path, engine):
    alone, together = tmp_path / "alone", tmp_path / "together"
    two_rows = [*command(text, "--rows-per-step", 2, "--engine", engine), "--output"]
    assert main([*two_rows, str(alone), "--quiet"]) == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run(
        [*launch, "course_lib", "train", *two_rows, str(together)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("precision:") == 1 and f"processes: 2, {engine}, gloo" in done.stdout
    one, two = ([line for line in read_log(folder / "log.jsonl")] for folder in (alone, together))
    assert len(one) == len(two)
    for name in ("loss", "held_out", "norm"):
        assert [line[name] for line in two if name in line] == pytest.approx(
            [line[name] for line in one if name in line], rel=1e-4
        )
    assert json.loads((together / "run.json").read_text(encoding="utf-8"))["engine"] == engine
