"""What a run of training is, as one object: model, text, length, pace, precision, and where it is written."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from course_lib.attention.bias import as_whole_number
from course_lib.text import Tokenizer

from .course_text import CourseText
from .family import config_from_dict, model_type_of
from .precision import NAMES

COURSE = "course"
ENGINES = ("ddp", "fsdp")
CHECKS_PER_RUN = 10
"""How often a run is evaluated, and written as a checkpoint, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What ``train`` does. Raises TypeError or ValueError that names the field which does not fit.

    A step is ``rows_per_step`` packed rows of at most ``batch_tokens`` tokens, those of all processes together. One
    row is computed at a time and the gradients add up, so that ``batch_tokens`` decides the memory, and a config
    means the same training on one process as on several.
    """

    model: Any
    """A ``GPTConfig``, or that of another family."""
    data: Any = COURSE
    """"course" (the corpus and stories, Bangla and English), or a ``CourseText`` that says how much of them; a .txt or
    .jsonl file, a folder of them or a list of such ``Path`` objects; or what ``TokenStream`` takes: a list of texts,
    ``Document`` objects or token ids, or a function that opens them."""
    tokenizer: Tokenizer | str | Path | None = None
    """None: the course's. A path is that of a tokenizer.json."""
    output: str | Path | None = None
    """The folder for the log, curves, checkpoints and the model; None writes nothing."""
    model_folder: str | Path | None = None
    """Where the finished model goes. None: to ``model`` in ``output``."""
    stored_as: str = "fp32"
    """The precision of the finished model's weights in its file: "fp32", "bf16" or "fp16", the latter two half as
    large. Checkpoints are in fp32."""
    license: str = ""
    """Of the finished model, for its card: an identifier such as "cc0-1.0"."""
    steps: int
    batch_tokens: int = 4096
    rows_per_step: int = 1
    context: int | None = None
    """Tokens of a document that see each other. None: what the model is meant for, or a row if that is shorter."""
    learning_rate: float = 1e-3
    warm_up: int | None = None
    """Steps in which the learning rate rises. None: a twentieth of the run."""
    floor: float = 0.1
    """The share of ``learning_rate`` that the last step has."""
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    max_norm: float | None = 1.0
    """The norm to which gradients are clipped; None: never."""
    decay_embeddings: bool = False
    precision: str = "auto"
    """"auto", "fp32", "bf16" or "fp16"."""
    device: str = "auto"
    """"auto" is a GPU where there is one, else the CPU."""
    compile: bool = False
    fused: bool | None = None
    """Whether AdamW is one kernel for all parameters. None: what PyTorch chooses."""
    chunked_loss: bool = True
    """Whether the loss is taken of some tokens at a time, so that the logits of all are never held."""
    engine: str = "ddp"
    """"ddp" (each process holds the model) or "fsdp" (each holds a share): for several processes, under torchrun."""
    seed: int = 0
    held_out: float = 0.02
    """The share of documents that is not trained on, but evaluated; one at least, unless it is 0."""
    evaluate_every: int | None = None
    """Steps. None: ten times in the run. Before the first step and after the last it is evaluated in any case."""
    checkpoint_every: int | None = None
    """Steps. None: ten times in the run. After the last step a checkpoint is written in any case."""
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        model_type_of(self.model)
        wholes = {
            "steps": 1, "batch_tokens": 2, "rows_per_step": 1, "context": 2, "warm_up": 0, "seed": None,
            "evaluate_every": 1, "checkpoint_every": 1, "keep_checkpoints": 1,
        }  # fmt: skip
        optional = {field.name for field in fields(self) if field.default is None}
        for name, least in wholes.items():
            value = getattr(self, name)
            if value is not None or name not in optional:
                object.__setattr__(self, name, as_whole_number(name, value, least))
        for name in ("compile", "chunked_loss", "decay_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}: expected True or False, got {getattr(self, name)!r}.")
        if self.fused not in (None, True, False):
            raise TypeError(f"fused: expected True, False or None, got {self.fused!r}.")
        self._check_numbers()
        self._check_names()
        self._check_lengths()
        self._check_sources()

    def _check_numbers(self) -> None:
        bounds = {
            "learning_rate": {"over": 0}, "weight_decay": {"least": 0}, "floor": {"least": 0, "most": 1},
            "held_out": {"least": 0, "below": 1}, "max_norm": {"over": 0},
        }  # fmt: skip
        for name, own in bounds.items():
            if name != "max_norm" or self.max_norm is not None:
                object.__setattr__(self, name, _number(name, getattr(self, name), **own))
        if abs(self.seed) >= 2**63:
            raise ValueError(f"seed: expected a whole number within 63 bits, got {self.seed}.")
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise TypeError(f"betas: expected two numbers, such as (0.9, 0.95), got {self.betas!r}.")
        betas = (_number(f"betas[{i}]", beta, least=0, below=1) for i, beta in enumerate(self.betas))
        object.__setattr__(self, "betas", tuple(betas))

    def _check_names(self) -> None:
        for name, known in (
            ("precision", ("auto", *NAMES)),
            ("engine", ENGINES),
            ("stored_as", tuple(NAMES)),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}: expected one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}."
                )
        object.__setattr__(self, "device", str(self.device))
        try:
            if self.device != "auto":
                torch.device(self.device)
        except RuntimeError:
            raise ValueError(
                f"device: expected 'auto', 'cpu', 'cuda' or another device of PyTorch's, got {self.device!r}."
            ) from None

    def _check_lengths(self) -> None:
        if self.warm_up is not None and self.warm_up > self.steps:
            raise ValueError(f"warm_up: expected at most steps, {self.steps}, got {self.warm_up}.")
        if self.context is None:
            return
        if self.context > self.batch_tokens:
            raise ValueError(
                f"context: expected at most batch_tokens, {self.batch_tokens}, got {self.context}. A row holds at "
                "least one part of that length: raise batch_tokens, or shorten the context."
            )
        if self.model.max_length is not None and self.context > self.model.max_length:
            raise ValueError(
                f"context: expected at most what the model is meant for, max_length = {self.model.max_length}, got "
                f"{self.context}. Build the model with a larger max_length, or shorten the context."
            )

    def _check_sources(self) -> None:
        if self.data is None or isinstance(self.data, (bytes, int, float)):
            raise TypeError(
                'data: expected "course", a path, a list of documents or a function that opens them, got '
                f"{self.data!r}."
            )
        for name in ("data", "output", "model_folder"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}: expected a path, got an empty text. The current folder is '.'.")
        names = self.data if isinstance(self.data, (list, tuple)) else ()
        if names and all(isinstance(n, str) and n.lower().endswith((".txt", ".jsonl")) for n in names):
            raise TypeError(
                "data: expected Path objects for a list of files, got names as text, which would be trained on as they "
                f"stand: {names[0][:60]!r}. Write [Path(name) for name in names]."
            )
        if self.tokenizer is not None and not isinstance(self.tokenizer, (Tokenizer, str, Path)):
            raise TypeError(
                "tokenizer: expected a Tokenizer, the path of a tokenizer.json or None, got "
                f"{type(self.tokenizer).__name__} {self.tokenizer!r}."
            )
        for name in ("output", "model_folder"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, Path)):
                raise TypeError(f"{name}: expected the path of a folder or None, got {type(value).__name__}.")
        if self.model_folder is not None and self.output is None:
            raise ValueError(
                "model_folder: expected an output beside it, for the log and the checkpoints of the run, got None."
            )
        if not isinstance(self.license, str):
            raise TypeError(
                f"license: expected text, such as 'cc0-1.0', got {type(self.license).__name__} {self.license!r}."
            )

    @property
    def context_length(self) -> int:
        """``context``, as it is or as it follows from the rest; tokens."""
        return context_of(self.model, self.batch_tokens) if self.context is None else self.context

    @property
    def warm_up_steps(self) -> int:
        """``warm_up``, as it is or as it follows from the rest."""
        return max(1, self.steps // 20) if self.warm_up is None else self.warm_up

    @property
    def folder(self) -> Path | None:
        """``output`` as a path."""
        return None if self.output is None else Path(self.output).expanduser()

    def is_evaluated(self, step: int) -> bool:
        """Whether the model is evaluated when ``step`` steps are done."""
        every = self.evaluate_every or max(1, self.steps // CHECKS_PER_RUN)
        return self.held_out > 0 and (step in (0, self.steps) or step % every == 0)

    def is_checkpointed(self, step: int) -> bool:
        """Whether a checkpoint is written when ``step`` steps are done."""
        every = self.checkpoint_every or max(1, self.steps // CHECKS_PER_RUN)
        return step > 0 and (step == self.steps or step % every == 0)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them. Data and a tokenizer that are objects are described, not held."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"model": self.model.to_dict(), "betas": list(self.betas), "data": _described(self.data)}
        for name in ("output", "model_folder"):
            values[name] = None if values[name] is None else str(values[name])
        if isinstance(self.tokenizer, Tokenizer):
            values["tokenizer"] = {
                "vocab_size": self.tokenizer.vocab_size,
                "checksum": checksum(self.tokenizer),
            }
        elif self.tokenizer is not None:
            values["tokenizer"] = str(self.tokenizer)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **changes: Any) -> TrainConfig:
        """The config of ``to_dict``, with ``changes``: what was an object there (data, a tokenizer) is to be given.

        Raises ValueError that names keys which are unknown or missing, and objects that were not given.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"config: expected a dict of the fields, got {type(values).__name__}.")
        known = {field.name: field for field in fields(cls)}
        given = {**values, **changes}
        unknown = [str(name) for name in given if name not in known]
        if unknown:
            raise ValueError(
                f"config: expected only the fields of TrainConfig ({', '.join(known)}), got also "
                f"{', '.join(unknown)}. Was it written by a later version?"
            )
        missing = [name for name, field in known.items() if field.default is MISSING and name not in given]
        if missing:
            raise ValueError(f"config: expected at least model and steps, got none for {', '.join(missing)}.")
        if isinstance(given.get("data"), Mapping) and "course" in given["data"]:
            given["data"] = CourseText.from_dict(given["data"]["course"])
        for name in ("data", "tokenizer"):
            if isinstance(given.get(name), Mapping) and "files" not in given[name]:
                raise ValueError(
                    f"config: expected {name}=..., since the run had an object of Python's there, which a file does "
                    f"not hold: {dict(given[name])}. Pass the same one."
                )
        if isinstance(given.get("data"), Mapping):
            files = [Path(file) for file in given["data"]["files"]]
            given["data"] = files[0] if len(files) == 1 else files
        if isinstance(given.get("betas"), list):
            given["betas"] = tuple(given["betas"])  # JSON has no tuples
        if isinstance(given["model"], Mapping):
            given["model"] = config_from_dict(given["model"])
        return cls(**given)


def context_of(model: Any, batch_tokens: int) -> int:
    """Tokens of a document that ``model`` sees together, of a row of ``batch_tokens``."""
    return batch_tokens if model.max_length is None else min(model.max_length, batch_tokens)


def checksum(tokenizer: Tokenizer) -> str:
    """Tells one tokenizer from another: 16 hexadecimal digits."""
    return hashlib.blake2b(tokenizer.to_json().encode("utf-8"), digest_size=8).hexdigest()


def files_of(data: Any) -> list[Path] | None:
    """The paths that ``data`` names, as given: None where it is something else than paths."""
    if isinstance(data, Path) or (isinstance(data, str) and data != COURSE):
        return [Path(data)]
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, Path) for item in data):
        return list(data)
    return None


def _described(data: Any) -> Any:
    if isinstance(data, str) and data == COURSE:
        return COURSE
    if isinstance(data, CourseText):
        return {"course": data.to_dict()}
    files = files_of(data)
    if files is not None:
        return {"files": [str(path) for path in files]}
    if callable(data):
        return {"function": getattr(data, "__qualname__", type(data).__name__)}
    count = len(data) if hasattr(data, "__len__") else None
    return {"objects": type(data).__name__, "count": count}


def _number(
    name: str,
    value: Any,
    *,
    over: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__} {value!r}.")
    number = float(value)
    if math.isfinite(number) and over < number and least <= number <= most and number < below:
        return number
    bounds = [f"over {over:g}"] if over > -math.inf else []
    bounds += [f"of at least {least:g}"] if least > -math.inf else []
    bounds += [f"of at most {most:g}"] if most < math.inf else []
    bounds += [f"below {below:g}"] if below < math.inf else []
    raise ValueError(f"{name}: expected a number {' and '.join(bounds)}, got {value}.")
