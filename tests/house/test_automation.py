"""What runs without a person: CI's script and workflow, the citation file, the built package."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def read_yaml(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="needs bash")
def test_the_ci_script_can_be_run_and_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert script.read_text(encoding="utf-8").rstrip().endswith("make test")


def workflow_commands() -> list[str]:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_workflow_calls_only_what_exists() -> None:
    listed = subprocess.run(
        [sys.executable, "tests/run_checks.py", "--all", "no-such-step"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    ).stderr
    steps = re.search(r"the steps are (.+)", listed.replace("\n", " "))[1].replace(",", "").split()
    for command in workflow_commands():
        if command == "bash .ci/run":
            continue
        program, script, verb, *rest = command.split()
        assert (program, script) == ("python", "start.py")
        if verb == "setup":
            assert set(rest) <= {"--cpu", "--no-xformers", "--newest"}
        else:
            assert verb == "test" and set(rest) <= set(steps)


def test_the_workflow_covers_the_systems_and_pythons_that_the_readme_promises() -> None:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    assert jobs["everything"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert jobs["unit"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    assert any("--no-xformers" in command for command in workflow_commands())


def test_the_citation_names_the_project_as_its_author() -> None:
    assert read_yaml("CITATION.cff")["authors"] == [{"name": "Lean Transformers contributors"}]


def test_condas_environment_installs_the_lock() -> None:
    dependencies = read_yaml("environment.yml")["dependencies"]
    pip = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert "-r requirements.txt" in pip and "-e ." in pip


def test_a_built_package_holds_the_corpus_and_the_sentences(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-lessons", "LICENSE-corpus"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "course_lib", source / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", str(tmp_path), "."], cwd=source, check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = [*(ROOT / "course_lib" / "text" / "data").glob("*"), *(ROOT / "course_lib").rglob("*.toml")]
    wanted += list((ROOT / "course_lib").rglob("*.py"))
    missing = {path.relative_to(ROOT).as_posix() for path in wanted if path.is_file()} - packed
    assert not missing
    assert not [name for name in packed if name.startswith("tests/")]
