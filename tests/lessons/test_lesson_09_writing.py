"""Lesson 09: the exercises on writing with a cache and on top-p know their wrong answers."""

import torch

from course_lib.classroom.contract import assert_exercise
from course_lib.gqa import KVCache
from course_lib.lessons import lesson_09
from course_lib.lessons import lesson_09_mistakes_top_p as wrong
from course_lib.models import generate, next_token_probabilities

from .known_mistakes import known_mistakes

# --- 9.2 ---------------------------------------------------------------------------------------------------------


def greedy_by_for(model, tokens, steps):
    cache = [KVCache(max_length=tokens.shape[1] + steps) for _ in model.layers]
    found = torch.empty(len(tokens), steps, dtype=torch.int64)
    unread = tokens
    for step in range(steps):
        with torch.no_grad():
            logits = model(unread, cache=cache)
        found[:, step] = logits[:, -1].argmax(-1)
        unread = found[:, step : step + 1]
    return found


def greedy_by_library(model, tokens, steps):
    return generate(model, tokens, max_new_tokens=steps, stop=())[:, tokens.shape[1] :]


def greedy_that_reads_the_last_too(model, tokens, steps):
    cache, new, unread = [KVCache() for _ in model.layers], [], tokens
    logits = model(unread, cache=cache)
    for _ in range(steps):
        new.append(logits[:, -1:].argmax(-1))
        logits = model(new[-1], cache=cache)
    return torch.cat(new, 1)


def greedy_with_positions(model, tokens, steps):
    cache, new, unread, at = [KVCache() for _ in model.layers], [], tokens, 0
    for _ in range(steps):
        positions = torch.arange(at, at + unread.shape[1])[None]
        at += unread.shape[1]
        unread = model(unread, cache=cache, positions=positions)[:, -1:].argmax(-1)
        new.append(unread)
    return torch.cat(new, 1)


def _greedy(model, tokens, steps, *, cache=None, choose=lambda logits: logits[:, -1:].argmax(-1), read=None):
    """The loop, with what a wrong one does otherwise."""
    cache = [KVCache() for _ in model.layers] if cache is None else cache
    text, unread, new = tokens, tokens, []
    for _ in range(steps):
        unread = choose(model(unread, cache=cache))
        new.append(unread)
        text = torch.cat([text, unread], 1)
        unread = unread if read is None else read(tokens, text, unread)
    return torch.cat(new, 1)


def without_cache(model, tokens, steps):
    text = tokens
    for _ in range(steps):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)
    return text[:, tokens.shape[1] :]


def with_new_cache(model, tokens, steps):
    text = tokens
    for _ in range(steps):
        logits = model(text, cache=[KVCache() for _ in model.layers])
        text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
    return text[:, tokens.shape[1] :]


def rereads_the_text(model, tokens, steps):
    return _greedy(model, tokens, steps, read=lambda tokens, text, new: text)


def forgets_what_it_read(model, tokens, steps):
    unread, new = tokens, []
    for _ in range(steps):
        unread = model(unread)[:, -1:].argmax(-1)
        new.append(unread)
    return torch.cat(new, 1)


def feeds_every_choice(model, tokens, steps):
    cache, unread, new = [KVCache() for _ in model.layers], tokens, []
    for _ in range(steps):
        unread = model(unread, cache=cache).argmax(-1)
        new.append(unread[:, -1:])
    return torch.cat(new, 1)


def position_frozen(model, tokens, steps):
    cache, unread, new = [KVCache() for _ in model.layers], tokens, []
    for _ in range(steps):
        positions = torch.arange(unread.shape[1])[None]
        unread = model(unread, cache=cache, positions=positions)[:, -1:].argmax(-1)
        new.append(unread)
    return torch.cat(new, 1)


def reads_the_prompt_one_by_one(model, tokens, steps):
    cache, new = [KVCache() for _ in model.layers], []
    for column in range(tokens.shape[1]):
        logits = model(tokens[:, column : column + 1], cache=cache)
    for _ in range(steps):
        new.append(logits[:, -1:].argmax(-1))
        logits = model(new[-1], cache=cache)
    return torch.cat(new, 1)


def over_positions(model, tokens, steps):
    return _greedy(model, tokens, steps, choose=lambda logits: logits.argmax(1))


def fed_with_logits(model, tokens, steps):
    return _greedy(model, tokens, steps, choose=lambda logits: logits[:, -1])


def without_keepdim(model, tokens, steps):
    cache, unread, new = [KVCache() for _ in model.layers], tokens, []
    for _ in range(steps):
        unread = model(unread, cache=cache)[:, -1].argmax(-1)
        new.append(unread)
    return torch.stack(new, 1)


