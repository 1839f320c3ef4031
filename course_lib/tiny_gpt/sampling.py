"""Reading what a model writes."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.attention.bias import as_whole_number
from course_lib.text import Tokenizer, normalize_bangla

from .checks import check_model, checked_tokenizer
from .model import LayerCache, TinyGPT, checked_caches

UNFINISHED = ("\ufffd", "\u09cd", "\u200c", "\u200d")
"""Endings of a grapheme that was still being written: a cut character, a hasant, a joiner."""


@torch.no_grad()
def sample(
    model: TinyGPT,
    prompt: str = "",
    *,
    tokenizer: Tokenizer | None = None,
    max_new_tokens: int = 120,
    temperature: float = 0.7,
    top_k: int | None = 40,
    seed: int = 0,
    cache: Sequence[LayerCache] | None = None,
) -> str:
    """``prompt`` and how the model goes on, up to the end of the text or ``max_new_tokens`` tokens.

    Each token is drawn from the ``top_k`` likeliest (None: from all), after their logits are divided by
    ``temperature``; 0 takes the likeliest. The same seed gives the same text. Spaces at the end of the prompt are left
    to the model, whose words begin with theirs.

    Only whole graphemes come back: a token whose bytes would make no character after those before it is not drawn, and
    a grapheme that the last token left unfinished is left out.

    Without a ``cache`` all is read again for every token; with one for each layer, empty, each token is read once.
    """
    check_model(model)
    tokenizer = checked_tokenizer(tokenizer)
    _check(model, prompt, tokenizer, max_new_tokens, temperature, top_k)
    prompt = normalize_bangla(prompt).rstrip(" ")
    ids = [tokenizer.end_of_text, *tokenizer.encode(prompt)]
    if model.positions == "learned" and len(ids) + max_new_tokens > model.max_length + 1:
        raise ValueError(
            f"max_new_tokens: expected at most {max(0, model.max_length + 1 - len(ids))} after this prompt, since the "
            f"model has learned {model.max_length} positions, got {max_new_tokens}."
        )
    if cache is not None and any(checked_caches(cache, len(model.layers))[0].lengths.tolist()):
        raise ValueError(
            "cache: expected one that holds nothing yet, got one in which a text has been read. Each sample needs its "
            "own: cache=[KVCache() for _ in model.layers]."
        )
    device = model.embed.weight.device
    generator = torch.Generator().manual_seed(as_whole_number("seed", seed))
    stream = tokenizer.stream()
    written = [stream.push(token) for token in ids[1:]]
    character = b""  # the bytes of one that is still being written
    unread = ids
    for _ in range(max_new_tokens):
        logits = model(torch.tensor([unread], device=device), cache=cache)[0, -1].double().cpu()
        logits[tokenizer.pad] = -math.inf
        token = _draw(logits, temperature, top_k, generator)
        while (begun := _begun(character, tokenizer, token)) is None:
            logits[token] = -math.inf
            token = _draw(logits, temperature, top_k, generator)
        character = begun
        if token == tokenizer.end_of_text:
            return "".join(written) + stream.flush()
        ids.append(token)
        written.append(stream.push(token))
        unread = ids if cache is None else [token]
    rest = stream.flush()
    if max_new_tokens and rest.endswith(UNFINISHED):
        rest = ""
    text = "".join(written) + rest
    return text if len(text) > len(prompt) else prompt  # what was left out may have begun in the prompt


def _begun(character: bytes, tokenizer: Tokenizer, token: int) -> bytes | None:
    """The bytes of the character that is unfinished after ``token``; None if it cannot follow ``character``."""
    if token == tokenizer.end_of_text:
        return None if character else b""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        decoder.decode(character + tokenizer.token_bytes(token))
    except UnicodeDecodeError:
        return None
    return decoder.getstate()[0]


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    likeliest, ids = logits.sort(descending=True, stable=True)
    probabilities = (likeliest[:top_k] / temperature).softmax(0)
    return int(ids[torch.multinomial(probabilities, 1, generator=generator)])


def _check(
    model: TinyGPT, prompt: Any, tokenizer: Tokenizer, max_new_tokens: Any, temperature: Any, top_k: Any
) -> None:
    if not isinstance(prompt, str):
        raise TypeError(f"prompt: expected a text, got {type(prompt).__name__}.")
    if tokenizer.vocab_size != model.vocab_size:
        raise ValueError(
            f"tokenizer: expected the {model.vocab_size} ids of the model's vocabulary, got one of "
            f"{tokenizer.vocab_size}. Pass the tokenizer that the model was trained with."
        )
    as_whole_number("max_new_tokens", max_new_tokens, 0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TypeError(f"temperature: expected a number, got {type(temperature).__name__} {temperature!r}.")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature: expected 0 (the likeliest token) or more, got {temperature}.")
    if top_k is not None and not 1 <= as_whole_number("top_k", top_k) <= model.vocab_size:
        raise ValueError(
            f"top_k: expected from 1 to the {model.vocab_size} tokens of the vocabulary, or None for all, got {top_k}."
        )
