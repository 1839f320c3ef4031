"""The pictures and the two explorers of lesson 00: bytes and tokens, number formats, and the four axes."""

import unicodedata
from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch

from course_lib.classroom import svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, entry
from course_lib.text import Piece, graphemes, load_tokenizer

_ROW = 30
_BYTE = 25
_PALE_BLUE, _PALE_ORANGE = "rgba(0,114,178,.16)", "rgba(230,159,0,.28)"
LONGEST_TEXT = 120  # graphemes that the explorer draws
SENTENCE = "নদীর ধারে বসে রহিম মাছ ধরছে।"


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_00.{key}", **values)


def _labelled(x: float, y: float, width: float, words: object, *, fill: str = "none", size: int = 13) -> str:
    """A box with a line of text in its middle."""
    return svg.rectangle(x, y, width, _ROW - 4, fill=fill) + svg.text(
        x + width / 2, y + _ROW / 2 + 2, words, anchor="middle", size=size
    )


# --- tokens ------------------------------------------------------------------------------------------------------


def _spans(parts: Sequence[tuple[object, int]]) -> Iterator[tuple[int, object, int]]:
    """(first byte, what to write, bytes) of parts that follow each other."""
    start = 0
    for words, count in parts:
        yield start, words, count
        start += count


def _hex(sign: str) -> str:
    """A code point in base 16, in as many digits as its box has room for."""
    return f"{ord(sign):04X}" if len(sign.encode("utf-8")) > 1 else f"{ord(sign):02X}"


def _ladder(word: str) -> str:
    """One word on four lines, aligned by its bytes: letters, code points, bytes, tokens."""
    left, tokenizer = 96, load_tokenizer()
    ids = tokenizer.encode(word)
    lines: list[tuple[str, list[tuple[object, int]], str]] = [
        (
            _say("ladder.letters"),
            [(letter, len(letter.encode("utf-8"))) for letter in graphemes(word)],
            "none",
        ),
        (
            _say("ladder.code_points"),
            [(_hex(sign), len(sign.encode("utf-8"))) for sign in word],
            "none",
        ),
        (_say("ladder.bytes"), [(f"{byte:02X}", 1) for byte in word.encode("utf-8")], "none"),
        (_say("ladder.tokens"), [(token, len(tokenizer.token_bytes(token))) for token in ids], _PALE_BLUE),
    ]
    shapes = []
    for row, (label, parts, fill) in enumerate(lines):
        y = 4 + _ROW * row
        shapes.append(svg.text(6, y + _ROW / 2 + 2, label, size=12))
        for start, words, count in _spans(parts):
            size = 17 if row == 0 else 12
            shapes.append(_labelled(left + _BYTE * start, y, _BYTE * count - 2, words, fill=fill, size=size))
    size = len(word.encode("utf-8"))
    title = (
        f"{word}: {len(graphemes(word))} letters, {len(word)} code points, {size} bytes, "
        f"{len(ids)} tokens, aligned by their bytes."
    )
    return svg.picture(left + _BYTE * size + 2, 8 + _ROW * len(lines), title, *shapes)


def token_figure(words: Sequence[str]) -> svg.Picture:
    """Each word as letters, code points, bytes and tokens, one above the other."""
    html = svg.card(*(_ladder(word) for word in words), caption=_say("ladder.caption"))
    return svg.Picture(html, f"letters, code points, bytes and tokens of {', '.join(words)}")


def _box_width(piece: Piece) -> float:
    letters = sum(1 if unicodedata.category(sign)[0] not in "MC" else 0.25 for sign in piece.text)
    return max(10.5 * letters, 6.8 * len(_ids(piece))) + 14


def _ids(piece: Piece) -> str:
    """The ids of a piece; an emoji can have thirty, of which the first and the last are enough."""
    ids = [str(token) for token in piece.ids]
    return "+".join(ids if len(ids) <= 4 else [ids[0], "…", ids[-1]])


