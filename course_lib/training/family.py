"""Which model a config describes. All that training knows of a family is that its class is in ``FAMILIES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.models.families import FAMILIES

DEFAULT = "lean-gpt"
"""What a config without a ``model_type`` is of: ``GPTConfig`` writes none."""


def model_type_of(config: Any) -> str:
    """The name of its family. Raises TypeError for what is no config of one that can be trained."""
    for name, family in FAMILIES.items():
        if isinstance(config, family.config_class):
            return name
    *others, last = [family.config_class.__name__ for family in FAMILIES.values()]
    raise TypeError(
        f"model: expected a {', '.join(others)} or {last}, got {type(config).__name__} {config!r}."
    )


def build(config: Any, *, seed: int = 0) -> Any:
    """The model that ``config`` describes, with the weights of ``seed``."""
    return FAMILIES[model_type_of(config)](config, seed=seed)


def config_from_dict(values: Mapping[str, Any]) -> Any:
    """The config that ``to_dict`` of one wrote. Raises ValueError for a family that is not known."""
    name = values.get("model_type", DEFAULT)
    if name not in FAMILIES:
        raise ValueError(f"model: expected one of the types {', '.join(map(repr, FAMILIES))}, got {name!r}.")
    return FAMILIES[name].config_class.from_dict(values)
