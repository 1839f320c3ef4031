"""The families of models by the name that config.json has for them, each a class with its ``config_class``."""

from __future__ import annotations

from typing import Any

from .bloom import Bloom
from .gpt import GPT
from .opt import OPT

FAMILIES: dict[str, Any] = {family.model_type: family for family in (GPT, OPT, Bloom)}
