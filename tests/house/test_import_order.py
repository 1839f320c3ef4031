"""The lesson order is held by import-linter: a module that breaks it is found, on the real contract."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


@pytest.fixture
def small_course(tmp_path: Path) -> Path:
    """The real contract over a course_lib of empty modules."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("attention/__init__", "attention/xformers_bridge", "text/__init__", "classroom/__init__"):
        module(tmp_path, name, "")
    for name in ("__init__", "packing", "gqa", "swiglu"):
        module(tmp_path, name, "")
    return tmp_path


def module(folder: Path, name: str, source: str) -> None:
    path = folder / "course_lib" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def lint(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", LINT],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    return done.returncode, " ".join(done.stdout.split())


def test_an_import_of_an_earlier_lesson_is_fine(small_course: Path) -> None:
    module(small_course, "packing", "from course_lib import attention, text\n")
    module(small_course, "swiglu", "from course_lib import gqa\n")
    module(small_course, "attention/xformers_bridge", "def load():\n    import xformers\n")
    code, said = lint(small_course)
    assert code == 0, said


@pytest.mark.parametrize(
    ("name", "source", "named"),
    [
        ("packing", "from course_lib import swiglu\n", "course_lib.packing"),
        ("packing", "def late():\n    import course_lib.gqa\n", "course_lib.packing"),
        ("attention/__init__", "import course_lib.text\n", "course_lib.attention"),
        ("swiglu", "import course_lib.classroom\n", "course_lib.swiglu"),
        ("tangle", "", "tangle"),  # a module without a place in the order
        ("gqa", "import xformers\n", "xFormers stays behind one file BROKEN"),
    ],
)
def test_an_import_against_the_order_is_found(small_course: Path, name: str, source: str, named: str) -> None:
    module(small_course, name, source)
    code, said = lint(small_course)
    assert code != 0 and "BROKEN" in said
    assert named in said
