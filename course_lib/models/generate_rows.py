"""The rows of a batch while they are written: which token comes next, and which row has come to its end.

``Rows`` knows nothing of models. Whoever runs one, all of it at once or layer by layer from a disk, hands it the logits
of each step and gets the tokens to read next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from .generate_settings import Settings
from .generate_text import RowText
from .sampling import draw, uniforms


class NewToken(NamedTuple):
    """A token as ``on_token`` gets it: one call for each new token of each row that has not ended, row by row."""

    row: int
    step: int
    """Which of the row's new tokens it is, counted from 0."""
    token: int
    text: str
    """The graphemes that this token finished, "" while one is unfinished, and without a tokenizer. Joined, they are
    the row's new text, in which no stop string ever appears."""
    last: bool
    """Whether the row has ended: it stopped, or as many tokens have been written as were asked for."""
    position: int
    """How many real tokens stand before it in its row, those of the prompt included."""
    seconds: float
    """Since the first step began, without the time that was spent in ``on_token``."""


class Rows:
    """A batch that is being continued.

    ``take(logits)`` chooses the next token of each row and returns what to read next; ``done`` says when to end, and
    ``result()`` what has been written by then, also if that came early.
    """

    def __init__(
        self, tokens: Int64[Tensor, "batch length"], settings: Settings, *, began: float | None = None
    ) -> None:
        """``began``: when the first step did, by ``time.perf_counter()``; None: now."""
        self.settings = settings
        self._prompt = tokens
        self._new: list[list[int]] = []
        self._uniforms = uniforms(settings.seeds) if settings.do_sample and settings.seeds else None
        self._ended = [False] * len(tokens)
        self._texts: list[RowText] | None = None
        if settings.tokenizer is not None and (settings.stop_strings or settings.on_token is not None):
            prompts = _prompts(tokens, settings)
            self._texts = [RowText(settings.tokenizer, settings.stop_strings, own) for own in prompts]
        self._began = time.perf_counter() if began is None else began

    @property
    def done(self) -> bool:
        """Whether all rows have stopped, or enough has been written."""
        return len(self._new) == self.settings.max_new_tokens or all(self._ended)

    def take(self, logits: Float[Tensor, "batch vocab"]) -> Int64[Tensor, "batch 1"]:
        """Choose a token for each row by ``logits``; return [batch, 1] what the model reads next, pad in rows that
        have ended.

        Raises ValueError for a row whose largest logit is no finite number; a row that has ended may have any.
        """
        settings, step = self.settings, len(self._new)
        chosen = self._choose(logits.float())
        before = self._ended
        written = [settings.pad if ended else token for ended, token in zip(before, chosen, strict=True)]
        self._new.append(written)
        full = step + 1 == settings.max_new_tokens
        texts = ["" if before[row] else self._text_of(row, token, full) for row, token in enumerate(written)]
        self._ended = [
            ended or token in settings.stop_ids or (self._texts is not None and self._texts[row].stopped)
            for row, (ended, token) in enumerate(zip(before, written, strict=True))
        ]
        seconds = time.perf_counter() - self._began
        # Last, since it may raise: all rows are then as far as they should be.
        if settings.on_token is not None:
            for row, token in enumerate(written):
                if not before[row]:
                    position = settings.prompt_lengths[row] + step
                    last = full or self._ended[row]
                    settings.on_token(NewToken(row, step, token, texts[row], last, position, seconds))
            self._began = time.perf_counter() - seconds  # what passed meanwhile is not ours
        return torch.tensor(written, dtype=torch.int64, device=logits.device)[:, None]

    def result(self) -> Int64[Tensor, "batch longer"]:
        """[batch, length + new]: the prompts and, after their last column, what has been written."""
        if not self._new:
            return self._prompt.clone()
        new = torch.tensor(self._new, dtype=torch.int64, device=self._prompt.device).T
        return torch.cat([self._prompt, new], dim=1)

    def _choose(self, logits: Tensor) -> list[int]:
        likeliest = logits.argmax(-1, keepdim=True)  # NaN counts as the largest; the first of equals is taken
        largest = logits.gather(-1, likeliest)
        if self._uniforms is None:
            # Both at once: the one wait for a GPU in a step. Ids are whole numbers that float32 holds.
            found = torch.cat([likeliest.float(), largest], dim=1).tolist()
            for row, (_, most) in enumerate(found):
                if not math.isfinite(most) and not self._ended[row]:
                    self._refuse(row, most)
            return [int(token) for token, _ in found]
        settings, fine = self.settings, largest.isfinite()
        if logits.device.type == "mps":  # Apple's GPUs compute no float64
            logits, fine = logits.cpu(), fine.cpu()
        uniform = next(self._uniforms).to(logits.device)
        # Rows that have ended may hold anything, and must not disturb the rest.
        safe = logits.masked_fill(~fine, 0)
        tokens = draw(safe, uniform, settings.temperature, settings.top_k, settings.top_p)
        chosen = tokens.masked_fill(~fine.squeeze(-1), -1).tolist()  # here, too, the one wait
        for row, token in enumerate(chosen):
            if token < 0 and not self._ended[row]:
                self._refuse(row, float(largest[row]))
        return chosen

    def _refuse(self, row: int, largest: float) -> None:
        position = self.settings.prompt_lengths[row] + len(self._new)
        raise ValueError(
            f"model: expected finite logits, got {largest} as the largest for the token at position {position} of row "
            f"{row}. Are there NaN among the weights? In float16 numbers above 65504 overflow: try bfloat16 or float32."
        )

    def _text_of(self, row: int, token: int, full: bool) -> str:
        """The text that ``token`` finished in its row, and all that is left where the row ends with it."""
        if self._texts is None:
            return ""
        own, stopped = self._texts[row], token in self.settings.stop_ids
        # What stops a row by its id is no more text than a stop string is.
        text = "" if stopped else own.push(token)
        return text + own.finish(cut=not stopped) if stopped or full else text


