"""Writing: the prompt is read at once, then token after token follows.

These are two different machines. *Prefill* reads all prompts in one pass, large matrix products that keep the
processor busy. *Decode* reads the one token that was written last, and for that every weight once: it runs at the
memory's speed. Keys and values of what has been read are kept in a ``KVCache`` for each layer (lesson 04), and logits
are computed where a token is chosen, at the last real one of each row, never for the whole prompt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from course_lib.gqa import KVCache

from .few_rows import few_rows
from .generate_rows import NewToken, Rows, at_last_real
from .generate_settings import Settings, check_model, checked_settings

TOKENS_AHEAD = 512
"""New tokens for which a cache takes its memory at once. More may never be written: they get it as they come."""


@torch.no_grad()
def generate(
    model: nn.Module,
    tokens: Int64[Tensor, "batch length"],
    *,
    attention_mask: Tensor | None = None,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | str | Iterable[int | str] | Tensor | None = None,
    seed: int | Sequence[int] | None = None,
    tokenizer: Any = None,
    on_token: Callable[[NewToken], Any] | None = None,
) -> Int64[Tensor, "batch longer"]:
    """``tokens`` and how ``model`` goes on: [batch, length + new], new tokens after the last column.

    - ``attention_mask`` [batch, length]: 1 for a real token, 0 for padding, left, right or between. What a row gets
      does not depend on where its padding is.
    - ``max_new_tokens``: at most so many in each row, 0 or more; fewer when all rows have stopped.
    - ``do_sample`` False takes the likeliest token each time. True draws it, from probabilities that ``temperature``,
      ``top_k`` and ``top_p`` shape in this order (``next_token_probabilities`` shows them).
    - ``seed``: the same one draws the same tokens. A row draws by the seed and its own number, whatever the other rows
      are; a list gives each row its own. None: other tokens each time. The global generator is left alone.
    - ``stop``: an id, a string, or both kinds in a list; None: the config's end tokens; (): never. What is given takes
      the place of the end tokens: ``stop=("\\n", *model.config.end_token_ids)`` stops at either. A string is looked for
      in the new text, by the ``tokenizer``, and may begin and end inside tokens. The token that completes it is kept;
      after it the row holds the pad token (of the config, else of the tokenizer; where there is none, an end token).
    - ``tokenizer``: what has ``token_bytes(id)`` and ``vocab_size``, as ours, or ``decode(ids)``, as those of
      ``transformers``.
    - ``on_token`` is called with a :class:`NewToken` for each new token of each row that has not ended, as it comes:
      ``lambda new: print(new.text, end="", flush=True)`` shows one row's text in whole graphemes. What it raises ends
      the call, and so does Ctrl-C; what it has been told by then is all that was written. ``SpeedMeter`` is one that
      measures tokens a second.

    Raises TypeError or ValueError for arguments that do not fit, also for more tokens than the model has positions,
    before any work is done, and ValueError for logits that are no numbers.
    """
    own: Any = check_model(model)
    _check_device(own.embed.weight.device, tokens)
    settings = checked_settings(
        own.config,
        tokens,
        attention_mask=attention_mask,
        max_new_tokens=max_new_tokens,
        do_sample=do_sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=stop,
        seed=seed,
        tokenizer=tokenizer,
        on_token=on_token,
    )
    began = time.perf_counter()
    rows = Rows(tokens, settings, began=began)
    if rows.done:
        return rows.result()
    caches = _caches(len(own.layers), tokens.shape[1], settings)
    # A short prompt has few rows too, and the head always has. A single step: weights are put in no order for it.
    with few_rows(own, len(tokens), steps=1):
        hidden = own.hidden(tokens, attention_mask=settings.real, cache=caches)
        unread = rows.take(own.head(at_last_real(hidden, settings.real)))
    del hidden
    with few_rows(own, len(tokens), steps=0 if rows.done else settings.max_new_tokens - 1):
        while not rows.done:
            # No mask: rows that have ended read pad tokens as if they were real, which nobody looks at, and so all rows
            # grow alike.
            unread = rows.take(own.head(own.hidden(unread, cache=caches)[:, -1]))
    return rows.result()


def _caches(num_layers: int, length: int, settings: Settings) -> list[KVCache]:
    """An empty cache for each layer, with room for what is to come."""
    if settings.max_new_tokens <= TOKENS_AHEAD:
        return [KVCache(max_length=length + settings.max_new_tokens) for _ in range(num_layers)]
    return [KVCache(block_size=TOKENS_AHEAD) for _ in range(num_layers)]


def _check_device(device: torch.device, tokens: Any) -> None:
    if isinstance(tokens, Tensor) and tokens.device != device:
        raise ValueError(
            f"tokens: expected them on {device} as the model's weights, got {tokens.device}. tokens.to({str(device)!r})"
        )
