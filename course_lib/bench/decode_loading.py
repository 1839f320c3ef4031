"""What loading a checkpoint takes: anonymous memory at its peak, beside the model that it makes.

The checkpoint is made for it, of random weights, one shard after the other, and removed afterwards.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..models import OPT, OPTConfig, load_model
from .memory import workspaces

FILES = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin"}


def load_memory(
    config: OPTConfig | None = None,
    *,
    files: str = "safetensors",
    dtype: torch.dtype = torch.float16,
    loaded: torch.dtype | None = None,
    shard_bytes: int = 500_000_000,
) -> float:
    """The peak of loading an OPT from shards of ``files`` ("safetensors" or "bin"), over the bytes of the model.

    ``config`` None: a 1.3b-sized one. ``dtype`` is how it is stored, ``loaded`` what it becomes (None: the same). The
    folder lies where temporary files do and takes the bytes of the checkpoint (2.6 GB at 1.3b in fp16).
    """
    config = OPTConfig.of_size("opt-1.3b") if config is None else config
    with tempfile.TemporaryDirectory(prefix="loading-", ignore_cleanup_errors=True) as folder:
        write_shards(Path(folder), config, files, dtype, shard_bytes)
        setting = {"folder": folder, "dtype": None if loaded is None else str(loaded).removeprefix("torch.")}
        (above,) = workspaces("course_lib.bench.decode_loading:load_work", [setting], maps_files=True)
    with torch.device("meta"):
        model = OPT(config)
    size = model.num_parameters() * (dtype if loaded is None else loaded).itemsize
    return (above + size) / size


def load_work(folder: str, dtype: str | None) -> Callable[[], list[Tensor]]:
    """The load that is measured. One of a tiny model goes before it and brings in the code and its tables."""
    kind = None if dtype is None else getattr(torch, dtype)
    tiny = OPTConfig(vocab_size=64, dim=16, num_layers=1, num_heads=2, max_length=8)
    suffix = "bin" if any(Path(folder).glob("*.bin")) else "safetensors"
    with tempfile.TemporaryDirectory() as first:
        write_shards(Path(first), tiny, suffix, torch.float16, 10_000)
        load_model(first, dtype=kind)
    # Each weight counts once: a tied head's is the embedding's.
    return lambda: list(load_model(folder, dtype=kind).parameters())


def write_shards(folder: Path, config: OPTConfig, files: str, dtype: torch.dtype, shard_bytes: int) -> None:
    """A checkpoint in Hugging Face's layout with an index, of which no more than a shard is ever in memory."""
    with torch.device("meta"):
        model = OPT(config)
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
    if not config.tied_head:
        state["head.weight"] = model.head.weight
    generator = torch.Generator().manual_seed(0)
    name = FILES[files]
    weight_map: dict[str, str] = {}
    stem, suffix = name.rsplit(".", 1)
    for number, shapes in enumerate(_shards(model.to_stored(state), dtype.itemsize, shard_bytes), start=1):
        shard = {
            stored: (torch.randn(shape, generator=generator) * config.init_std).to(dtype)
            for stored, shape in shapes.items()
        }
        file = f"{stem}-{number:05d}.{suffix}"
        save_file(shard, folder / file) if suffix == "safetensors" else torch.save(shard, folder / file)
        weight_map |= dict.fromkeys(shard, file)
    for path, content in {
        f"{name}.index.json": {"metadata": {}, "weight_map": weight_map},
        "config.json": {"model_type": OPT.model_type, **config.to_dict()},
    }.items():
        (folder / path).write_text(json.dumps(content), encoding="utf-8")


def _shards(state: dict[str, Tensor], itemsize: int, shard_bytes: int) -> Iterator[dict[str, torch.Size]]:
    """Names and shapes, as many to a shard as ``shard_bytes`` hold, at least one."""
    shard: dict[str, torch.Size] = {}
    size = 0
    for name, tensor in state.items():
        more = tensor.numel() * itemsize
        if shard and size + more > shard_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor.shape
        size += more
    yield shard
