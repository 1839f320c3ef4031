"""The states of all global random generators as plain data: PyTorch's of the CPU and GPUs, Python's and NumPy's.

The course's own training draws nothing from them, but a function that a user passes in may.
"""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy
import torch


def generator_states() -> dict[str, Any]:
    """As JSON can hold them; :func:`set_generator_states` puts them back."""
    version, words, gauss = random.getstate()
    states = {
        "torch": _text(torch.get_rng_state().numpy()),
        "python": [version, _text(numpy.array(words, dtype="<u8")), gauss],
        "numpy": _with_arrays_as_text(numpy.random.get_state(legacy=False)),
    }
    # Without a GPU in use there is nothing to save, and asking for it would start one.
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = [_text(state.numpy()) for state in torch.cuda.get_rng_state_all()]
    return states


def set_generator_states(states: dict[str, Any]) -> None:
    """Let all generators go on from ``states``; those of GPUs as far as there are as many here."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(_array(words).tolist()), gauss))
    numpy.random.set_state(_with_text_as_arrays(states["numpy"]))
    torch.set_rng_state(torch.from_numpy(_array(states["torch"])))
    if torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states.get("cuda", ()), strict=False):
            torch.cuda.set_rng_state(torch.from_numpy(_array(state)), device)


def _text(array: numpy.ndarray) -> dict[str, str]:
    little = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": little.dtype.str, "base64": base64.b64encode(little.tobytes()).decode("ascii")}


def _array(text: dict[str, str]) -> numpy.ndarray:
    return numpy.frombuffer(base64.b64decode(text["base64"]), dtype=text["dtype"]).copy()


def _with_arrays_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_arrays_as_text(part) for key, part in value.items()}
    if isinstance(value, numpy.ndarray):
        return _text(value)
    return value.item() if isinstance(value, numpy.generic) else value


def _with_text_as_arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "base64"}:
        return _array(value)
    return {key: _with_text_as_arrays(part) for key, part in value.items()}