def _token_boxes(text: str, width: int = 580) -> str:
    """A text in boxes, one a token, its id below; a dot stands for the space that a token begins with."""
    pieces = load_tokenizer().pieces(text)
    shapes, x, y = [], 2.0, 2.0
    for number, piece in enumerate(pieces):
        wide = _box_width(piece)
        if x + wide > width and x > 2:
            x, y = 2.0, y + 50
        shown = piece.text.replace(" ", "·").replace("\n", "↵").replace("\t", "→")
        fill = _PALE_ORANGE if len(piece.ids) > 1 else _PALE_BLUE if number % 2 == 0 else "none"
        shapes.append(svg.rectangle(x, y, wide - 3, 27, fill=fill))
        shapes.append(svg.text(x + (wide - 3) / 2, y + 19, shown, anchor="middle", size=15))
        shapes.append(svg.text(x + (wide - 3) / 2, y + 40, _ids(piece), anchor="middle", size=11))
        x += wide
    count = sum(len(piece.ids) for piece in pieces)
    return svg.picture(
        width, y + 48, f"{count} tokens: {' | '.join(piece.text for piece in pieces)}", *shapes
    )


def render_tokens(text: str) -> str:
    """The tokens of `text` as a card, and what was counted. ValueError for no text, or one too long to draw."""
    letters = graphemes(text)
    if not text.strip():
        raise ValueError(_say("tokens.empty"))
    if len(letters) > LONGEST_TEXT:
        raise ValueError(_say("tokens.long", count=len(letters), most=LONGEST_TEXT))
    ids = load_tokenizer().encode(text)
    parts = [
        _say(
            "tokens.counted",
            letters=len(letters),
            points=len(text),
            bytes=len(text.encode("utf-8")),
            tokens=len(ids),
        )
    ]
    if any(len(piece.ids) > 1 for piece in load_tokenizer().pieces(text)):
        parts.append(_say("tokens.shared"))
    return svg.card(_token_boxes(text), caption=" ".join(parts))


def token_explorer() -> Card:
    """A line of text, and its tokens."""
    return card(render_tokens, entry("text", SENTENCE, label="text"))


# --- numbers -----------------------------------------------------------------------------------------------------

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_EXPONENT_BITS = {"fp32": 8, "fp16": 5, "bf16": 8}
_BIT = 16


def _step_near(dtype: torch.dtype, number: int) -> float:
    """The distance from a power of two up to 2**10 to the next number of the format above it."""
    return torch.finfo(dtype).eps * 2.0 ** (number.bit_length() - 1)


def _bit_row(bits: str, exponent_bits: int, x: float, y: float) -> str:
    """Bits as cells: the sign white, the exponent orange, the fraction blue; a set bit says 1."""
    shapes = []
    for place, bit in enumerate(bits):
        fill = "none" if place == 0 else _PALE_ORANGE if place <= exponent_bits else _PALE_BLUE
        shapes.append(svg.rectangle(x + _BIT * place, y, _BIT, 22, fill=fill))
        if bit != " ":
            middle = x + _BIT * place + _BIT / 2
            shapes.append(svg.text(middle, y + 16, bit, anchor="middle", size=12))
    return "".join(shapes)


def formats_figure() -> svg.Picture:
    """The three formats, a cell a bit, drawn to scale, with what `torch.finfo` says of each."""
    shapes, told = [], []
    for row, (name, dtype) in enumerate(FORMATS.items()):
        y, exponent = 30 + 84 * row, _EXPONENT_BITS[name]
        info = torch.finfo(dtype)
        fraction = info.bits - 1 - exponent
        left = 50
        shapes.append(svg.text(6, y + 16, name, weight="bold"))
        shapes.append(_bit_row(" " * info.bits, exponent, left, y))
        shapes.append(svg.text(left + 1, y - 5, "±", size=12))
        shapes.append(svg.text(left + _BIT, y - 5, _say("formats.exponent", bits=exponent), size=12))
        shapes.append(
            svg.text(left + _BIT * (1 + exponent), y - 5, _say("formats.fraction", bits=fraction), size=12)
        )
        facts = _say(
            "formats.facts",
            largest=f"{info.max:,.0f}" if info.max < 1e6 else f"{info.max:.2g}",
            near_one=f"{_step_near(dtype, 1):.2g}",
            near_thousand=f"{_step_near(dtype, 1000):.2g}",
        )
        shapes.append(svg.text(left, y + 40, facts, size=12))
        told.append(f"{name}: 1 sign, {exponent} exponent and {fraction} fraction bits")
    title = f"Bits drawn to scale. {'; '.join(told)}."
    html = svg.card(svg.picture(570, 30 + 84 * 3 - 28, title, *shapes), caption=_say("formats.caption"))
    return svg.Picture(html, title)


