"""What lesson 06 claims of SwiGLU: what it keeps for the backward if it computes the rest again, and at what cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..swiglu import SwiGLU, matched_hidden_features
from .comparison import Comparison, Step
from .saved import saved_bytes

WIDTH = 512
RECOMPUTED, FUSED, EAGER = "swiglu, recomputed", "swiglu, eager, one product", "swiglu, eager"


class EagerSwiGLU(nn.Module):
    """As Llama's is written: a product for the gate, one for what passes, one back."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(dim, hidden), nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.w3(F.silu(self.w1(x)) * self.w2(x))


MAKERS: dict[str, Callable[[int, int], nn.Module]] = {
    RECOMPUTED: lambda dim, hidden: SwiGLU(dim, hidden, recompute=True),
    FUSED: lambda dim, hidden: SwiGLU(dim, hidden),
    EAGER: EagerSwiGLU,
}


def layers(device: str = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, nn.Module]:
    """The three ways, of width 512 and 1,368 hidden numbers, with the same weights."""
    hidden = matched_hidden_features(WIDTH)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {way: make(WIDTH, hidden) for way, make in MAKERS.items()}
    weights = made[EAGER].state_dict()  # its halves are joined as they are loaded
    for layer in made.values():
        layer.load_state_dict(weights)
    return {way: layer.to(device, dtype) for way, layer in made.items()}


def drawn_input(tokens: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    """[1, tokens, 512], which wants a gradient as inside of a model."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(1, tokens, WIDTH, generator=generator, device=device)
    return x.to(dtype).requires_grad_()


def training_step(layer: nn.Module, x: Tensor) -> Step:
    """Forward, and backward to the input and every parameter."""
    wanted = [x, *layer.parameters()]
    grad_out = torch.ones_like(x)

    def run() -> list[Tensor]:
        out = layer(x)
        return [out.detach(), *torch.autograd.grad(out, wanted, grad_out)]

    return run


def measure(bench: Comparison, *, tokens: int, dtypes: list[torch.dtype]) -> None:
    """``swiglu.saved`` and ``swiglu.time``, against the usual eager code; eager with one product is a further row."""
    for dtype in dtypes:
        facts: dict[str, Any] = {"length": tokens, "dtype": str(dtype).removeprefix("torch.")}
        made, x = layers(bench.device, dtype), drawn_input(tokens, bench.device, dtype)
        saved = {way: saved_bytes(partial(layer, x)) for way, layer in made.items()}
        bench.report.rows += [
            {"name": f"saved, {way}", **facts, "saved_bytes": size} for way, size in saved.items()
        ]
        steps = {way: training_step(layer, x) for way, layer in made.items()}
        times = bench.time(RECOMPUTED, steps[RECOMPUTED], EAGER, steps[EAGER], **facts)
        bench.time(RECOMPUTED, steps[RECOMPUTED], FUSED, steps[FUSED], **facts)
        if dtype == torch.float32:
            bench.claim("swiglu.saved", saved[RECOMPUTED] / saved[EAGER], "<= 0.25")
            bench.claim("swiglu.time", times.ratio, "<= 1.3")
