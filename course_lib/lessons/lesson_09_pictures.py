"""The SVG pictures and the widget of lesson 09: OPT beside the course's GPT, positions, what is read, what is kept."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider
from course_lib.gqa import KVCache
from course_lib.models import GPT, LEAN_OPT, OPT, load_model, next_token_probabilities
from course_lib.text import load_tokenizer

PROMPTS = (
    "একদিন বিকেলে স্কুলের মাঠে একটি",
    "রাকিব একটি লাল",
    "On Friday morning, Jenny lost her new",
    "One morning",
)
"""What the widget goes on from, each a different kind of distribution: even, steep, long, and all but certain."""
_CELL, _ROW = 74, 46


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_09.{key}", **values)


# --- OPT beside the course's GPT ---------------------------------------------------------------------------------


def parts_of(opt: OPT, gpt: GPT) -> list[tuple[str, str, str]]:
    """(part, what it is in the GPT, what it is in the OPT), from the tokens up; four of them make a layer."""
    mine, theirs = gpt.config, opt.config
    return [
        ("embedding", f"{mine.vocab_size:,} × {mine.dim}", f"{theirs.vocab_size:,} × {theirs.dim}"),
        ("positions", "ALiBi, in the scores", f"a learned table, {theirs.max_length} + 2 rows"),
        ("norm", "RMSNorm", "LayerNorm"),
        (
            "attention",
            f"{mine.num_heads} heads share {mine.kv_heads} of keys and values",
            f"{theirs.num_heads} heads, biases",
        ),
        ("norm", "RMSNorm", "LayerNorm"),
        ("feed-forward", "SwiGLU, 3 matrices", "2 matrices, ReLU between, biases"),
        ("norm", "RMSNorm", "LayerNorm"),
        ("head", "the embedding again", "the embedding again"),
    ]


def anatomy_figure(opt: OPT, gpt: GPT) -> svg.Picture:
    """The parts of both models from the bottom up, those that differ filled."""
    parts = parts_of(opt, gpt)
    width, height, gap, left = 232, 32, 8, 100
    columns = (("the course's GPT", left), ("OPT", left + width + 22))
    shapes = [svg.text(x + width / 2, 18, name, anchor="middle", weight="bold") for name, x in columns]
    y = [34 + (height + gap) * (len(parts) - 1 - i) for i in range(len(parts))]
    top, bottom = y[5], y[2] + height
    shapes.append(
        svg.rectangle(left - 6, top - 4, 2 * width + 34, bottom - top + 8, stroke=svg.INK, stroke_width=1.5)
    )
    for i, (name, mine, theirs) in enumerate(parts):
        shapes.append(svg.text(left - 14, y[i] + 21, name, anchor="end"))
        for words, x in ((mine, columns[0][1]), (theirs, columns[1][1])):
            differs = mine != theirs and name != "embedding"
            shapes.append(
                svg.rectangle(x, y[i], width, height, fill=svg.SKY if differs else "none", stroke=svg.INK)
            )
            ink = "#1f1f1f" if differs else svg.INK
            shapes.append(svg.text(x + width / 2, y[i] + 21, words, anchor="middle", size=13, colour=ink))
    for i, (number, side) in enumerate(((gpt.config.num_layers, "left"), (opt.config.num_layers, "right"))):
        shapes.append(svg.text(left + 2 * width + 34, y[4] + 21 + 40 * i, f"{number} × {side}", size=13))
    different = [f"{name}: {mine} / {theirs}" for name, mine, theirs in parts if mine != theirs]
    title = "The course's GPT / OPT. " + "; ".join(dict.fromkeys(different))
    drawn = svg.picture(left + 2 * width + 92, y[0] + height + 6, title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.anatomy")), title)


# --- positions ---------------------------------------------------------------------------------------------------


def positions_figure(words: Sequence[Sequence[str]], attention_mask: Tensor) -> svg.Picture:
    """Rows of tokens, padding in dashes; below each token its place in the row, and its position.

    ``words``: for each row its real tokens, in order; ``attention_mask`` [rows, length]. A place that is not the
    token's position is marked.
    """
    positions = KVCache().next_positions(attention_mask).tolist()
    mask = attention_mask.bool().tolist()
    left, shapes = 96, []
    told = []
    for row, (own, real) in enumerate(zip(words, mask, strict=True)):
        y = 6 + row * (2 * 24 + _ROW)
        for line, name in enumerate(("place", "position")):
            shapes.append(svg.text(left - 8, y + _ROW + 4 + 20 * line, name, anchor="end", size=13))
        left_over = iter(own)
        for place, here in enumerate(real):
            x = left + _CELL * place
            fill = svg.SKY if here else "none"
            shapes.append(svg.rectangle(x, y, _CELL - 4, 30, fill=fill, stroke=svg.FAINT))
            word, ink = (next(left_over), "#1f1f1f") if here else ("pad", svg.FAINT)
            shapes.append(svg.text(x + _CELL / 2 - 2, y + 20, word, anchor="middle", colour=ink))
            wrong = here and place != positions[row][place]
            shapes.append(
                svg.text(
                    x + _CELL / 2 - 2,
                    y + _ROW + 4,
                    f"{place} ✗" if wrong else place,
                    anchor="middle",
                    colour=svg.VERMILION if wrong else svg.INK,
                )
            )
            said = positions[row][place] if here else "–"
            shapes.append(svg.text(x + _CELL / 2 - 2, y + _ROW + 24, said, anchor="middle", weight="bold"))
        told.append(f"row {row}: {[p for p, here in zip(positions[row], real, strict=True) if here]}")
    title = "Positions of the real tokens, " + ", ".join(told)
    drawn = svg.picture(left + _CELL * len(mask[0]), 4 + len(mask) * (2 * 24 + _ROW), title, *shapes)
    return svg.Picture(svg.card(drawn, caption=_say("pictures.positions")), title)


# --- what is read ------------------------------------------------------------------------------------------------


def reads_figure(words: Sequence[str], prompt: int) -> svg.Picture:
    """Which tokens each step reads, without a cache and with one: ``prompt`` of the ``words`` are given."""
    if not 0 < prompt < len(words):
        raise ValueError(f"prompt: expected 1 to {len(words) - 1} of the {len(words)} words, got {prompt}.")
    steps = len(words) - prompt
    again = [[column < prompt + step for column in range(len(words) - 1)] for step in range(steps)]
    once = [
        [column < prompt if step == 0 else column == prompt + step - 1 for column in range(len(words) - 1)]
        for step in range(steps)
    ]
    counts = [sum(map(sum, reads)) for reads in (again, once)]
    title = f"{steps} new tokens: {counts[0]} tokens read without a cache, {counts[1]} with one"
    grids = [
        svg.grid(
            reads,
            ["prefill" if step == 0 and reads is once else f"step {step + 1}" for step in range(steps)],
            list(words[:-1]),
            title=f"{name}: {count} tokens read",
            colour=colour,
        )
        for name, reads, count, colour in (
            ("without a cache", again, counts[0], svg.VERMILION),
            ("with a cache", once, counts[1], svg.BLUE),
        )
    ]
    return svg.Picture(
        svg.card(*grids, caption=_say("pictures.reads", again=counts[0], once=counts[1])), title
    )


# --- what comes next ---------------------------------------------------------------------------------------------


def label_of(tokenizer: Any, token: int) -> str:
    """A token for display: without the space that most begin with, … before one that goes on with a word, half a
    letter as its bytes, a lone vowel sign on a dotted circle."""
    own = tokenizer.token_bytes(token)
    try:
        words = own.decode("utf-8").replace("\n", "⏎")
    except UnicodeDecodeError:
        return own.hex(" ").upper()
    if not words:
        return "(end)"
    if words.startswith(" ") and words != " ":
        return words[1:]
    return "…" + ("◌" if unicodedata.category(words[0]).startswith("M") else "") + words


def kept_figure(probabilities: Tensor, labels: Sequence[str], p: float, *, most: int = 12) -> svg.Picture:
    """The likeliest tokens of ``probabilities`` [vocab] as bars, each with what they reach together; kept are those
    that top-p keeps. ``labels``: how each token is shown."""
    ordered, ids = probabilities.double().sort(descending=True, stable=True)
    together = ordered.cumsum(0)
    kept = int((together - ordered < p).sum())
    shown = [
        (
            labels[int(ids[i])],
            float(ordered[i]),
            f"{float(ordered[i]):.1%}, together {float(together[i]):.1%}",
        )
        for i in range(min(most, len(ids)))
    ]
    title = f"Top-p of {p:g} keeps {kept} of {len(ids):,} tokens, " + ", ".join(
        f"{label} {value:.1%}" for label, value, _ in shown[: min(kept, 4)]
    )
    colours = [svg.BLUE if i < kept else svg.FAINT for i in range(len(shown))]
    drawn = svg.bars(shown, title=title, colours=colours, margin=30)
    caption = _say("pictures.kept", kept=kept, vocab=f"{len(ids):,}", p=f"{p:g}")
    return svg.Picture(svg.card(drawn, caption=caption), title)


@cache
def next_logits(prompt: str) -> Tensor:
    """[vocab]: what the course's own model, in fp32, says after ``prompt``."""
    model, tokenizer = _own_model(), load_tokenizer()
    with torch.no_grad():
        return model(torch.tensor([[tokenizer.end_of_text, *tokenizer.encode(prompt)]]))[0, -1]


