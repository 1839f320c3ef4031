#!/usr/bin/env python3
"""Set up and run the course: `python start.py setup | lessons | test | test-all | lab | notebooks`.

Needs nothing but Python's standard library. The first call makes `.venv` in this folder and installs the
locked packages into it; later calls find it ready and start at once. Nothing outside this folder is changed.
"""

from __future__ import annotations  # an old Python must get as far as the sentence that says it is too old

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
SUPPORTED = ((3, 11), (3, 12), (3, 13))
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NEWEST_EXTRAS = "lab,models,test,browser"
WINDOWS = os.name == "nt"


class SetupError(Exception):
    """Something the reader can mend; the message says how."""


def say(text: str) -> None:
    print(f"[course] {text}", flush=True)


def clean_environment() -> dict[str, str]:
    """The caller's environment without paths to other Pythons' packages, and with UTF-8 everywhere."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(PYTHONUTF8="1", PYTHONIOENCODING="utf-8")
    return env


def course_environment() -> dict[str, str]:
    """The same with .venv active: its programs are found first."""
    env = clean_environment()
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = str(venv_python(VENV).parent) + os.pathsep + env.get("PATH", "")
    return env


def run(
    argv: list[str], env: dict[str, str], *, interactive: bool = False, heartbeat: str | None = None
) -> int:
    """Run a program in the course's folder and return its exit code.

    Ctrl-C reaches the child too, so it gets ten seconds to finish cleanly before it is ended. An
    `interactive` child (JupyterLab asks before it stops) decides alone what Ctrl-C means. A silent child is
    spoken for: `heartbeat` is said every minute, with the minutes gone.
    """
    child = subprocess.Popen(argv, cwd=str(ROOT), env=env)
    minutes = 0
    while True:
        try:
            return child.wait(timeout=60 if heartbeat else None)
        except subprocess.TimeoutExpired:
            minutes += 1
            say(f"{heartbeat} ({minutes} min)")
        except KeyboardInterrupt:
            if interactive:
                continue
            try:
                child.wait(timeout=10)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                child.terminate()
                child.wait()
            raise


def ask(argv: list[str]) -> str | None:
    """What a program prints, or None where it is missing, fails, or does not answer within 30 seconds."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=30, check=True, env=clean_environment())
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


# `venv` and `ensurepip` are separate packages on Debian: a Python without them cannot make an environment.
PROBE = "import sys, venv, ensurepip; print(*sys.version_info[:3]); print(sys.maxsize > 2**32)"


def python_candidates() -> list[list[str]]:
    """Commands that may start a suitable Python: the running one first, then those that CI runs in full."""
    running = getattr(sys, "_base_executable", None) or sys.executable  # not .venv's own: it may be remade
    candidates = [[running]]
    for version in ("3.11", "3.13", "3.12"):
        if WINDOWS:
            candidates.append(["py", f"-{version}"])
        candidates.append([f"python{version}"])
        candidates += [
            [str(path)] for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        ]
    return candidates


def version_of(command: list[str]) -> tuple[int, int, int] | None:
    """The version of a 64-bit Python that can make environments; None for anything else."""
    answer = ask([*command, "-c", PROBE])
    if not answer or not answer.endswith("True"):
        return None
    major, minor, micro = (int(part) for part in answer.splitlines()[0].split())
    return major, minor, micro


def find_python(candidates: list[list[str]] | None = None) -> tuple[list[str], tuple[int, int, int]]:
    """The first suitable Python. Raises SetupError, with what to install, where there is none."""
    for command in python_candidates() if candidates is None else candidates:
        version = version_of(command)
        if version and version[:2] in SUPPORTED:
            return command, version
    if WINDOWS:
        remedy = "winget install Python.Python.3.13   (or python.org/downloads, the 64-bit installer)"
    elif sys.platform == "darwin":
        remedy = "brew install python@3.13   (or python.org/downloads)"
    else:
        remedy = "sudo apt install python3 python3-venv   (or your system's package of Python 3.11 to 3.13)"
    running = ".".join(str(part) for part in sys.version_info[:3])
    raise SetupError(
        f"The course needs a 64-bit Python 3.11, 3.12 or 3.13 with `venv`; this one is {running}, and no "
        f"other was found. Install one and run the same command again:\n    {remedy}"
    )


def venv_python(venv: Path) -> Path:
    return venv / "Scripts" / "python.exe" if WINDOWS else venv / "bin" / "python"


