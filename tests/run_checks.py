"""Every check of the repository, one after another: what `python start.py test` and `test-all` run.

All steps run even when one fails; a table at the end says which, and the last line has the totals. Each step
can be named to run it alone: `python start.py test lint unit`.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "test-results"
NO_TESTS = 5  # pytest's exit code where no test was chosen


class Step:
    """A name, the arguments of a Python process, and how many checks passed in it.

    A pytest run (`counts=True`) is counted by its tests, any other step as one check. `may_be_empty`: a pytest
    run that finds no test has not failed.
    """

    def __init__(
        self,
        name: str,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        counts: bool = False,
        may_be_empty: bool = False,
    ):
        self.name = name
        self.env = env or {}
        self.may_be_empty = may_be_empty
        self.results = RESULTS / f"{name}.xml" if counts else None
        self.argv = [*argv, f"--junitxml={self.results}"] if counts else argv
        self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0

    def execute(self) -> None:
        if self.results:
            self.results.unlink(missing_ok=True)  # the counts of an earlier run must not stand for this one
        started = time.monotonic()
        code = subprocess.call([sys.executable, *self.argv], cwd=ROOT, env={**os.environ, **self.env})
        self.seconds = time.monotonic() - started
        self.count(code)

    def count(self, code: int) -> None:
        """Read the outcome. A process that failed counts as a failure even if its own report has none."""
        if self.results and self.results.exists():
            self.passed, self.failed, self.skipped = count_results(self.results)
        elif code == 0:
            self.passed = 1
        if code == NO_TESTS and self.may_be_empty:
            return
        if code != 0 and self.failed == 0:
            self.failed = 1


def count_results(path: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) of a pytest run, from its JUnit file; an error counts as failed."""
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for key in totals:
            totals[key] += int(suite.get(key, "0"))
    failed = totals["failures"] + totals["errors"]
    return totals["tests"] - failed - totals["skipped"], failed, totals["skipped"]


def steps_to_run(everything: bool) -> list[Step]:
    """The checks, those that fail soonest first."""
    pytest = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    library = [*pytest, "tests", "--ignore=tests/notebooks"]
    notebooks = ["-m", "course_lib.classroom.notebooks"]
    imports = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    one_thread = {"OMP_NUM_THREADS": "1"}  # two workers share two cores; more threads would only fight
    shape_checks = {**one_thread, "COURSE_JAXTYPING": "1"}
    # No signature there has a shape, and the checks would slow exercises down that are given seconds.
    shapeless = [f"--ignore=tests/{folder}" for folder in ("house", "text", "classroom", "lessons")]
    unchecked = "not slow and not error_messages and not compiled"
    steps = [
        Step("lint", ["-m", "ruff", "check", "."]),
        Step("format", ["-m", "ruff", "format", "--check", "."]),
        Step("types", ["-m", "mypy"]),
        Step("imports", ["-c", imports]),
        Step("unit", [*library, "-m", "not slow"], env=one_thread, counts=True),
        Step("shapes", [*library, *shapeless, "-m", unchecked], env=shape_checks, counts=True),
        Step("notebook-tests", [*pytest, "tests/notebooks", "-m", "not slow"], env=one_thread, counts=True),
        Step("notebook-files", [*notebooks, "check"]),
        Step("nbval", [*notebooks, "nbval"], counts=True),
        Step("probe", [*notebooks, "probe"], counts=True),
    ]
    if everything:
        steps += [
            Step("slow", [*pytest, "tests", "-m", "slow"], env=one_thread, counts=True, may_be_empty=True),
            Step("solved", [*notebooks, "solved"]),
            Step("colab", ["tests/environments/colab.py"]),
            Step("bench", ["-m", "course_lib", "bench", "all", "--quick"]),
        ]
    return steps


def table(steps: list[Step]) -> str:
    """The outcome of every step, and the totals on a line of their own."""
    width = max(len(step.name) for step in steps)
    lines = [f"{'step':<{width}}  result  passed  failed  skipped  minutes"]
    for step in steps:
        minutes, seconds = divmod(round(step.seconds), 60)
        counts = f"{step.passed:>6}  {step.failed:>6}  {step.skipped:>7}  {minutes:>4}:{seconds:02}"
        lines.append(f"{step.name:<{width}}  {'FAILED' if step.failed else 'ok':<6}  {counts}")
    passed = sum(step.passed for step in steps)
    failed = sum(step.failed for step in steps)
    skipped = sum(step.skipped for step in steps)
    return "\n".join([*lines, f"{passed} passed, {failed} failed, {skipped} skipped"])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="start.py test", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also the slow steps")
    parser.add_argument("steps", nargs="*", metavar="step", help="run only these")
    options = parser.parse_args(argv)
    steps = steps_to_run(options.all)
    known = [step.name for step in steps]
    unknown = [name for name in options.steps if name not in known]
    if unknown:
        parser.error(f"no step is called {', '.join(unknown)}; the steps are {', '.join(known)}")
    chosen = [step for step in steps if not options.steps or step.name in options.steps]
    RESULTS.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(chosen, start=1):
        print(f"\n[{number}/{len(chosen)}] {step.name}", flush=True)
        step.execute()
    print(f"\n{table(chosen)}", flush=True)
    return 1 if any(step.failed for step in chosen) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
