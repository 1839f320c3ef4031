"""How large the gradients of a model are, number by number, and in which dtype its parts compute under autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.models import GPT
from course_lib.packing import Packed, PackedBatch, next_token_targets

LOWEST, HIGHEST = -90, 40
"""Powers of two between which gradients are sorted; smaller and larger ones count at the ends."""
VANISHES = -25
"""fp16 rounds what lies below 2**-25 to 0: half of its smallest number, 2**-24."""


@dataclass
class Sizes:
    """How many numbers are how large: ``counts[i]`` in [2**(LOWEST + i), twice that). Zeros are left out."""

    counts: Tensor = field(default_factory=lambda: torch.zeros(HIGHEST - LOWEST + 1, dtype=torch.int64))
    largest: float = 0.0

    def add(self, numbers: Tensor) -> None:
        size = numbers.detach().float().abs().flatten()
        size = size[size > 0]
        if size.numel():
            exponents = torch.frexp(size).exponent.clamp(LOWEST + 1, HIGHEST + 1).long() - 1 - LOWEST
            self.counts += torch.bincount(exponents, minlength=len(self.counts))
            self.largest = max(self.largest, float(size.max()))

    def share_below(self, power: int) -> float:
        """Which share of the numbers is smaller than ``2**power``."""
        return int(self.counts[: max(0, power - LOWEST)].sum()) / max(1, int(self.counts.sum()))

    def shares(self, low: int, high: int) -> list[float]:
        """The share of each power of two from ``low`` to ``high``."""
        total = max(1, int(self.counts.sum()))
        return [int(self.counts[power - LOWEST]) / total for power in range(low, high + 1)]


@contextmanager
def _watched(model: nn.Module, see: Callable[[str, Tensor], None]) -> Iterator[None]:
    """``see(name, gradient)`` of what each part without parts gives, during a backward within."""

    def watch(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(lambda gradient: see(name, gradient))

        return hook

    parts = [(name, part) for name, part in model.named_modules() if name and not list(part.children())]
    handles = [part.register_forward_hook(watch(name)) for name, part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def gradient_sizes(model: GPT, batch: PackedBatch) -> Mapping[str, Sizes]:
    """The sizes of all gradients of the mean loss over ``batch``, in float32.

    "logits" are those that arrive at the head's output, "layers" at the outputs of all parts below, "weights" what
    the optimiser gets. The gradients of the weights are dropped afterwards.
    """
    found = {"logits": Sizes(), "layers": Sizes(), "weights": Sizes()}

    def see(name: str, gradient: Tensor) -> None:
        found["logits" if name == "head" else "layers"].add(gradient)

    with _watched(model, see):
        packed_loss(model, batch).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            found["weights"].add(parameter.grad)
    model.zero_grad(set_to_none=True)
    return found


def packed_loss(model: GPT, batch: PackedBatch) -> Tensor:
    """The mean loss of a packed row, from all of its logits; under autocast they are taken as they come."""
    bias = Packed(batch.lengths, inner=model.attention_bias)
    logits = model(batch.tokens, positions=batch.positions, bias=bias)
    return nn.functional.cross_entropy(logits[0], next_token_targets(batch)[0])


def dtypes_inside(model: GPT, tokens: Tensor, dtype: torch.dtype) -> list[tuple[str, str, str, str]]:
    """(part, its weights, what goes in, what comes out) of the first layer and of what surrounds the layers."""
    rows: list[tuple[str, str, str, str]] = []

    def note(name: str) -> Callable[..., None]:
        def hook(part: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            rows.append(
                (name, short(next(part.parameters()).dtype), short(inputs[0].dtype), short(output.dtype))
            )

        return hook

    shown = ("embed", "layers.0.", "norm", "head")
    parts = [
        (name, part)
        for name, part in model.named_modules()
        if name.startswith(shown) and not list(part.children())
    ]
    handles = [part.register_forward_hook(note(name)) for name, part in parts]
    try:
        with torch.no_grad(), torch.autocast(tokens.device.type, dtype):
            model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return rows


def short(dtype: torch.dtype) -> str:
    """fp32 for torch.float32, and so on."""
    names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "int64"}
    return names.get(dtype, str(dtype).removeprefix("torch."))


_FIRST = -37
MEASURED = (
    1, 1, 2, 4, 7, 11, 21, 46, 201, 854, 1537, 1230, 881, 892, 984, 973, 799, 618, 389, 203, 116, 86, 75, 42, 15, 7, 4,
    1,
)  # fmt: skip
"""Ten thousandths of the gradients, at the logits and in the layers, in each power of two from 2**-37 on: of the
lesson's GPT after 60 steps on the course's data, for 2,048 tokens of the corpus, in float32."""


def measured_beforehand() -> dict[int, float]:
    """``MEASURED`` as power of two -> share."""
    return {_FIRST + i: count / sum(MEASURED) for i, count in enumerate(MEASURED)}
