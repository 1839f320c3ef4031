"""Facts about the files of the repository: encodings, licences, versions, links, what must not be in them."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib import REPOSITORY, __version__, cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BINARY = {".png", ".safetensors", ".npz", ".ico"}


def files(*suffixes: str) -> list[Path]:
    """The files that git has or would add, so neither .venv nor anything built."""
    listed = subprocess.run(
        ["git", "-c", "core.quotePath=false", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.splitlines()
    paths = [ROOT / name for name in listed]
    return [path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes)]


def python_sources() -> Iterator[tuple[str, str]]:
    """(where, source) of every Python file, and of every code cell that is plain Python."""
    for path in files(".py"):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in files(".ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for number, cell in enumerate(notebook["cells"]):
            lines = "".join(cell["source"]).splitlines()
            if cell["cell_type"] == "code" and not any(line.lstrip()[:1] in ("%", "!") for line in lines):
                yield f"{path.name} cell {number}", "\n".join(lines)


def opened_without_encoding(source: str) -> list[int]:
    """Line numbers of calls that read or write text in whatever encoding the reader's system prefers."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        named = {keyword.arg for keyword in call.keywords}
        if "encoding" in named or None in named:
            continue
        if _asks_for_text_pipes(call) or _opens_text(call):
            found.append(call.lineno)
    return found


def _asks_for_text_pipes(call: ast.Call) -> bool:
    flags = [keyword.value for keyword in call.keywords if keyword.arg in ("text", "universal_newlines")]
    return any(isinstance(flag, ast.Constant) and flag.value is True for flag in flags)


def _opens_text(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in ("read_text", "write_text"):
        return len(call.args) < (1 if function.attr == "read_text" else 2)
    owners = ("os", "webbrowser", "zipfile", "Image", "tarfile")
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if function.attr != "open" or owner in owners:
            return False
        position = 1 if owner == "io" else 0
    elif isinstance(function, ast.Name) and function.id in ("open", "fdopen"):
        position = 1
    else:
        return False
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    modes += call.args[position : position + 1]
    return not any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes)


def test_every_opened_text_names_its_encoding() -> None:
    faults = [
        f"{where}:{line}" for where, source in python_sources() for line in opened_without_encoding(source)
    ]
    assert not faults, f'add encoding="utf-8": {", ".join(faults)}'


@pytest.mark.parametrize(
    ("source", "faulty"),
    [
        ("open('a')", True),
        ("open('a', 'w')", True),
        ("open('a', mode='wb')", False),
        ("open('a', 'rb')", False),
        ("open('a', encoding='utf-8')", False),
        ("Path('a').open()", True),
        ("path.open('rb')", False),
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text('x')", True),
        ("path.write_text('x', 'utf-8')", False),
        ("os.open('a', os.O_RDONLY)", False),
        ("subprocess.run(['a'], text=True)", True),
        ("subprocess.run(['a'], capture_output=True)", False),
    ],
)
def test_the_search_for_missing_encodings_finds_them(source: str, faulty: bool) -> None:
    assert bool(opened_without_encoding(source)) is faulty


def test_every_text_file_is_utf8_with_unix_line_ends_and_no_mark_in_front() -> None:
    for path in files():
        if path.suffix not in BINARY:
            content = path.read_bytes()
            content.decode("utf-8")
            assert not content.startswith(b"\xef\xbb\xbf"), f"{path}: byte order mark"
            assert b"\r\n" not in content, f"{path}: Windows line ends"


def test_no_file_names_a_place_on_one_machine() -> None:
    # An invented /home/rahim may stand in a test; where somebody's checkout or packages really lie may not.
    places = "work|root|opt/wheels|opt/pypi|tmp/plan|builds|github/workspace"
    pattern = re.compile(rf"(?<![\w.~:/<*-])/(?:{places})(?:/[\w.-]|[\s\"'`])")
    faults = []
    for path in files():
        if path.suffix not in BINARY:
            lines = path.read_text(encoding="utf-8").splitlines()
            found = [number for number, line in enumerate(lines, start=1) if pattern.search(line)]
            faults += [f"{path.relative_to(ROOT)}:{number}" for number in found]
    assert not faults, "\n".join(faults)


