"""From a checkpoint to a model that is ready to use."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .checkpoint import DTYPES
from .families import FAMILIES
from .gpt import GPT, MODEL_TYPE
from .open_checkpoint import Checkpoint, open_checkpoint
from .stored_part import StoredPart


def load_model(
    path: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    revision: str | None = None,
) -> Any:
    """The model in a folder, or of a hub by its id ("facebook/opt-125m"), ready to use (``eval()``).

    config.json says which family it is of, whatever the folder is called. ``dtype`` None: as stored; where a checkpoint
    mixes dtypes, the one that most of its numbers have. ``revision`` is a branch, tag or commit of the hub.

    The model is laid out without memory, all names and shapes are compared, and then one tensor after another is read
    into its place: no more than the model and one tensor is ever held. Raises FileNotFoundError, or ValueError that
    names the tensor and the file; a model is returned whole or not at all.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype: expected a floating-point torch.dtype or None, got {dtype!r}.")
    with open_checkpoint(path, revision=revision) as checkpoint:
        kind = checkpoint.model_type
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise ValueError(
                f"path: expected a model of one of the types {', '.join(map(repr, FAMILIES))}, got {kind!r} in "
                f"{checkpoint.folder / 'config.json'}."
            )
        if kind == MODEL_TYPE:
            return GPT.load(checkpoint.folder, device=device, dtype=dtype)
        family = FAMILIES[kind]
        try:
            config = family.config_class.from_dict(checkpoint.config)
            if config.num_layers > len(checkpoint.names()):
                raise ValueError(
                    f"It has {config.num_layers} layers, the files {len(checkpoint.names())} tensors."
                )
            with torch.device("meta"):
                model = family(config)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(
                f"path: {checkpoint.folder / 'config.json'} describes no model of this checkpoint. {error}"
            ) from None
        parts = _parts(checkpoint, model)
        names = checkpoint.stored_names(parts)
        owners = _owners(parts, names)
        _check_tied(checkpoint, model, names)
        _check_shapes(checkpoint, model, owners, names)
        model.to(dtype or _dtype(checkpoint, names)).to_empty(device=device)
        model.tie()
        _fill(checkpoint, model, owners, names)
    return model.eval()


def _parts(checkpoint: Checkpoint, model: Any) -> list[StoredPart]:
    """Where to find what. Of a tied pair that is stored once, some software keeps the head and not the embedding."""
    parts = model.stored_parts(model.config)
    own = {part.own: part for part in parts}
    head, embed = own["head.weight"], own["embed.weight"]
    if not model.config.tied_head or checkpoint.holds(embed, parts) or not checkpoint.holds(head, parts):
        return parts
    return [replace(part, stored=head.stored) if part is embed else part for part in parts]


def _owners(parts: list[StoredPart], names: dict[str, str]) -> dict[str, list[StoredPart]]:
    """The parts that each stored tensor holds, in the order of the files."""
    found: dict[str, list[StoredPart]] = defaultdict(list)
    for part in parts:
        if part.stored in names:
            found[part.stored].append(part)
    return {stored: found[stored] for stored in names}


def _check_tied(checkpoint: Checkpoint, model: Any, names: dict[str, str]) -> None:
    """A tied head that is stored as well, and differs from the embedding, is none: its config is wrong."""
    if not model.config.tied_head:
        return
    stored = {part.own: part.stored for part in type(model).stored_parts(model.config)}
    head, embed = names.get(stored["head.weight"]), names.get(stored["embed.weight"])
    if head is None or embed is None:
        return
    same = checkpoint.shape(head) == checkpoint.shape(embed)
    if not same or not _equal(checkpoint.tensor(head), checkpoint.tensor(embed)):
        raise ValueError(
            f"path: expected {head} in {checkpoint.file(head)} to be {embed}, as config.json ties the head to the "
            'embedding, got other numbers. If the head is one of its own, set "tie_word_embeddings" to false there.'
        )


def _equal(one: Tensor, other: Tensor) -> bool:
    """In the dtype of the smaller numbers, NaN being equal to NaN; without a copy of the whole."""
    dtype = min(one.dtype, other.dtype, key=lambda kind: kind.itemsize)
    rows = zip(one.split(1024), other.split(1024), strict=True)
    return all(torch.allclose(a.to(dtype), b.to(dtype), rtol=0, atol=0, equal_nan=True) for a, b in rows)


def _check_shapes(
    checkpoint: Checkpoint, model: Any, owners: dict[str, list[StoredPart]], names: dict[str, str]
) -> None:
    state = model.state_dict()
    for stored, parts in owners.items():
        name = names[stored]
        came = checkpoint.shape(name)
        if checkpoint.dtype(name) not in DTYPES.values():
            kind = str(checkpoint.dtype(name)).removeprefix("torch.")
            raise ValueError(
                f"path: expected {name} as floating-point numbers of 16 bits or more, got {kind} in "
                f"{checkpoint.file(name)}."
            )
        try:
            found = [_taken(part, torch.empty(came, device="meta")).shape for part in parts]
        except (RuntimeError, IndexError, ValueError):
            found = [None]  # type: ignore[list-item]
        for part, shape in zip(parts, found, strict=False):
            wanted = state[part.own].shape
            if shape != wanted:
                whole = (
                    list(wanted) if part.take is None else f"what holds {part.own} of shape {list(wanted)}"
                )
                raise ValueError(
                    f"path: expected {name} of shape {whole}, as config.json has it, got {list(came)} in "
                    f"{checkpoint.file(name)}."
                )


def _dtype(checkpoint: Checkpoint, names: dict[str, str]) -> torch.dtype:
    """The dtype that most of the numbers are stored in."""
    counts: dict[torch.dtype, int] = defaultdict(int)
    for name in names.values():
        counts[checkpoint.dtype(name)] += torch.Size(checkpoint.shape(name)).numel()
    return max(counts, key=lambda kind: counts[kind])


@torch.no_grad()
def _fill(
    checkpoint: Checkpoint, model: Any, owners: dict[str, list[StoredPart]], names: dict[str, str]
) -> None:
    state = model.state_dict()
    for stored, parts in owners.items():
        tensor = checkpoint.tensor(names[stored])
        for part in parts:
            state[part.own].copy_(_taken(part, tensor))


def _taken(part: StoredPart, tensor: Tensor) -> Tensor:
    return tensor if part.take is None else part.take(tensor)
