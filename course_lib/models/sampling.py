"""From logits to the next token: what temperature, top-k and top-p leave of a distribution, and a draw from it.

The three act in this order, each on what the one before it left:

- the *temperature* divides the logits: below 1 the likely tokens gain, above 1 the unlikely ones;
- *top-k* keeps the k likeliest tokens (Fan et al. 2018, arXiv:1805.04833);
- *top-p* keeps the fewest tokens, likeliest first, that together have at least the probability p (Holtzman et al.
  2019, "nucleus", arXiv:1904.09751).

Equally likely tokens stand in the order of their ids, so top-k keeps exactly k, and top-k 1 is the greedy choice.
``next_token_probabilities`` says it plainly, with a sort of the whole vocabulary; ``draw`` chooses the same tokens and
looks at few of them.
"""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from course_lib.attention.bias import as_whole_number

NEG_INF = float("-inf")
FEW = 256
"""Tokens among which ``draw`` looks for the top-p first; if they are not enough, among sixteen times as many."""
UNIFORMS = 256
"""Numbers drawn from a row's generator at a time."""


def scale_by_temperature(
    logits: Float[Tensor, "*batch vocab"], temperature: float
) -> Float64[Tensor, "*batch vocab"]:
    """``logits / temperature``, up to a constant a row, which no softmax feels: the likeliest token comes out as 0,
    so that however small a temperature makes no number too large."""
    check_sampling(temperature=temperature)
    logits = logits.double()
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def keep_top_k(logits: Float[Tensor, "*batch vocab"], top_k: int) -> Float[Tensor, "*batch vocab"]:
    """``logits`` where they are among the ``top_k`` largest of their row, -inf elsewhere."""
    check_sampling(top_k=top_k, vocab_size=logits.shape[-1])
    ids = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, ids[..., top_k:], NEG_INF)


def keep_top_p(logits: Float[Tensor, "*batch vocab"], top_p: float) -> Float[Tensor, "*batch vocab"]:
    """``logits`` of the fewest tokens, likeliest first, whose probabilities add up to ``top_p``, -inf elsewhere.

    The token that crosses ``top_p`` is kept, so at least one always is.
    """
    check_sampling(top_p=top_p)
    if top_p == 1:
        return logits  # not by the sum, whose rounding would drop the least likely
    sorted_logits, ids = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = sorted_logits.double().softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    dropped = torch.empty_like(before, dtype=torch.bool).scatter_(-1, ids, before >= top_p)
    return logits.masked_fill(dropped, NEG_INF)


