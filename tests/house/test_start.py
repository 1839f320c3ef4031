"""start.py: which Python it takes, what it installs, what it remembers."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_FLAGS = {"cpu": False, "no_xformers": False, "newest": False}
PINS = ["numpy==2.4.6", "torch==2.13.0", "xformers==0.0.35 ; sys_platform == 'linux'"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """start.py as a module that believes it stands in an empty folder."""
    spec = importlib.util.spec_from_file_location("start", ROOT / "start.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    (tmp_path / "requirements.txt").write_text("# pins\n" + "\n".join(PINS) + "\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    return module


@pytest.fixture
def pip(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replaces every started program: `venv` makes the folder, pip does nothing; the calls are recorded."""
    calls: list[list[str]] = []

    def run(argv: list[str], env: dict[str, str], **_: object) -> int:
        calls.append(argv)
        if "venv" in argv:
            python = start.venv_python(Path(argv[-1]))
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()
        return 0

    monkeypatch.setattr(start, "run", run)
    monkeypatch.setattr(start, "find_python", lambda: (["python3.11"], (3, 11, 7)))
    monkeypatch.setattr(start, "ask", lambda argv: "3 11")
    return calls


def test_the_first_suitable_python_is_taken(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"old": (3, 10, 13), "broken": None, "good": (3, 12, 1), "newer": (3, 13, 0)}
    monkeypatch.setattr(start, "version_of", lambda command: answers[command[0]])
    assert start.find_python([["old"], ["broken"], ["good"], ["newer"]]) == (["good"], (3, 12, 1))


@pytest.mark.parametrize(
    ("platform", "windows", "remedy"),
    [("linux", False, "python3-venv"), ("darwin", False, "brew install"), ("win32", True, "winget install")],
)
def test_without_a_suitable_python_it_says_what_to_install(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, platform: str, windows: bool, remedy: str
) -> None:
    monkeypatch.setattr(start, "version_of", lambda command: (3, 14, 0))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(start, "WINDOWS", windows)
    with pytest.raises(start.SetupError, match=r"needs a 64-bit Python 3\.11, 3\.12 or 3\.13") as caught:
        start.find_python([["python3"]])
    assert remedy in str(caught.value)


