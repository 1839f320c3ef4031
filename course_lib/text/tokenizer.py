"""Text to token ids and back: a byte-level BPE that keeps a Bangla word whole.

    >>> tokenizer = load_tokenizer()
    >>> tokenizer.decode(tokenizer.encode("নদীর ধারে বসে রহিম মাছ ধরছে।"))
    'নদীর ধারে বসে রহিম মাছ ধরছে।'

BPE (Sennrich et al. 2016, arXiv:1508.07909) starts from the 256 bytes and joins the most frequent neighbours,
but only within the pieces that a *pattern* cuts first. GPT-2's pattern counts vowel signs and hasant as
punctuation and cuts বাংলা into ``ব|াং|ল|া``, so no training can ever make it one token. ``BANGLA_PATTERN``
counts them as letters.

Text is taken literally: ``<|endoftext|>`` or ``</s>`` typed by someone is text. The two special tokens exist
as ids only, ``tokenizer.end_of_text`` and ``tokenizer.pad``.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple, SupportsIndex

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from .graphemes import grapheme_ends
from .stream import TextStream, checked_id

Pattern = Literal["bangla", "gpt2"]

END_OF_TEXT: Final = "<|endoftext|>"
PAD: Final = "<|pad|>"
SMALLEST_VOCABULARY: Final = 256 + 2

# ZWNJ (200C) and ZWJ (200D) stand inside Bangla words: উদ্‌যাপন, র‍্যাম. Branches are tried in this order.
BANGLA_PATTERN: Final = "|".join(
    (
        r"(?<=\p{L})['’](?:s|t|re|ve|m|ll|d)(?![\p{L}\p{M}])",  # don't -> don|'t, and 'sir' keeps its s
        r" ?[\p{L}\p{M}\x{200C}\x{200D}]+",  # a word: letters and marks
        r" ?\p{N}",  # one digit at a time, 7 or ৭: every number is then spelt alike
        r" ?[^\s\p{L}\p{M}\p{N}\x{200C}\x{200D}][^\s\p{L}\p{N}]*",  # punctuation; emoji keep their joiners
        r"[\r\n]+",
        r"[^\S\r\n]+(?!\S)",  # spaces, but the last one goes to the word it precedes
        r"[^\S\r\n]+",
    )
)


class Piece(NamedTuple):
    """A stretch of text that can be shown, and the ids it came from (several where one token is half a
    character)."""

    text: str
    ids: tuple[int, ...]


class Tokenizer:
    """A trained byte-level BPE. ``Tokenizer.load(path)`` reads one, ``train_tokenizer(texts)`` makes one.

    Ids run from 0 to ``vocab_size - 1``; every id stands for some bytes, except the two special ones.
    """

    vocab_size: int
    end_of_text: int
    pad: int

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        # The backend would otherwise cut "<|endoftext|>" out of a student's text and hand back the special
        # id.
        backend.encode_special_tokens = True
        self.vocab_size = backend.get_vocab_size()
        self.end_of_text = _special_id(backend, END_OF_TEXT)
        self.pad = _special_id(backend, PAD)
        self._special = {self.end_of_text: END_OF_TEXT, self.pad: PAD}
        self._bytes = _token_bytes(backend, self._special)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``; ``decode`` gives back exactly this text, whatever it holds.

        Nothing is normalised and no special token is added. Raises TypeError if ``text`` is not a str and
        ValueError if it holds a lone surrogate, which is not a character and has no bytes.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, got {type(text).__name__}; encode one text at a time")
        refuse_lone_surrogate(text, "text")
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[SupportsIndex], *, show_special: bool = False) -> str:
        """Return the text of ``ids``: any iterable of ints, or a 1-D tensor.

        Bytes that are no UTF-8 (a model may write any ids) become U+FFFD, as everywhere in Unicode. Special
        tokens end the text before them and are left out, or written as ``<|endoftext|>`` and ``<|pad|>`` with
        ``show_special``. Raises ValueError for an id outside the vocabulary.
        """
        text: list[str] = []
        run: list[bytes] = []
        for token in _plain_ids(ids):
            content = self._bytes[checked_id(token, self.vocab_size)]
            if content is not None:
                run.append(content)
                continue
            text.append(b"".join(run).decode("utf-8", errors="replace"))
            run.clear()
            if show_special:
                text.append(self._special[int(token)])
        text.append(b"".join(run).decode("utf-8", errors="replace"))
        return "".join(text)

    def stream(self, *, show_special: bool = False) -> TextStream:
        """Return a decoder for ids that arrive one at a time; it hands out whole graphemes only.

        >>> stream = tokenizer.stream()
        >>> for token in ids:
        ...     print(stream.push(token), end="")
        >>> print(stream.flush())
        """
        return TextStream(self._bytes, self._special if show_special else {})

    def pieces(self, text: str) -> list[Piece]:
        """Return ``text`` cut at its tokens wherever that cut shows whole characters, each with its ids.

        The pieces join to the text and their ids to ``encode(text)``. Tokens that end inside a grapheme are
        shown together with the next: a table of pieces never holds half a letter or ``�``. So there may be
        fewer pieces than tokens; count ids, not pieces, for the token bill.
        """
        ids = self.encode(text)
        cuts = {0: 0}
        previous = offset = 0
        for end in grapheme_ends(text):
            offset += len(text[previous:end].encode("utf-8"))
            cuts[offset] = previous = end

        found: list[Piece] = []
        waiting: list[int] = []
        start = byte_count = 0
        for token in ids:
            waiting.append(token)
            byte_count += len(self._bytes[token] or b"")
            if byte_count in cuts:
                found.append(Piece(text[start : cuts[byte_count]], tuple(waiting)))
                start = cuts[byte_count]
                waiting = []
        return found

    def tokens(self, text: str) -> list[str]:
        """Return ``text`` in pieces for display; they join to the text and never show half a grapheme (see
        pieces)."""
        return [piece.text for piece in self.pieces(text)]

    def pattern_pieces(self, text: str) -> list[str]:
        """Return what the pattern alone cuts ``text`` into, before BPE joins bytes within each piece.

        There are at least as many tokens. GPT-2's pattern cuts inside graphemes, so do not show these as text:
        show their number.
        """
        refuse_lone_surrogate(text, "text")
        cuts = self._backend.pre_tokenizer.pre_tokenize_str(text)
        return [text[start:end] for _, (start, end) in cuts]

    def token_bytes(self, token: SupportsIndex) -> bytes:
        """Return the UTF-8 bytes that one id stands for: perhaps half a character, and b"" for a special
        token."""
        return self._bytes[checked_id(token, self.vocab_size)] or b""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to ``path`` as a ``tokenizer.json``; an interrupted write leaves the old file
        whole."""
        path = Path(path)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"path: the folder {path.parent} does not exist; make it first")
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            part.write_text(self.to_json(), encoding="utf-8", newline="\n")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def to_json(self) -> str:
        """Return the text of the ``tokenizer.json``, which the same training always makes byte for byte the
        same."""
        return self._backend.to_str(pretty=False) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a tokenizer that ``save`` wrote. Raises FileNotFoundError, or ValueError if it is something
        else."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"path: there is no file {path}; train_tokenizer(texts).save(path) writes one"
            )
        try:
            backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the Rust library raises plain Exception
            raise ValueError(
                f"path: {path} is not a tokenizer.json, or not one that tokenizers "
                f"{tokenizers.__version__} can read ({error})"
            ) from error
        return cls(backend)

    def __reduce__(self) -> tuple[Callable[[str], "Tokenizer"], tuple[str]]:
        # The backend's own pickle forgets encode_special_tokens.
        return _from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size})"


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 4096, *, pattern: Pattern = "bangla", min_frequency: int = 2
) -> Tokenizer:
    """Train a byte-level BPE on ``texts`` and return it.

    The same texts give the same tokenizer, byte for byte, on any number of threads: equal counts are settled
    by the ids of the pair. ``pattern="gpt2"`` trains with GPT-2's own pattern, for comparison. A corpus with
    too few pairs that occur ``min_frequency`` times gives a smaller vocabulary: ask ``tokenizer.vocab_size``.

    Raises ValueError for a ``vocab_size`` below 258 (256 bytes and two special tokens), an unknown pattern or
    a lone surrogate, TypeError if ``texts`` is one str or holds something else than str.
    """
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of str, got one str; write [text]")
    if vocab_size < SMALLEST_VOCABULARY:
        raise ValueError(
            f"vocab_size: expected at least {SMALLEST_VOCABULARY} (256 bytes and 2 special tokens), "
            f"got {vocab_size}"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = _pre_tokenizer(pattern)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[END_OF_TEXT, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_checked(texts), trainer)
    return Tokenizer(backend)


@cache
def load_tokenizer() -> Tokenizer:
    """Return the course's tokenizer (4,096 tokens, Bangla and English), trained by
    course_lib.text.build_tokenizer."""
    return Tokenizer.load(Path(__file__).parent / "data" / "tokenizer.json")


def refuse_lone_surrogate(text: str, name: str) -> None:
    """Raise ValueError naming the first lone surrogate of ``text``, if there is one."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: the character at index {error.start} is U+{ord(text[error.start]):04X}, a lone "
            "surrogate, which stands for nothing; it comes from text decoded wrongly, or cut inside an emoji. "
            "Read the source again as UTF-8, or remove it"
        ) from None


def _from_json(text: str) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(text))


def _pre_tokenizer(pattern: Pattern) -> pre_tokenizers.PreTokenizer:
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pattern == "bangla":
        words = pre_tokenizers.Split(tokenizers.Regex(BANGLA_PATTERN), behavior="isolated")
        return pre_tokenizers.Sequence(
            [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    raise ValueError(f'pattern: expected "bangla" or "gpt2", got {pattern!r}')


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}]: expected a str, got {type(text).__name__}; pass document.text")
        refuse_lone_surrogate(text, f"texts[{index}]")
        yield text


def _special_id(backend: tokenizers.Tokenizer, content: str) -> int:
    token = backend.token_to_id(content)
    if token is None:
        raise ValueError(f"this tokenizer has no {content} token; it was not made by train_tokenizer")
    return token


def _token_bytes(backend: tokenizers.Tokenizer, special: Container[int]) -> Sequence[bytes | None]:
    """The bytes of each id, None for the special ones.

    A byte-level vocabulary is stored as text in which a printable character stands for each byte: itself
    where the byte is printable in Latin-1, and the next free code point from U+0100 on where it is not
    (GPT-2's table).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {
        chr(256 + rank): byte for rank, byte in enumerate(hidden)
    }
    table: list[bytes | None] = [None] * backend.get_vocab_size()
    for content, token in backend.get_vocab().items():
        if token not in special:
            table[token] = bytes(byte_of[character] for character in content)
    return table


def _plain_ids(ids: Iterable[SupportsIndex]) -> Iterable[SupportsIndex]:
    if isinstance(ids, (str, bytes)):
        raise TypeError(f"ids: expected token ids, got {type(ids).__name__}")
    # A tensor iterates as 0-d tensors, which do not index a list quickly; its list does.
    return ids.tolist() if hasattr(ids, "tolist") else ids  # type: ignore[attr-defined]
