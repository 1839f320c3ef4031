"""Cutting a text that is too long for one document, at a place that hurts least."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from .graphemes import grapheme_ends, graphemes

# Best first. A piece ends after the match; only the last third of the allowed length is searched.
_PLACES: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[।॥.!?][\"'”’)]*\s+"),
    re.compile(r"\s+"),
)


def cut_position(text: str, longest: int) -> int:
    """Where to cut ``text`` so that the first piece has at most ``longest`` code points.

    After a paragraph, else a line, a sentence, a word, a grapheme. Only a single grapheme longer than
    ``longest`` (no such thing is written by people) is cut inside.
    """
    if len(text) <= longest:
        return len(text)
    for place in _PLACES:
        ends = [match.end() for match in place.finditer(text, longest * 2 // 3, longest)]
        # A mark after the space would belong to it.
        if ends and len(graphemes(text[ends[-1] - 1 : ends[-1] + 1])) == 2:
            return ends[-1]
    # With one code point more than fits, every grapheme that ends before it is known to have ended.
    return max((end for end in grapheme_ends(text[: longest + 1]) if end <= longest), default=longest)


def bounded_pieces(fragments: Iterable[str], longest: int) -> Iterator[str]:
    """Join ``fragments`` and yield the result in pieces of at most ``longest`` code points; they join to the
    same.

    Never holds more than one piece and one fragment.
    """
    held = ""
    for fragment in fragments:
        held += fragment
        while len(held) > longest:
            cut = cut_position(held, longest)
            yield held[:cut]
            held = held[cut:]
    if held:
        yield held
