"""The commands of the notebooks' machinery: `python -m course_lib.classroom.notebooks --help`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.notebooks import course


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m course_lib.classroom.notebooks",
        description="Run, refresh and check the course's notebooks.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument(
            "names", nargs="*", metavar="NOTEBOOK", help="files, folders or lesson numbers; default: all"
        )
        return command

    lessons = add("lessons", "Execute every lesson to HTML, with a table of minutes and peak memory.")
    lessons.add_argument("-o", "--output", type=Path, default=course.REPOSITORY / "build" / "lessons")
    refresh = add("refresh", "Execute notebooks in place and normalise them, before a commit.")
    solved = add("solved", "Fill in the exercises, execute, and see every check accept.")
    add("check", "Hold the notebooks' JSON against the course's rules; nothing is executed.")
    nbval = add("nbval", "Execute again and compare every stored output, strictly.")
    probe = add("probe", "The same, as a slower laptop computes: AVX2, one thread.")
    for command in (lessons, refresh, solved, nbval, probe):
        command.add_argument("--cell-timeout", type=int, metavar="SECONDS", help="limit for one cell")
    for command in (nbval, probe):
        command.add_argument(
            "--without", action="append", default=[], metavar="PACKAGE", help="hide a package"
        )
        command.add_argument("--junitxml", metavar="PATH", help="also write pytest's results there")
        command.add_argument(
            "--pytest", action="append", default=[], metavar="ARG", help="passed on to pytest; repeatable"
        )
    commands.add_parser("solve", help="Write a notebook with its exercises filled in.", add_help=False)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["solve"]:
        from course_lib.classroom.notebooks import solve

        return solve.main(argv[1:])
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except (course.NothingToDo, course.NotANotebook) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{arguments.command}: stopped by you; no notebook was left half-written.", file=sys.stderr)
        return 130


def _run(arguments: argparse.Namespace) -> int:
    """Run one command; each is imported here, so that `check` loads no kernel and `--help` nothing at all."""
    limit = (
        {} if getattr(arguments, "cell_timeout", None) is None else {"cell_timeout": arguments.cell_timeout}
    )
    match arguments.command:
        case "lessons":
            from course_lib.classroom.notebooks import lessons

            return lessons.main(arguments.names, output=arguments.output, **limit)
        case "refresh":
            from course_lib.classroom.notebooks import refresh

            return refresh.main(arguments.names, **limit)
        case "solved":
            from course_lib.classroom.notebooks import solve

            return solve.check_solved(arguments.names, **limit)
        case "check":
            from course_lib.classroom.notebooks import check

            return check.main(arguments.names)
        case _:
            from course_lib.classroom.notebooks import nbval_run

            results = [f"--junitxml={arguments.junitxml}"] if arguments.junitxml else []
            try:
                return nbval_run.compare(
                    arguments.names,
                    as_a_slower_laptop=arguments.command == "probe",
                    without=arguments.without,
                    pytest_arguments=[*arguments.pytest, *results],
                    **limit,
                )
            except nbval_run.NothingToCompare as error:
                print(f"{arguments.command}: {error}", file=sys.stderr)
                return 2


if __name__ == "__main__":
    sys.exit(main())
