"""What fit() and sample() are given: a tiny model, and a tokenizer that knows its ids."""

from __future__ import annotations

from typing import Any

from torch import nn

from course_lib.text import Tokenizer, load_tokenizer


def check_model(model: Any) -> None:
    """Raise TypeError for what cannot stand for a TinyGPT; what ``torch.compile`` makes of one can."""
    if not isinstance(model, nn.Module) or not hasattr(model, "attention_bias"):
        raise TypeError(
            f"model: expected a TinyGPT, got {type(model).__name__}. The model comes first: fit(model, documents), "
            "sample(model, prompt)."
        )


def checked_tokenizer(tokenizer: Any) -> Tokenizer:
    """``tokenizer``, or the course's if it is None. Raises TypeError for anything else than a Tokenizer."""
    if tokenizer is None:
        return load_tokenizer()
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            f"tokenizer: expected a Tokenizer of course_lib.text, got {type(tokenizer).__name__}. Tokenizer.load(path) "
            "reads one from a file; None takes the course's own."
        )
    return tokenizer
