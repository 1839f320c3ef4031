"""`python -m course_lib`: quick, honest about what exists, and clear about what does not."""

import importlib
import subprocess
import sys

import pytest

from course_lib import __version__, cli


def test_help_loads_neither_torch_nor_any_command() -> None:
    program = "import sys; from course_lib.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=300)
    assert done.stdout.rstrip().endswith("False"), done.stderr
    assert "doctor" in done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"course_lib {__version__}"


def test_every_listed_command_has_a_main() -> None:
    for name in cli.available():
        module = importlib.import_module(cli.COMMANDS[name][0])
        assert callable(module.main), name


def test_a_command_that_is_not_built_yet_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {**cli.COMMANDS, "fly": ("course_lib.nowhere.fly", "take off")}
    monkeypatch.setattr(cli, "COMMANDS", commands)
    assert "fly" not in cli.available()
    assert "fly" not in cli.usage()


def test_an_unknown_command_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docter"]) == 2
    said = capsys.readouterr().err
    assert "'docter'" in said and "doctor" in said


def test_no_command_prints_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage:" in capsys.readouterr().out


def test_arguments_are_passed_on_and_the_exit_code_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def main(argv: list[str]) -> int:
            return len(argv)

    monkeypatch.setattr(cli, "import_module", lambda name: Module)
    assert cli.main(["doctor", "--json", "--folder", "."]) == 3


def test_ctrl_c_ends_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Module:
        @staticmethod
        def main(argv: list[str]) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", lambda name: Module)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err.strip() == "stopped"
