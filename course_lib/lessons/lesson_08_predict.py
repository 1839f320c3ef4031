"""What lesson 08 says on paper of each rung before it is measured: products by the speed of products, bytes by the
speed of memory.

A step has four parts. Of each, the operations are counted as lesson 02 counts them, and the large tensors that pass
through memory; small ones stay in a cache and are free. The time is the sum of both. That is a sketch: it leaves out
what allocating costs, what overlaps, and every operation on a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.bench.ladder import RUNGS, Rung, Workload
from course_lib.lessons.lesson_08_measure import Machine
from course_lib.models import GPTConfig

PARTS = ("layers", "attention", "head and loss", "optimiser")
LAPTOP = Machine(products=80e9, half_products=80e9, memory=12e9)
"""A laptop of a few years ago, which has no fast bf16."""

SCORE_PASSES = 16
"""How often dense attention passes a tensor of all scores: product, scale, mask, softmax, product; and back."""
LOGIT_PASSES, CHUNKED_LOGIT_PASSES = 8, 4
"""As often passes a tensor of all logits: product, softmax, loss, and back; in chunks each is at hand for longer."""
POINTWISE = 40
"""Numbers that a token moves in a layer beside products, in units of the width: norms, sums, activation; and back."""
UPDATE_PASSES, FUSED_PASSES = 16, 7
"""As often passes a tensor as large as the weights in an update of AdamW: one operation after the other, or fused."""


@dataclass(frozen=True)
class Work:
    """``flop`` in products, ``bytes`` through memory."""

    flop: float
    bytes: float


def work_of(rung: Rung, config: GPTConfig, lengths: Sequence[int]) -> dict[str, Work]:
    """The work of one step on documents of these lengths, by part."""
    dim, layers, hidden = config.dim, config.num_layers, config.hidden_width
    if rung.packed:
        tokens, pairs = sum(lengths), sum(n * n for n in lengths)
    else:
        tokens, pairs = len(lengths) * max(lengths), len(lengths) * max(lengths) ** 2
    size = 2 if rung.amp else 4
    projections = dim * dim * (2 + 2 * config.kv_heads / config.num_heads)
    feed_forward = dim * hidden * (3 if rung.swiglu else 2)
    again = 2 * dim * hidden if config.recompute else 0
    parameters = layers * (projections + feed_forward) + config.vocab_size * dim
    products = tokens * layers * (6 * (projections + feed_forward) + 2 * again)
    # A query meets a key in two products forward and four backward. The lean way skips what lies in the future, and
    # makes the scores once more in its backward.
    meetings = 12 * pairs if rung.dense else 7 * pairs
    scores = 4 * SCORE_PASSES * config.num_heads * pairs if rung.dense else 0
    passes = CHUNKED_LOGIT_PASSES if rung.chunked_loss else LOGIT_PASSES
    return {
        "layers": Work(products, size * POINTWISE * dim * layers * tokens),
        "attention": Work(layers * dim * meetings, layers * scores),
        "head and loss": Work(6 * tokens * config.vocab_size * dim, 4 * passes * tokens * config.vocab_size),
        "optimiser": Work(0, 4 * parameters * (FUSED_PASSES if rung.fused else UPDATE_PASSES)),
    }


def seconds_of(rung: Rung, config: GPTConfig, lengths: Sequence[int], machine: Machine) -> dict[str, float]:
    """The predicted time of a step's parts."""
    products = machine.half_products if rung.amp else machine.products
    return {
        part: work.flop / products + work.bytes / machine.memory
        for part, work in work_of(rung, config, lengths).items()
    }


def predicted(workload: Workload, lengths: Sequence[Sequence[int]], machine: Machine) -> dict[str, float]:
    """Seconds of a step of every rung, the mean over batches of documents of these lengths."""
    return {
        rung.name: sum(
            sum(seconds_of(rung, rung.config(workload), batch, machine).values()) for batch in lengths
        )
        / len(lengths)
        for rung in RUNGS
    }


def lengths_like(documents: int, longest: int, padding: float) -> list[int]:
    """Lengths of ``documents`` documents whose padded batch is padding by about that share, 0 to under 1.

    They fall off from the longest as texts do: few long ones, many short ones.
    """
    if not 0 <= padding < 1:
        raise ValueError(f"padding: expected a share from 0 to under 1, got {padding}.")
    power = padding / (1 - padding)
    lengths = [max(2, round(longest * ((i + 0.5) / documents) ** power)) for i in range(documents)]
    lengths[-1] = longest
    return lengths