def next_token_probabilities(
    logits: Float[Tensor, "*batch vocab"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float64[Tensor, "*batch vocab"]:
    """The probability with which each token comes next: 0 for those that top-k or top-p leaves out.

    Raises TypeError or ValueError for a temperature that is not above 0, a ``top_k`` outside 1 … vocab and a
    ``top_p`` outside (0, 1].
    """
    _check_logits(logits)
    left = scale_by_temperature(logits, temperature)
    if top_k is not None:
        left = keep_top_k(left, top_k)
    if top_p is not None:
        left = keep_top_p(left, top_p)
    return left.softmax(-1)


def draw(
    logits: Float[Tensor, "rows vocab"],
    uniform: Float64[Tensor, " rows"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Int64[Tensor, " rows"]:
    """One token for each row, drawn from ``next_token_probabilities`` of it.

    ``uniform`` in [0, 1) decides: with the tokens laid end to end in the order of their ids, each as long as it is
    probable, a row gets the one that lies there. So a row's token depends on its own number alone.
    """
    weights = _weights(logits, logits, temperature)
    if top_p == 1:
        top_p = None
    values = None  # the largest logits of each row, in descending order, of which some or all are kept
    if top_k is not None:
        values = logits.topk(top_k, dim=-1).values
    elif top_p is not None:
        values = _candidates(logits, weights, temperature, top_p)
    if values is not None:
        kept = torch.full_like(uniform, values.shape[-1], dtype=torch.int64)[:, None]
        if top_p is not None:
            own = _weights(values, logits, temperature)
            ends = own.cumsum(-1)
            total = weights.sum(-1, keepdim=True) if top_k is None else ends[:, -1:]
            kept = (ends - own < top_p * total).sum(-1, keepdim=True)
        weights = weights.where(_largest(logits, values.gather(-1, kept - 1), kept), 0)
    ends = weights.cumsum(-1)
    # Below the end of the last token, also when rounded: a float64 below 1 is at most 1 - 2**-53.
    target = uniform[:, None] * ends.amax(-1, keepdim=True)
    return ((ends > target) & (weights > 0)).int().argmax(-1)


def _weights(values: Tensor, logits: Tensor, temperature: float) -> Tensor:
    """What the probabilities of ``values``, out of ``logits``, are proportional to."""
    return ((values.double() - logits.amax(-1, keepdim=True)) / temperature).exp()


def _candidates(logits: Tensor, weights: Tensor, temperature: float, top_p: float) -> Tensor:
    """As many of each row's largest logits, in descending order, as together have more than ``top_p``."""
    vocab = logits.shape[-1]
    # To ask whether a few are enough would make a GPU wait, and its sort is quick.
    count = vocab if logits.is_cuda else FEW
    wanted = top_p * weights.sum(-1)
    while count < vocab:
        values = logits.topk(count, dim=-1).values
        if bool((_weights(values, logits, temperature).sum(-1) > wanted).all()):
            return values
        count *= 16
    return logits.sort(dim=-1, descending=True).values


def _largest(logits: Tensor, smallest: Tensor, count: Tensor) -> Tensor:
    """Which ``count`` [rows, 1] of each row's logits are the largest, if ``smallest`` [rows, 1] is the last of them; of
    those equal to it, the ones of the lowest ids. [rows, vocab] bool."""
    above, equal = logits > smallest, logits == smallest
    missing = count - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= missing))


def row_seeds(seed: int | Sequence[int] | None, rows: int) -> list[int]:
    """A seed for each row of a batch: the first has ``seed`` itself, row i one that follows from ``seed`` and i.

    So a row draws the same whatever the others are and however many. A sequence of ``rows`` seeds is taken as it is;
    None draws one anew, as no run before. Raises TypeError or ValueError for anything else.
    """
    if seed is None:
        return row_seeds(torch.Generator().seed(), rows)
    if isinstance(seed, (list, tuple)):
        if len(seed) != rows:
            raise ValueError(
                f"seed: expected one for each of the {rows} rows of tokens, or one for all, got {len(seed)}."
            )
        return [_checked_seed(f"seed[{row}]", own) for row, own in enumerate(seed)]
    first = _checked_seed("seed", seed)
    others = (hashlib.sha256(f"{first} {row}".encode()).digest() for row in range(1, rows))
    return [first, *(int.from_bytes(digest[:8], "little") for digest in others)][:rows]


def uniforms(seeds: Sequence[int]) -> Iterator[Float64[Tensor, " rows"]]:
    """Without end: a number in [0, 1) for each row, from a generator of its own that its seed begins."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    while True:
        drawn = [torch.rand(UNIFORMS, generator=own, dtype=torch.float64) for own in generators]
        yield from torch.stack(drawn, dim=1)


def check_sampling(
    *, temperature: Any = None, top_k: Any = None, top_p: Any = None, vocab_size: int | None = None
) -> None:
    """Raise TypeError or ValueError for what no distribution can be shaped by; None is not checked."""
    if temperature is not None and not 0 < _number("temperature", temperature) < math.inf:
        raise ValueError(
            f"temperature: expected a number above 0, got {temperature}. For the likeliest token each time, do not "
            "sample: do_sample=False."
        )
    if top_k is not None:
        count = as_whole_number("top_k", top_k)
        if count < 1 or (vocab_size is not None and count > vocab_size):
            upper = "" if vocab_size is None else f" to the {vocab_size} tokens of the vocabulary"
            raise ValueError(f"top_k: expected from 1{upper}, or None for all, got {count}.")
    if top_p is not None and not 0 < _number("top_p", top_p) <= 1:
        raise ValueError(
            f"top_p: expected a probability above 0 and at most 1, got {top_p}. None, as 1, keeps every token."
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__} {value!r}.")
    return float(value)


def _check_logits(logits: Any) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        came = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"logits: expected a floating-point tensor [..., vocab], got {came}.")
    if logits.dim() < 1 or logits.shape[-1] < 1:
        raise ValueError(f"logits: expected [..., vocab], got shape {list(logits.shape)}.")


def _checked_seed(name: str, seed: Any) -> int:
    number = as_whole_number(name, seed)
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{name}: expected a whole number of at most 64 bits, got {number}.")
    return number
