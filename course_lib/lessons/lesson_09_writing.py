"""Exercise 9.2 of lesson 09: a model that notes what it reads, and the wrong ways to write with it.

Whether a loop uses its cache does not show in the tokens that it writes. So the check hands it a small OPT that notes
each pass, and an answer that reads more than it must is wrong even where every token is right.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.classroom.exercise import Attempt, Mistake
from course_lib.gqa import KVCache
from course_lib.models import OPT, OPTConfig

VOCABULARY = 23


class Pass(NamedTuple):
    """One pass through the model."""

    columns: int
    """Tokens that it read of each row."""
    held: int | None
    """Tokens of the first row that the cache held before; None without a cache."""
    position: int | None
    """The first of the positions that were passed; None where the model was left to count."""


class Passes(list[Pass]):
    """Those of one model and its copies: a check copies arguments before it hands them on."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Passes":
        return self


class NotingOPT(OPT):
    """A tiny OPT with random weights that notes its passes."""

    def __init__(self) -> None:
        config = OPTConfig(
            vocab_size=VOCABULARY,
            dim=16,
            num_layers=2,
            num_heads=2,
            max_length=256,
            tied_head=False,
            init_std=0.5,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
        )
        super().__init__(config, seed=9)
        self.passes = Passes()

    def hidden(
        self,
        tokens: Tensor,
        *,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        bias: Any = None,
        cache: Any = None,
    ) -> Tensor:
        x = super().hidden(tokens, attention_mask=attention_mask, positions=positions, bias=bias, cache=cache)
        held = None if cache is None else cache[0].host_lengths[0] - tokens.shape[1]
        self.passes.append(Pass(tokens.shape[1], held, None if positions is None else int(positions[0, 0])))
        return x


class Wasteful(NamedTuple):
    """What was written, by more reading than it takes."""

    tokens: Tensor
    passes: list[Pass]


def writing(batch: int, length: int, steps: int) -> tuple[NotingOPT, Tensor, int]:
    """Arguments of a case: a model, prompts, steps."""
    generator = torch.Generator().manual_seed(100 * batch + 10 * length + steps)
    return NotingOPT(), torch.randint(VOCABULARY, (batch, length), generator=generator), steps


def written(result: Any, args: tuple[Any, ...]) -> Any:
    """What a check compares. Reading the last new token too, which nobody needs, is allowed."""
    model, tokens, steps = args
    read = sum(one.columns for one in model.passes)
    if isinstance(result, Tensor) and (read > tokens.shape[1] + steps or len(model.passes) > steps + 1):
        return Wasteful(result, list(model.passes))
    return result


# --- what went wrong, from the passes and the shapes -------------------------------------------------------------


def _passes(attempt: Attempt) -> list[Pass]:
    return attempt.args[0].passes


def _size(attempt: Attempt) -> tuple[int, ...]:
    got = attempt.got.tokens if isinstance(attempt.got, Wasteful) else attempt.got
    return tuple(got.shape)


def _second_reads(attempt: Attempt, columns: int, *, held: tuple[Any, ...]) -> bool:
    second = _passes(attempt)[1]
    return second.columns == columns and second.held in held


def no_cache(attempt: Attempt) -> bool:
    """The whole text is read anew in each step, and no cache is there."""
    return _second_reads(attempt, attempt.args[1].shape[1] + 1, held=(None,))


def new_cache(attempt: Attempt) -> bool:
    """The same with an empty cache each time."""
    return _second_reads(attempt, attempt.args[1].shape[1] + 1, held=(0,))


def reruns_prompt(attempt: Attempt) -> bool:
    """The whole text is read again on top of what the cache holds."""
    length = attempt.args[1].shape[1]
    columns = (length, length + 1) if length > 1 else (2,)
    second = _passes(attempt)[1]
    return second.columns in columns and bool(second.held) and not _reads_predictions(attempt)


def _reads_predictions(attempt: Attempt) -> bool:
    """Whether the second pass is as long as the prompt, as when every position's choice is read."""
    length = attempt.args[1].shape[1]
    return length > 1 and _passes(attempt)[1].columns == length


def all_positions(attempt: Attempt) -> bool:
    return _reads_predictions(attempt) and bool(_passes(attempt)[1].held)


def all_positions_without_cache(attempt: Attempt) -> bool:
    return _reads_predictions(attempt) and not _passes(attempt)[1].held


