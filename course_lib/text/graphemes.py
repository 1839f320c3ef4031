"""What a reader calls one character: the extended grapheme clusters of Unicode's annex 29.

    >>> graphemes("বিশ্ববিদ্যালয়")
    ['বি', 'শ্ব', 'বি', 'দ্যা', 'ল', 'য়']

``len("বিশ্ববিদ্যালয়")`` is 14, its UTF-8 form has 42 bytes, and a reader counts six. A conjunct (যুক্তবর্ণ)
such as শ্ব is one grapheme since Unicode 15.1, which the ``regex`` package follows from 2024.11.6 on.
"""

from collections.abc import Iterator

import regex

_GRAPHEME = regex.compile(r"\X")

# After these no rule of annex 29 (GB4, GB5) joins anything, whatever comes next. "\r" is not among them: "\n"
# may.
_ALWAYS_LAST = regex.compile(r"[\p{Grapheme_Cluster_Break=Control}\n]\Z")


def graphemes(text: str) -> list[str]:
    """Split text into the characters a reader sees; the pieces join to exactly ``text``."""
    return _GRAPHEME.findall(text)


def grapheme_ends(text: str) -> Iterator[int]:
    """Yield the index, in code points, at which each grapheme of ``text`` ends."""
    return (match.end() for match in _GRAPHEME.finditer(text))


def finished_length(text: str) -> int:
    """How many code points at the start of ``text`` are whole graphemes, whatever text may follow.

    The last grapheme is unfinished: a vowel sign, a hasant and its consonant, an accent or half a flag may
    still join it. Only a line end or another control character closes it for certain.
    """
    ends = list(grapheme_ends(text))
    if not ends or _ALWAYS_LAST.search(text):
        return len(text)
    return ends[-2] if len(ends) > 1 else 0
