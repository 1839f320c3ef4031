"""What stands between the two products of a feed-forward, by the names that config.json has for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

_tanh = partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": _tanh,
    "gelu_pytorch_tanh": _tanh,
    "silu": F.silu,
    "swish": F.silu,
}