def no_memory(attempt: Attempt) -> bool:
    """A new token is read by a model that has read nothing else: no cache, or an empty one."""
    first, second = _passes(attempt)[:2]
    return second.columns == 1 and not second.held and first.columns == attempt.args[1].shape[1]


def token_by_token(attempt: Attempt) -> bool:
    length, steps = attempt.args[1].shape[1], attempt.args[2]
    passes = _passes(attempt)
    return length > 1 and len(passes) > steps + 1 and passes[0].columns < length and bool(passes[1].held)


def wrong_axis(attempt: Attempt) -> bool:
    """A choice for each entry of the vocabulary: argmax over positions or over the batch."""
    if attempt.error is not None:
        text = str(attempt.error)
        return text.startswith("tokens:") and f"[{VOCABULARY}]" in text
    return any(one.columns == VOCABULARY for one in _passes(attempt)) or VOCABULARY in _size(attempt)


def given_positions(attempt: Attempt) -> bool:
    return any(one.position is not None and one.position != (one.held or 0) for one in _passes(attempt))


def first_given_position(attempt: Attempt) -> dict[str, object]:
    wrong = next(one for one in _passes(attempt) if one.position not in (None, one.held or 0))
    return {"position": str(wrong.position), "held": str(wrong.held or 0)}


def one_cache_for_all(attempt: Attempt) -> bool:
    text = str(attempt.error)
    return text.startswith("cache: expected") and "of its own for each layer" in text


def not_a_cache_a_layer(attempt: Attempt) -> bool:
    text = str(attempt.error)
    return text.startswith("cache: expected") and "each" in text


def feeds_logits(attempt: Attempt) -> bool:
    text = str(attempt.error)
    return text.startswith("tokens: expected") and "float" in text.partition("got")[2]


def not_two_dimensions(attempt: Attempt) -> bool:
    return str(attempt.error).startswith("tokens: expected")


def first_row_only(attempt: Attempt) -> bool:
    """It works for one row, and where there are more it stops, or gives the first row's tokens to all."""
    rows = len(attempt.args[1])
    if rows == 1:
        return False
    if attempt.error is not None:
        text = str(attempt.error)
        return "converted to Scalar" in text or f"expected {rows} sequences" in text
    got = attempt.got.tokens if isinstance(attempt.got, Wasteful) else attempt.got
    return got.shape == (1, attempt.args[2]) or bool(
        got.shape == attempt.wanted.shape and (got == attempt.wanted[:1]).all()
    )


def with_prompt(attempt: Attempt) -> bool:
    _, tokens, steps = attempt.args
    sizes = [(len(tokens), tokens.shape[1] + steps + more) for more in (-1, 0, 1)]
    return _size(attempt) in sizes and bool((attempt.got[:, : tokens.shape[1]] == tokens).all())


def last_only(attempt: Attempt) -> bool:
    batch, steps = len(attempt.args[1]), attempt.args[2]
    return steps > 2 and _size(attempt) in ((batch, 1), (batch,))


def one_more(attempt: Attempt) -> bool:
    return _size(attempt) == (len(attempt.args[1]), attempt.args[2] + 1)


def one_less(attempt: Attempt) -> bool:
    return _size(attempt) == (len(attempt.args[1]), attempt.args[2] - 1)


def amount_read(attempt: Attempt) -> dict[str, object]:
    _, tokens, steps = attempt.args
    read = sum(one.columns for one in _passes(attempt))
    return {"read": str(read), "needed": str(tokens.shape[1] + steps - 1), "steps": str(steps)}


def second_pass(attempt: Attempt) -> dict[str, object]:
    second = _passes(attempt)[1]
    return {"columns": str(second.columns), "held": str(second.held or 0)}


# --- wrong answers, known by what they write ---------------------------------------------------------------------


def _begin(model, tokens):
    cache = [KVCache() for _ in model.layers]
    return cache, model(tokens, cache=cache)[:, -1]


def _go_on(model, cache, chosen, steps):
    """``steps`` tokens, the first of which is ``chosen``."""
    new = [chosen]
    while len(new) < steps:
        new.append(model(new[-1], cache=cache)[:, -1].argmax(-1, keepdim=True))
    return torch.cat(new, dim=1)


