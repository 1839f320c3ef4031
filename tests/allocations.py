"""What a piece of work allocates, seen from outside: tensor by tensor, and as PyTorch's CPU allocator counts."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    """Notes the largest memory, in ``entries`` and in ``bytes``, that a tensor which an operation returns keeps alive,
    and the ``operation`` that returned the one with most entries.

    Counted by storage: a view of four entries may keep millions alive, an expanded one has few.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries = self.bytes = 0
        self.operation = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.device.type == "cpu":
                size = leaf.untyped_storage().nbytes()
                self.bytes = max(self.bytes, size)
                if size // leaf.element_size() > self.entries:
                    self.entries, self.operation = size // leaf.element_size(), str(func)
        return result


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that PyTorch's CPU allocator held during `work` above what it held before.

    Unlike a look at tensors this sees what kernels allocate inside.
    """
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        work()
    held = peak = 0
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
