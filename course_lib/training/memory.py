"""How much memory training takes, and when: predicted from shapes, before a model is built.

    print(memory_budget(TrainConfig(model=GPTConfig(...), steps=1000)).table())
    training_memory(model_config, rows=64, length=512, attention="dense", chunked_loss=False).peak

A step passes four moments, and each holds something else beside the weights and the two averages that AdamW keeps of
each:

    forward     the activations so far, and the layer at work
    loss        all activations, and the logits
    backward    the activations not yet used and the gradients made so far: layer by layer the one goes, the other comes
    optimizer   all gradients, and what the update needs on the way

The peak is the largest of the four. What is counted is what PyTorch's tensors take; Python and PyTorch themselves hold
some 200 to 400 MiB more, and CUDA as much again of the GPU. In half precision a CPU also keeps a kernel, half a MiB,
that it compiles for each shape of a product: 15 to 30 MiB for rows of one length, more where lengths differ.
``course_lib.training.activations`` has the formulas of what the parts of the model keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from course_lib.attention.bias import as_whole_number

from .activations import FP32, INDEX, Shapes, stages
from .config import TrainConfig
from .loss import CHUNK_ENTRIES, LARGEST_CHUNK
from .parts import parts_of
from .precision import NAMES, choose_precision
from .progress import bytes_text

ATTENTIONS = ("memory-efficient", "dense")
PARTS = (
    "weights",
    "optimizer state",
    "gradients",
    "batch",
    "activations",
    "half-precision weights",
    "logits",
    "workspace",
)
"""What a moment may hold."""


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of one training step on one device.

    ``moments``: for "forward", "loss", "backward" and "optimizer" what is held at its highest point, by part.
    ``activations``: what the forward keeps for the backward, by kind.
    """

    moments: dict[str, dict[str, int]]
    activations: dict[str, int]

    @property
    def totals(self) -> dict[str, int]:
        """Bytes at the highest point of each moment."""
        return {name: sum(held.values()) for name, held in self.moments.items()}

    @property
    def moment(self) -> str:
        """The one with the peak."""
        return max(self.totals, key=lambda name: self.totals[name])

    @property
    def peak(self) -> int:
        return self.totals[self.moment]

    @property
    def parameters(self) -> int:
        return self.moments["optimizer"]["weights"]

    @property
    def gradients(self) -> int:
        return self.moments["optimizer"]["gradients"]

    @property
    def optimizer(self) -> int:
        """AdamW's state."""
        return self.moments["optimizer"]["optimizer state"]

    @property
    def logits(self) -> int:
        """What the loss holds: of all tokens, or of a chunk with the gradients that it has made."""
        return self.moments["loss"]["logits"]

    def table(self) -> str:
        """Parts by moments in aligned text, the peak marked, then the activations by kind."""
        names = list(self.moments)
        rows = [["", *names]]
        for part in PARTS:
            sizes = [held.get(part, 0) for held in self.moments.values()]
            if any(sizes):
                rows.append([part, *(bytes_text(size) if size else "·" for size in sizes)])
        rows.append(["total", *(bytes_text(total) for total in self.totals.values())])
        rows.append(["", *("▲ peak" if name == self.moment else "" for name in names)])
        rows.append(["activations", *[""] * len(names)])
        rows += [
            [f"  {kind}", bytes_text(size), *[""] * (len(names) - 1)]
            for kind, size in sorted(self.activations.items(), key=lambda item: -item[1])
        ]
        first = max(len(row[0]) for row in rows)
        widths = [max(len(row[i]) for row in rows) for i in range(1, len(names) + 1)]
        lines = (
            row[0].ljust(first)
            + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)


