"""What a student has tried and solved, kept in a file beside the notebook.

The file is `course_progress.json` in COURSE_STATE_DIR, or in the mounted Google Drive on Colab, or in the
notebook's folder. It holds for each exercise its status, the number of tries and hints, and the source of the
code that was accepted:

    {"version": 1, "exercises": {"1.1": {
        "status": "solved", "tries": 2, "hints": 1, "source": "def …", "date": "2026-08-01"}}}

It never stands in the way of a lesson. Writes are atomic, and read what is there first under a lock, so that
two notebooks at once keep each other's entries. A file that cannot be read is set aside, with a sentence;
where nothing can be written, progress lives in memory, and says so once.
"""

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from course_lib.classroom.messages import say

FILE_NAME = "course_progress.json"
VERSION = 1
_DRIVE = Path("/content/drive/MyDrive")
_LOCK_WAIT_S = 1.0
_LOCK_STALE_S = 5.0  # a lock this old belongs to a process that died

Entry = dict[str, Any]


def state_folder() -> Path:
    """Where the file goes: COURSE_STATE_DIR, Google Drive when Colab has it mounted, else the current
    folder."""
    chosen = os.environ.get("COURSE_STATE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return _DRIVE / "lean_transformers" if _DRIVE.is_dir() else Path.cwd()


def on_colab_without_drive() -> bool:
    """Whether this is Colab, with nowhere to keep a file past the next reset."""
    return (
        "COLAB_RELEASE_TAG" in os.environ and not _DRIVE.is_dir() and not os.environ.get("COURSE_STATE_DIR")
    )


class Progress:
    """The progress file. `tell` is called with each sentence that the student should read (default:
    print)."""

    def __init__(
        self, folder: Callable[[], Path] = state_folder, tell: Callable[[str], None] = print
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._memory: dict[str, Entry] | None = None  # set once the file is out of reach

    @property
    def path(self) -> Path:
        return self._folder() / FILE_NAME

    def entries(self) -> dict[str, Entry]:
        """All entries by exercise id. Never raises."""
        if self._memory is not None:
            return self._memory
        return self._read()

    def entry(self, exercise_id: str) -> Entry:
        """{"status": "not started" | "tried" | "solved", "tries": int, "hints": int, "source": str, "date":
        str}."""
        return _blank() | self.entries().get(exercise_id, {})

    def record_try(self, exercise_id: str, *, solved: bool, source: str = "") -> None:
        """One check of an answer that was not an untouched stub. What was once solved stays solved."""

        def change(entry: Entry) -> None:
            entry["tries"] += 1
            if solved:
                entry.update(status="solved", source=source, date=datetime.date.today().isoformat())
            elif entry["status"] != "solved":
                entry["status"] = "tried"

        self._change(exercise_id, change)

    def record_hint(self, exercise_id: str, number: int) -> None:
        """The student has seen hint `number` (counted from 1)."""
        self._change(exercise_id, lambda entry: entry.update(hints=max(entry["hints"], number)))

    def _change(self, exercise_id: str, change: Callable[[Entry], None]) -> None:
        if self._memory is None:
            try:
                self._change_file(exercise_id, change)
                return
            except OSError as error:
                self._memory = self._read()
                self._tell(say("common.state_unwritable", reason=error.strerror or type(error).__name__))
        _apply(self._memory, exercise_id, change)

    def _change_file(self, exercise_id: str, change: Callable[[Entry], None]) -> None:
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.with_name(FILE_NAME + ".lock")):
            entries = self._read()
            _apply(entries, exercise_id, change)
            if self._memory is None:  # else it is a newer version's file, and not ours to write
                _write(path, {"version": VERSION, "exercises": entries})

    def _read(self) -> dict[str, Entry]:
        path = self.path
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            return self._set_aside(path) if isinstance(error, UnicodeDecodeError) else {}
        try:
            state = json.loads(text)
            version, entries = state["version"], state["exercises"]
            if not isinstance(version, int) or not isinstance(entries, dict):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            return self._set_aside(path)
        kept = {name: _sound(entry) for name, entry in entries.items() if isinstance(entry, dict)}
        if version > VERSION:
            self._memory = kept
            self._tell(say("common.state_newer", file=FILE_NAME))
        return kept

    def _set_aside(self, path: Path) -> dict[str, Entry]:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        kept = path.with_name(f"course_progress.broken-{stamp}.json")
        with contextlib.suppress(OSError):
            os.replace(path, kept)
            self._tell(say("common.state_broken", kept=kept.name))
        return {}


def _apply(entries: dict[str, Entry], exercise_id: str, change: Callable[[Entry], None]) -> None:
    entry = _blank() | entries.get(exercise_id, {})
    change(entry)
    entries[exercise_id] = entry


def _blank() -> Entry:
    return {"status": "not started", "tries": 0, "hints": 0, "source": "", "date": ""}


def _sound(entry: Entry) -> Entry:
    """The known fields of an entry that have the right type; the rest as in a blank one."""
    blank = _blank()
    for name, default in blank.items():
        value = entry.get(name)
        if type(value) is type(default):
            blank[name] = value
    if blank["status"] not in ("not started", "tried", "solved"):
        blank["status"] = "tried"
    return blank


def _write(path: Path, state: dict[str, Any]) -> None:
    """Write beside the file, then swap: a reader or a power cut sees the old file or the new one, whole."""
    text = json.dumps(state, ensure_ascii=False, indent=1, sort_keys=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(unfinished, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        for wait_s in (0.02, 0.05, 0.1, 0.2):
            try:
                os.replace(unfinished, path)
                return
            except PermissionError:  # Windows, while another process reads the file
                time.sleep(wait_s)
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Hold a lock file, the one kind of lock that every system and Google Drive know. Waits, but not for
    long: after a second the write goes ahead, since a lost entry harms less than a lesson that stands
    still."""
    until, held = time.monotonic() + _LOCK_WAIT_S, False
    while not held:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            held = True
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > _LOCK_STALE_S:
                    lock.unlink()
                    continue
            if time.monotonic() > until:
                break
            time.sleep(0.01)
    try:
        yield
    finally:
        if held:
            with contextlib.suppress(OSError):
                lock.unlink()
