"""Wrong answers to question 9.6 of lesson 09: which models a licence lets one use for pay."""

import re
from typing import Any

from course_lib.classroom.exercise import Attempt, Mistake

MODELS = {
    "bloom-560m": ("bloom",),
    "lean-opt-5m": ("lean",),
    "opt-125m": ("opt-125m", "facebook", "opt"),
}
"""The models of the question, and the words by which each is known; "lean-opt" must not count as "opt"."""


def models_named(answer: Any) -> set[str]:
    """The models that an answer names: a list, a set, or text. Raises ValueError for a name that is none of them."""
    if isinstance(answer, dict):
        answer = [name for name, allowed in answer.items() if allowed]
    parts = re.split(r"[,;&]|\band\b|\s+", answer) if isinstance(answer, str) else list(answer)
    named = set()
    for part in filter(None, (str(part).strip().lower() for part in parts)):
        for name, words in MODELS.items():
            if any(word in part for word in words):
                named.add(name)
                break
        else:
            raise ValueError(f"answer: expected names of {', '.join(MODELS)}, got {part!r}.")
    return named


def same_models(got: Any, wanted: list[str]) -> bool:
    return models_named(got) == set(wanted)


def opt_named(attempt: Attempt) -> bool:
    return "opt-125m" in models_named(attempt.got)


def none_named(attempt: Attempt) -> bool:
    return not models_named(attempt.got)


def bloom_missing(attempt: Attempt) -> bool:
    return "bloom-560m" not in models_named(attempt.got)


def own_missing(attempt: Attempt) -> bool:
    return "lean-opt-5m" not in models_named(attempt.got)


def no_such_model(attempt: Attempt) -> bool:
    try:
        models_named(attempt.got)
    except (ValueError, TypeError):
        return True
    return False


FOR_A_SHOP = [
    Mistake("no_such_model", when=no_such_model),
    Mistake("opt", when=opt_named),
    Mistake("none", when=none_named),
    Mistake("bloom_missing", when=bloom_missing),
    Mistake("own_missing", when=own_missing),
]