def memory_budget(config: TrainConfig, *, attention: str = "memory-efficient") -> MemoryBudget:
    """The memory of a step of ``train(config)`` on one device, with rows as full as ``batch_tokens`` allows.

    A precision of "auto" is decided as ``train`` decides it, by measuring. With "ddp" each process holds this much and
    buckets of the size of the gradients; with "fsdp" weights, optimiser and gradients are shared out. A compiled model
    keeps less, by what its compiler finds to compute again.
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(
            f"config: expected a TrainConfig, got {type(config).__name__}. Of a model's config alone, "
            "training_memory(config, length=...) speaks."
        )
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = choose_precision(device, config.precision).dtype
    return training_memory(
        config.model,
        length=config.batch_tokens,
        attention=attention,
        precision=next(name for name, known in NAMES.items() if known == dtype),
        chunked_loss=config.chunked_loss,
        fused=config.fused,
        accumulate=config.rows_per_step > 1,
        device=torch.device(device).type,
    )


def training_memory(
    model: Any,
    *,
    length: int,
    rows: int = 1,
    attention: str = "memory-efficient",
    precision: str = "fp32",
    chunked_loss: bool = True,
    fused: bool | None = None,
    accumulate: bool = False,
    device: str = "cpu",
) -> MemoryBudget:
    """The memory of a step with AdamW over ``rows`` rows of ``length`` slots, padding included, computed at once.

    Packed documents are one row of all their tokens; a padded batch has a row a document, each as long as the longest.
    ``attention`` "dense" keeps a weight for every pair of slots of a row. ``precision`` is "fp32", "bf16" or "fp16",
    the latter two under autocast. ``chunked_loss``: ``chunked_cross_entropy``, or the logits of all tokens. ``fused``:
    AdamW as one kernel; None: what PyTorch chooses. ``accumulate``: whether the gradients of other rows are there
    already. ``device`` "cpu" or "cuda".

    Raises TypeError or ValueError for what is none of these.
    """
    parts = parts_of(model)
    rows, length = as_whole_number("rows", rows, 1), as_whole_number("length", length, 1)
    for name, value, known in (
        ("attention", attention, ATTENTIONS),
        ("precision", precision, tuple(NAMES)),
        ("device", device, ("cpu", "cuda")),
    ):
        if value not in known:
            raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}.")
    shapes = Shapes(parts, rows, length, attention == "dense", NAMES[precision].itemsize, device)
    return _Step(shapes, precision, chunked_loss, fused, accumulate).budget()


class _Step:
    """Walks through a step, forth and back, and notes what is held at the highest point of each moment."""

    def __init__(
        self, shapes: Shapes, precision: str, chunked: bool, fused: bool | None, accumulate: bool
    ) -> None:
        self.shapes, self.precision, self.chunked, self.fused = shapes, precision, chunked, fused
        self.accumulate = accumulate
        config = shapes.config
        self.stages = stages(shapes)
        self.head = config.vocab_size * config.embed_width * FP32
        self.weights = sum(stage.gradient for stage in self.stages) + (0 if config.tied_head else self.head)
        self.held = {
            "weights": self.weights,
            "optimizer state": 2 * self.weights,
            "batch": 3 * INDEX * shapes.tokens,
        }

    def budget(self) -> MemoryBudget:
        kinds: dict[str, int] = {}
        for stage in self.stages:
            for kind, size in stage.saved.items():
                kinds[kind] = kinds.get(kind, 0) + size
        moments = {
            "forward": self._largest(self._forward()),
            "loss": self.held | self._loss(),
            "backward": self._largest(self._backward()),
            "optimizer": self.held | self._update(),
        }
        return MemoryBudget(moments, kinds)

    def _largest(self, points: list[dict[str, int]]) -> dict[str, int]:
        return self.held | max(points, key=lambda point: sum(point.values()))

    @property
    def _before(self) -> int:
        """Gradients that are there before the first backward."""
        return self.weights if self.accumulate else 0

    def _forward(self) -> list[dict[str, int]]:
        points, kept, copies = [], 0, 0
        for stage in self.stages:
            points.append(
                {
                    "gradients": self._before,
                    "activations": kept,
                    "half-precision weights": copies,
                    "workspace": stage.kept + stage.forward,
                }
            )
            kept, copies = kept + stage.kept, copies + stage.copies
        return points

    def _loss(self) -> dict[str, int]:
        shapes, config = self.shapes, self.shapes.config
        entries = shapes.tokens * config.vocab_size
        head = self.head * shapes.itemsize // FP32 if shapes.half else 0
        if not self.chunked:
            # Logits and their logarithms, both in fp32.
            logits = entries * 2 * FP32
        else:
            entries = (
                min(shapes.tokens, LARGEST_CHUNK, CHUNK_ENTRIES // config.vocab_size) * config.vocab_size
            )
            logits = entries * (2 * FP32 + (shapes.itemsize if shapes.half else 0)) + self._of_loss
        return {
            "gradients": self._before,
            "activations": sum(stage.kept for stage in self.stages) + self._head_input,
            "half-precision weights": sum(stage.copies for stage in self.stages) + head,
            "logits": logits,
        }

    @property
    def _head_input(self) -> int:
        if self.shapes.config.embed_width != self.shapes.config.dim:
            return self.shapes.head_input
        return self.shapes.normed if self.chunked else self.shapes.product_input(1)

    @property
    def _of_loss(self) -> int:
        """Gradients that the chunked loss makes in the forward: of what the head reads, and of its weight."""
        return 0 if self.precision == "fp16" else self.shapes.head_input_fp32 + self.head

    def _backward(self) -> list[dict[str, int]]:
        shapes, config = self.shapes, self.shapes.config
        kept = sum(stage.kept for stage in self.stages)
        copies = sum(stage.copies for stage in self.stages)
        points = []
        entries = shapes.tokens * config.vocab_size
        # The loss itself.
        if not self.chunked:
            head = self.head * shapes.itemsize // FP32 if shapes.half else 0
            points.append(
                {
                    "gradients": self._before,
                    "activations": kept + self._head_input,
                    "half-precision weights": copies + head,
                    "logits": 3 * entries * FP32,
                }
            )
        elif self.precision == "fp16":
            # Its gradients are of the scaled loss, so they are made now, and the logits once more.
            again = self._loss()
            points.append(again | {"logits": again["logits"] + shapes.stream + self.head})
        if config.checkpointing == "layers":
            copies = 0
        made = self.head
        for stage in reversed(self.stages):
            own = stage.gradient if stage.early is None else stage.early
            points.append(
                {
                    "gradients": self._before + own + (0 if self.accumulate else made),
                    "activations": kept,
                    "half-precision weights": copies,
                    "workspace": stage.again + stage.backward + shapes.stream,
                }
            )
            kept, made = kept - stage.kept, made + stage.gradient
            copies = max(0, copies - stage.copies)
        return points

    def _update(self) -> dict[str, int]:
        config = self.shapes.config
        feed_forward = (2 if config.feed_forward == "swiglu" else 1) * config.hidden_width
        rows = max(config.vocab_size, config.num_heads * config.head_width, feed_forward)
        largest = rows * config.dim * FP32
        # One parameter after the other on a CPU, all together on a GPU.
        unfused = 2 * largest if self.shapes.device == "cpu" else self.weights
        workspace = 0 if self.fused else unfused
        return {"gradients": self.weights, "workspace": workspace}
