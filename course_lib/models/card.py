"""The card that goes with a saved model: what it is, what it was trained on, who may use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .gpt_config import GPTConfig

POSITIONS = {
    "alibi": "ALiBi",
    "rotary": "rotary",
    "learned": "learned",
    "none": "none; order is what the causal mask reveals",
}
FEED_FORWARDS = {"swiglu": "SwiGLU", "gelu": "GELU"}
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def model_card(
    config: GPTConfig,
    num_parameters: int,
    *,
    trained: str = "",
    license: str = "",
    languages: Sequence[str] = (),
) -> str:
    """README.md of a saved model, as Markdown with the YAML header that model hubs read.

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
    shared = "" if config.kv_heads == config.num_heads else f", {config.kv_heads} of keys and values"
    rows = [
        ("parameters", f"{num_parameters:,}"),
        ("layers", f"{config.num_layers}, {config.dim} numbers wide"),
        ("heads", f"{config.num_heads} of {config.head_width}{shared}"),
        ("feed-forward", f"{FEED_FORWARDS[config.feed_forward]}, {config.hidden_width} wide"),
        ("norm", f"{NORMS[config.norm]}, before attention and feed-forward"),
        ("positions", POSITIONS[config.positions]),
        ("context", f"{config.max_length:,} tokens"),
        (
            "vocabulary",
            f"{config.vocab_size:,} tokens; output head {'tied' if config.tied_head else 'untied'}",
        ),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"""{chr(10).join(header)}

# A GPT of {num_parameters:,} parameters

A causal language model: it continues text, one token at a time.

| | |
|---|---|
{table}

## Use

```python
from course_lib.models import GPT

model = GPT.load("this folder")
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