@cache
def _own_model() -> Any:
    return load_model(LEAN_OPT, dtype=torch.float32)


def render_next_token(prompt: str, temperature: float, top_p: float) -> str:
    """The likeliest next tokens after ``prompt`` under a temperature, those that top-p keeps filled, as HTML."""
    tokenizer = load_tokenizer()
    tempered = next_token_probabilities(next_logits(prompt), temperature)
    left = next_token_probabilities(next_logits(prompt), temperature, top_p=top_p)
    ordered, ids = tempered.sort(descending=True, stable=True)
    kept = int((left > 0).sum())
    shown, colours = [], []
    for before, token in zip(ordered[:10].tolist(), ids[:10].tolist(), strict=True):
        after = float(left[token])
        shown.append(
            (label_of(tokenizer, token), before, f"{before:.1%} → {after:.1%}" if after else f"{before:.1%}")
        )
        colours.append(svg.BLUE if after else svg.FAINT)
    drawn = svg.bars(shown, title=f"{kept} tokens are kept after {prompt}", colours=colours, margin=30)
    caption = _say(
        "pictures.next",
        prompt=prompt,
        kept=f"{kept:,}",
        vocab=f"{len(ids):,}",
        rest=f"{float(ordered[10:].sum()):.1%}",
    )
    return svg.card(drawn, caption=caption)


def next_token_widget() -> Card:
    """The course's own model before its next token: slide temperature and top-p."""
    return card(
        render_next_token,
        choice("prompt", PROMPTS[0], PROMPTS),
        slider("temperature", 1.0, 0.1, 3.0, step=0.1),
        slider("top_p", 1.0, 0.05, 1.0, step=0.05, label="top-p"),
    )
