"""What the configs of all families check alike, each with one wording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def check_flags(config: Any, *names: str) -> None:
    """Raises TypeError for a field of ``config`` that is neither True nor False."""
    for name in names:
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"{name}: expected True or False, got {getattr(config, name)!r}.")


def check_positive(config: Any, *names: str) -> None:
    """Raises TypeError for a field of ``config`` that is no number, ValueError for one that is not above 0."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name}: expected a number, got {type(value).__name__} {value!r}.")
        if not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a number above 0, got {value}.")


def check_special_tokens(config: Any) -> None:
    """The token ids that config.json of a published model names; several that end a text become a tuple.

    Raises TypeError for what is no id.
    """
    if isinstance(config.eos_token_id, list):
        object.__setattr__(config, "eos_token_id", tuple(config.eos_token_id))
    ids = {"pad_token_id": (config.pad_token_id,), "bos_token_id": (config.bos_token_id,)}
    for name, tokens in (*ids.items(), ("eos_token_id", end_tokens(config.eos_token_id))):
        for token in tokens:
            if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
                raise TypeError(f"{name}: expected a token id, got {type(token).__name__} {token!r}.")


def end_tokens(eos_token_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """One id, several, or none, as a tuple."""
    if eos_token_id is None:
        return ()
    return tuple(eos_token_id) if isinstance(eos_token_id, (list, tuple)) else (eos_token_id,)  # type: ignore[return-value]
