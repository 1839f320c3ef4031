"""A checkpoint as published: its config, and its tensors one at a time, under the names that a family expects."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .embedded import LEAN_OPT, lean_opt_folder
from .hub import hub_folder
from .stored_part import StoredPart
from .tensor_files import Stored, TensorFiles, few, files_of

PREFIXES = ("module.", "model.", "transformer.", "decoder.")
"""What may stand before a tensor's name. OPT alone comes with "model.decoder.", with "decoder." and with none."""
HARMLESS = re.compile(r"(^|\.)(version|masked_bias|position_ids|rotary_emb\.inv_freq)$")
"""Tensors that checkpoints carry and no model reads: constants of older versions of their software."""


class Checkpoint:
    """An opened checkpoint: ``folder``, its ``config`` (the content of config.json) and ``model_type``, its ``files``.

    Names are those of the files. ``tensor(name)`` reads one, and nothing else. A context manager.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = _config(folder)
        self.model_type: str | None = self.config.get("model_type")
        files, listed = files_of(folder)
        self.files = tuple(files)
        self._tensors = TensorFiles(self.files)
        for name, file in listed.items():
            held = self._tensors.stored.get(name)
            if held is None or held.file.name != file:
                self.close()
                raise ValueError(
                    f"path: expected {name} in {folder / file}, where the index has it, got "
                    f"{'a file without' if held is None else f'it in {held.file.name}'}. Copy or download it again."
                )

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({self.folder}, {self.model_type}, {len(self.names())} tensors)"

    def close(self) -> None:
        """Close the files; tensors that were read stay."""
        self._tensors.close()

    def names(self) -> tuple[str, ...]:
        """All tensors, file by file."""
        return tuple(self._tensors.stored)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._stored(name).shape

    def dtype(self, name: str) -> torch.dtype:
        return self._stored(name).dtype

    def file(self, name: str) -> Path:
        return self._stored(name).file

    @property
    def nbytes(self) -> int:
        """Of all tensors together."""
        return sum(stored.nbytes for stored in self._tensors.stored.values())

    def tensor(self, name: str) -> Tensor:
        """One tensor as stored, mapped from its file where that can be: to be read, not written to.

        Raises KeyError for a name that is not there.
        """
        self._stored(name)
        return self._tensors.tensor(name)

    def _stored(self, name: str) -> Stored:
        if name not in self._tensors.stored:
            raise KeyError(f"name: expected one of the {len(self.names())} tensors, got {name!r}.")
        return self._tensors.stored[name]

    def holds(self, part: StoredPart, parts: Sequence[StoredPart]) -> bool:
        """Whether ``part``, one of ``parts``, is there under some prefix."""
        wanted = {other.stored for other in parts}
        return any(_without_prefix(name, wanted) == part.stored for name in self.names())

    def stored_names(self, parts: Sequence[StoredPart]) -> dict[str, str]:
        """For each ``stored`` name of ``parts`` that is there, the name that the files have for it, prefix and all.

        Raises ValueError for a part that is missing and not optional, for a tensor that belongs to no part, and for one
        that is there under two names.
        """
        wanted = {part.stored for part in parts}
        found: dict[str, str] = {}
        surplus = []
        for name in self.names():
            own = _without_prefix(name, wanted)
            if own is None:
                if not HARMLESS.search(name):
                    surplus.append(name)
            elif own in found:
                raise ValueError(
                    f"path: expected {own} once, got it as {found[own]} in {self.file(found[own])} and as {name} in "
                    f"{self.file(name)}."
                )
            else:
                found[own] = name
        required = {part.stored for part in parts if not part.optional}
        missing = [stored for stored in dict.fromkeys(part.stored for part in parts) if stored not in found]
        missing = [stored for stored in missing if stored in required]
        if missing or surplus:
            where = self.files[0].name if len(self.files) == 1 else f"any of {len(self.files)} shards"
            told = [f"none for {few(missing)} in {where}"] if missing else []
            if surplus:
                file = self.file(surplus[0])
                told.append(f"{few(surplus)} in {file.name}, which this model has no place for")
            raise ValueError(
                f"path: expected the tensors of the {self.model_type} that config.json describes, got "
                f"{' and '.join(told)}, in {self.folder}. Do weights and config.json belong together?"
            )
        return found


def open_checkpoint(path: str | Path, *, revision: str | None = None) -> Checkpoint:
    """The checkpoint in a folder, or of a model hub by its id ("facebook/opt-125m"), which is downloaded once.

    ``revision`` is a branch, tag or commit of the hub; None: its main branch. Raises FileNotFoundError for what is not
    there, ValueError for what cannot be read; each names the file.
    """
    return Checkpoint(checkpoint_folder(path, revision=revision))


def checkpoint_folder(path: str | Path, *, revision: str | None = None) -> Path:
    """The folder that ``path`` is, or where a hub's model of this id lies after its download; "lean-opt-5m" is here."""
    if not isinstance(path, (str, Path)):
        raise TypeError(f"path: expected a folder or the id of a model, got {type(path).__name__} {path!r}.")
    folder = Path(path).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ValueError(
                f"revision: expected None for the folder {folder}, which has one version, got {revision!r}."
            )
        return folder
    if folder.exists():
        raise ValueError(
            f"path: expected the folder of a model, got the file {folder}. Pass the folder it lies in."
        )
    if path == LEAN_OPT and revision is None:
        return lean_opt_folder()
    if isinstance(path, str) and re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", path):
        return hub_folder(path, revision=revision)
    raise FileNotFoundError(
        f"path: expected the folder of a model, or an id of a hub, got {path}, which is none."
    )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"path: expected config.json in {folder}, got none. Is it the folder of a model, and copied whole?"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"path: expected JSON in {path}, got what cannot be read ({error}).") from None
    if not isinstance(config, dict):
        raise ValueError(f"path: expected a JSON object in {path}, got {type(config).__name__}.")
    return config


def _without_prefix(name: str, wanted: set[str]) -> str | None:
    """The one of ``wanted`` that ``name`` is, after any prefixes."""
    while name not in wanted:
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
        if prefix is None:
            return None
        name = name.removeprefix(prefix)
    return name