def at_last_real(
    hidden: Float[Tensor, "batch length width"], real: Tensor | None
) -> Float[Tensor, "batch width"]:
    """What stands at the last real token of each row; ``real`` [batch, length] marks them, None: all are."""
    if real is None:
        return hidden[:, -1]
    columns = torch.arange(hidden.shape[1], device=hidden.device)
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, (columns * real).argmax(1)]


def _prompts(tokens: Tensor, settings: Settings) -> list[list[int]]:
    """The real tokens of each row that tell how its text goes on; none where each token has bytes of its own."""
    if hasattr(settings.tokenizer, "token_bytes"):
        return [[] for _ in range(len(tokens))]
    real = torch.ones_like(tokens, dtype=torch.bool) if settings.real is None else settings.real
    return [row[own].tolist() for row, own in zip(tokens, real, strict=True)]


class SpeedMeter:
    """Measures tokens a second: ``generate(..., on_token=meter)``, which passes each token on to ``on_token``.

    Prefill, reading the prompt up to the first new token, and decode, all further ones, are two different machines and
    counted apart. The time spent in ``on_token`` does not count. One meter measures one call; used again, it starts
    anew.
    """

    def __init__(self, on_token: Callable[[NewToken], Any] | None = None) -> None:
        if on_token is not None and not callable(on_token):
            raise TypeError(f"on_token: expected a function of one NewToken, got {type(on_token).__name__}.")
        self._on_token = on_token
        self._row = -1
        self._restart()

    def _restart(self) -> None:
        self.prompt_tokens = self.decode_tokens = 0
        self.prefill_seconds = self.decode_seconds = 0.0

    def __call__(self, new: NewToken) -> None:
        if new.step:
            self.decode_tokens += 1
            self.decode_seconds = new.seconds - self.prefill_seconds
        else:
            if new.row <= self._row:  # every row has a first token, in their order: this is another call
                self._restart()
            self._row = new.row
            self.prompt_tokens += new.position
            self.prefill_seconds = new.seconds
        if self._on_token is not None:
            self._on_token(new)

    @property
    def prefill_tokens_per_second(self) -> float | None:
        """Tokens of the prompts, padding not counted, that were read in a second; None before the first token."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds else None

    @property
    def decode_tokens_per_second(self) -> float | None:
        """New tokens a second, in all rows together, after the first of each row; None before the second."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else None
