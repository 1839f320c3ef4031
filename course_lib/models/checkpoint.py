"""A model as a folder: model.safetensors, config.json, README.md. Never a pickle, and never half a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from course_lib.atomic import new_file_mode

from .open_checkpoint import Checkpoint as Checkpoint
from .open_checkpoint import open_checkpoint as open_checkpoint
from .tensor_files import few, looks_like_pickle

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def write_model(
    folder: str | Path,
    model_type: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    card: str,
    *,
    keep_card: bool = False,
) -> Path:
    """Write the three files; returns the folder, which is made. ``keep_card`` leaves a card that is there.

    All files are complete and on the disk before the first takes its place, so a failure leaves what was there. The
    config lies in the header of the weights as well, where :func:`read_weights` compares it: files of two saves are
    found out. Raises ValueError for weights of several dtypes, OSError that says where nothing could be written.
    """
    kinds = {tensor.dtype: name for name, tensor in tensors.items()}
    if len(kinds) > 1 or not set(kinds) <= set(DTYPES.values()):
        came = ", ".join(f"{str(kind).removeprefix('torch.')} ({name})" for kind, name in kinds.items())
        raise ValueError(
            f"model: expected weights of one floating-point dtype, got {came}. Convert them first: model.to(dtype)."
        )
    folder = Path(folder).expanduser()
    text = json.dumps({"model_type": model_type, **config}, indent=2, ensure_ascii=False) + "\n"
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": "pt", "config": text}
    contents: dict[str, Callable[[Path], None]] = {
        WEIGHTS: lambda path: save_tensors(plain, path, metadata=header),
        CONFIG: lambda path: _write_text(path, text),
        CARD: lambda path: _write_text(path, card),
    }
    if keep_card and (folder / CARD).exists():
        del contents[CARD]
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder, ignore_cleanup_errors=True) as part:
            for name, write in contents.items():
                write(Path(part) / name)
                to_disk(Path(part) / name)
            for name in contents:
                os.replace(Path(part) / name, folder / name)
    except BaseException as error:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, (OSError, SafetensorError)):
            raise OSError(
                f"folder: expected a folder that can be written and has room, got {folder} and: {error}. What "
                "lay there is whole."
            ) from error
        raise
    return folder


def read_config(folder: str | Path, model_type: str) -> dict[str, Any]:
    """config.json without its ``model_type``, which must be this one. Raises FileNotFoundError or ValueError."""
    path = _existing(folder, CONFIG)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"folder: expected JSON in {path}, got what cannot be read ({error}). Is the file whole?"
        ) from None
    if not isinstance(config, dict):
        raise ValueError(f"folder: expected a JSON object in {path}, got {type(config).__name__}.")
    found = config.pop("model_type", None)
    if found != model_type:
        raise ValueError(
            f"folder: expected a model of type {model_type!r}, got {found!r} in {path}. Load it with the class of its "
            "own family."
        )
    return config


def read_weights(
    folder: str | Path,
    model: nn.Module,
    *,
    aliases: Iterable[str] = (),
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> None:
    """Fill ``model``, laid out on "meta", from model.safetensors, one tensor at a time; ``dtype`` None: as stored.

    ``aliases`` are names of the state dict whose tensors are stored under another name. All names, shapes and dtypes
    are checked before any weight is read. Raises FileNotFoundError, or ValueError that names the tensor.
    """
    path = _existing(folder, WEIGHTS)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name not in set(aliases)}
    with _opened(path) as file:
        _check_header(path, file.metadata() or {})
        stored = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping, keys() only)
        _check_names(path, set(stored), set(wanted))
        for name, tensor in wanted.items():
            shape = list(stored[name].get_shape())
            if shape != list(tensor.shape):
                raise ValueError(
                    f"folder: expected {name} of shape {list(tensor.shape)}, as {CONFIG} has it, got {shape} in {path}."
                )
        found = {kind.get_dtype(): name for name, kind in stored.items()}
        if len(found) > 1 or not set(found) <= set(DTYPES):
            kinds = ", ".join(f"{kind} ({name})" for kind, name in sorted(found.items()))
            raise ValueError(
                f"folder: expected all weights in one of {', '.join(DTYPES)}, got {kinds} in {path}."
            )
        (kept,) = found
        model.to(DTYPES[kept] if dtype is None else dtype).to_empty(device=device)
        state = model.state_dict()
        with torch.no_grad():
            for name in wanted:
                state[name].copy_(file.get_tensor(name))


def _existing(folder: str | Path, name: str) -> Path:
    folder = Path(folder).expanduser()
    path = folder / name
    if path.is_file():
        return path
    if not folder.is_dir():
        raise FileNotFoundError(f"folder: expected the folder of a saved model, got {folder}, which is none.")
    pickles = sorted({found.name for pattern in PICKLES for found in folder.glob(pattern)})
    if name == WEIGHTS and pickles:
        raise ValueError(
            f"folder: expected {WEIGHTS} in {folder}, got only {', '.join(pickles)}. Such a file is a pickle, which "
            "can run any code when it is read: ask its author for safetensors, or convert it in a sandbox."
        )
    raise FileNotFoundError(
        f"folder: expected {name} in {folder}, which has none. Was the model saved there, and copied whole?"
    )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as opened:
            yield opened
    except SafetensorError as error:
        if looks_like_pickle(path):
            raise ValueError(
                f"folder: expected a safetensors file, got a pickle under the name {path}. It can run any code when it "
                "is read, so it is not: ask its author for safetensors."
            ) from None
        raise ValueError(
            f"folder: expected a whole safetensors file, got {path} of {path.stat().st_size} bytes, which cannot be "
            f"read ({error}). It was cut short or damaged: copy or download it again."
        ) from None


def _check_header(path: Path, header: Mapping[str, str]) -> None:
    text = header.get("config")
    if text is None:
        return  # written by other software
    try:
        same = json.loads(text) == json.loads((path.parent / CONFIG).read_text(encoding="utf-8"))
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"folder: expected {CONFIG} and {WEIGHTS} of one save, got different configs in {path.parent}. The weights "
            'hold the one they were saved with, as "config" in their header: put it back, or copy both anew.'
        )


def _check_names(path: Path, stored: set[str], wanted: set[str]) -> None:
    missing, surplus = sorted(wanted - stored), sorted(stored - wanted)
    if missing or surplus:
        found = [f"none for {few(missing)}"] if missing else []
        found += [f"unexpected {few(surplus)}"] if surplus else []
        raise ValueError(
            f"folder: expected the {len(wanted)} tensors of the model that {CONFIG} describes, got "
            f"{' and '.join(found)} in {path}."
        )


def save_tensors(tensors: Mapping[str, Tensor], path: Path, *, metadata: Mapping[str, str]) -> None:
    """``save_file`` of safetensors, which leaves a file to its owner alone, with the permissions of any new file."""
    save_file(dict(tensors), path, metadata=dict(metadata))
    path.chmod(new_file_mode())


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def to_disk(path: Path) -> None:
    """Let the content of a file survive a power cut."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