def fingerprint(flags: dict[str, bool]) -> str:
    """Changes with the packages, the flags and this folder's place: then the environment is brought up."""
    digest = hashlib.sha256(str(ROOT).encode("utf-8"))
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes().replace(b"\r\n", b"\n"))
    digest.update(json.dumps(flags, sort_keys=True).encode("utf-8"))
    return digest.hexdigest()


def read_stamp(venv: Path) -> dict:
    """What the last setup wrote, {} where there was none or it was cut short while writing."""
    try:
        stamp = json.loads((venv / "course-setup.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, flags: dict[str, bool], finished: str | None) -> None:
    """Remember the flags, and the fingerprint of a finished setup; renamed into place, never half-written."""
    partial = venv / "course-setup.json.partial"
    partial.write_text(json.dumps({"flags": flags, "finished": finished}), encoding="utf-8")
    partial.replace(venv / "course-setup.json")


def chosen_flags(asked: dict[str, bool], stamp: dict) -> dict[str, bool]:
    """Flags given now, and those of earlier setups: `setup --cpu` once keeps later calls on CPU wheels."""
    remembered = stamp.get("flags")
    earlier = remembered if isinstance(remembered, dict) else {}
    return {name: bool(value or earlier.get(name)) for name, value in asked.items()}


def requirement_lines(text: str, *, xformers: bool) -> list[str]:
    """The pins of requirements.txt without comments, and without xFormers where it is not wanted."""
    lines = [line.strip() for line in text.splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    return pins if xformers else [line for line in pins if not line.startswith("xformers==")]


def install_commands(flags: dict[str, bool], pins: list[str], pin_file: Path) -> list[tuple[str, list[str]]]:
    """(what it does, pip's arguments) for each step of an installation."""
    torch = (
        ["--upgrade", "torch"]
        if flags["newest"]
        else [next(pin for pin in pins if pin.startswith("torch=="))]
    )
    steps = []
    if flags["cpu"]:
        # Only torch comes from PyTorch's own index, and only its CPU build: no CUDA libraries to download.
        steps.append(("torch for the CPU", ["install", "-qq", "--no-deps", "--index-url", CPU_INDEX, *torch]))
    if flags["newest"]:
        extras = NEWEST_EXTRAS if flags["no_xformers"] else NEWEST_EXTRAS + ",xformers"
        upgrade = ["install", "-qq", "--upgrade", "--upgrade-strategy", "eager"]
        steps.append(("the newest packages allowed", [*upgrade, f".[{extras}]", "setuptools"]))
    else:
        steps.append((f"{len(pins)} locked packages", ["install", "-qq", "-r", str(pin_file)]))
    editable = ["install", "-qq", "--no-deps", "--no-build-isolation", "-e", "."]
    steps.append(("course_lib, from this folder", editable))
    return steps


def has_nvidia_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


def make_venv(venv: Path) -> None:
    """Create the environment, or replace one that does not start, lacks pip or has an unsupported Python."""
    python = venv_python(venv)
    if python.exists():
        version = ask([str(python), "-c", "import sys, pip; print(*sys.version_info[:2])"])
        if version and tuple(int(part) for part in version.split()) in SUPPORTED:
            return
        say("the environment in .venv does not work: making it anew")
    command, version = find_python()
    say("making .venv with Python " + ".".join(str(part) for part in version))
    if run([*command, "-m", "venv", "--clear", str(venv)], clean_environment()) != 0:
        raise SetupError("Python could not make .venv; the lines above say why.")


def ensure_environment(asked: dict[str, bool], *, fresh: bool = False, dry_run: bool = False) -> None:
    """Bring .venv to the state that requirements.txt and the flags describe; at once where it is there."""
    flags = chosen_flags(asked, {} if fresh else read_stamp(VENV))
    wanted = fingerprint(flags)
    if not fresh and read_stamp(VENV).get("finished") == wanted and venv_python(VENV).exists():
        if dry_run:
            say(f"nothing to do: {VENV} is up to date")
        return
    pins = requirement_lines(
        (ROOT / "requirements.txt").read_text(encoding="utf-8"), xformers=not flags["no_xformers"]
    )
    steps = install_commands(flags, pins, VENV / "course-requirements.txt")
    if dry_run:
        command, version = find_python()
        python = f"Python {'.'.join(map(str, version))} ({' '.join(command)})"
        say(f"would make {VENV} with {python}, unless it is there and works")
        for what, arguments in steps:
            say(f"would install {what}: pip {' '.join(arguments)}")
        return
    if fresh and VENV.exists():
        say("removing .venv")
        try:
            shutil.rmtree(VENV)
        except OSError as error:
            raise SetupError(f".venv cannot be removed; close the programs that use it. ({error})") from error
    new = not venv_python(VENV).exists()
    if new and sys.platform == "linux" and not flags["cpu"] and not has_nvidia_gpu():
        say("no NVIDIA GPU here: on a slow line, `python start.py setup --cpu` downloads gigabytes less")
    make_venv(VENV)
    write_stamp(VENV, flags, finished=None)
    (VENV / "course-requirements.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    for what, arguments in steps:
        say(f"installing {what} (minutes the first time)" if "locked" in what else f"installing {what}")
        pip = [str(venv_python(VENV)), "-m", "pip", "--disable-pip-version-check", *arguments]
        if run(pip, course_environment(), heartbeat=f"still installing {what}") != 0:
            raise SetupError(
                f"pip could not install {what}; its own words are above. What is installed so far is kept: "
                "check the network and the free disk space (`--cpu` needs about 3 GB, CUDA about 8 GB), then "
                "run the same command again."
            )
    write_stamp(VENV, flags, finished=wanted)


MODELS = Path("course_lib", "models", "data")
COMMANDS = {  # name -> (what it does, what .venv's Python then runs)
    "setup": ("make .venv and install the locked packages into it", []),
    "lessons": (
        "run every lesson to build/lessons/*.html, with a table of minutes and memory",
        ["-m", "course_lib.classroom.notebooks", "lessons"],
    ),
    "test": ("run every check; name some to run only those", [str(Path("tests", "run_checks.py"))]),
    "test-all": ("and the checks that take longer", [str(Path("tests", "run_checks.py")), "--all"]),
    "lab": (
        "open JupyterLab on the first lesson",
        ["-m", "jupyterlab", str(Path("notebooks", "00_start_here.ipynb"))],
    ),
    "notebooks": (
        "execute the lessons in place and normalise their outputs",
        ["-m", "course_lib.classroom.notebooks", "refresh"],
    ),
    "model": (
        "train the small model that comes with the course anew; once stopped, it goes on",
        [
            *("-m", "course_lib", "train", "--recipe", str(MODELS / "lean-opt-5m.toml")),
            *("--output", str(Path("build", "lean-opt-5m")), "--model-folder", str(MODELS / "lean-opt-5m")),
        ],
    ),
}
SETUP_FLAGS = {
    "--cpu": "PyTorch's CPU build: gigabytes less to download",
    "--no-xformers": "leave xFormers out",
    "--newest": "the newest versions that pyproject.toml allows, not the locked ones",
    "--fresh": "remove .venv first, and forget earlier flags",
    "--dry-run": "say what would be done, and do nothing",
}


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command with its flags, and what follows it for the program that it starts."""
    about = "Lean Transformers: set up the course, run it, check it."
    parser = argparse.ArgumentParser(prog="start.py", description=about, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, (meaning, _) in COMMANDS.items():
        command = commands.add_parser(name, help=meaning, description=meaning, allow_abbrev=False)
        for flag, effect in SETUP_FLAGS.items() if name == "setup" else ():
            command.add_argument(flag, action="store_true", help=effect)
    options, rest = parser.parse_known_args(arguments)
    if options.command is None:
        parser.print_help()
        parser.exit(2)
    if rest and options.command == "setup":
        parser.error(f"setup has no argument {' '.join(rest)}")
    return options, rest


def main(arguments: list[str]) -> int:
    options, rest = parse(arguments)
    asked = {name: getattr(options, name, False) for name in ("cpu", "no_xformers", "newest")}
    if options.command == "setup":
        ensure_environment(asked, fresh=options.fresh, dry_run=options.dry_run)
        if not options.dry_run:
            say("ready: `python start.py lessons` runs the course, `python start.py lab` opens it")
        return 0
    ensure_environment(asked)
    interactive = options.command == "lab"
    if interactive and not WINDOWS and os.geteuid() == 0:
        rest = ["--allow-root", *rest]  # a container's only user is often root, and Jupyter would refuse it
    argv = [str(venv_python(VENV)), *COMMANDS[options.command][1], *rest]
    env = course_environment()
    if options.command == "model":
        env.setdefault("OMP_NUM_THREADS", "1")  # sums are added in an order that depends on the threads
    return run(argv, env, interactive=interactive)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a path in Bangla must print on a Windows console too
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        print()
        say("stopped; the same command goes on from here")
        sys.exit(130)