@pytest.mark.parametrize("answer", [None, "", "3 11 7\nFalse"])
def test_a_python_that_fails_or_has_32_bits_is_passed_over(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    monkeypatch.setattr(start, "ask", lambda argv: answer)
    assert start.version_of(["python3"]) is None


def test_a_missing_program_gives_no_answer(start: ModuleType) -> None:
    assert start.ask(["no-such-program-anywhere"]) is None


def test_the_running_python_can_make_environments(start: ModuleType) -> None:
    assert start.version_of([sys.executable]) == sys.version_info[:3]


def test_windows_keeps_its_python_in_scripts(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "WINDOWS", True)
    assert start.venv_python(Path("v")) == Path("v", "Scripts", "python.exe")
    assert ["py", "-3.13"] in start.python_candidates()


def test_children_get_utf8_and_none_of_the_callers_package_paths(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("PYTHONHOME", "elsewhere")
    env = start.course_environment()
    assert env["PYTHONUTF8"] == "1"
    assert "PYTHONPATH" not in env and "PYTHONHOME" not in env
    assert env["PATH"].startswith(str(start.venv_python(start.VENV).parent))


def test_a_second_setup_runs_no_program(start: ModuleType, pip: list[list[str]]) -> None:
    start.ensure_environment(NO_FLAGS)
    assert len(pip) == 3  # venv, the locked packages, course_lib
    pip.clear()
    start.ensure_environment(NO_FLAGS)
    assert pip == []


def test_changed_pins_are_installed_without_making_the_environment_anew(
    start: ModuleType, pip: list[list[str]]
) -> None:
    start.ensure_environment(NO_FLAGS)
    pip.clear()
    (start.ROOT / "requirements.txt").write_text("torch==2.13.1\n", encoding="utf-8")
    start.ensure_environment(NO_FLAGS)
    assert [argv[2] for argv in pip] == ["pip", "pip"]


def test_a_moved_folder_is_installed_again(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = start.fingerprint(NO_FLAGS)
    moved = start.ROOT / "moved"
    moved.mkdir()
    for name in ("requirements.txt", "pyproject.toml"):
        (moved / name).write_bytes((start.ROOT / name).read_bytes())
    monkeypatch.setattr(start, "ROOT", moved)
    assert start.fingerprint(NO_FLAGS) != before


def test_line_endings_do_not_change_the_fingerprint(start: ModuleType) -> None:
    before = start.fingerprint(NO_FLAGS)
    pins = start.ROOT / "requirements.txt"
    pins.write_bytes(pins.read_bytes().replace(b"\n", b"\r\n"))
    assert start.fingerprint(NO_FLAGS) == before


def test_an_interrupted_setup_is_taken_up_again(
    start: ModuleType, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    working = start.run
    monkeypatch.setattr(start, "run", lambda argv, env, **more: working(argv, env) or ("pip" in argv))
    with pytest.raises(start.SetupError, match="run the same command again"):
        start.ensure_environment({**NO_FLAGS, "cpu": True})
    monkeypatch.setattr(start, "run", working)
    pip.clear()
    start.ensure_environment(NO_FLAGS)
    assert any(start.CPU_INDEX in argv for argv in pip), "the flags of the interrupted setup were forgotten"
    assert start.read_stamp(start.VENV)["finished"]


@pytest.mark.parametrize("answer", [None, "3 10"])
def test_an_environment_that_does_not_start_or_is_too_old_is_made_anew(
    start: ModuleType, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    start.ensure_environment(NO_FLAGS)
    start.write_stamp(start.VENV, NO_FLAGS, finished=None)
    monkeypatch.setattr(start, "ask", lambda argv: answer)
    pip.clear()
    start.ensure_environment(NO_FLAGS)
    assert pip[0][1:4] == ["-m", "venv", "--clear"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"flags": 3}'])
def test_a_damaged_stamp_counts_as_none(start: ModuleType, content: str) -> None:
    start.VENV.mkdir()
    (start.VENV / "course-setup.json").write_text(content, encoding="utf-8")
    assert start.chosen_flags(NO_FLAGS, start.read_stamp(start.VENV)) == NO_FLAGS


def test_cpu_takes_only_torch_from_pytorchs_index(start: ModuleType) -> None:
    steps = start.install_commands({**NO_FLAGS, "cpu": True}, PINS, Path("pins.txt"))
    first, *rest = [arguments for _, arguments in steps]
    assert "--no-deps" in first and first[-1] == "torch==2.13.0"
    assert first[first.index("--index-url") + 1] == "https://download.pytorch.org/whl/cpu"
    assert not any(start.CPU_INDEX in arguments for arguments in rest)


def test_no_xformers_leaves_it_out_of_both_kinds_of_installation(start: ModuleType) -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    locked = start.requirement_lines(text, xformers=True)
    without = start.requirement_lines(text, xformers=False)
    assert [pin.split("==")[0] for pin in locked if pin not in without] == ["xformers"]
    flags = {**NO_FLAGS, "newest": True, "no_xformers": True}
    assert "xformers" not in str(start.install_commands(flags, PINS, Path("pins.txt")))


def test_flags_of_an_earlier_setup_are_kept(start: ModuleType, pip: list[list[str]]) -> None:
    start.ensure_environment({**NO_FLAGS, "cpu": True})
    pip.clear()
    start.ensure_environment(NO_FLAGS)
    assert pip == []
    assert json.loads((start.VENV / "course-setup.json").read_text(encoding="utf-8"))["flags"]["cpu"] is True


def test_a_dry_run_makes_nothing(
    start: ModuleType, pip: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    start.ensure_environment(NO_FLAGS, dry_run=True)
    assert pip == [] and not start.VENV.exists()
    assert "would install" in capsys.readouterr().out


def test_every_command_runs_the_environments_python(
    start: ModuleType, pip: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start.ensure_environment(NO_FLAGS)
    for name in start.COMMANDS:
        pip.clear()
        assert start.main([name]) == 0
        assert all(argv[0] == str(start.venv_python(start.VENV)) for argv in pip)
        assert (len(pip) == 1) is (name != "setup")


def test_what_follows_a_command_is_passed_on(start: ModuleType, pip: list[list[str]]) -> None:
    start.ensure_environment(NO_FLAGS)
    start.main(["lessons", "01", "--quick"])
    assert pip[-1][-2:] == ["01", "--quick"]


@pytest.mark.parametrize("arguments", [[], ["lesson"], ["setup", "--gpu"]])
def test_an_unknown_command_or_flag_ends_with_2(start: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        start.main(arguments)
    assert caught.value.code == 2


def test_the_exit_code_of_a_program_is_passed_on(start: ModuleType) -> None:
    env = start.clean_environment()
    assert start.run([sys.executable, "-c", "raise SystemExit(7)"], env) == 7
