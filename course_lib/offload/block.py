"""The block schedule: a layer is loaded once for all batches of a block, in every step (Sheng et al. 2023, section 3).

    for step in steps:                      prefill reads the prompts, each further step one token a row
        for stage in weights.stages:        the layers, then the head; loaded ahead, once for all batches
            for batch in block:             its activations and its cache are loaded, used, put away

One batch after another, each with all its steps (``num_batches=1``), is the row-by-row schedule: it loads a layer for
each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from course_lib.models.generate_rows import at_last_real

from .batches import Batch
from .kept_activations import Activations
from .kept_caches import Caches
from .lanes import Lanes
from .skeleton import Skeleton
from .staged_weights import StagedWeights


def run_block(
    batches: Sequence[Batch],
    skeleton: Skeleton,
    weights: StagedWeights,
    caches: Caches,
    activations: Activations,
    lanes: Lanes,
    max_new_tokens: int,
) -> None:
    """Write what comes after the prompts of ``batches``, until all of them are done."""
    weights.expect(max_new_tokens)
    for _ in range(max_new_tokens):
        active = [number for number, batch in enumerate(batches) if not batch.rows.done]
        if not active:
            weights.stop()
            return
        _step(batches, active, skeleton, weights, caches, activations, lanes)


def _step(
    batches: Sequence[Batch],
    active: Sequence[int],
    skeleton: Skeleton,
    weights: StagedWeights,
    caches: Caches,
    activations: Activations,
    lanes: Lanes,
) -> None:
    model, trace = skeleton.model, lanes.trace
    arguments: dict[int, tuple[Any, Any]] = {}
    caches.expect([(layer, number) for layer in range(len(model.layers)) for number in active])
    for number in active:
        batch = batches[number]
        with trace.event("compute", "embedding", -1):
            real = torch.ones_like(batch.unread, dtype=torch.bool) if batch.real is None else batch.real
            positions = caches.next_positions(number, real)
            x = model.begin(batch.unread, positions)
            arguments[number] = model.rotary(positions, x.dtype), batch.real
        activations.put(number, x, -1)
    hidden: dict[int, Tensor] = {}
    logits: dict[int, list[Tensor]] = {number: [] for number in active}
    for place, stage in enumerate(weights.stages):
        if stage.rows is not None and not hidden:
            for number in active:
                hidden[number] = _finished(batches[number], model, activations.take(number, -1))
        with weights.use(place) as tensors:
            if stage.rows is not None:
                with trace.event("compute", "head", -1):
                    for number in active:
                        logits[number].append(functional.linear(hidden[number], tensors[skeleton.head]))
                continue
            with skeleton.layer(stage.layer, tensors) as layer:
                for number in active:
                    x = activations.take(number, stage.layer)
                    rotary, real = arguments[number]
                    with (
                        caches.use(stage.layer, number) as cache,
                        trace.event("compute", "layer", stage.layer),
                    ):
                        x = layer(x, model.alibi, rotary, real, cache)
                    activations.put(number, x, stage.layer)
    with trace.event("compute", "choose tokens", -1):
        for number in active:
            batches[number].take(torch.cat(logits[number], dim=-1))


def _finished(batch: Batch, model: Any, x: Tensor) -> Tensor:
    """[batch, width]: what the head reads, of the last real tokens alone."""
    return model.finish(at_last_real(x, batch.real)[:, None])[:, 0]
