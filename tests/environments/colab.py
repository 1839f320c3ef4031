"""Does the course run on Colab's packages? `python start.py test-all colab`.

Makes `.venv-colab` with the versions of colab.txt beside this file, installs course_lib as a lesson's first
cell does, sees that nothing of Colab's was moved, and executes every lesson there. Only torch is the locked
one: Colab's own build needs CUDA libraries that would be gigabytes to fetch.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-colab"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
# What runs the lessons here but is no part of a lesson; on Colab, Colab's own page does it.
RUNNER = ["nbconvert", "latex2mathml"]


def pins() -> list[str]:
    """Colab's versions, with torch as requirements.txt has it."""
    lines = Path(__file__).with_name("colab.txt").read_text(encoding="utf-8").splitlines()
    colab = [line for line in lines if line and not line.startswith(("#", "torch=="))]
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [*colab, *(line for line in lock if line.startswith("torch=="))]


def run(*arguments: str) -> None:
    print(f"[colab] python {' '.join(arguments)[:100]}", flush=True)
    subprocess.run([str(PYTHON), *arguments], cwd=ROOT, check=True)


def installed() -> dict[str, str]:
    listing = subprocess.run(
        [str(PYTHON), "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return dict(line.split("==", 1) for line in listing.stdout.splitlines() if "==" in line)


def main() -> int:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    run("-m", "pip", "install", "-qq", *pins())
    before = installed()
    run("-m", "pip", "install", "-qq", "-e", ".")
    after = installed()
    moved = {
        name: (version, after.get(name)) for name, version in before.items() if after.get(name) != version
    }
    if moved:
        print(f"[colab] installing course_lib moved packages of Colab's: {moved}")
        return 1
    print(
        f"[colab] installing course_lib added only {', '.join(sorted(set(after) - set(before)))}", flush=True
    )
    run("-m", "pip", "install", "-qq", *RUNNER, *pins())
    run("-m", "course_lib.classroom.notebooks", "lessons", "-o", str(ROOT / "build" / "colab"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
