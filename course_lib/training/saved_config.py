"""Whether a run may go on from what another config began."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOT_COMPUTED = frozenset(
    (
        "output",
        "data",
        "tokenizer",
        "evaluate_every",
        "checkpoint_every",
        "keep_checkpoints",
        "model_folder",
        "stored_as",
        "license",
    )
)
"""Fields of where and when; data and tokenizer are paths here, whose content the data's position is checked against."""
ROUNDING = frozenset(
    ("device", "compile", "fused", "chunked_loss", "engine", "model.recompute", "model.checkpointing")
)
"""Fields of how the same numbers are computed."""
SCHEDULE = frozenset(("steps",))
ABSENT = "nothing"


def check_config(path: Path, then: Mapping[str, Any], now: Mapping[str, Any], *, tell: bool = True) -> None:
    """Compare the config of the checkpoint ``path`` with that of the run; ``tell`` warns of what may differ.

    Raises ValueError that names the fields in which it is another training, with both values.
    """
    old, new = _flat(json.loads(json.dumps(then))), _flat(json.loads(json.dumps(now)))
    fields = [name for name in {**old, **new} if old.get(name, ABSENT) != new.get(name, ABSENT)]
    other = [name for name in fields if name not in NOT_COMPUTED | ROUNDING | SCHEDULE]
    if other:
        raise ValueError(
            f"config: expected the one that the checkpoint {path} was written with, got other values of "
            f"{_listed(other, old, new)}. Put them back to go on, or train into another folder."
        )
    rounding = [name for name in fields if name in ROUNDING]
    if rounding and tell:
        warnings.warn(
            f"The checkpoint was written with another {_listed(rounding, old, new)}. Losses will agree with those of a "
            "run that did not stop, but not to the bit.",
            stacklevel=4,
        )
    if "steps" in fields and tell:
        warnings.warn(
            f"The run now has {new['steps']} steps, and had {old['steps']} when the checkpoint was written: from here "
            "on the learning rate follows the schedule of the new number.",
            stacklevel=4,
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _listed(names: list[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} (then {old.get(name, ABSENT)!r}, now {new.get(name, ABSENT)!r})" for name in names
    )
