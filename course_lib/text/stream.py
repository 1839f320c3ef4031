"""Decoding ids that arrive one at a time, without ever showing half a character.

A token of a byte-level BPE may end inside a character, and a character inside a grapheme: ক may still become
ক্ষ. A chat that printed each token as it comes would flicker with ``�`` and dotted circles.
"""

import codecs
from collections.abc import Mapping, Sequence
from operator import index
from typing import SupportsIndex

from .graphemes import finished_length


class TextStream:
    """Turns ids into text as they come: ``push(id)`` returns what is finished, ``flush()`` the rest.

    What is returned, joined, is ``decode(ids)``. Only whole graphemes come out of ``push``: it holds back the
    last one until the next has begun, since a conjunct, a joiner, an accent or the second half of a flag may
    still follow. A special token ends the text before it. After ``flush()`` the stream can be used again.
    """

    def __init__(self, token_bytes: Sequence[bytes | None], shown_special: Mapping[int, str]) -> None:
        """``token_bytes``: the bytes of each id, None for a special token; ``shown_special``: how to write
        those."""
        self._token_bytes = token_bytes
        self._shown_special = shown_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    def push(self, token: SupportsIndex) -> str:
        """Take one id and return the graphemes that are now complete, perhaps none.

        Raises ValueError if the id is not in the vocabulary, TypeError if it is no integer.
        """
        content = self._token_bytes[checked_id(token, len(self._token_bytes))]
        if content is None:
            return self.flush() + self._shown_special.get(int(token), "")
        self._waiting += self._decoder.decode(content)
        length = finished_length(self._waiting)
        finished, self._waiting = self._waiting[:length], self._waiting[length:]
        return finished

    def flush(self) -> str:
        """Return what is still held back, and start afresh; bytes that make no character become U+FFFD."""
        rest = self._waiting + self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._waiting = ""
        return rest


def checked_id(token: SupportsIndex, vocab_size: int) -> int:
    """Return ``token`` as an int. Raises TypeError if it is no integer, ValueError if it is not in the
    vocabulary."""
    try:
        number = index(token)
    except TypeError:
        raise TypeError(f"token: expected an int, got {type(token).__name__} {token!r}") from None
    if not 0 <= number < vocab_size:
        raise ValueError(
            f"token: expected an id from 0 to {vocab_size - 1}, got {number}; "
            "was it made by another tokenizer, or by a model with a larger vocabulary?"
        )
    return number
