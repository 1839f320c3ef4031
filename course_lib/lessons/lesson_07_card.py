"""What a GPT writes, the reader's own text (or one that stands in for it), and the card to keep of a training run."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from course_lib.atomic import write_atomically
from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.gqa import KVCache
from course_lib.models import GPT
from course_lib.text import Document, graphemes, load_corpus, read_documents
from course_lib.text.script import script_language
from course_lib.tiny_gpt import sample

MOST_POINTS = 360
"""Code points of a text that the card shows; a longer one is cut between two graphemes."""


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_07.{key}", **values)


# --- writing -----------------------------------------------------------------------------------------------------


class _AsTinyGPT(nn.Module):
    """A GPT as ``sample`` of lesson 03 asks for one: it reads these four, and calls it with tokens and a cache."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model
        self.embed, self.layers, self.attention_bias = model.embed, model.layers, model.attention_bias
        config = model.config
        self.positions, self.vocab_size, self.max_length = (
            config.positions,
            config.vocab_size,
            config.max_length,
        )

    def forward(self, tokens: Tensor, cache: Sequence[KVCache] | None = None) -> Tensor:
        return self.model(tokens, cache=cache)


def write(model: GPT, prompt: str = "", **settings: Any) -> str:
    """``prompt`` and how ``model`` goes on: lesson 03's ``sample`` with lesson 04's cache. Settings are sample's.

    Control characters, which an untrained model writes like any other token and no page can hold, are left out.
    """
    shown: Any = _AsTinyGPT(model)
    text = sample(shown, prompt, cache=[KVCache() for _ in model.layers], **settings)
    return "".join(sign for sign in text if sign == "\n" or unicodedata.category(sign) != "Cc")


# --- one's own text ----------------------------------------------------------------------------------------------


def own_text(path: str | Path | None = None) -> list[Document]:
    """The documents of a .txt or .jsonl file; without one, some of the course's corpus stand in for it.

    These are short texts in Bangla with English words, as people write them on a phone.
    """
    if path is not None:
        return list(read_documents(Path(path).expanduser()))
    return [document for document in load_corpus() if document.language == "mixed"]


# --- the card ----------------------------------------------------------------------------------------------------


def _curve(losses: Sequence[float]) -> str:
    """The loss of each step, smoothed, as a small line with its first and last value."""
    width, height, left, top = 560, 90, 34, 10
    window = max(1, len(losses) // 20)
    smooth = [sum(losses[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(losses))]
    high = max(smooth)

    def place(i: int, loss: float) -> tuple[float, float]:
        x = left + i / max(1, len(smooth) - 1) * (width - left - 44)
        return x, top + (1 - loss / high) * (height - top - 14)

    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(i, loss) for i, loss in enumerate(smooth)))
    base = height - 14
    x, y = place(len(smooth) - 1, smooth[-1])
    shapes = [
        f'<line x1="{left}" y1="{base}" x2="{width - 44}" y2="{base}" style="stroke:{svg.FAINT}"/>',
        f'<polyline points="{points}" style="fill:none;stroke:{svg.BLUE};stroke-width:2.5"/>',
        svg.text(left - 6, top + 6, f"{smooth[0]:.1f}", anchor="end", size=12),
        svg.text(left - 6, base + 4, "0", anchor="end", size=12),
        svg.text(x + 6, y + 4, f"{smooth[-1]:.1f}", size=12, weight="bold"),
    ]
    title = f"{_say('card.curve')}: {smooth[0]:.1f} → {smooth[-1]:.1f}"
    return svg.picture(width, height, title, *shapes)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= MOST_POINTS:
        return text
    kept = ""
    for letter in graphemes(text):
        if len(kept) + len(letter) >= MOST_POINTS:
            break
        kept += letter
    return kept.rstrip() + "…"


def draw_card(
    prompt: str,
    before: str,
    after: str,
    *,
    losses: Sequence[float],
    parameters: int,
    documents: int,
    tokens: int,
    seconds: float,
) -> str:
    """The card as HTML: what the model made of ``prompt`` before and after, the losses of its steps, its numbers.

    Raises ValueError where no step was taken.
    """
    if not losses:
        raise ValueError("losses: expected those of at least one step, got none. Train first.")
    whole = round(seconds)
    time = (
        _say("card.minutes", minutes=whole // 60, seconds=whole % 60)
        if whole >= 60
        else _say("card.seconds", seconds=whole)
    )
    tail = losses[-max(1, len(losses) // 10) :]
    facts = _say(
        "card.facts",
        parameters=f"{parameters:,}",
        documents=f"{documents:,}",
        tokens=f"{tokens:,}",
        time=time,
        first=f"{losses[0]:.1f}",
        last=f"{sum(tail) / len(tail):.1f}",
    )
    rows = "".join(
        f'<div style="margin:10px 0 2px;font-weight:bold;color:{colour}">{escape(_say(key))}</div>'
        f'<div lang="{_lang(text)}" style="border-left:4px solid {colour};padding:2px 0 2px 10px;'
        f'overflow-wrap:anywhere;line-height:1.6">{_marked(prompt, _cut(text))}</div>'
        for key, text, colour in (
            ("card.before", before, svg.VERMILION),
            ("card.after", after, svg.BLUE),
        )
    )
    return (
        f'<div style="background:{svg.PAPER};color:{svg.INK};font:15px {svg.FONT};padding:16px;'
        f'border:1px solid {svg.FAINT};border-radius:8px;max-width:610px">'
        f'<div style="font-size:19px;font-weight:bold">{escape(_say("card.title"))}</div>{rows}'
        f'<div style="margin-top:12px">{_curve(losses)}</div>'
        f'<div style="font-size:13px;margin-top:4px">{escape(facts)}</div></div>'
    )


def _marked(prompt: str, text: str) -> str:
    if prompt and text.startswith(prompt):
        return f"<b>{escape(prompt)}</b>{escape(text.removeprefix(prompt))}"
    return escape(text)


def _lang(text: str) -> str:
    return "bn" if script_language(text) in ("bn", "mixed") else "en"


def training_card(prompt: str, before: str, after: str, **facts: Any) -> svg.Picture:
    """The card as the last line of a cell; ``facts`` are those of :func:`draw_card`."""
    drawn = draw_card(prompt, before, after, **facts)
    return svg.Picture(drawn, f"{_say('card.before')}: {_cut(before)}\n{_say('card.after')}: {_cut(after)}")


def save_card(card: svg.Picture, name: str = "before_and_after.html") -> Path:
    """Keep the card as a page beside the notebook, or in COURSE_STATE_DIR, and say where."""
    path = Path(os.environ.get("COURSE_STATE_DIR") or Path.cwd()) / name
    page = (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(_say('card.title'))}</title></head>"
        f'<body style="margin:24px;background:#ffffff">{card.html}</body></html>\n'
    )
    write_atomically(path, page)
    print(_say("card.saved", name=name))
    return path
