"""From a checkpoint to a model that is ready to use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
        if checkpoint.model_type == MODEL_TYPE:
            return GPT.load(checkpoint.folder, device=device, dtype=dtype)
        layout = lay_out(checkpoint)
        model = layout.model
        model.to(dtype or layout.dtype).to_empty(device=device)
        model.tie()
        state = model.state_dict()
        with torch.no_grad():
            for own, tensor in layout.tensors():
                state[own].copy_(tensor)
    return model.eval()


@dataclass(frozen=True)
class Layout:
    """A checkpoint whose names and shapes fit ``model``, which is on "meta" and has no weights yet."""

    checkpoint: Checkpoint
    model: Any
    names: dict[str, str]
    owners: dict[str, list[StoredPart]]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that most of the numbers are stored in."""
        counts: dict[torch.dtype, int] = defaultdict(int)
        for name in self.names.values():
            counts[self.checkpoint.dtype(name)] += torch.Size(self.checkpoint.shape(name)).numel()
        return max(counts, key=lambda kind: counts[kind])

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors by their names in the state dict, in the order of the files: to be read, not written to."""
        for stored, parts in self.owners.items():
            tensor = self.checkpoint.tensor(self.names[stored])
            for part in parts:
                yield part.own, _taken(part, tensor)

    def tensor(self, own: str) -> Tensor:
        """The tensor ``own`` of the state dict: to be read, not written to."""
        for stored, parts in self.owners.items():
            for part in parts:
                if part.own == own:
                    return _taken(part, self.checkpoint.tensor(self.names[stored]))
        raise KeyError(f"own: expected a tensor of the checkpoint, got {own!r}.")


def lay_out(checkpoint: Checkpoint) -> Layout:
    """The model that ``checkpoint`` describes, on "meta", and where its tensors are; all names and shapes compared.

    Raises ValueError as :func:`load_model` does.
    """
    kind = checkpoint.model_type
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"path: expected a model of one of the types {', '.join(map(repr, FAMILIES))}, got {kind!r} in "
            f"{checkpoint.folder / 'config.json'}."
        )
    family = FAMILIES[kind]
    try:
        # The config of the course's own GPT takes its own fields alone.
        described = {
            name: value
            for name, value in checkpoint.config.items()
            if (kind, name) != (MODEL_TYPE, "model_type")
        }
        config = family.config_class.from_dict(described)
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
    return Layout(checkpoint, model, names, owners)


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


def _taken(part: StoredPart, tensor: Tensor) -> Tensor:
    return tensor if part.take is None else part.take(tensor)
