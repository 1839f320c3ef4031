"""The real thing: `start.py setup` in a folder named in Bangla, with a space, and no network.

The folder holds start.py beside a miniature course whose only dependency is an empty package called torch,
packed here by hand, so that Python, venv and pip are real and nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Setup = Callable[[], str]

BACKEND = """
import pathlib, zipfile

NAME = "course_lib-0.1.0"
METADATA = "Metadata-Version: 2.1\\nName: course_lib\\nVersion: 0.1.0\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: by-hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def build_editable(folder, config_settings=None, metadata_directory=None):
    name = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("course_lib.pth", str(pathlib.Path.cwd()))
        wheel.writestr(f"{NAME}.dist-info/METADATA", METADATA)
        wheel.writestr(f"{NAME}.dist-info/WHEEL", WHEEL)
        wheel.writestr(f"{NAME}.dist-info/RECORD", "")
    return name
"""


def make_empty_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f'__version__ = "{version}"\n')
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "আমার কোর্স"
    (folder / "course_lib").mkdir(parents=True)
    shutil.copy(ROOT / "start.py", folder)
    (folder / "course_lib" / "__init__.py").write_text("WORD = 'মাস্ক'\n", encoding="utf-8")
    (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
    (folder / "requirements.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(build, encoding="utf-8")
    make_empty_wheel(folder, "torch", "2.13.0")
    return folder


@pytest.fixture(scope="module")
def setup(course: Path) -> Setup:
    """Runs `start.py setup` there, offline; returns what it said."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ".", "PIP_CONFIG_FILE": os.devnull}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "start.py", "setup"],
            cwd=course,
            env={**os.environ, **offline},
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_setup_makes_a_working_environment_then_is_instant_then_mends_a_broken_one(
    course: Path, setup: Setup
) -> None:
    scripts = course / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")

    said = setup()
    assert "making .venv" in said and "installing course_lib" in said
    program = "import torch, course_lib; print(torch.__version__, course_lib.WORD)"
    # From another folder, so that course_lib can only come from the installation.
    found = subprocess.run(
        [python, "-X", "utf8", "-c", program],
        cwd=course.parent,
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert found.stdout.strip() == "2.13.0 মাস্ক", found.stderr

    assert "installing" not in setup()

    python.unlink()
    said = setup()
    assert "making .venv" in said
    assert python.exists()
