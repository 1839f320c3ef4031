"""xFormers' SwiGLU for lesson 06, and what stands in for it where xFormers is not installed."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.attention.xformers_bridge import xformers_ops


class EagerSwiGLU(nn.Module):
    """What ``xformers.ops.SwiGLU`` does since its release 0.0.34: three plain products, of tokens laid in one row.

    Its parameters, results and refusals are those of xFormers' module, a batch without tokens included.
    """

    def __init__(
        self, in_features: int, hidden_features: int, out_features: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.w12 = nn.Linear(in_features, 2 * hidden_features, bias=bias)
        self.w3 = nn.Linear(hidden_features, in_features if out_features is None else out_features, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        w1, w2 = self.w12.weight.chunk(2)
        b1, b2 = (None, None) if self.w12.bias is None else self.w12.bias.chunk(2)
        rows = x.reshape(-1, x.shape[-1])
        hidden = F.silu(F.linear(rows, w1, b1)) * F.linear(rows, w2, b2)
        return self.w3(hidden).reshape(*x.shape[:-1], -1)


def xformers_swiglu() -> Any:
    """The class ``xformers.ops.SwiGLU``; :class:`EagerSwiGLU` where xFormers is not installed."""
    ops = xformers_ops()
    return EagerSwiGLU if ops is None else ops.SwiGLU
