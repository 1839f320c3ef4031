"""What ``generate`` is asked for, checked before any work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.attention.bias import as_whole_number

# One check and one wording for tokens, here and in the models.
from course_lib.tiny_gpt.model import check_tokens

from .causal_lm import checked_mask
from .sampling import check_sampling, row_seeds


@dataclass(frozen=True)
class Settings:
    """How a batch is to be continued. ``checked_settings`` makes one."""

    real: Tensor | None
    """[batch, length] bool: which of the tokens are no padding; None: all."""
    prompt_lengths: tuple[int, ...]
    """The real tokens of each row."""
    max_new_tokens: int
    do_sample: bool
    temperature: float
    top_k: int | None
    top_p: float | None
    seeds: tuple[int, ...]
    """One for each row; none without sampling."""
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    pad: int
    """What stands in a row after its end."""
    tokenizer: Any
    on_token: Callable[[Any], Any] | None


def checked_settings(
    config: Any,
    tokens: Any,
    *,
    attention_mask: Any = None,
    max_new_tokens: Any,
    do_sample: Any = False,
    temperature: Any = 1.0,
    top_k: Any = None,
    top_p: Any = None,
    stop: Any = None,
    seed: Any = None,
    tokenizer: Any = None,
    on_token: Any = None,
) -> Settings:
    """The arguments of ``generate`` for a model of this ``config``. Raises TypeError or ValueError that names the one
    which does not fit."""
    check_tokens(tokens, config.vocab_size)
    real = checked_mask(attention_mask, tokens)
    batch, length = tokens.shape
    lengths = (length,) * batch if real is None else tuple(real.sum(1).tolist())
    _check_prompts(lengths, length)
    new = as_whole_number("max_new_tokens", max_new_tokens, 0)
    _check_room(max(lengths, default=0), new, position_limit(config))
    _check_draws(do_sample, temperature, top_k, top_p, config.vocab_size)
    # Also without sampling, where it changes nothing: a seed that is none would surprise later.
    seeds = row_seeds(seed, batch) if do_sample or seed is not None else []
    stop_ids, stop_strings = _checked_stop(stop, config)
    if tokenizer is not None:
        check_tokenizer(tokenizer, config.vocab_size)
    elif stop_strings:
        raise ValueError(
            f"tokenizer: expected one to find the stop string {stop_strings[0]!r} in what is written, got None. Pass "
            "the model's tokenizer, or the ids of tokens as stop."
        )
    if on_token is not None and not callable(on_token):
        raise TypeError(f"on_token: expected a function of one NewToken, got {type(on_token).__name__}.")
    return Settings(
        real=real,
        prompt_lengths=lengths,
        max_new_tokens=new,
        do_sample=do_sample,
        temperature=float(temperature),
        top_k=None if top_k is None else int(top_k),
        top_p=None if top_p is None else float(top_p),
        seeds=tuple(seeds),
        stop_ids=frozenset(stop_ids),
        stop_strings=stop_strings,
        pad=_pad(config, tokenizer, stop_ids),
        tokenizer=tokenizer,
        on_token=on_token,
    )


def position_limit(config: Any) -> int | None:
    """How many positions a model of this ``config`` can tell apart; None where they are computed, not looked up."""
    return config.max_length if getattr(config, "positions", "learned") == "learned" else None


def _check_prompts(lengths: Sequence[int], length: int) -> None:
    if not length and lengths:
        raise ValueError(
            "tokens: expected at least one token in each row to go on from, got none. Text begins after a start token: "
            "the end of the text before, tokenizer.end_of_text, or OPT's </s>."
        )
    for row, count in enumerate(lengths):
        if not count:
            raise ValueError(
                f"attention_mask: expected at least one real token in each row to go on from, got none in row {row}. "
                "Leave the row out, or give it a start token."
            )


def _check_room(longest: int, new: int, limit: int | None) -> None:
    if limit is None or not longest:
        return
    if longest > limit:
        raise ValueError(
            f"tokens: expected at most {limit} in a row, the positions that the model has learned, got {longest}. Keep "
            f"the last ones: tokens[:, -{limit}:], or fewer, to leave room for new ones."
        )
    # The last new token is written and never read.
    if new > limit - longest + 1:
        raise ValueError(
            f"max_new_tokens: expected at most {limit - longest + 1} after {longest} tokens, since the model has "
            f"learned {limit} positions, got {new}. Ask for fewer, or shorten the prompt."
        )


def _check_draws(do_sample: Any, temperature: Any, top_k: Any, top_p: Any, vocab_size: int) -> None:
    if not isinstance(do_sample, bool):
        raise TypeError(f"do_sample: expected True or False, got {type(do_sample).__name__} {do_sample!r}.")
    # Without sampling, temperature 0 says the same as do_sample=False.
    checked = (
        None if not do_sample and isinstance(temperature, (int, float)) and not temperature else temperature
    )
    if temperature is None:
        raise TypeError("temperature: expected a number, got None. 1.0 leaves the distribution as it is.")
    check_sampling(temperature=checked, top_k=top_k, top_p=top_p, vocab_size=vocab_size)
    if do_sample:
        return
    for name, value, neutral in (
        ("temperature", temperature, (0, 1)),
        ("top_k", top_k, (None,)),
        ("top_p", top_p, (None,)),
    ):
        if value not in neutral:
            raise ValueError(
                f"{name}: expected {neutral[-1]} without sampling, where the likeliest token is taken each time, got "
                f"{value}. Pass do_sample=True to draw tokens."
            )


def _checked_stop(stop: Any, config: Any) -> tuple[list[int], tuple[str, ...]]:
    """The ids, in the order given, and the strings."""
    if stop is None:
        return list(_end_token_ids(config)), ()
    if isinstance(stop, Tensor):
        stop = stop.tolist()
    single = isinstance(stop, (str, bytes)) or not isinstance(stop, Iterable)
    ids: list[int] = []
    strings: list[str] = []
    for item in [stop] if single else stop:
        if isinstance(item, str):
            if not item:
                raise ValueError(
                    "stop: expected a string that can be found, got an empty one. () stops never."
                )
            strings.append(item)
            continue
        try:
            token = as_whole_number("stop", item)
        except TypeError:
            raise TypeError(
                "stop: expected ids of tokens, strings, or both in a list, None for the config's end tokens or () for "
                f"never, got {type(item).__name__} {item!r}."
            ) from None
        if not 0 <= token < config.vocab_size:
            raise ValueError(
                f"stop: expected ids from 0 to {config.vocab_size - 1}, the vocabulary of this model, got {token}."
            )
        ids.append(token)
    return ids, tuple(strings)


def check_tokenizer(tokenizer: Any, vocab_size: int) -> None:
    """Raises TypeError or ValueError for what is no tokenizer of a model with ``vocab_size`` tokens."""
    if not callable(getattr(tokenizer, "decode", None)) and not hasattr(tokenizer, "token_bytes"):
        raise TypeError(
            f"tokenizer: expected an object with token_bytes(id) or decode(ids), got {type(tokenizer).__name__}."
        )
    known = tokenizer_size(tokenizer)
    # Vocabularies are padded to a round number for the hardware's sake: OPT's by 7, BLOOM's by 200.
    padding = max(63, vocab_size // 100)
    if not vocab_size - padding <= known <= vocab_size:
        raise ValueError(
            f"tokenizer: expected the {vocab_size} ids of the model's vocabulary, got one of {known}. Pass the "
            "tokenizer that the model was trained with."
        )


def tokenizer_size(tokenizer: Any) -> int:
    """How many ids a tokenizer knows, added ones included: ours, ``tokenizers``' or ``transformers``'."""
    if hasattr(tokenizer, "get_vocab_size"):
        return tokenizer.get_vocab_size()
    return len(tokenizer) if hasattr(tokenizer, "__len__") else tokenizer.vocab_size


def _pad(config: Any, tokenizer: Any, stop_ids: Sequence[int]) -> int:
    """The pad token, or what does as well in a place that nobody reads: a token that ends a text; without one, 0."""
    own = [getattr(tokenizer, "pad", None), getattr(tokenizer, "pad_token_id", None)]
    for candidate in (getattr(config, "pad_token_id", None), *own, *_end_token_ids(config), *stop_ids):
        if (
            isinstance(candidate, int)
            and not isinstance(candidate, bool)
            and 0 <= candidate < config.vocab_size
        ):
            return candidate
    return 0


def check_model(model: Any) -> Any:
    """``model``. Raises TypeError or ValueError for what cannot generate."""
    missing = [name for name in ("config", "embed", "layers", "head", "hidden") if not hasattr(model, name)]
    if not isinstance(model, torch.nn.Module) or missing:
        without = f" without .{', .'.join(missing)}" if missing and isinstance(model, torch.nn.Module) else ""
        raise TypeError(
            f"model: expected a model of course_lib.models, such as a GPT or what load_model(folder) returns, got "
            f"{type(model).__name__}{without}. The model comes first: generate(model, tokens, max_new_tokens=20)."
        )
    embed: Any = model.embed
    if embed.weight.is_meta:
        raise ValueError('model: expected one with weights, got one on the device "meta", which holds none.')
    return model


def _end_token_ids(config: Any) -> tuple[int, ...]:
    return getattr(config, "end_token_ids", ())
