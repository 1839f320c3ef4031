"""The finished model as a folder: weights, config, tokenizer, and a card that says on what it was trained, and how."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from course_lib.atomic import write_atomically
from course_lib.text import Tokenizer
from course_lib.text.tokenizer import END_OF_TEXT, PAD

from .config import COURSE, files_of
from .course_text import CourseText
from .evaluate import HELD_OUT_TOKENS, mean_loss, rows_of
from .precision import NAMES
from .row_loss import RowLoss
from .set_up import Run, name_of

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
WEIGHTS = "model.safetensors"
CONTENT = {WEIGHTS, "config.json", "generation_config.json", "README.md", TOKENIZER, TOKENIZER_CONFIG}


def write_model_folder(folder: Path, model: Any, run: Run) -> Path:
    """What the ``load`` of its class reads, with the tokenizer beside it, for a family of transformers' as it reads it.

    ``model`` is left as it is. Raises OSError where the folder cannot be written, ValueError for weights that are too
    large for what they are to be stored as.
    """
    stored = as_stored(model, run.config.stored_as)
    stored.save(
        folder, trained=training_text(model, run), license=run.config.license, languages=languages_of(run)
    )
    try:
        if getattr(model.config, "bos_token_id", None) is None:
            run.tokenizer.save(folder / TOKENIZER)
        else:
            write_atomically(folder / TOKENIZER_CONFIG, tokenizer_config(model.config.max_length))
            write_atomically(folder / TOKENIZER, tokenizer_text(run.tokenizer))
    except OSError as error:
        raise OSError(
            f"output: expected room for {TOKENIZER} in {folder}, got: {error.strerror}. The model beside it is whole."
        ) from error
    return folder


def as_stored(model: Any, precision: str) -> Any:
    """``model`` itself, or where ``precision`` is not that of its weights, a copy in it."""
    dtype = NAMES[precision]
    if all(parameter.dtype == dtype for parameter in model.parameters()):
        return model
    stored = deepcopy(model).to(dtype)
    stored.tie()
    for name, parameter in stored.named_parameters():
        if not parameter.isfinite().all():
            raise ValueError(
                f"stored_as: expected a precision that holds every weight, got {precision}, whose largest number is "
                f"{torch.finfo(dtype).max:g}, and {name} has a larger one. Store the model as bf16 or fp32."
            )
    return stored


def tokenizer_text(tokenizer: Tokenizer) -> str:
    """tokenizer.json, which tells transformers to begin a text with the token that it began with in training.

    The course's own ``Tokenizer`` never adds it by itself.
    """
    content = json.loads(tokenizer.to_json())
    begin = {"SpecialToken": {"id": END_OF_TEXT, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, begin, second],
        "special_tokens": {
            END_OF_TEXT: {"id": END_OF_TEXT, "ids": [tokenizer.end_of_text], "tokens": [END_OF_TEXT]}
        },
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def tokenizer_config(max_length: int | None) -> str:
    """tokenizer_config.json: without it, transformers does not know which tokens are special."""
    content: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    }
    if max_length is not None:
        content["model_max_length"] = max_length
    return json.dumps(content, indent=2) + "\n"


def check_target(folder: Path) -> None:
    """Raises ValueError for a folder that holds something else than a model, OSError where none can be made."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"model_folder: expected a folder, got {folder}, which is a file.")
    strange = (
        sorted(path.name for path in folder.iterdir() if path.name not in CONTENT) if folder.exists() else []
    )
    if strange:
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        raise ValueError(
            f"model_folder: expected a new folder or that of a model, which is replaced, got {folder}, which also "
            f"holds {', '.join(strange[:3])}{more}. Name another one: nothing of it is removed."
        )
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(
            f"model_folder: expected a folder that can be written, got {folder}, and {there} cannot: {error.strerror}."
        ) from error


