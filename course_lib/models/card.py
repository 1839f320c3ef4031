"""The card that goes with a saved model: what it is, what it was trained on, who may use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

POSITIONS = {
    "alibi": "ALiBi",
    "rotary": "rotary",
    "learned": "learned",
    "none": "none; order is what the causal mask reveals",
}
FEED_FORWARDS = {"swiglu": "SwiGLU", "relu": "ReLU", "silu": "SiLU", "swish": "SiLU"}
"""Those whose name is not written in capitals."""
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def model_card(
    config: Any,
    num_parameters: int,
    *,
    trained: str = "",
    license: str = "",
    languages: Sequence[str] = (),
) -> str:
    """README.md of a saved model, as Markdown with the YAML header that model hubs read; ``config``: of any family.

    ``trained`` is Markdown, ``license`` an identifier such as "cc0-1.0", ``languages`` are codes such as "bn". What is
    not given is said to be missing. Raises TypeError for anything else.
    """
    _check_text("trained", trained)
    _check_text("license", license)
    if isinstance(languages, str):
        raise TypeError(
            f"languages: expected a list of codes such as ['bn', 'en'], got the text {languages!r}."
        )
    for i, code in enumerate(languages):
        _check_text(f"languages[{i}]", code)
    # JSON is YAML, and its quotes keep a line of the reader's from becoming a field of the header.
    header = ["---"]
    header += [f"license: {json.dumps(license, ensure_ascii=False)}"] if license else []
    header += [f"language: {json.dumps(list(languages), ensure_ascii=False)}"] if languages else []
    header += ["pipeline_tag: text-generation", "tags: [causal-lm]", "---"]
    family = type(config).__name__.removesuffix("Config").upper()
    feed_forward = FEED_FORWARDS.get(config.feed_forward, config.feed_forward.split("_")[0].upper())
    place = "before" if getattr(config, "norm_first", True) else "after"
    context = "not limited" if config.max_length is None else f"{config.max_length:,} tokens"
    shared = "" if config.kv_heads == config.num_heads else f", {config.kv_heads} of keys and values"
    rows = [
        ("parameters", f"{num_parameters:,}"),
        ("layers", f"{config.num_layers}, {config.dim} numbers wide"),
        ("heads", f"{config.num_heads} of {config.head_width}{shared}"),
        ("feed-forward", f"{feed_forward}, {config.hidden_width} wide"),
        ("norm", f"{NORMS[config.norm]}, {place} attention and feed-forward"),
        ("positions", POSITIONS[config.positions]),
        ("context", context),
        (
            "vocabulary",
            f"{config.vocab_size:,} tokens; output head {'tied' if config.tied_head else 'untied'}",
        ),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""{chr(10).join(header)}

# {"An" if family == "OPT" else "A"} {family} of {num_parameters:,} parameters

A causal language model: it continues text, one token at a time.

| | |
|---|---|
{table}

## Use

```python
from course_lib.models import load_model

model = load_model("this folder")
logits = model(tokens)  # tokens: int64 [batch, length]
```

Its token ids are those of the tokenizer it was trained with.

## Training

{trained.strip() or "Not described by whoever saved this model."}

## Licence

{license or "None is stated. Ask whoever made the model before you use it or pass it on."}

## Limits

It writes what resembles its training text, true or not. A model of this size knows no facts to rely on.
"""


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text, got {type(value).__name__} {value!r}.")
