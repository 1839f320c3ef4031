"""A small lesson to check answers against, with its own messages and a progress file of its own."""

import shutil
from pathlib import Path

import pytest
from demo_answers import mask, top_left

from course_lib.classroom import messages
from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson

DEMO_MESSAGES = """
[mask.title]
en = "the mask"
bn = "মাস্ক"
[mask.start]
en = "write the mask."
bn = "মাস্কটি লিখুন।"
[mask.hint_1]
en = "Which word?"
bn = "কোন শব্দ?"
[mask.hint_2]
en = "The last one."
bn = "শেষেরটি।"
[mask.square]
en = "a square"
bn = "বর্গাকার"
[mask.top_left]
en = "Top-left: {call} {place} {row}"
bn = "ওপরের বাঁ কোণ: {call} {place} {row}"
[mask.big_number]
en = "It holds {got}."
bn = "এতে আছে {got}।"
[bytes.title]
en = "bytes"
bn = "বাইট"
[bytes.start]
en = "write a number."
bn = "একটি সংখ্যা লিখুন।"
[bytes.bits]
en = "Those are bits."
bn = "এগুলো বিট।"
"""


@pytest.fixture
def demo_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a catalogue that holds the common sentences and those of the lesson below."""
    folder = tmp_path / "messages"
    folder.mkdir()
    shutil.copy(Path(messages.__file__).with_name("messages") / "common.toml", folder)
    (folder / "demo.toml").write_text(DEMO_MESSAGES, encoding="utf-8")
    monkeypatch.setattr(messages, "_FOLDER", folder)
    monkeypatch.setattr(messages, "_chosen", ["en"])
    messages.catalogue.cache_clear()
    yield folder
    messages.catalogue.cache_clear()


@pytest.fixture
def lesson(demo_messages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson:
    """Exercise 9.1, a bottom-right mask, and question 9.2."""
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path / "state"))
    made = Lesson("demo")
    made.exercise(
        "9.1",
        "mask",
        solution=mask,
        cases=[Case((3, 3), label="square"), Case((2, 5))],
        mistakes=[
            Mistake("top_left", like=top_left, values=lambda attempt: {"row": attempt.args[0]}),
            Mistake("big_number", when=lambda attempt: bool((attempt.got == -1e9).any())),
        ],
    )
    made.question("9.2", "bytes", answer=4096, mistakes=[Mistake("bits", like=lambda: 8 * 4096)])
    return made
