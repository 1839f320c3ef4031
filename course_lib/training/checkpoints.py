"""A run of training as a folder that it can go on from, as if it had not stopped.

    checkpoints/step-00000100/model.safetensors       the weights
                              optimizer.safetensors   AdamW's two averages and its count, by the parameter's name
                              state.json              config, position in the data, loss scale, generators, checksums

A checkpoint is written in a hidden folder, brought to the disk, and then renamed: it is there whole or not at all. Only
then do older ones go. What a killed process left hidden is cleared away by the next. state.json holds the checksums of
the other files and its own, so files that are cut short, damaged or of two saves are found, and named.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from course_lib.attention.bias import as_whole_number

from .checkpoint_folder import MODEL, OPTIMIZER, checked_content, checkpoints_in, tidy, write_folder
from .generators import generator_states, set_generator_states
from .parallel import ONE, Processes, shared_as, whole
from .saved_config import check_config


@dataclass(frozen=True)
class SavedRun:
    """What a checkpoint says besides weights and optimiser: ``state`` as it was given, after ``step`` steps."""

    step: int
    state: dict[str, Any]
    config: dict[str, Any]


def write_checkpoint(
    folder: str | Path,
    *,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: Mapping[str, Any],
    state: Mapping[str, Any],
    keep: int = 2,
    processes: Processes = ONE,
) -> Path:
    """Write ``folder``/step-…; then remove all but the newest ``keep``. All processes call it, the first one writes.

    ``step``: how many are done. ``state``: what else the run needs, as JSON can hold it; the states of the global
    generators, the thread count and the like are added. Weights that FSDP has cut are put together. Checkpoints of
    later steps are removed as well: they lie in a future that the run has left by going on from an older one. A folder
    belongs to one run at a time.

    Raises OSError, which says where and why, with what was there left whole; ValueError for an optimiser of parameters
    that ``model`` has not, TypeError for what JSON cannot hold.
    """
    config, state = _plain("config", config), _plain("state", state)
    step, keep = as_whole_number("step", step, 0), as_whole_number("keep", keep, 1)
    folder = Path(folder).expanduser()
    tensors: dict[str, dict[str, Tensor]] = {MODEL: {}, OPTIMIZER: {}}
    for file, name, tensor in _all_tensors(model, optimizer):
        full = whole(tensor.detach())  # an exchange: each process takes part
        if processes.first:
            tensors[file][name] = full.cpu().contiguous()
    content = {
        "step": step,
        "save": uuid.uuid4().hex,
        "config": config,
        "state": state,
        "optimizer": _plain_values(model, optimizer),
        "generators": processes.gather(generator_states()),
        "made_with": _circumstances(model, processes),
    }
    path = folder / f"step-{step:08d}"
    processes.on_first(lambda: write_folder(path, tensors, content, keep))
    return path


def latest_checkpoint(folder: str | Path) -> Path | None:
    """The checkpoint of the most steps in ``folder``, or None; clears away what a killed process left half-written."""
    folder = Path(folder).expanduser()
    tidy(folder)
    found = checkpoints_in(folder)
    return found[-1] if found else None


def read_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    config: Mapping[str, Any],
    processes: Processes = ONE,
) -> SavedRun:
    """Put ``model``, ``optimizer`` and the global generators in the state of the checkpoint, and return the rest.

    Each process reads the files, and cuts its shares where FSDP has cut the model: the number of processes need not be
    that of the save. A warning says what is no longer the same: the number of threads or processes, PyTorch, the
    processor, or a field of the config that does not change what is computed. Losses then agree, but not to the bit.

    Raises FileNotFoundError for a file that is missing; ValueError, naming the file, for one that is cut short,
    damaged or of another save, and naming the fields, for a ``config`` of another training. Nothing is changed then.
    """
    path = Path(path).expanduser()
    content = checked_content(path)
    check_config(path, content["config"], config, tell=processes.first)
    stored = {file: load_file(path / file) for file in (MODEL, OPTIMIZER)}
    weights = _weights(model)
    _check_tensors(path / MODEL, stored[MODEL], weights)
    saved_state = _optimizer_state(path, stored[OPTIMIZER], content["optimizer"], model, optimizer)
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(shared_as(tensor, stored[MODEL][name]))
    optimizer.load_state_dict({**optimizer.state_dict(), "state": saved_state})
    if processes.rank < len(content["generators"]):
        set_generator_states(content["generators"][processes.rank])
    if processes.first:
        _tell_differences(content["made_with"], _circumstances(model, processes))
    return SavedRun(content["step"], content["state"], content["config"])


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Those of the state dict, a tensor with two names (a tied head) once."""
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return dict(named.values())


