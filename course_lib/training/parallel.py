"""Training on several devices with PyTorch's own engines: DDP, and FSDP2's ``fully_shard``.

    with processes() as group:                     # torchrun --nproc-per-node 2 -m course_lib train …
        wrapped = wrap(loss_module, "fsdp", group)     # for one process: the module itself
        optimizer = adamw(model, lr=1e-3)              # after wrap, which may put other parameters in place

Every process computes other rows of the same step. Both engines average gradients over the processes, where the mean
over all targets is wanted, and rows have different numbers of them: a process's sum of losses is therefore multiplied
by ``world_size / targets``, targets of all processes. The average of these is the mean.

What one process alone finds out, all must know, or the others wait for ever in the next exchange: losses are summed
before anyone judges them, what only the first process does is reported to all, and an error reaches the others as an
:class:`OtherProcessError` with its sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from .family import build

T = TypeVar("T")
CPU = torch.device("cpu")
ENGINES = ("ddp", "fsdp")
STOPPED = "course_lib/stopped"
"""Where in the processes' common store the first that fails leaves its sentence."""
STOPS = " stopped the run "


class OtherProcessError(RuntimeError):
    """The run ended because of an error in another process, which this one repeats."""


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them. Its methods that exchange must be called by all, in one order."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """The number of this process on its machine: that of its GPU."""
    device: torch.device = CPU
    backend: str | None = None
    """What carries the exchange: "nccl" between GPUs, "gloo" between CPUs, None for one process."""

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    def total(self, *numbers: float) -> tuple[float, ...]:
        """Each number summed over the processes, in float64; the same result on all of them."""
        if self.world_size == 1:
            return tuple(map(float, numbers))
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return tuple(sums.tolist())

    def gather(self, value: T) -> list[T]:
        """``value`` of each process, by rank, on all of them."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def on_first(self, action: Callable[[], T]) -> T | None:
        """What ``action`` returns on the first process, where alone it runs; None on the others, which wait for it.

        Its error is raised on the first process, and on the others as OtherProcessError.
        """
        result, error = None, None
        if self.first:
            try:
                result = action()
            except Exception as caught:
                error = caught
        if self.world_size > 1:
            sentence = [None if error is None else _sentence(self, error)]
            dist.broadcast_object_list(sentence, src=0, device=self.device)
            if sentence[0] is not None and not self.first:
                raise OtherProcessError(sentence[0])
        if error is not None:
            raise error
        return result

    def shares(self, items: Sequence[T]) -> list[tuple[T, bool]]:
        """This process's part of ``items``, and whether each counts: the last ones fill up to equal numbers.

        With FSDP every forward pass is an exchange, so all processes must make equally many.
        """
        rounds = -(-len(items) // self.world_size)
        places = [self.rank + turn * self.world_size for turn in range(rounds)]
        return [(items[min(place, len(items) - 1)], place < len(items)) for place in places]


ONE = Processes()
"""A run of a single process on the CPU."""


@contextmanager
def processes(device: torch.device | str = "auto") -> Iterator[Processes]:
    """The processes that ``torchrun`` started, connected until the end of the block; without torchrun, just this one.

    ``device``: "auto" is this process's GPU where there is one, else the CPU; "cuda" becomes the GPU of this process.
    GPUs exchange through NCCL, CPUs through gloo. A group that stands already is used, and left standing.

    An error in the block is told to the other processes; they leave it with an OtherProcessError that repeats its
    sentence. Raises ValueError for an environment or a device that does not fit.
    """
    group = _found(device)
    if group.device.type == "cuda" and group.device.index is not None:
        torch.cuda.set_device(group.device)
    if group.world_size == 1:
        yield group
        return
    store: dist.Store | None = None
    try:
        if not dist.is_initialized():
            store, rank, world_size = next(iter(dist.rendezvous("env://")))
            gpu = group.device if group.device.type == "cuda" else None
            own = dist.PrefixStore("course_lib/exchange", store)
            # Within the block: another process may have failed while this one still connects.
            dist.init_process_group(group.backend, store=own, rank=rank, world_size=world_size, device_id=gpu)
        yield group
    except BaseException as error:
        _leave(group, store, error)
        raise
    else:
        if store is not None:
            dist.destroy_process_group()


def wrap(module: nn.Module, engine: str, group: Processes) -> nn.Module:
    """``module``, on the device of ``group``, as ``engine`` "ddp" or "fsdp" runs it; itself for a single process.

    The loss must be computed by ``module``'s own ``forward``, around which both engines do their work. "ddp" keeps a
    copy of weights and optimiser in each process and returns a module around ``module``. "fsdp" cuts weights,
    gradients and optimiser state into as many shares as there are processes, in place: it fetches a layer's weights
    when it computes that layer. An optimiser is made after that, of the parameters that are then there; their names
    stay. Every process must bring the same weights. Raises ValueError for another engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine: expected one of {', '.join(map(repr, ENGINES))}, got {engine!r}.")
    if group.world_size == 1:
        return module
    if engine == "ddp":
        devices = [group.device] if group.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)
    mesh = init_device_mesh(group.device.type, (group.world_size,))
    for layer in [layer for part in module.modules() for layer in _layers(part)]:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


@contextmanager
def accumulating(wrapped: nn.Module, *, last: bool) -> Iterator[None]:
    """Around the forward pass of each micro-batch: only the ``last`` of a step exchanges gradients."""
    if isinstance(wrapped, FSDPModule):
        wrapped.set_requires_gradient_sync(last)
        yield
    elif isinstance(wrapped, DistributedDataParallel) and not last:
        with wrapped.no_sync():
            yield
    else:
        yield


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shares, fetched from the other processes where it is cut; itself otherwise."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_as(cut: Tensor, tensor: Tensor) -> Tensor:
    """The share of a whole ``tensor`` that this process has of ``cut``, which is of its shape; itself where not cut.

    Each process brings the whole tensor, so nothing is exchanged.
    """
    if not isinstance(cut, DTensor):
        return tensor
    whole_here = tensor.to(cut.to_local().device)
    return distribute_tensor(whole_here, cut.device_mesh, cut.placements, src_data_rank=None)


def _layers(part: nn.Module) -> list[nn.Module]:
    """Those of a model, which holds them in a list of that name."""
    found = getattr(part, "layers", None)
    return list(found) if isinstance(found, nn.ModuleList) else []


def gathered(model: Any) -> Any:
    """``model`` itself, or where FSDP has cut its weights into shares, a plain one of all of them, on each process."""
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return model
    with torch.device("meta"):
        plain = build(model.config)
    plain.load_state_dict({name: whole(tensor) for name, tensor in model.state_dict().items()}, assign=True)
    plain.tie()
    return plain.train(model.training)


def _found(device: torch.device | str) -> Processes:
    """The processes of torchrun's environment, not yet connected."""
    rank, world_size, local_rank = (
        _variable(name, default) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    if not 0 <= rank < world_size:
        raise ValueError(
            f"RANK: expected 0 to {world_size - 1}, below WORLD_SIZE, got {rank} in the environment. torchrun sets "
            "both; unset them for a run without it."
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if world_size == 1:
        return Processes(device=device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected 'cpu' or 'cuda' for {world_size} processes, got {str(device)!r}.")
    if not dist.is_available():
        raise ValueError(
            f"WORLD_SIZE: expected 1, got {world_size}: this PyTorch is built without torch.distributed."
        )
    if device.type == "cpu":
        return Processes(rank, world_size, local_rank, device, "gloo")
    if local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"device: expected a GPU for each process of this machine, got process {local_rank + 1} and "
            f"{torch.cuda.device_count()} GPUs. Start fewer (torchrun --nproc-per-node), or take device='cpu'."
        )
    return Processes(rank, world_size, local_rank, torch.device("cuda", local_rank), "nccl")


def _variable(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    try:
        return int(value)
    except ValueError:
        raise ValueError(
            f"{name}: expected a whole number in the environment, as torchrun sets it, got {value!r}."
        ) from None


def _sentence(group: Processes, error: BaseException) -> str:
    return f"process {group.rank} of {group.world_size}{STOPS}({type(error).__name__}): {error}"


def _leave(group: Processes, store: dist.Store | None, error: BaseException) -> None:
    """End the exchange because of ``error``. Raises OtherProcessError where that is but the echo of another's."""
    lost = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
    own = None if lost or isinstance(error, OtherProcessError) else _sentence(group, error)
    reason = _reason(store, own)
    if store is not None and group.backend == "gloo" and dist.is_initialized():
        # Wakes those who wait for this process. NCCL's end would itself wait for them: there, torchrun ends them.
        dist.destroy_process_group()
    if isinstance(error, Exception) and own is not None and reason not in (None, own) and _alike(reason, own):
        raise OtherProcessError(reason) from error  # all found the same, and one says it
    if isinstance(error, RuntimeError) and not isinstance(error, OtherProcessError):
        if reason not in (None, own):
            raise OtherProcessError(reason) from error
        if lost:
            raise OtherProcessError(
                f"process {group.rank} of {group.world_size} lost another one, which ended without a word. Was it "
                "killed, for want of memory for example? The newest checkpoint is whole: the run can go on from there."
            ) from error


def _reason(store: dist.Store | None, own: str | None) -> str | None:
    """What the first process that failed left in the ``store``: this one its ``own`` sentence, if it is the first.

    None where nobody did, or the store has gone with its process.
    """
    try:
        if store is None or (own is None and not store.check([STOPPED])):
            return None
        left = store.get(STOPPED) if own is None else store.compare_set(STOPPED, "", own)
        return left.decode("utf-8")
    except RuntimeError:
        return None


def _alike(one: str, other: str) -> bool:
    """Whether two processes stopped with the same sentence."""
    return one.partition(STOPS)[2] == other.partition(STOPS)[2]
