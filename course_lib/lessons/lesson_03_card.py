"""The token bill of lesson 03: one sentence under two tokenizers, as a card to look at and as an SVG file to keep."""

import os
import re
import unicodedata
from pathlib import Path

from course_lib.atomic import write_atomically
from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, entry
from course_lib.text import Piece, Tokenizer, graphemes

SENTENCE = "বাংলাদেশের বিশ্ববিদ্যালয়গুলোতে শিক্ষার্থীরা প্রতিদিন বাংলা বই পড়ে।"
"""Students in the universities of Bangladesh read Bangla books every day: seven words."""

MOST_POINTS = 160
_WIDTH, _LINE, _MARGIN = 600, 48, 14
_WIDE_SIGNS = {
    **dict.fromkeys("াীিেৈ", 7),
    **dict.fromkeys("োৌ", 14),
    "ৗ": 7,
}


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_03.{key}", **values)


def _text_width(text: str) -> float:
    """Roughly how wide a text is at 16 px, on the wide side: a box may be too large, never too small."""
    return sum(_grapheme_width(letter) for letter in graphemes(text))


def _grapheme_width(letter: str) -> float:
    if letter.isascii():
        return 5 if letter in " .,'!;:|il" else 13 if letter in "MWmw@" else 9.5
    if "\u0980" <= letter[0] <= "\u09ff" or letter[0] == "।":
        signs = sum(_WIDE_SIGNS.get(sign, 0) for sign in letter[1:])
        return 6 if letter == "।" else 13 + 4 * letter.count("\u09cd") + signs
    return 20 if ord(letter[0]) > 0x2000 else 11


def _may_stand_in_xml(sign: str) -> bool:
    return unicodedata.category(sign) not in ("Cc", "Cs") and sign not in "\ufffe\uffff"


def _shown(piece: Piece) -> str:
    """A space that belongs to the piece is drawn as a dot; other white space, which has no width, as one too."""
    return re.sub(r"\s", "·", piece.text)


def _row(tokenizer: Tokenizer, text: str, y: float, fill: str) -> tuple[list[str], float]:
    """Boxes of the pieces from y on, with a square for each token below them, and where they end."""
    shapes, x = [], float(_MARGIN)
    for piece in tokenizer.pieces(text):
        words, count = _shown(piece), len(piece.ids)
        width = min(max(_text_width(words) + 10, 9 * count + 5), _WIDTH - 2 * _MARGIN)
        step = min(9, (width - 5) / count)
        if x + width > _WIDTH - _MARGIN and x > _MARGIN:
            x, y = float(_MARGIN), y + _LINE
        shapes.append(svg.rectangle(x, y, width, 28, stroke=fill, stroke_width=1.5))
        shapes.append(svg.text(x + width / 2, y + 20, words, anchor="middle", size=16))
        first = x + (width - step * count) / 2
        shapes += [
            svg.rectangle(first + step * i + 1, y + 32, min(7, step - 0.5), 7, fill=fill, stroke="none")
            for i in range(count)
        ]
        x += width + 3
    return shapes, y + _LINE


def _wrapped(text: str, width: float) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if _text_width(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def draw_card(text: str, usual: Tokenizer, ours: Tokenizer) -> str:
    """The bill of one sentence as an SVG that stands by itself.

    ``usual`` was trained with GPT-2's pattern, ``ours`` with the course's. Raises ValueError for a text that is empty
    or longer than a card.
    """
    text = "".join(sign for sign in " ".join(text.split()) if _may_stand_in_xml(sign))
    if not text:
        raise ValueError(_say("card.empty"))
    if len(text) > MOST_POINTS:
        raise ValueError(_say("card.too_long", most=MOST_POINTS, points=len(text)))
    shapes, y = [], 32.0
    for line in _wrapped(text, _WIDTH - 2 * _MARGIN - 40):
        shapes.append(svg.text(_MARGIN, y, line, size=18, weight="bold"))
        y += 28
    sizes = {"words": len(text.split()), "graphemes": len(graphemes(text)), "points": len(text)}
    shapes.append(svg.text(_MARGIN, y, _say("card.sizes", **sizes, bytes=len(text.encode("utf-8"))), size=13))
    bills = []
    for key, tokenizer, fill in (
        ("card.pattern_gpt2", usual, svg.VERMILION),
        ("card.pattern_ours", ours, svg.BLUE),
    ):
        tokens = len(tokenizer.encode(text))
        heading = _say(key, tokens=tokens)
        bills.append(heading)
        y += 30
        shapes.append(svg.text(_MARGIN, y, heading, weight="bold", size=14))
        boxes, y = _row(tokenizer, text, y + 8, fill)
        shapes += boxes
    for line in _wrapped(_say("card.legend"), (_WIDTH - 2 * _MARGIN) * 16 / 12):
        shapes.append(svg.text(_MARGIN, y + 12, line, size=12))
        y += 18
    frame = svg.rectangle(1, 1, _WIDTH - 2, y + 6, stroke=svg.FAINT)
    return svg.picture(_WIDTH, y + 8, f"{text} {'. '.join(bills)}.", frame, *shapes)


def token_card(text: str, usual: Tokenizer, ours: Tokenizer) -> svg.Picture:
    """The bill of one sentence under two tokenizers, as the last line of a cell."""
    counts = " and ".join(str(len(tokenizer.encode(text))) for tokenizer in (usual, ours))
    return svg.Picture(draw_card(text, usual, ours), f"{text} {counts} tokens")


def save_card(text: str, usual: Tokenizer, ours: Tokenizer, name: str = "token_bill.svg") -> None:
    """Keep the card as a file beside the notebook, or in COURSE_STATE_DIR, and say how large it is.

    Where the notebook does not lie in the current folder (Colab, some editors), the whole path is said.
    """
    drawing = draw_card(text, usual, ours) + "\n"
    state = os.environ.get("COURSE_STATE_DIR")
    path = Path(state or Path.cwd()) / name
    write_atomically(path, drawing)
    beside = bool(state) or any(path.parent.glob("03_*.ipynb"))
    key, where = ("card.saved", name) if beside else ("card.saved_at", str(path))
    print(_say(key, name=where, size=str(len(drawing.encode("utf-8")))))


def bill_widget(usual: Tokenizer, ours: Tokenizer) -> Card:
    """A line to type a sentence into, and its card."""

    def render_bill(text: str) -> str:
        return draw_card(text, usual, ours)

    return card(render_bill, entry("text", SENTENCE, label="sentence"))
