"""What a run tells while it goes on: its log survives kills and full disks, its peak of memory is the real one."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys

import pytest
import torch

from course_lib.training.progress import PeakMemory, TrainingLog, bytes_text, progress_line, read_log

MIB = 2**20


def filled(path, steps):
    with TrainingLog(path) as log:
        for step in range(1, steps + 1):
            log.append({"step": step, "loss": 8 / step})
    return path


def test_what_is_appended_is_read_in_order(tmp_path):
    records = [{"step": 0, "held_out": 8.3}, {"step": 1, "loss": 7.1, "skipped": False, "note": "নদী"}]
    with TrainingLog(tmp_path / "new" / "log.jsonl") as log:
        for record in records:
            log.append(record)
    assert read_log(tmp_path / "new" / "log.jsonl") == records


def test_a_record_is_in_the_file_when_append_returns(tmp_path):
    log = TrainingLog(tmp_path / "log.jsonl")
    log.append({"step": 1})
    assert read_log(tmp_path / "log.jsonl") == [{"step": 1}]
    log.close()


def test_a_kill_takes_no_record_back(tmp_path):
    path = tmp_path / "log.jsonl"
    code = (
        "import os, signal, sys\n"
        "from course_lib.training.progress import TrainingLog\n"
        "log = TrainingLog(sys.argv[1])\n"
        "for step in range(5): log.append({'step': step})\n"
        "os.kill(os.getpid(), getattr(signal, 'SIGKILL', signal.SIGTERM))\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode != 0
    assert [record["step"] for record in read_log(path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_strict_json_and_comes_back(tmp_path, value):
    path = tmp_path / "log.jsonl"
    with TrainingLog(path) as log:
        log.append({"step": 1, "norm": value})

    def refuse(constant):
        raise AssertionError(constant)

    json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert read_log(path)[0]["norm"] == pytest.approx(value, nan_ok=True)


def test_every_cut_of_the_last_line_leaves_the_records_before_it(tmp_path):
    path = filled(tmp_path / "log.jsonl", 3)
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert [record["step"] for record in read_log(path)] == [1, 2]
        with TrainingLog(path) as log:
            log.append({"step": 9})
        assert [record["step"] for record in read_log(path)] == [1, 2, 9]


def test_resuming_cuts_the_log_back_to_its_step(tmp_path):
    path = filled(tmp_path / "log.jsonl", 6)
    before = path.read_bytes()
    with TrainingLog(path, up_to=4) as log:
        log.append({"step": 5, "loss": 0.5})
    assert path.read_bytes().startswith(before[: before.index(b'{"step": 5')])
    assert [(record["step"], record["loss"]) for record in read_log(path)][-2:] == [(4, 2.0), (5, 0.5)]


def test_minus_one_empties_the_log_and_none_keeps_all_of_it(tmp_path):
    path = filled(tmp_path / "log.jsonl", 3)
    TrainingLog(path).close()
    assert len(read_log(path)) == 3
    TrainingLog(path, up_to=-1).close()
    assert read_log(path) == []


def test_an_interrupted_cut_leaves_the_log_as_it_was(tmp_path, monkeypatch):
    path = filled(tmp_path / "log.jsonl", 6)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        TrainingLog(path, up_to=2)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


class FullDisk:
    """A file that takes ``room`` bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(bytes(data[: self.room]))
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_is_told_and_the_lines_before_stay_whole(tmp_path):
    path = filled(tmp_path / "log.jsonl", 2)
    before = path.read_bytes()
    log = TrainingLog(path)
    log._file = FullDisk(log._file, 7)
    with pytest.raises(OSError, match=r"could not be written.*lines before are whole") as caught:
        log.append({"step": 3, "loss": 1.0})
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    log._file = log._file.file  # there is room again
    log.append({"step": 3})
    log.close()
    assert [record["step"] for record in read_log(path)] == [1, 2, 3]


def test_a_folder_that_cannot_be_made_is_told_with_its_path(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="training log could not be written"):
        TrainingLog(tmp_path / "file" / "log.jsonl")


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"loss": 1.0}', '{"step": "3"}', '{"step": true}'])
def test_a_line_that_is_no_record_is_named_by_its_number(tmp_path, line):
    path = filled(tmp_path / "log.jsonl", 1)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_log(path)


@pytest.mark.parametrize("record", [{}, {"step": 1.0}, {"step": True}])
def test_a_record_without_a_step_is_refused(tmp_path, record):
    with (
        TrainingLog(tmp_path / "log.jsonl") as log,
        pytest.raises(ValueError, match='whole number as its "step"'),
    ):
        log.append(record)
    assert read_log(tmp_path / "log.jsonl") == []


def test_up_to_is_a_whole_number_of_at_least_minus_one(tmp_path):
    with pytest.raises(ValueError, match="up_to: expected a whole number of at least -1, got -2"):
        TrainingLog(tmp_path / "log.jsonl", up_to=-2)


def test_the_line_for_the_terminal_says_where_the_run_stands():
    line = progress_line(120, 1000, loss=3.2141, tokens_per_second=4310.2, memory=812 * MIB)
    assert line == "step 120 of 1,000 · loss 3.214 · 4,310 tokens/s · 812 MiB"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1.5 * MIB, "1.5 MiB"), (812 * MIB, "812 MiB"),
     (1023.9 * MIB, "1.0 GiB"), (5000 * 2**40, "5000 TiB")],
)  # fmt: skip
def test_bytes_are_written_in_binary_units(count, text):
    assert bytes_text(count) == text


def test_a_peak_that_has_passed_is_remembered():
    peak = PeakMemory()
    before = peak.bytes()
    tensor = torch.ones(64 * MIB // 4)
    del tensor
    assert peak.bytes() - before == pytest.approx(64 * MIB, abs=16 * MIB)
    assert peak.bytes() >= before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can be told to count anew")
def test_a_peak_begins_anew_with_each_watch():
    tensor = torch.ones(128 * MIB // 4)
    first = PeakMemory().bytes()
    del tensor
    assert PeakMemory().bytes() < first - 64 * MIB