def _all_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[str, str, Tensor]]:
    """(file, name, tensor), in the same order on each process."""
    found = [(MODEL, name, tensor) for name, tensor in _weights(model).items()]
    for parameter, name in _names(model, optimizer).items():
        values = optimizer.state.get(parameter, {})
        found += [(OPTIMIZER, f"{name}.{key}", v) for key, v in values.items() if isinstance(v, Tensor)]
    return found


def _plain(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(values)))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: expected a dict that JSON can hold, got something else ({error})."
        ) from None


def _plain_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """What an optimiser other than AdamW may keep for a parameter besides tensors."""
    plain = {
        name: {key: v for key, v in optimizer.state.get(p, {}).items() if not isinstance(v, Tensor)}
        for p, name in _names(model, optimizer).items()
    }
    return {name: values for name, values in plain.items() if values}


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, str]:
    """The name of each parameter that the optimiser moves, in its order."""
    known = {parameter: name for name, parameter in model.named_parameters()}
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    strange = [list(parameter.shape) for parameter in moved if parameter not in known]
    if strange:
        raise ValueError(
            f"optimizer: expected one of the parameters of model, got one of shape {strange[0]} that model does not "
            "have. Was the optimizer made before the model was wrapped or loaded anew?"
        )
    return {parameter: known[parameter] for parameter in moved}


def _circumstances(model: nn.Module, processes: Processes) -> dict[str, Any]:
    """What decides how sums are rounded."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    return {
        "threads": torch.get_num_threads(),
        "processes": processes.world_size,
        "PyTorch": torch.__version__,
        "processor": torch.cuda.get_device_name(device)
        if on_gpu
        else torch.backends.cpu.get_cpu_capability(),
    }


def _tell_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    other = [
        f"{name} (then {then.get(name)}, now {value})"
        for name, value in now.items()
        if then.get(name) != value
    ]
    if other:
        warnings.warn(
            f"The checkpoint was written with other {', '.join(other)}: sums are rounded in another order. Losses will "
            "agree with those of a run that did not stop, but not to the bit.",
            stacklevel=4,
        )


def _check_tensors(path: Path, stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Names, shapes and dtypes, before anything is put in place."""
    odd = sorted(stored.keys() ^ wanted.keys())
    if odd:
        where = "only in the file" if odd[0] in stored else "only in the model"
        raise ValueError(f"model: expected the one of the checkpoint, got {odd[0]} {where} ({path}).")
    for name, tensor in wanted.items():
        then, now = stored[name], tensor
        if then.shape != now.shape or then.dtype != now.dtype:
            raise ValueError(
                f"model: expected {name} as in the checkpoint, {_kind(then)}, got {_kind(now)} ({path})."
            )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _optimizer_state(
    path: Path,
    stored: Mapping[str, Tensor],
    plain: Mapping[str, Mapping[str, Any]],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[int, dict[str, Any]]:
    """As ``load_state_dict`` takes it, by the parameter's number, each tensor cut as its parameter is."""
    values: dict[str, dict[str, Any]] = {name: dict(own) for name, own in plain.items()}
    for full_name, tensor in stored.items():
        name, _, key = full_name.rpartition(".")
        values.setdefault(name, {})[key] = tensor
    names = _names(model, optimizer)
    strange = sorted(values.keys() - set(names.values()))
    if strange:
        raise ValueError(
            f"optimizer: expected one that moves {strange[0]}, as in the checkpoint, got one that does not ({path})."
        )
    state: dict[int, dict[str, Any]] = {}
    for number, (parameter, name) in enumerate(names.items()):
        if name in values:
            # Cloned, since what was read is a window on a file that is to be removed one day. A count has no
            # dimension, and is the same for all shares.
            state[number] = {
                key: (shared_as(parameter, v) if v.dim() else v).clone() if isinstance(v, Tensor) else v
                for key, v in values[name].items()
            }
    return state
