"""The commands behind `python -m course_lib`: each lives in its own module and loads only when it is called.

So `--help` answers at once, without torch, and a command whose module does not exist yet is not listed.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from course_lib import __version__

# name -> (the module whose main(argv) serves it, what it does)
COMMANDS = {
    "doctor": ("course_lib.classroom.doctor", "what this machine can run, and why not the rest"),
    "solve": ("course_lib.classroom.notebooks.solve", "write a notebook with its exercises filled in"),
    "bench": ("course_lib.bench.__main__", "measure the course's claims on this machine"),
    "train": ("course_lib.training.__main__", "train the course's GPT from a shell"),
    "generate": ("course_lib.classroom.commands.generate", "continue a prompt with a model"),
    "chat": ("course_lib.classroom.commands.chat", "write a text in turns with a model"),
    "plan": ("course_lib.offload.plan_command", "plan where a model's tensors go"),
}


def available() -> dict[str, str]:
    """The commands that can be called now, with what each does."""
    return {name: meaning for name, (module, meaning) in COMMANDS.items() if _exists(module)}


def _exists(module: str) -> bool:
    """Looks for the file: asking the import system would load the parent packages, and with them torch."""
    _, *parts = module.split(".")
    return Path(__file__).parent.joinpath(*parts).with_suffix(".py").exists()


def usage() -> str:
    """The help text: one line a command."""
    lines = [f"  {name:<10} {meaning}" for name, meaning in available().items()]
    head = "usage: python -m course_lib [--version] [--help] command …\n\ncommands:"
    return "\n".join(
        [head, *lines, "", "`python -m course_lib command --help` has the options of a command."]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 2 for a command that does not exist, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"course_lib {__version__}")
        return 0
    name, *rest = arguments
    if name not in available():
        print(f"There is no command {name!r}.\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        return int(import_module(COMMANDS[name][0]).main(rest) or 0)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
