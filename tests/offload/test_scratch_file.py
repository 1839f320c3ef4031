"""Scratch files hold what is written, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from course_lib.offload.direct_io import aligned_buffer
from course_lib.offload.scratch_file import ScratchFile


def test_slots_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, 3 * 4096)
    for slot in (2, 0, 1):
        source = aligned_buffer(4096)
        source.fill_(slot + 1)
        file.write(4096 * slot, source)
    for slot in range(3):
        out = aligned_buffer(4096)
        file.read(4096 * slot, out)
        assert torch.unique(out).tolist() == [slot + 1]
    file.close()


def test_a_scratch_file_takes_its_room_at_once_and_has_no_name(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path, 10_000)
    assert file._file.nbytes == (12_288 if hasattr(os, "posix_fallocate") else 0)
    if os.name == "posix":
        assert list(tmp_path.iterdir()) == []
    file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="elsewhere an open file keeps its name")
def test_a_process_that_is_killed_leaves_no_scratch_file(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from course_lib.offload.scratch_file import ScratchFile; "
        "file = ScratchFile(sys.argv[1], 100_000); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -9
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="only there is the room taken at once")
def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"offload_dir: 4\.0 MiB are needed .* keep more of them in memory"):
        ScratchFile(tmp_path, 4 * 2**20)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ScratchFile(tmp_path / "nowhere", 4096)