def test_no_source_file_is_longer_than_four_hundred_lines() -> None:
    for path in files(".py"):
        count = len(path.read_text(encoding="utf-8").splitlines())
        assert count <= 400, f"{path.relative_to(ROOT)} has {count} lines: that is two files"


def test_the_licence_files_are_there_and_the_readme_says_which_covers_what() -> None:
    first = {
        "LICENSE": "Apache License",
        "LICENSE-lessons": "Creative Commons Attribution 4.0 International",
        "LICENSE-corpus": "CC0 1.0 Universal",
    }
    for name, words in first.items():
        assert words in (ROOT / name).read_text(encoding="utf-8")[:400]
        assert f"]({name})" in README
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == list(first)


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "course_lib.__version__"}


def test_every_link_to_the_course_on_github_names_the_one_repository() -> None:
    link = re.compile(r"(?:github\.com|colab\.research\.google\.com/github)/(lean-[\w.-]+/[\w.-]+)")
    found = 0
    for path in files(".md", ".ipynb", ".toml", ".cff", ".yml", ".py"):
        for name in link.findall(path.read_text(encoding="utf-8")):
            found += 1
            assert name.removesuffix(".git") == REPOSITORY, f"{path.relative_to(ROOT)}: {name}"
    assert found >= 3


def lesson_rows() -> dict[str, str]:
    rows = re.findall(r"^\| (\d\d) \| ([^|]+) \|", README, re.MULTILINE)
    return {number: cell for number, cell in rows}


def test_the_readme_lists_thirteen_lessons_and_links_those_that_exist() -> None:
    rows = lesson_rows()
    assert list(rows) == [f"{number:02}" for number in range(13)]
    notebooks = {path.name[:2]: path.name for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    for number, cell in rows.items():
        link = re.search(r"\(notebooks/([^)]+)\)", cell)
        if number in notebooks:
            assert link and link[1] == notebooks[number], f"lesson {number} exists: link it in the README"
        else:
            assert "in preparation" in cell, f"lesson {number} has no notebook: say (in preparation)"


def test_every_relative_link_of_the_documents_leads_to_a_file() -> None:
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        targets = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
        for target in targets:
            if "://" not in target:
                assert (ROOT / target).exists(), f"{document}: {target}"


def test_every_command_in_the_documents_exists() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in set(re.findall(r"`make ([\w-]+)", text)) | set(
        re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    ):
        assert re.search(rf"^[\w -]*\b{name}\b[\w -]*:", targets, re.MULTILINE), f"make {name}"
    help_text = subprocess.run(
        [sys.executable, "start.py", "setup", "--help"], cwd=ROOT, capture_output=True, encoding="utf-8"
    ).stdout
    overview = subprocess.run(
        [sys.executable, "start.py", "--help"], cwd=ROOT, capture_output=True, encoding="utf-8"
    ).stdout
    for line in re.findall(r"start\.py ([^`\n]+)`", text):
        command, *rest = line.split()
        assert command in overview, f"start.py {command}"
        for flag in (word for word in rest if word.startswith("--")):
            assert flag in help_text, f"start.py {line}"
    for command in re.findall(r"python -m course_lib (\w+)", text):
        assert command in cli.COMMANDS, f"python -m course_lib {command}"


def test_make_and_start_offer_the_same_commands() -> None:
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", targets, re.MULTILINE)[1].split()
    overview = subprocess.run(
        [sys.executable, "start.py", "--help"], cwd=ROOT, capture_output=True, encoding="utf-8"
    ).stdout
    offered = re.findall(r"^    ([\w-]+)(?: |$)", overview, re.MULTILINE)
    assert sorted(set(phony) - {"help"}) == sorted(offered)


def test_the_committed_pictures_are_those_that_the_code_draws() -> None:
    namespace: dict[str, object] = {
        "__name__": "course_map",
        "__file__": str(ROOT / "assets" / "course_map.py"),
    }
    exec((ROOT / "assets" / "course_map.py").read_text(encoding="utf-8"), namespace)
    for name, theme in namespace["THEMES"].items():
        committed = (ROOT / "assets" / f"course_map_{name}.svg").read_text(encoding="utf-8")
        assert namespace["draw"](theme) == committed, "run python assets/course_map.py"
