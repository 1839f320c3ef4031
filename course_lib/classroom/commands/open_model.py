"""A model and its tokenizer, opened so that all that can be known without the weights is found out before them."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.models import LEAN_OPT, load_model
from course_lib.models.families import FAMILIES
from course_lib.models.generate_settings import check_tokenizer
from course_lib.models.gpt import MODEL_TYPE as GPT_TYPE
from course_lib.models.open_checkpoint import Checkpoint, checkpoint_folder, open_checkpoint
from course_lib.models.tokenizer_files import CourseTokenizer, load_tokenizer_of
from course_lib.text import looks_like_bijoy

from .flags import DTYPES
from .licence import say_licence
from .streams import note

LARGE = 200_000_000
"""Bytes of weights above which loading them is announced."""
TUNED = re.compile(r"opt-iml|bloomz")
"""Published models that have learned to follow instructions."""


@dataclass
class Opened:
    """What is known of a model before its weights are: its folder, the ``config`` of its family, its tokenizer."""

    name: str
    folder: Path
    config: Any
    tokenizer: Any
    stored_dtype: torch.dtype
    nbytes: int
    raw_config: dict[str, Any]

    def load(self, flags: argparse.Namespace) -> Any:
        """Say whose model this is and what one may do with it, and load it.

        float16 becomes float32 on a CPU, tensor by tensor: processors multiply it slowly, and many not at all.
        """
        note("tuned" if TUNED.search(self.name.lower()) else "base", model=self.name)
        say_licence(
            self.name, self.folder, self.raw_config, course=isinstance(self.tokenizer, CourseTokenizer)
        )
        if self.nbytes > LARGE:
            note("loading", size=f"{self.nbytes / 1e9:.1f}")
        dtypes = dict(zip(DTYPES, (torch.float32, torch.bfloat16, torch.float16), strict=True))
        dtype = dtypes.get(flags.dtype)
        on_cpu = torch.device(flags.device).type == "cpu"
        if dtype is None and on_cpu and self.stored_dtype == torch.float16:
            dtype = torch.float32
        return load_model(self.folder, device=flags.device, dtype=dtype)


def open_model(flags: argparse.Namespace) -> Opened:
    """Everything but the weights of the model that the flags name. Raises ValueError or OSError."""
    _check_device(flags.device)
    folder = _folder(flags)
    with open_checkpoint(folder) as checkpoint:
        config = _family_config(checkpoint)
        sizes = Counter[torch.dtype]()
        for name in checkpoint.names():
            sizes[checkpoint.dtype(name)] += torch.Size(checkpoint.shape(name)).numel()
        opened = Opened(
            name=str(flags.model),
            folder=folder,
            config=config,
            tokenizer=load_tokenizer_of(folder),
            stored_dtype=max(sizes, key=lambda dtype: sizes[dtype], default=torch.float32),
            nbytes=checkpoint.nbytes,
            raw_config=checkpoint.config,
        )
    try:
        check_tokenizer(opened.tokenizer, config.vocab_size)
    except ValueError:
        raise ValueError(
            f"MODEL: expected a tokenizer of {config.vocab_size:,} tokens beside this model, got one of "
            f"{opened.tokenizer.vocab_size:,} in {folder}. It belongs to another model."
        ) from None
    if wrong := [token for token in config.end_token_ids if not 0 <= token < config.vocab_size]:
        raise ValueError(
            f"MODEL: expected an end token below vocab_size = {config.vocab_size} in {folder / 'config.json'}, got "
            f"{wrong[0]}."
        )
    if flags.top_k is not None and flags.top_k > config.vocab_size:
        raise ValueError(
            f"--top-k: expected at most {config.vocab_size:,}, the tokens of this model, got {flags.top_k:,}."
        )
    return opened


def stop_of(flags: argparse.Namespace, opened: Opened) -> list[int | str]:
    """The texts of --stop, and the model's own end tokens."""
    return [*flags.stop, *(opened.config.end_token_ids or opened.tokenizer.end)]


def warn_of_bijoy(text: str) -> None:
    """Bangla for a Bijoy font is letters that no model knows, and looks like no error."""
    if looks_like_bijoy(text):
        note("bijoy")


def _folder(flags: argparse.Namespace) -> Path:
    """The model's folder, also for that of a run of `train`, which holds it."""
    if not flags.model.strip():
        raise ValueError(f"MODEL: expected a folder, an id on the hub or {LEAN_OPT}, got an empty name.")
    try:
        folder = checkpoint_folder(flags.model, revision=flags.revision)
    except FileNotFoundError as error:
        if "lean" not in flags.model or flags.model == LEAN_OPT:
            raise
        raise FileNotFoundError(f"{error} The course's own model is called {LEAN_OPT}.") from None
    if (folder / "config.json").exists() or not (folder / "run.json").exists():
        return folder
    if not (folder / "model" / "config.json").exists():
        raise ValueError(
            f"MODEL: expected a model in {folder}, got a run of `train` that has not ended yet. To go on with it: "
            f"python -m course_lib train --resume {folder}"
        )
    return folder / "model"


def _family_config(checkpoint: Checkpoint) -> Any:
    family = FAMILIES.get(checkpoint.model_type) if isinstance(checkpoint.model_type, str) else None
    if family is None:
        raise ValueError(
            f"path: expected a model of one of the types {', '.join(map(repr, FAMILIES))}, got "
            f"{checkpoint.model_type!r} in {checkpoint.folder / 'config.json'}."
        )
    values = dict(checkpoint.config)
    if checkpoint.model_type == GPT_TYPE:  # its config has no place for it
        values.pop("model_type")
    try:
        return family.config_class.from_dict(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"path: {checkpoint.folder / 'config.json'} describes no model of this checkpoint. {error}"
        ) from None


def _check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = re.split(r"\.?\s*\n|\. ", str(error).strip())[0]
        raise ValueError(
            f"--device: expected one that computes here, such as cpu, got {name} ({reason})."
        ) from None
