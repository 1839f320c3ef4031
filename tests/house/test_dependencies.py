"""The lock, the ranges, and Colab's packages agree."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = [
    Requirement(line)
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
COLAB = dict(
    line.split("==")
    for line in (ROOT / "tests" / "environments" / "colab.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


def ranges() -> list[Requirement]:
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    return [Requirement(line) for line in [*PROJECT["dependencies"], *extras]]


def environment(system: str, processor: str, python: str) -> dict[str, str]:
    names = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}
    os_name, platform_system = names[system]
    return {
        **default_environment(),
        "sys_platform": system,
        "os_name": os_name,
        "platform_system": platform_system,
        "platform_machine": processor,
        "python_version": python,
        "python_full_version": f"{python}.9",
        "extra": "",
    }


SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")]


def test_every_line_of_the_lock_is_one_exact_version() -> None:
    for requirement in LOCK:
        assert re.fullmatch(r"==[\w.+!]+", str(requirement.specifier)), requirement
        assert requirement.url is None


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "-".join(system))
def test_no_package_is_locked_twice_on_any_system(system: tuple[str, str], python: str) -> None:
    here = environment(*system, python)
    names = [
        canonicalize_name(line.name) for line in LOCK if line.marker is None or line.marker.evaluate(here)
    ]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "-".join(system))
def test_everything_asked_for_is_locked_within_its_range(system: tuple[str, str]) -> None:
    here = environment(*system, "3.13")
    locked = {
        canonicalize_name(line.name): next(iter(line.specifier)).version
        for line in LOCK
        if line.marker is None or line.marker.evaluate(here)
    }
    for wanted in ranges():
        if wanted.marker is None or wanted.marker.evaluate(here):
            version = locked.get(canonicalize_name(wanted.name))
            assert version is not None, f"{wanted.name} is not in requirements.txt"
            assert version in wanted.specifier, f"{wanted} does not allow the locked {version}"


def test_xformers_is_asked_for_only_where_it_has_wheels() -> None:
    line = next(line for line in LOCK if line.name == "xformers")
    where = [system for system in SYSTEMS if line.marker.evaluate(environment(*system, "3.13"))]
    assert where == [("linux", "x86_64"), ("win32", "AMD64")]


def test_torch_is_pinned_and_its_cuda_libraries_are_left_to_it() -> None:
    names = [line.name for line in LOCK]
    assert str(next(line for line in LOCK if line.name == "torch")) == "torch==2.13.0"
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-")) or name == "triton"]


def test_the_ranges_accept_every_package_that_colab_ships() -> None:
    checked = 0
    for wanted in ranges():
        version = COLAB.get(canonicalize_name(wanted.name))
        if version is not None:
            checked += 1
            assert version in wanted.specifier, f"{wanted} would move Colab's {version}"
    assert checked >= 12


def test_what_colab_lacks_of_the_library_needs_no_torch() -> None:
    missing = [
        Requirement(line).name
        for line in PROJECT["dependencies"]
        if canonicalize_name(Requirement(line).name) not in COLAB
    ]
    # regex is in Colab's image too, filelock comes with torch; jaxtyping is pure Python: a first cell installs it.
    assert sorted(missing) == ["filelock", "jaxtyping", "regex"]


def provided() -> set[str]:
    """The distributions that pyproject.toml asks for, with all that those bring along."""
    found: set[str] = set()
    open_ends = [canonicalize_name(wanted.name) for wanted in ranges()]
    while open_ends:
        name = open_ends.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # no wheel for this system
            continue
        wanted = [Requirement(line) for line in needs]
        open_ends += [
            canonicalize_name(one.name)
            for one in wanted
            if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return found


def test_every_package_that_the_library_imports_is_asked_for() -> None:
    distributions = metadata.packages_distributions()
    available = provided()
    for path in sorted((ROOT / "course_lib").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for module in (name.split(".")[0] for name in modules):
                if module == "course_lib" or module in sys.stdlib_module_names or module not in distributions:
                    continue
                names = {canonicalize_name(name) for name in distributions[module]}
                assert names & available, (
                    f"{path.relative_to(ROOT)} imports {module}: add it to pyproject.toml"
                )
