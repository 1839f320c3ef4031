"""Steps of training for a child process to run, of which :func:`course_lib.bench.memory.workspaces` sees the peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from course_lib.bench.ladder_rungs import DenseAttention
from course_lib.models import GPT
from course_lib.models.families import FAMILIES
from course_lib.packing import next_token_targets, pack
from course_lib.training import adamw, choose_precision, chunked_cross_entropy, optimization_step
from course_lib.training.row_loss import RowLoss


def step_work(
    *,
    model: dict[str, Any],
    length: int,
    rows: int = 1,
    documents: int = 8,
    attention: str = "memory-efficient",
    precision: str = "fp32",
    chunked_loss: bool = True,
    fused: bool | None = None,
    accumulate: bool = False,
    family: str = "lean-gpt",
) -> Callable[[], list[Tensor]]:
    """A function that builds the model and takes two steps with it: all that training holds is within its peak."""
    settings = dict(
        family=family,
        attention=attention,
        precision=precision,
        chunked_loss=chunked_loss,
        fused=fused,
        accumulate=accumulate,
    )
    sizes = dict(length=length, rows=rows, documents=documents)
    # Threads, code and lookup tables are the process's, not the model's, and so are the kernels that oneDNN compiles
    # for each shape of a half-precision product: one layer brings them in.
    _train(model | dict(num_layers=1), 1, **sizes, **settings)
    return lambda: _train(model, 2, **sizes, **settings)


def _train(
    model_config: dict[str, Any],
    steps: int,
    *,
    length: int,
    rows: int,
    documents: int,
    attention: str,
    precision: str,
    chunked_loss: bool,
    fused: bool | None,
    accumulate: bool,
    family: str,
) -> list[Tensor]:
    torch.manual_seed(0)
    model = FAMILIES[family](FAMILIES[family].config_class(**model_config))
    if attention == "dense":
        dense_attention(model)
    row_loss = RowLoss(model, chunked=chunked_loss)
    chosen = choose_precision("cpu", precision)
    optimizer = adamw(model, 1e-3, fused=fused)
    vocab = model.config.vocab_size

    def losses() -> Iterator[Tensor]:
        for _ in range(2 if accumulate else 1):
            if attention == "dense" or rows > 1:
                tokens = torch.randint(vocab, (rows, length))
                with chosen.autocast():
                    hidden = model.hidden(tokens)
                    if chunked_loss:
                        loss = chunked_cross_entropy(hidden, model.head.weight, tokens)
                    else:
                        logits = model.head(hidden).float()
                        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
                        del logits
                    del hidden
            else:
                batch = pack([torch.randint(vocab, (length // documents,)) for _ in range(documents)])
                with chosen.autocast():
                    loss = row_loss(batch, next_token_targets(batch))
            yield loss / (2 if accumulate else 1)

    for _ in range(steps):
        optimization_step(losses(), optimizer, chosen)
    return []


def dense_attention(model: GPT) -> GPT:
    """The model with the attention of the ladder's rung 0."""
    for layer in model.layers:
        layer.attention = DenseAttention(layer.attention)  # type: ignore[arg-type]
    return model