def publish(source: Path, target: Path) -> None:
    """Put a copy of the model in ``source`` in the place of ``target``: the whole of it, or nothing.

    A copy of the same weights that is there stays: its owner may have written in its card. Raises as ``check_target``.
    """
    check_target(target)
    if (target / WEIGHTS).is_file() and filecmp.cmp(source / WEIGHTS, target / WEIGHTS, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as part:
        shutil.copytree(source, Path(part) / "new", ignore=lambda _, names: set(names) - CONTENT)
        if target.exists():
            os.rename(target, Path(part) / "old")
        try:
            os.rename(Path(part) / "new", target)
        except OSError:
            if (Path(part) / "old").exists():
                os.rename(Path(part) / "old", target)
            raise


def training_text(model: Any, run: Run) -> str:
    """The card's section on training, as Markdown."""
    config = run.config
    lines = [
        f"Trained on {data_text(run)}.",
        "",
        "| | |",
        "|---|---|",
        f"| steps | {run.step:,} |",
        f"| tokens read | {sum(record.tokens for record in run.records):,}, with repetition |",
        f"| whole passes over the documents | {run.stream.passes_done} |",
        f"| a step | {config.rows_per_step} packed rows of up to {config.batch_tokens:,} tokens |",
        f"| context | {config.context_length:,} tokens |",
        f"| AdamW | learning rate {config.learning_rate:g} after {config.warm_up_steps} steps, "
        f"{config.floor * config.learning_rate:g} at the end, weight decay {config.weight_decay:g}, "
        f"betas {config.betas[0]:g} and {config.betas[1]:g} |",
        f"| precision | {name_of(run.precision)}, weights in fp32 |",
        f"| stored | weights in {config.stored_as} |",
        f"| seed | {config.seed} |",
    ]
    if run.records:
        lines.append(f"| loss of the last step | {run.records[-1].loss:.3f} nats a token |")
    if run.held_out:
        (first, before), (last, after) = run.held_out[0], run.held_out[-1]
        lines.append(
            f"| held-out loss | {before:.3f} nats a token after {first} steps, {after:.3f} after {last} |"
        )
        lines += [
            f"| held out, {what} | {loss:.3f} nats a token |" for what, loss in course_losses(model, run)
        ]
    lines += [
        "",
        "Its tokenizer is `tokenizer.json` in this folder. In training a text began and ended with the token "
        f"{run.tokenizer.end_of_text}: begin a prompt with it.",
    ]
    return "\n".join(lines)


def course_losses(model: Any, run: Run) -> list[tuple[str, float]]:
    """The held-out loss of the course's stories and of its corpus apart, where both were read: endless stories by one
    grammar are soon learned, a small corpus of many kinds is not, and their mean hides it."""
    if not isinstance(run.config.data, CourseText):
        return []
    stories = [document for document in run.split.held_out if document.id.startswith("story-")]
    others = [document for document in run.split.held_out if not document.id.startswith("story-")]
    if not stories or not others:
        return []
    row_loss = RowLoss(model)
    found = []
    for what, documents in (("stories", stories), ("corpus", others)):
        rows = rows_of(
            documents,
            batch_tokens=run.config.batch_tokens,
            context=run.config.context_length,
            tokenizer=run.tokenizer,
            vocab_size=model.config.vocab_size,
            most_tokens=HELD_OUT_TOKENS,
        )
        found.append((f"{what} ({len(documents):,} documents)", mean_loss(row_loss, rows, run.precision)))
    return found


def data_text(run: Run) -> str:
    """What a run is trained on, in words."""
    held = len(run.split.held_out)
    data = run.config.data
    files = files_of(data)
    if isinstance(data, CourseText):
        what = str(data)
    elif isinstance(data, str) and data == COURSE:
        what = str(CourseText())
    elif files is not None:
        what = "text from " + ", ".join(path.name for path in files)
    else:
        what = "text given by its maker"
    return f"{what}: {run.split.documents - held:,} documents, and {held:,} more held out"


def languages_of(run: Run) -> list[str]:
    """Codes for the card's header."""
    spoken = {"bn": ["bn"], "en": ["en"], "mixed": ["bn", "en"], "banglish": ["bn"]}
    return sorted({code for name in run.split.languages for code in spoken.get(name, [])})