def greedy_first_position(model, tokens, steps):
    cache = [KVCache() for _ in model.layers]
    logits = model(tokens, cache=cache)[:, 0]
    return _go_on(model, cache, logits.argmax(-1, keepdim=True), steps)


def greedy_least_likely(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    new = [logits.argmin(-1, keepdim=True)]
    while len(new) < steps:
        new.append(model(new[-1], cache=cache)[:, -1].argmin(-1, keepdim=True))
    return torch.cat(new, dim=1)


def greedy_sampled(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    new = [torch.multinomial(logits.softmax(-1), 1)]
    while len(new) < steps:
        logits = model(new[-1], cache=cache)[:, -1]
        new.append(torch.multinomial(logits.softmax(-1), 1))
    return torch.cat(new, dim=1)


def greedy_first_lost(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    return _go_on(model, cache, logits.argmax(-1, keepdim=True), steps + 1)[:, 1:]


def greedy_last_read_twice(model, tokens, steps):
    cache, _ = _begin(model, tokens)
    return _go_on(model, cache, tokens[:, -1:], steps + 1)[:, 1:]


def greedy_starts_with_last(model, tokens, steps):
    """The prompt's last token, taken for the first new one."""
    cache, _ = _begin(model, tokens)
    return _go_on(model, cache, tokens[:, -1:], steps)


def greedy_always_feeds_last(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    new = [logits.argmax(-1, keepdim=True)]
    while len(new) < steps:
        new.append(model(tokens[:, -1:], cache=cache)[:, -1].argmax(-1, keepdim=True))
    return torch.cat(new, dim=1)


def greedy_always_feeds_first_choice(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    first = logits.argmax(-1, keepdim=True)
    new = [first]
    while len(new) < steps:
        new.append(model(first, cache=cache)[:, -1].argmax(-1, keepdim=True))
    return torch.cat(new, dim=1)


def greedy_last_unread(model, tokens, steps):
    """The prompt's last token is never read."""
    return _go_on_from(model, tokens[:, :-1], steps)


def _go_on_from(model, tokens, steps):
    cache, logits = _begin(model, tokens)
    return _go_on(model, cache, logits.argmax(-1, keepdim=True), steps)


def greedy_repeats_first(model, tokens, steps):
    """The logits of the prompt are asked again in each step."""
    _, logits = _begin(model, tokens)
    return logits.argmax(-1, keepdim=True).expand(-1, steps).contiguous()


def greedy_several_at_once(model, tokens, steps):
    """The likeliest, the second likeliest … after the prompt."""
    _, logits = _begin(model, tokens)
    return logits.topk(steps, dim=-1).indices


def greedy_last_choices_of_prompt(model, tokens, steps):
    """What each place of the prompt would go on with."""
    return model(tokens).argmax(-1)


GREEDY = [
    Mistake("shared_cache", when=one_cache_for_all),
    Mistake("cache_list", when=not_a_cache_a_layer),
    Mistake("wrong_axis", when=wrong_axis),
    Mistake("feeds_logits", when=feeds_logits),
    Mistake("no_keepdim", when=not_two_dimensions),
    Mistake("positions", when=given_positions, values=first_given_position),
    Mistake("no_cache", when=no_cache, values=amount_read),
    Mistake("new_cache", when=new_cache, values=amount_read),
    Mistake("all_positions", when=all_positions, values=second_pass),
    Mistake("reruns", when=reruns_prompt, values=second_pass),
    Mistake("no_memory", when=no_memory),
    Mistake("token_by_token", when=token_by_token),
    Mistake("prompt_too", when=with_prompt),
    Mistake("last_only", when=last_only),
    Mistake("one_more", when=one_more),
    Mistake("one_less", when=one_less),
    Mistake("one_row", when=first_row_only),
    Mistake("first_position", like=greedy_first_position),
    Mistake("least", like=greedy_least_likely),
    Mistake("sampled", like=greedy_sampled),
    Mistake("first_lost", like=greedy_first_lost),
    Mistake("last_twice", like=greedy_last_read_twice),
    Mistake("last_twice", like=greedy_starts_with_last),
    Mistake("not_fed", like=greedy_always_feeds_last),
    Mistake("not_fed", like=greedy_always_feeds_first_choice),
    Mistake("not_fed", like=greedy_repeats_first),
    Mistake("last_unread", like=greedy_last_unread),
    Mistake("at_once", like=greedy_several_at_once),
]
