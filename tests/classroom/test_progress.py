"""Progress survives power cuts, broken files, two notebooks at once and folders that cannot be written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.classroom.progress import FILE_NAME, Progress, state_folder


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def progress(tmp_path: Path, told: list[str]) -> Progress:
    return Progress(lambda: tmp_path / "state", told.append)


def test_a_try_then_an_accepted_answer_are_kept_across_kernels(progress, tmp_path):
    progress.record_hint("1.1", 1)
    progress.record_try("1.1", solved=False)
    assert progress.entry("1.1")["status"] == "tried"
    progress.record_try("1.1", solved=True, source="def my_mask(): …\n")
    entry = Progress(lambda: tmp_path / "state").entry("1.1")
    assert (entry["status"], entry["tries"], entry["hints"]) == ("solved", 2, 1)
    assert entry["source"] == "def my_mask(): …\n" and len(entry["date"]) == 10


def test_what_was_solved_stays_solved(progress):
    progress.record_try("1.1", solved=True, source="good")
    progress.record_try("1.1", solved=False)
    assert progress.entry("1.1") | {"date": ""} == {
        "status": "solved", "tries": 2, "hints": 0, "source": "good", "date": "",
    }  # fmt: skip


def test_the_file_says_its_version_and_nothing_else_lies_beside_it(progress):
    progress.record_try("1.1", solved=False)
    assert json.loads(progress.path.read_text(encoding="utf-8"))["version"] == 1
    assert [path.name for path in progress.path.parent.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"version": 1}',
        b'{"version": "x", "exercises": {}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_a_broken_file_is_set_aside_with_a_sentence_and_the_lesson_goes_on(progress, told, content):
    progress.path.parent.mkdir()
    progress.path.write_bytes(content)
    progress.record_try("1.1", solved=True, source="x")
    assert progress.entry("1.1")["status"] == "solved"
    kept = list(progress.path.parent.glob("course_progress.broken-*.json"))
    assert len(kept) == 1 and kept[0].read_bytes() == content
    assert told == [
        f"The progress file could not be read; it is kept as {kept[0].name}, and a new one has been started."
    ]


@pytest.mark.parametrize(
    "entry", [None, 5, {"status": "great"}, {"tries": "many"}, {"source": 5, "hints": True}]
)
def test_an_odd_entry_does_not_spoil_the_others(progress, told, entry):
    progress.record_try("1.1", solved=True, source="x")
    state = json.loads(progress.path.read_text(encoding="utf-8"))
    state["exercises"]["1.2"] = entry
    progress.path.write_text(json.dumps(state), encoding="utf-8")
    assert progress.entry("1.1")["status"] == "solved"
    progress.record_try("1.2", solved=False)
    assert progress.entry("1.2")["status"] == "tried" and told == []


def test_a_newer_file_is_left_as_it_is(progress, told):
    progress.path.parent.mkdir()
    newer = '{"version": 2, "exercises": {"1.1": {"status": "solved", "stars": 5}}, "more": 1}'
    progress.path.write_text(newer, encoding="utf-8")
    progress.record_try("1.2", solved=True, source="x")
    progress.record_try("1.3", solved=False)
    assert progress.path.read_text(encoding="utf-8") == newer
    assert [progress.entry(f"1.{n}")["status"] for n in (1, 2, 3)] == ["solved", "solved", "tried"]
    assert len(told) == 1 and "newer version" in told[0]


def test_an_unwritable_folder_keeps_progress_in_memory_and_says_so_once(tmp_path, told):
    (tmp_path / "file").write_text("", encoding="utf-8")
    progress = Progress(
        lambda: tmp_path / "file" / "inside", told.append
    )  # a folder cannot be made in a file
    progress.record_try("1.1", solved=False)
    progress.record_try("1.1", solved=True, source="x")
    assert progress.entry("1.1")["status"] == "solved" and progress.entry("1.1")["tries"] == 2
    assert len(told) == 1 and "Progress cannot be saved here (" in told[0] and "COURSE_STATE_DIR" in told[0]


def test_a_write_that_breaks_off_leaves_the_old_file_whole(progress, monkeypatch, told):
    progress.record_try("1.1", solved=True, source="x")
    before = progress.path.read_bytes()

    def no_space(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    progress.record_try("1.2", solved=False)
    assert progress.path.read_bytes() == before
    assert progress.entry("1.2")["status"] == "tried" and "No space left on device" in told[0]
    assert not list(progress.path.parent.glob("*.part"))


def test_a_lock_left_by_a_dead_process_is_broken(progress):
    progress.path.parent.mkdir()
    lock = progress.path.with_name(FILE_NAME + ".lock")
    lock.touch()
    os.utime(lock, (0, 0))
    progress.record_try("1.1", solved=False)
    assert progress.entry("1.1")["status"] == "tried" and not lock.exists()


WRITER = """
import sys
from pathlib import Path
from course_lib.classroom.progress import Progress
progress = Progress(lambda: Path(sys.argv[1]))
for n in range(20):
    progress.record_try(f"{sys.argv[2]}.{n}", solved=True, source="x" * 1000)
"""


def test_two_notebooks_at_once_keep_each_others_entries(progress, tmp_path):
    (tmp_path / "state").mkdir()
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "state"), lesson])
        for lesson in ("1", "2")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert set(progress.entries()) == {f"{lesson}.{n}" for lesson in (1, 2) for n in range(20)}


def test_a_folder_named_in_bangla_with_a_space_works(tmp_path):
    progress = Progress(lambda: tmp_path / "আমার কোর্স")
    progress.record_try("1.1", solved=True, source="# মাস্ক")
    assert progress.entry("1.1")["source"] == "# মাস্ক"


def test_the_environment_chooses_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path / "x"))
    assert state_folder() == tmp_path / "x"
    monkeypatch.delenv("COURSE_STATE_DIR")
    monkeypatch.chdir(tmp_path)
    assert state_folder() == tmp_path
    monkeypatch.setattr("course_lib.classroom.progress._DRIVE", tmp_path)  # as Colab mounts it
    assert state_folder() == tmp_path / "lean_transformers"
