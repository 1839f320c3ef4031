"""The tokenizer that lies beside a model: the course's, or one of another family's byte-level BPE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from course_lib.text import Tokenizer, normalize_bangla
from course_lib.text.tokenizer import END_OF_TEXT, PAD

from .open_checkpoint import checkpoint_folder

SPECIAL = ("<s>", "</s>", "<unk>", "<pad>", "<mask>", END_OF_TEXT)
"""What stands in a vocab.json and is no text; a tokenizer.json marks its own."""


class ModelTokenizer:
    """Text to ids and back for one model. ``begin`` is what its texts began with in training: ``prompt`` puts it
    before a text, ``encode`` does not, which is what stop strings and further turns need."""

    def __init__(self, begin: Sequence[int], end: Sequence[int]) -> None:
        self.begin, self.end = tuple(begin), tuple(end)

    vocab_size: int

    def normal(self, text: str) -> str:
        """``text`` in the spelling that the model was trained on."""
        return text

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without any special token."""
        raise NotImplementedError

    def prompt(self, text: str) -> list[int]:
        """The ids that a model goes on from."""
        return [*self.begin, *self.encode(text)]


class CourseTokenizer(ModelTokenizer):
    """The course's: texts begin and end with end_of_text, Bangla is normalised."""

    def __init__(self, own: Tokenizer) -> None:
        super().__init__((own.end_of_text,), (own.end_of_text,))
        self._own, self.vocab_size, self.pad = own, own.vocab_size, own.pad

    def normal(self, text: str) -> str:
        return normalize_bangla(text)

    def encode(self, text: str) -> list[int]:
        return self._own.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._own.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._own.token_bytes(token) or b""


class OtherTokenizer(ModelTokenizer):
    """Any other that ``tokenizers`` reads, by its ``decode``."""

    def __init__(self, backend: tokenizers.Tokenizer, special: set[int], begin: Sequence[int]) -> None:
        super().__init__(begin, ())
        backend.encode_special_tokens = True  # </s> that somebody typed is text
        backend.no_truncation()
        backend.no_padding()
        self._backend, self._special = backend, special
        self._added = backend.get_added_tokens_decoder().keys()  # each stands as plain text
        self.vocab_size = backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._backend.decode([token for token in ids if token not in self._special])


class ByteTokenizer(OtherTokenizer):
    """One whose tokens are bytes, written in GPT-2's alphabet: text can be cut anywhere in a character."""

    def token_bytes(self, token: int) -> bytes:
        text = None if token in self._special else self._backend.id_to_token(token)
        if text is None:
            return b""
        if token in self._added:
            return text.encode()
        return b"".join(ALPHABET[sign] if sign in ALPHABET else sign.encode() for sign in text)


def _alphabet() -> dict[str, bytes]:
    """GPT-2's: printable bytes stand for themselves, the others for the characters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): bytes([byte]) for byte in plain}
    return letters | {chr(256 + i): bytes([byte]) for i, byte in enumerate(others)}


ALPHABET = _alphabet()


def load_tokenizer_of(name: str | Path, *, revision: str | None = None) -> Any:
    """The tokenizer in a model's folder, or of a hub id: tokenizer.json, or vocab.json with merges.txt.

    Has ``encode``, ``prompt``, ``decode``, ``vocab_size``, and ``token_bytes`` if its tokens are bytes. Raises
    FileNotFoundError where there is none, ValueError for one that cannot be read.
    """
    folder = checkpoint_folder(name, revision=revision)
    config = _config(folder)
    whole, vocab, merges = (folder / file for file in ("tokenizer.json", "vocab.json", "merges.txt"))
    begin = config.get("bos_token_id")
    forced = [begin if isinstance(begin, int) else 2] if config.get("model_type") == "opt" else []
    try:
        if whole.is_file():
            return _from_json(whole, forced)
        if vocab.is_file() and merges.is_file():
            return _from_vocabulary(vocab, merges, forced)
    except FileNotFoundError:
        raise
    except Exception as error:  # the Rust library raises nothing more exact
        raise ValueError(
            f"path: expected a tokenizer in {folder}, got files that are none: {error}"
        ) from None
    raise FileNotFoundError(
        f"path: expected tokenizer.json, or vocab.json and merges.txt, in {folder}, got neither. Put the tokenizer "
        "there that the model was trained with."
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # load_model says what is wrong with it
    return config if isinstance(config, dict) else {}


def _from_json(path: Path, forced: list[int]) -> ModelTokenizer:
    content = json.loads(path.read_text(encoding="utf-8"))
    added = content.get("added_tokens") or []
    if {END_OF_TEXT, PAD} <= {token["content"] for token in added}:
        return CourseTokenizer(Tokenizer.load(path))
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    special = {token["id"] for token in added if token.get("special")}
    begin = forced or _begin(backend)
    kind = ByteTokenizer if '"ByteLevel"' in json.dumps(content.get("decoder")) else OtherTokenizer
    return kind(backend, special, begin)


def _begin(backend: tokenizers.Tokenizer) -> list[int]:
    """What the file itself puts before a text."""
    plain = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a").ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start]
    return []


def _from_vocabulary(vocab: Path, merges: Path, forced: list[int]) -> ModelTokenizer:
    backend = tokenizers.Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = {token for name in SPECIAL if (token := backend.token_to_id(name)) is not None}
    return ByteTokenizer(backend, special, forced)
