"""The files that hold a checkpoint's tensors: which there are, and what is in them, read one tensor at a time.

Safetensors say in a header what they hold, and a tensor is mapped into memory only when it is asked for. A ``.bin`` is
a pickle: it is read with ``weights_only=True``, which runs none of what such a file may hold, and one shard at a time.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip


class Stored(NamedTuple):
    """What a file says of a tensor before it is read."""

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


def files_of(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files that hold the tensors: one, or the shards that an index lists; safetensors where there are both. And
    by tensor, the shard that the index names for it: none where one file holds all.

    Raises FileNotFoundError for a folder without any, and for a shard that is missing; ValueError for a broken index.
    """
    for name in (SAFETENSORS, BIN):
        if (folder / name).is_file():
            return [folder / name], {}
        if (folder / (name + INDEX)).is_file():
            return _shards(folder / (name + INDEX))
    there = sorted(path.name for path in folder.iterdir() if path.suffix in {".safetensors", ".bin", ".pt"})
    raise FileNotFoundError(
        f"path: expected {SAFETENSORS}, or {SAFETENSORS}{INDEX} and its shards, in {folder}, got "
        f"{', '.join(there) if there else 'no file of weights'}. Was the model downloaded whole?"
    )


def _shards(index: Path) -> tuple[list[Path], dict[str, str]]:
    try:
        listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(listed.values()))
        if not names:
            raise ValueError("it lists no tensor")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'path: expected an index with a "weight_map" of tensors and files in {index}, got what cannot be read '
            f"({type(error).__name__}: {error}). Copy or download it again."
        ) from None
    shards = []
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"path: expected names of files beside {index}, got {name!r} in it.")
        shard = index.parent / name
        if not shard.is_file():
            first = next(tensor for tensor, file in listed.items() if file == name)
            count = sum(file == name for file in listed.values())
            raise FileNotFoundError(
                f"path: expected {name}, which {index.name} says holds {first} and {count - 1} more, in "
                f"{index.parent}, got no such file. Copy or download it again."
            )
        shards.append(shard)
    return shards, listed


def few(names: list[str]) -> str:
    """The first of ``names``, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class TensorFiles:
    """The tensors of ``files``, by name. At most one file is open at a time."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._open: tuple[Path, Any] | None = None
        self.stored: dict[str, Stored] = {}
        try:
            for file in files:
                self._list(file)
        except BaseException:
            self.close()
            raise

    def _list(self, path: Path) -> None:
        opened = self._opened(path)
        if isinstance(opened, dict):
            found = {name: Stored(path, tuple(t.shape), t.dtype) for name, t in opened.items()}
        else:
            found = {}
            for name in opened.keys():  # noqa: SIM118 (no mapping, keys() only)
                part = opened.get_slice(name)
                kind = part.get_dtype()
                if kind not in DTYPES:
                    raise ValueError(
                        f"path: expected {name} in one of {', '.join(DTYPES)}, got {kind} in {path}. Convert the "
                        "checkpoint first."
                    )
                found[name] = Stored(path, tuple(part.get_shape()), DTYPES[kind])
        for name, own in found.items():
            if name in self.stored:
                raise ValueError(
                    f"path: expected each tensor once, got {name} in both {self.stored[name].file} and {path}."
                )
            self.stored[name] = own

    def tensor(self, name: str) -> Tensor:
        """One tensor, mapped from its file where that can be: read it, do not write to it."""
        path = self.stored[name].file
        opened = self._opened(path)
        try:
            return opened[name] if isinstance(opened, dict) else opened.get_tensor(name)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise ValueError(f"path: expected {name} whole in {path}, got {error}.") from None

    def close(self) -> None:
        if self._open is not None and not isinstance(self._open[1], dict):
            self._open[1].__exit__(None, None, None)
        self._open = None

    def _opened(self, path: Path) -> Any:
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = (path, _opened_bin(path) if path.suffix == ".bin" else _opened_safetensors(path))
        return self._open[1]


def _opened_safetensors(path: Path) -> Any:
    try:
        opened = safe_open(path, framework="pt")
        opened.__enter__()
    except (SafetensorError, OSError) as error:
        if looks_like_pickle(path):
            raise ValueError(
                f"path: expected a safetensors file, got a pickle under the name {path}. It can run any code when it "
                "is read, so it is not: ask its author for safetensors."
            ) from None
        raise ValueError(
            f"path: expected a whole safetensors file, got {path} of {path.stat().st_size} bytes, which cannot be read "
            f"({error}). It was cut short or damaged, or is of another kind: copy or download it again."
        ) from None
    return opened


def looks_like_pickle(path: Path) -> bool:
    """Ask only of a file that is no sound one: the size that safetensors begin with may be the same two bytes."""
    with path.open("rb") as file:
        start = file.read(2)
    return start == b"PK" or start in {bytes((0x80, protocol)) for protocol in range(2, 6)}


def _opened_bin(path: Path) -> dict[str, Tensor]:
    try:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # files from before PyTorch 1.6 cannot be mapped, and are read whole
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "unsupported global" not in str(error).lower():
            raise ValueError(
                f"path: expected a whole file of tensors, got {path} of {path.stat().st_size} bytes, which cannot be "
                "read as one. Copy or download it again."
            ) from None
        raise ValueError(
            f"path: expected tensors and nothing else, got {path}, a pickle that asks for other code to be run. It was "
            "not: ask its author for safetensors."
        ) from None
    except (
        Exception
    ) as error:  # a damaged pickle fails wherever its reader happens to be: KeyError, IndexError, ...
        raise ValueError(
            f"path: expected a whole file of tensors, got {path} of {path.stat().st_size} bytes, which cannot be read "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}). Copy or download it again."
        ) from None
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()
    ):
        kind = type(found).__name__
        raise ValueError(f"path: expected tensors by name, got {kind} with something else in {path}.")
    return found