def one_row_only(model, tokens, steps):
    return _greedy(model, tokens[:1], steps)


def test_exercise_9_2_names_each_wrong_answer():
    solution = lesson_09.LESSON.exercises["9.2"].solution
    assert_exercise(
        lesson_09.LESSON,
        "9.2",
        wrong={
            **known_mistakes(lesson_09.LESSON, "9.2"),
            "shared_cache": [lambda m, t, n: _greedy(m, t, n, cache=[KVCache()] * len(m.layers))],
            "cache_list": [lambda m, t, n: _greedy(m, t, n, cache=KVCache())],
            "wrong_axis": [over_positions],
            "feeds_logits": [fed_with_logits],
            "no_keepdim": [without_keepdim],
            "positions": [position_frozen],
            "no_cache": [without_cache],
            "new_cache": [with_new_cache],
            "all_positions": [feeds_every_choice],
            "reruns": [rereads_the_text],
            "no_memory": [forgets_what_it_read],
            "token_by_token": [reads_the_prompt_one_by_one],
            "prompt_too": [lambda m, t, n: torch.cat([t, solution(m, t, n)], 1)],
            "last_only": [lambda m, t, n: solution(m, t, n)[:, -1:]],
            "one_more": [lambda m, t, n: solution(m, t, n + 1)],
            "one_less": [lambda m, t, n: solution(m, t, n)[:, :-1]],
            "one_row": [one_row_only],
        },
        right=[greedy_by_for, greedy_by_library, greedy_that_reads_the_last_too, greedy_with_positions],
    )


# --- 9.5 ---------------------------------------------------------------------------------------------------------


def top_p_by_loop(probabilities, p):
    rows = probabilities.reshape(-1, probabilities.shape[-1])
    found = torch.zeros_like(rows)
    for row, kept in zip(rows, found, strict=True):
        total = 0.0
        for token in sorted(range(len(row)), key=lambda i: -row[i]):
            if total >= p:
                break
            kept[token] = row[token]
            total += float(row[token])
    return (found / found.sum(-1, keepdim=True)).view(probabilities.shape)


def top_p_by_rank(probabilities, p):
    ordered, ids = probabilities.sort(-1, descending=True)
    dropped_sorted = torch.roll(ordered.cumsum(-1) >= p, 1, -1)
    dropped_sorted[..., 0] = False
    kept = probabilities.masked_fill(dropped_sorted.gather(-1, ids.argsort(-1)), 0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_by_library(probabilities, p):
    return next_token_probabilities(probabilities.log(), top_p=p).to(probabilities.dtype)


def top_p_by_threshold_of_each_row(probabilities, p):
    ordered = probabilities.sort(-1, descending=True).values
    crossing = (ordered.cumsum(-1) < p).sum(-1, keepdim=True).clamp(max=probabilities.shape[-1] - 1)
    kept = torch.where(probabilities >= ordered.gather(-1, crossing), probabilities, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def of_one_row(probabilities, p):
    ordered, ids = probabilities.sort(descending=True)
    kept = torch.zeros_like(probabilities)
    for token, before in zip(ids.tolist(), (ordered.cumsum(0) - ordered).tolist(), strict=True):
        if before < p:
            kept[token] = probabilities[token]
    return kept / kept.sum()


def of_one_row_at_once(probabilities, p):
    ordered, ids = probabilities.sort(descending=True)
    kept = torch.zeros_like(probabilities)
    kept[ids] = ordered.masked_fill(ordered.cumsum(-1) - ordered >= p, 0)
    return kept / kept.sum()


def test_exercise_9_5_names_each_wrong_answer():
    solution = lesson_09.LESSON.exercises["9.5"].solution
    assert_exercise(
        lesson_09.LESSON,
        "9.5",
        wrong={
            **known_mistakes(lesson_09.LESSON, "9.5"),
            "pair": [lambda probabilities, p: (solution(probabilities, p), probabilities.argsort(-1))],
            "bools": [lambda probabilities, p: solution(probabilities, p) > 0],
            "tokens": [
                lambda probabilities, p: solution(probabilities, p).argmax(-1),
                lambda probabilities, p: solution(probabilities, p).nonzero(),
            ],
            "minus_infinity": [lambda probabilities, p: solution(probabilities, p).log()],
            "only_kept": [lambda probabilities, p: wrong.top_p_sorted(probabilities, p)[..., :2]],
            "one_row": [of_one_row, of_one_row_at_once],
        },
        right=[top_p_by_loop, top_p_by_rank, top_p_by_library, top_p_by_threshold_of_each_row],
    )
