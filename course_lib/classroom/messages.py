"""Every sentence a student meets from the classroom, in English and Bangla, from one catalogue.

The sentences live in `messages/*.toml`: one table a message, with the columns `en` and `bn` and the same
`{placeholders}` in both. The key of `[mask.top_left]` in `lesson_01.toml` is `lesson_01.mask.top_left`.

The language is `COURSE_LANGUAGE` (en or bn), or what `set_language` was last told.
"""

import os
import string
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "bn")
_NAMES = {"en": "en", "english": "en", "bn": "bn", "bangla": "bn", "bengali": "bn", "বাংলা": "bn"}
_BANGLA_DIGITS = str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯")
_FOLDER = Path(__file__).with_name("messages")
_chosen: list[str] = []  # what set_language was told; empty: the environment decides


class CatalogueError(ValueError):
    """The catalogue is wrong: a fault of the course, never of the student."""


@cache
def catalogue() -> Mapping[str, Mapping[str, str]]:
    """All messages: key -> {"en": …, "bn": …}. Raises CatalogueError that names the file and key at fault."""
    messages: dict[str, Mapping[str, str]] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        messages.update(read_messages(path))
    return messages


def read_messages(path: Path) -> dict[str, Mapping[str, str]]:
    """The messages of one file, each checked: both languages, not empty, the same placeholders."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{path.name}: not valid TOML: {error}") from error
    return dict(_messages_below(path.stem, tree))


def _messages_below(prefix: str, tree: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, entry in tree.items():
        key = f"{prefix}.{name}"
        if not isinstance(entry, Mapping):
            raise CatalogueError(f"{key}: expected a table with en and bn, got {entry!r}.")
        if any(isinstance(value, str) for value in entry.values()):
            yield key, _checked(key, entry)
        else:
            yield from _messages_below(key, entry)


def _checked(key: str, entry: Mapping[str, object]) -> dict[str, str]:
    columns = {name: text for name, text in entry.items() if isinstance(text, str) and text.strip()}
    if set(columns) != set(LANGUAGES) or set(entry) != set(LANGUAGES):
        raise CatalogueError(f"{key}: expected the columns en and bn, both filled; got {sorted(entry)}.")
    names = {language: placeholders(text) for language, text in columns.items()}
    if names["en"] != names["bn"]:
        raise CatalogueError(
            f"{key}: placeholders differ: en {sorted(names['en'])}, bn {sorted(names['bn'])}."
        )
    return columns


def placeholders(text: str) -> set[str]:
    """The names in braces in a message."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def set_language(language: str) -> str:
    """Choose the language of all sentences from here on: "en" or "bn". Returns the code chosen."""
    code = _code(language)
    if code is None:
        raise ValueError(f'language: expected "en" (English) or "bn" (Bangla), got {language!r}.')
    _chosen[:] = [code]
    return code


def current_language() -> str:
    """The language now in use. An unknown COURSE_LANGUAGE counts as English: a lesson must not fail over
    it."""
    if _chosen:
        return _chosen[0]
    return _code(os.environ.get("COURSE_LANGUAGE", "en")) or "en"


def _code(language: object) -> str | None:
    if not isinstance(language, str):
        return None
    name = language.strip().lower()
    return _NAMES.get(name) or _NAMES.get(name.replace("-", "_").split("_")[0])


def say(key: str, /, **values: object) -> str:
    """The message `key` in the current language, its placeholders filled.

    Numbers given as int are written with Bangla digits in Bangla; what is code or program output is given as
    str and stays as it is. Raises CatalogueError for an unknown key or a placeholder without a value.
    """
    language = current_language()
    try:
        text = catalogue()[key][language]
    except KeyError:
        raise CatalogueError(f"no message {key!r} in course_lib/classroom/messages/.") from None
    try:
        return text.format(**{name: _written(value, language) for name, value in values.items()})
    except (KeyError, IndexError) as error:
        raise CatalogueError(f"message {key!r} has no value for the placeholder {error}.") from None


def _written(value: object, language: str) -> object:
    if language == "bn" and isinstance(value, int) and not isinstance(value, bool):
        return str(value).translate(_BANGLA_DIGITS)
    return value
