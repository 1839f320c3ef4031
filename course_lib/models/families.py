"""The families of models by the name that config.json has for them, each a class with its ``config_class``."""

from __future__ import annotations

from typing import Any

from .gpt import GPT, MODEL_TYPE

FAMILIES: dict[str, Any] = {MODEL_TYPE: GPT}
