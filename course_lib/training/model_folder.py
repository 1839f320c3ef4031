"""The finished model as a folder: weights, config, tokenizer, and a card that says on what it was trained, and how."""

from __future__ import annotations

from pathlib import Path

from course_lib.models import GPT

from .config import COURSE, files_of
from .course_text import CourseText
from .set_up import Run, name_of

TOKENIZER = "tokenizer.json"


def write_model_folder(folder: Path, model: GPT, run: Run) -> Path:
    """What ``GPT.load(folder)`` reads, with the tokenizer beside it. Raises OSError where it cannot be written."""
    model.save(folder, trained=training_text(run), languages=languages_of(run))
    try:
        run.tokenizer.save(folder / TOKENIZER)
    except OSError as error:
        raise OSError(
            f"output: expected room for {TOKENIZER} in {folder}, got: {error.strerror}. The model beside it is whole."
        ) from error
    return folder


def training_text(run: Run) -> str:
    """The card's section on training, as Markdown."""
    config = run.config
    lines = [
        f"Trained on {data_text(run)}.",
        "",
        "| | |",
        "|---|---|",
        f"| steps | {run.step:,} |",
        f"| tokens read | {sum(record.tokens for record in run.records):,}, with repetition |",
        f"| a step | {config.rows_per_step} packed rows of up to {config.batch_tokens:,} tokens |",
        f"| context | {config.context_length:,} tokens |",
        f"| AdamW | learning rate {config.learning_rate:g}, weight decay {config.weight_decay:g} |",
        f"| precision | {name_of(run.precision)}, weights in fp32 |",
    ]
    if run.records:
        lines.append(f"| loss of the last step | {run.records[-1].loss:.3f} nats a token |")
    if run.held_out:
        (first, before), (last, after) = run.held_out[0], run.held_out[-1]
        lines.append(
            f"| held-out loss | {before:.3f} nats a token after {first} steps, {after:.3f} after {last} |"
        )
    lines += [
        "",
        "Its tokenizer is `tokenizer.json` in this folder. In training a text began and ended with the token "
        f"{run.tokenizer.end_of_text}: begin a prompt with it.",
    ]
    return "\n".join(lines)


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
