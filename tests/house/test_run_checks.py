"""The list of checks: everything runs, everything is counted, nothing that failed looks passed."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_checks", ROOT / "tests" / "run_checks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def use(checks: ModuleType, monkeypatch: pytest.MonkeyPatch, *steps: object) -> None:
    monkeypatch.setattr(checks, "steps_to_run", lambda everything: list(steps))


def test_all_steps_run_even_when_the_first_fails(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = checks.Step("bad", ["-c", "raise SystemExit(3)"])
    good = checks.Step("good", ["-c", "print('second')"])
    use(checks, monkeypatch, bad, good)
    assert checks.main([]) == 1
    lines = capfd.readouterr().out.strip().splitlines()
    assert "second" in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    assert lines[-3].split()[:2] == ["bad", "FAILED"] and lines[-2].split()[:2] == ["good", "ok"]


def test_a_pytest_run_is_counted_by_its_tests(checks: ModuleType, tmp_path: Path) -> None:
    tests = tmp_path / "test_some.py"
    tests.write_text(
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): assert False\n"
        "def test_c(): pytest.skip('no')\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError\n"
        "def test_d(broken): pass\n",
        encoding="utf-8",
    )
    plain = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(tmp_path / "none.ini")]
    (tmp_path / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    checks.RESULTS.mkdir()
    step = checks.Step("unit", [*plain, str(tests)], counts=True)
    step.execute()
    assert (step.passed, step.failed, step.skipped) == (1, 2, 1)


def test_a_pytest_that_dies_before_it_reports_is_a_failure(checks: ModuleType) -> None:
    checks.RESULTS.mkdir()
    step = checks.Step("unit", ["-c", "raise SystemExit(4)"], counts=True)
    step.results.write_text('<testsuite tests="9" failures="0" errors="0" skipped="0"/>', encoding="utf-8")
    step.execute()
    assert (step.passed, step.failed) == (0, 1), "the counts of an earlier run stood for this one"


@pytest.mark.parametrize("may_be_empty", [True, False])
def test_a_pytest_run_without_a_test_fails_unless_that_is_expected(
    checks: ModuleType, tmp_path: Path, may_be_empty: bool
) -> None:
    (tmp_path / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_some.py").write_text("def test_a(): pass\n", encoding="utf-8")
    argv = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(tmp_path / "none.ini"), str(tmp_path)]
    checks.RESULTS.mkdir()
    step = checks.Step("slow", [*argv, "-k", "slow"], counts=True, may_be_empty=may_be_empty)
    step.execute()
    assert (step.passed, step.failed) == (0, 0 if may_be_empty else 1)


def test_a_step_is_run_alone_by_its_name(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use(
        checks, monkeypatch, checks.Step("one", ["-c", ""]), checks.Step("two", ["-c", "raise SystemExit(1)"])
    )
    assert checks.main(["one"]) == 0
    assert capfd.readouterr().out.strip().endswith("1 passed, 0 failed, 0 skipped")


def test_an_unknown_step_is_named_with_those_that_exist(
    checks: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        checks.main(["lnit"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "lnit" in said and "lint" in said


def test_the_shape_checking_pass_refuses_wrong_shapes_and_types_and_takes_an_int_for_a_float(
    tmp_path: Path,
) -> None:
    program = (
        "from jaxtyping import install_import_hook\n"
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "install_import_hook('course_lib', 'shape_checks.checked')\n"
        "import torch\n"
        "from course_lib.sample import scaled\n"
        "scaled(torch.zeros(2, 3), 2)\n"
        "for wrong in ((torch.zeros(2), 2), (torch.zeros(2, 3), 'x')):\n"
        "    try:\n        scaled(*wrong)\n    except Exception as error:\n        print(type(error).__name__)\n"
    )
    package = tmp_path / "course_lib"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "sample.py").write_text(
        "from jaxtyping import Float\nfrom torch import Tensor\n\n"
        'def scaled(x: Float[Tensor, "rows columns"], by: float) -> Float[Tensor, "rows columns"]:\n'
        "    return x * by\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(ROOT / "tests")],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.stdout.split() == ["TypeCheckError"] * 2, done.stderr
