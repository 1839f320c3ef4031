"""A checkpoint's folder: written whole or not at all, and checked to be whole before it is read.

What can go wrong with files is here; what is in them, in checkpoints.py.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from course_lib.models.checkpoint import save_tensors, to_disk

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
FORMAT = 1
NAME = re.compile(r"step-(\d{8,})")
SAVING, REMOVING, REPLACED = ".saving-", ".removing-", ".replaced-"


def write_folder(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], content: Mapping[str, Any], keep: int
) -> None:
    """Write ``tensors``, by file, and ``content`` as state.json into ``path``, then remove what is not to be kept.

    Raises OSError with what lay there whole.
    """
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tidy(folder)
        _write_whole(path, tensors, content)
    except (OSError, SafetensorError) as error:
        size = sum(t.numel() * t.element_size() for named in tensors.values() for t in named.values())
        there = checkpoints_in(folder)
        left = f"{there[-1].name}, which is there, is whole" if there else "There was none before it"
        raise OSError(
            f"folder: expected one that can be written and has room for {size / 2**20:.1f} MiB, got {folder} and: "
            f"{error}. The checkpoint of step {content['step']} was not written; {left}."
        ) from error
    finally:
        tidy(folder)
    others = [other for other in checkpoints_in(folder) if other != path]
    older = [other for other in others if _step(other) < _step(path)]
    kept = older[max(0, len(older) - keep + 1) :]
    for other in others:
        if other not in kept:
            _remove(other)


def checkpoints_in(folder: Path) -> list[Path]:
    """By step."""
    found = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=_step)


def tidy(folder: Path) -> None:
    """Clear away what a killed process left hidden, and put back what it had moved aside without a successor."""
    for path in folder.glob(REPLACED + "step-*"):
        with suppress(OSError):
            if not (folder / path.name.removeprefix(REPLACED)).exists():
                os.replace(path, folder / path.name.removeprefix(REPLACED))
    for prefix in (SAVING, REMOVING, REPLACED):
        for path in folder.glob(prefix + "*"):
            shutil.rmtree(path, ignore_errors=True)


def checked_content(path: Path) -> dict[str, Any]:
    """What state.json holds, once all files of the checkpoint ``path`` are found whole and of one save.

    Raises FileNotFoundError or ValueError that names the file, and another checkpoint beside it that is whole.
    """
    try:
        return _checked(path)
    except (FileNotFoundError, ValueError) as error:
        beside = [other for other in reversed(checkpoints_in(path.parent)) if other.name != path.name]
        sound = next((other for other in beside if _is_whole(other)), None)
        if sound is not None:
            advice = f"{sound.name} beside it is whole: remove {path.name}, and the run goes on from there."
        else:
            advice = "There is no whole one beside it: copy it anew, or start the run anew."
        raise type(error)(f"{error} {advice}") from None


def _checked(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise FileNotFoundError(f"checkpoint: expected the folder of one, got {path}, which is none.")
    for file in (STATE, MODEL, OPTIMIZER):
        if not (path / file).is_file():
            raise FileNotFoundError(
                f"checkpoint: expected {file} in {path}, which has none. Was it copied whole?"
            )
    content = _read_state(path / STATE)
    for file, wanted in content["files"].items():
        size = (path / file).stat().st_size
        if size != wanted["bytes"] or _fingerprint(path / file) != wanted:
            came = f"of {size:,} bytes where {wanted['bytes']:,} were written"
            if size == wanted["bytes"]:
                came = "whose content is not what was written"
            other = _of_another_save(path / file, content["save"])
            raise ValueError(
                f"checkpoint: expected the {file} that {STATE} was written with, got one {came} ({path / file}). "
                + (other or "It was cut short or damaged.")
            )
    return content


def _is_whole(path: Path) -> bool:
    try:
        _checked(path)
    except (OSError, ValueError):
        return False
    return True


def _of_another_save(path: Path, save: str) -> str | None:
    """Says so if the file's header reads and names another save."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
    except SafetensorError:
        return None
    if header.get("save", save) == save:
        return None
    return f"It is of another save, of step {header.get('step')}: the files of two were mixed."


def _read_state(path: Path) -> dict[str, Any]:
    try:
        both = json.loads(path.read_text(encoding="utf-8"))
        content, written = both["content"], both["sha256"]
        sound = _checksum(content) == written
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"checkpoint: expected a whole {STATE}, got {path} of {path.stat().st_size:,} bytes, which cannot be read "
            f"({error}). It was cut short or damaged."
        ) from None
    if not sound:
        raise ValueError(
            f"checkpoint: expected {STATE} as it was written, got one whose content is not ({path}). It was damaged, "
            "or edited by hand."
        )
    if content.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint: expected format {FORMAT}, got {content.get('format')} in {path}. It was written by another "
            "version of the course: go on with that one."
        )
    return content


def _write_whole(path: Path, tensors: Mapping[str, Mapping[str, Tensor]], content: Mapping[str, Any]) -> None:
    folder = path.parent
    with tempfile.TemporaryDirectory(prefix=SAVING, dir=folder, ignore_cleanup_errors=True) as hidden:
        part = Path(hidden) / path.name
        part.mkdir()
        header = {"format": "pt", "step": str(content["step"]), "save": content["save"]}
        for file, named in tensors.items():
            save_tensors(named, part / file, metadata=header)
            to_disk(part / file)
        files = {file: _fingerprint(part / file) for file in tensors}
        _write_state(part / STATE, {"format": FORMAT, **content, "files": files})
        to_disk(part / STATE)
        _folder_to_disk(part)
        if path.exists():
            # Aside rather than away: a process killed before the next line has lost nothing, see tidy.
            os.replace(path, folder / (REPLACED + path.name))
        os.replace(part, path)
        _folder_to_disk(folder)


def _write_state(path: Path, content: Mapping[str, Any]) -> None:
    plain = json.loads(json.dumps(content))
    text = json.dumps({"sha256": _checksum(plain), "content": plain}, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _folder_to_disk(folder: Path) -> None:
    """Let the names in ``folder`` survive a power cut, where the system can: Windows and some network drives cannot."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _remove(path: Path) -> None:
    """Out of sight first: a process killed half-way leaves no half checkpoint."""
    hidden = path.parent / (REMOVING + path.name)
    with suppress(OSError):
        os.replace(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)
