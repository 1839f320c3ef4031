"""The text of tokens as they are written, in whole graphemes, up to a stop string.

A stop string is looked for in the text and not among the tokens: the same text can be cut into tokens in many ways,
its end may lie inside a token, and what a tokenizer puts before a text that it encodes (OPT's ``</s>``) was never
written. It is found in the spelling given and in the other spellings of the same Bangla (য় in one or two code points,
ো in one or two).
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from course_lib.text import normalize_bangla
from course_lib.text.graphemes import finished_length, grapheme_ends
from course_lib.tiny_gpt.sampling import UNFINISHED

CONTEXT = 6
"""Tokens of the prompt that a tokenizer sees before the first new one, whose leading space may hang on them."""

# NFC never joins these again, so a model that was trained on other text may write either form.
_LETTERS_WITH_NUKTA = {"\u09a1\u09bc": "\u09dc", "\u09a2\u09bc": "\u09dd", "\u09af\u09bc": "\u09df"}


class _Reader(Protocol):
    def push(self, token: int) -> str: ...

    def flush(self) -> str: ...


class RowText:
    """What one row has written. ``push(token)`` returns what can be shown, ``finish()`` the rest.

    ``stopped`` is true once a stop string stands in the text: neither it nor what its token holds after it is shown.
    Until then, what may be the beginning of one is held back, and so is the last grapheme, which may still grow.
    """

    def __init__(self, tokenizer: Any, stop_strings: Sequence[str] = (), prompt: Sequence[int] = ()) -> None:
        self.stopped = False
        self._patterns = sorted({form for text in stop_strings for form in spellings(text)})
        self._reader: _Reader
        if hasattr(tokenizer, "token_bytes"):
            self._reader = _ByBytes(tokenizer)
        else:
            self._reader = _ByDecoding(tokenizer, prompt)
        self._held = ""

    def push(self, token: int) -> str:
        """Take a new token; return the text that is finished by it, perhaps none."""
        self._held += self._reader.push(token)
        found = [at for at in (self._held.find(pattern) for pattern in self._patterns) if at >= 0]
        if found:
            self.stopped = True
            return self._shown(min(found))
        return self._shown(min(finished_length(self._held), self._possible_stop()))

    def finish(self, *, cut: bool) -> str:
        """The rest of the text. ``cut``: the row ended because no more tokens were asked for, so that a last grapheme
        which is plainly unfinished is left out."""
        if self.stopped:
            return ""
        self._held += self._reader.flush()
        if cut and self._held.endswith(UNFINISHED):
            kept = [0, *grapheme_ends(self._held.rstrip("\ufffd"))]
            return self._shown(kept[-2] if len(kept) > 1 else 0)
        return self._shown(len(self._held))

    def _shown(self, at_most: int) -> str:
        """Take what lies before the last end of a grapheme up to ``at_most`` out of what is held."""
        end = max((end for end in grapheme_ends(self._held) if end <= at_most), default=0)
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def _possible_stop(self) -> int:
        """Where the longest end of the text begins that a stop string may begin with."""
        longest = max(map(len, self._patterns), default=1) - 1
        for start in range(max(0, len(self._held) - longest), len(self._held)):
            end = self._held[start:]
            if any(pattern.startswith(end) for pattern in self._patterns):
                return start
        return len(self._held)


def spellings(text: str) -> set[str]:
    """``text`` and the ways in which a model may have learned to spell the same."""
    # normalize_bangla takes a | after a Bangla word for a দাঁড়ি, which is another text to stop at.
    normal = unicodedata.normalize("NFC", text) if "|" in text else normalize_bangla(text)
    joined = normal
    for apart, whole in _LETTERS_WITH_NUKTA.items():
        joined = joined.replace(apart, whole)
    return {text, normal, unicodedata.normalize("NFD", normal), joined} - {""}


class _ByBytes:
    """Characters out of each token's bytes."""

    def __init__(self, tokenizer: Any) -> None:
        self._token_bytes, self._size = tokenizer.token_bytes, tokenizer.vocab_size
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        # A model's vocabulary may be padded beyond its tokenizer's.
        content = self._token_bytes(token) if token < self._size else b""
        return self._decoder.decode(content) if content else self.flush()

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _ByDecoding:
    """Characters out of a ``decode(ids)`` that says nothing of bytes: what a further id adds to the text of a few."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        if hasattr(
            tokenizer, "all_special_ids"
        ):  # transformers', which writes </s> out and rearranges spaces
            self._decode = partial(
                tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        self._ids = list(prompt[-CONTEXT:])
        self._text = self._decode(self._ids) if self._ids else ""
        self._waiting = 0

    def push(self, token: int) -> str:
        self._ids.append(token)
        self._waiting += 1
        text = self._decode(self._ids)
        # A character has at most four bytes, so that what four tokens leave without an end is none.
        if text.endswith("\ufffd") and self._waiting < 4:
            return ""
        return self._taken(text)

    def flush(self) -> str:
        return self._taken(self._decode(self._ids)) if self._ids else ""

    def _taken(self, text: str) -> str:
        new = text[len(self._text) :]
        self._ids, self._waiting = self._ids[-CONTEXT:], 0
        self._text = self._decode(self._ids)
        return new
