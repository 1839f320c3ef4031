"""Where the course's notebooks are, and what each may cost."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
NOTEBOOKS = REPOSITORY / "notebooks"

SECONDS = 60
SECONDS_TO_TRAIN = 120
LESSONS_THAT_TRAIN = frozenset({"03", "05", "06", "07"})
PEAK_BYTES = 2 * 10**9


class NothingToDo(ValueError):
    """There is no notebook to work on: an empty check proves nothing, so this is an error."""


class NotANotebook(ValueError):
    """A file that should be a notebook is none: missing, or not valid JSON of a notebook."""


def lesson_number(path: Path) -> str | None:
    """The two digits a lesson's file name begins with: `"01"` for `01_causal_masking.ipynb`, else None."""
    match = re.match(r"(\d\d)_", path.name)
    return match[1] if match else None


def seconds_allowed(path: Path) -> int:
    """What a lesson may take to execute on two cores, in seconds."""
    return SECONDS_TO_TRAIN if lesson_number(path) in LESSONS_THAT_TRAIN else SECONDS


def select(names: Sequence[str | Path] = ()) -> list[Path]:
    """The notebooks named, or all of the course's, in lesson order.

    `names` are files, folders (every notebook in them) or lesson numbers ("01").
    Raises `NothingToDo` where that leaves none, and `NotANotebook` for a file that is missing or no `.ipynb`.
    """
    found: list[Path] = []
    for name in names or [NOTEBOOKS]:
        path = Path(name)
        if path.is_dir():
            found += sorted(p for p in path.glob("*.ipynb"))
        elif re.fullmatch(r"\d\d?", str(name)) and not path.exists():
            lesson = sorted(NOTEBOOKS.glob(f"{int(str(name)):02d}_*.ipynb"))
            if not lesson:
                raise NotANotebook(f"there is no lesson {name} in {shown(NOTEBOOKS)}.")
            found += lesson
        elif path.suffix != ".ipynb":
            raise NotANotebook(
                f"{path} is no notebook: expected a file that ends in .ipynb, a folder or a lesson's number."
            )
        elif not path.exists():
            raise NotANotebook(f"{path} does not exist.")
        else:
            found.append(path)
    if not found:
        raise NothingToDo(
            f"no notebooks in {', '.join(shown(Path(n)) for n in names or [NOTEBOOKS])}: "
            "an empty check proves nothing, so this counts as a failure."
        )
    return [path.resolve() for path in dict.fromkeys(found)]


def shown(path: Path) -> str:
    """A path as a reader wants it: relative to where they stand, where that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive, on Windows
        return str(path)
    return relative if len(relative) < len(str(path)) else str(path)


@contextmanager
def kernel_environment(language: str | None = "en") -> Iterator[dict[str, str]]:
    """The environment of an executed notebook, with a folder for its state that is gone afterwards.

    Progress goes to that folder and never beside the notebook. IPython starts without its user's profile,
    and matplotlib with the backend of a notebook. `language` is the one its messages are in: the stored
    outputs are in English whatever the reader has chosen; None leaves the reader's choice.
    """
    environment = dict(os.environ)
    environment.pop("MPLBACKEND", None)
    environment["PYTHONUTF8"] = "1"
    # The kernel must import the same course_lib as this process, also from a checkout that is not installed.
    paths = [str(REPOSITORY), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if language is not None:
        environment["COURSE_LANGUAGE"] = language
    with tempfile.TemporaryDirectory(prefix="course-state-", ignore_cleanup_errors=True) as folder:
        environment["COURSE_STATE_DIR"] = folder
        environment["IPYTHONDIR"] = str(Path(folder) / "ipython")
        yield environment