def _parse(number: str) -> float:
    """0.1, 1e-8, 1/3, ০.১: a number as people type it."""
    text = number.strip().replace("−", "-").replace(",", "").replace("_", "")
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(_say("number.not_one", got=repr(number))) from None


def _bits(stored: torch.Tensor) -> str:
    size = torch.finfo(stored.dtype).bits
    whole = int(stored.view(torch.int32 if size == 32 else torch.int16))
    return f"{whole & (2**size - 1):0{size}b}"


def render_number(number: str, format: str) -> str:
    """A number's bits in a format, the number that these bits are, and the error. ValueError for no number."""
    wanted, dtype = _parse(number), FORMATS[format]
    stored = torch.tensor(wanted, dtype=torch.float64).to(dtype)
    bits, exponent_bits = _bits(stored), _EXPONENT_BITS[format]
    value = float(stored)
    title = f"{number} in {format}: bits {bits}, stored as {value:.6g}."
    row = svg.picture(_BIT * len(bits) + 2, 26, title, _bit_row(bits, exponent_bits, 1, 2))
    return svg.card(row, caption=" ".join(_about(wanted, value, bits, exponent_bits, torch.finfo(dtype))))


def _about(wanted: float, value: float, bits: str, exponent_bits: int, info: torch.finfo) -> Iterator[str]:
    """What can be said of a stored number, a sentence each."""
    if value != value:
        yield _say("number.nan")
        return
    if value in (float("inf"), float("-inf")):
        yield _say("number.infinite", largest=f"{info.max:.6g}")
        return
    exponent, fraction = int(bits[1 : 1 + exponent_bits], 2), bits[1 + exponent_bits :]
    if exponent:
        power = exponent - (2 ** (exponent_bits - 1) - 1)
        times = 1 + int(fraction, 2) / 2 ** len(fraction)
        sign = "−" if bits[0] == "1" else ""
        yield _say("number.made_of", sign=sign, times=f"{times:.5g}", power=str(power), value=f"{value:.6g}")
    elif value:
        yield _say("number.small", value=f"{value:.4g}", smallest=f"{info.tiny:.2g}")
    elif wanted:
        yield _say("number.lost", smallest=f"{info.smallest_normal * info.eps:.2g}")
        return
    if value == wanted:
        yield _say("number.exact")
    else:
        yield _say(
            "number.error", error=f"{abs(value - wanted):.2g}", share=f"{abs(value / wanted - 1) * 100:.2g}%"
        )


def number_explorer() -> Card:
    """A number and a format, and the bits in which it is kept."""
    return card(
        render_number,
        entry("number", "0.1", label="number"),
        choice("format", "bf16", list(FORMATS), label="format"),
    )


# --- shapes ------------------------------------------------------------------------------------------------------


def heads_figure(sentences: Sequence[Sequence[str]], num_heads: int, head_dim: int) -> svg.Picture:
    """A tensor [batch, sequence, num_heads, head_dim]: a block a sentence, a line a word, a box a head."""
    cell, left, gap = 22, 62, 10
    head_width = cell * head_dim + gap
    blocks = []
    for b, words in enumerate(sentences):
        shapes = [svg.text(4, 14, f"batch {b}", weight="bold", size=12)]
        shapes += [
            svg.text(left + head_width * h + cell * head_dim / 2, 14, f"head {h}", anchor="middle", size=12)
            for h in range(num_heads)
        ]
        for m, word in enumerate(words):
            y = 22 + (cell + 8) * m
            shapes.append(svg.text(left - 8, y + 16, word, anchor="end"))
            for h in range(num_heads):
                for k in range(head_dim):
                    x = left + head_width * h + cell * k
                    shapes.append(svg.rectangle(x, y, cell, cell, fill=(_PALE_BLUE, _PALE_ORANGE)[h % 2]))
                    number = ((b * len(words) + m) * num_heads + h) * head_dim + k
                    shapes.append(svg.text(x + cell / 2, y + 15, number, anchor="middle", size=11))
        title = f"Sentence {b}: {len(words)} words, each with {num_heads} heads of {head_dim} numbers."
        blocks.append(
            svg.picture(left + head_width * num_heads, 26 + (cell + 8) * len(words), title, *shapes)
        )
    shape = [len(sentences), len(sentences[0]), num_heads, head_dim]
    caption = _say("heads.caption", shape=str(shape))
    return svg.Picture(svg.card(*blocks, caption=caption), f"a tensor of the shape {shape}")
