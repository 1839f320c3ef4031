"""The memory of training: the formulas against what autograd keeps, and against the peaks that are measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from course_lib.bench.memory import workspaces
from course_lib.bench.saved import saved_bytes
from course_lib.models import GPT, GPTConfig
from course_lib.packing import Packed, pack
from course_lib.training import adamw, choose_precision
from course_lib.training.config import TrainConfig
from course_lib.training.memory import MemoryBudget, memory_budget, training_memory

from .measured_step import dense_attention

PLAIN: dict[str, Any] = dict(vocab_size=2048, dim=256, num_layers=3, num_heads=4, num_kv_heads=2)
TUTORIAL: dict[str, Any] = dict(num_kv_heads=4, feed_forward="gelu", norm="layernorm", positions="learned")


def case(length: int = 1024, **given: Any) -> dict[str, Any]:
    """Settings of a step; what is none of ``step_work``'s own is the model's."""
    names = ("rows", "documents", "attention", "precision", "chunked_loss", "fused", "accumulate")
    settings = {name: given.pop(name) for name in names if name in given}
    return dict(model=PLAIN | given, length=length, **settings)


def budget(case: dict[str, Any]) -> MemoryBudget:
    settings = {name: value for name, value in case.items() if name not in ("model", "documents")}
    return training_memory(GPTConfig(**case["model"]), **settings)


QUICK = {
    "as the course trains": case(),
    "in half precision": case(precision="bf16", recompute=True, positions="rotary", fused=True),
    "a tutorial": case(attention="dense", rows=4, length=384, chunked_loss=False, max_length=384, **TUTORIAL),
    "all logits in half precision": case(
        precision="bf16", chunked_loss=False, feed_forward="gelu", vocab_size=4096
    ),
    "layer checkpointing": case(length=2048, checkpointing="layers", num_layers=4),
    "accumulated gradients": case(accumulate=True, recompute=True, norm="layernorm", bias=True),
    "many weights and few tokens": case(length=128, dim=512, vocab_size=512, tied_head=False),
    "a large vocabulary": case(length=512, vocab_size=20_000, num_layers=1),
}
SLOW = {
    "rung 0": case(attention="dense", rows=8, length=512, chunked_loss=False, max_length=512, **TUTORIAL),
    "rung 1": case(rows=8, length=512, chunked_loss=False, max_length=512, **TUTORIAL),
    "rung 3": case(length=4096, precision="bf16", chunked_loss=False, max_length=4096, **TUTORIAL),
    "wide and shallow": case(length=2048, dim=768, num_layers=2, num_heads=12, num_kv_heads=4, documents=5),
    "deep and narrow": case(length=4096, dim=128, num_layers=12, num_heads=2, num_kv_heads=1, bias=True),
    "checkpointing in half precision": case(length=4096, checkpointing="layers", precision="bf16"),
    "rotary": case(length=4096, positions="rotary", precision="bf16", documents=3),
    "fp16": case(length=256, precision="fp16", vocab_size=8000, num_layers=2),
    "a head of its own": case(length=2048, tied_head=False, accumulate=True, vocab_size=8192),
}


@cache
def measured(which: str) -> dict[str, int]:
    """The peaks of all those cases, one after the other in one child."""
    cases = {"quick": QUICK, "slow": SLOW}[which]
    peaks = workspaces("tests.training.measured_step:step_work", cases.values())
    return dict(zip(cases, peaks, strict=True))


@pytest.mark.parametrize("name", QUICK)
def test_the_peak_is_predicted_within_a_tenth(name):
    assert budget(QUICK[name]).peak == pytest.approx(measured("quick")[name], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_peak_of_larger_steps_is_predicted_within_a_tenth(name):
    assert budget(SLOW[name]).peak == pytest.approx(measured("slow")[name], rel=0.1)


KEPT = {
    "alibi": {},
    "no positions": dict(positions="none", norm="layernorm"),
    "rotary": dict(positions="rotary"),
    "learned": dict(positions="learned", bias=True, norm="layernorm", feed_forward="gelu"),
    "recompute": dict(recompute=True),
    "one kv head": dict(num_kv_heads=1, feed_forward="gelu"),
    "head_dim of its own": dict(head_dim=96, hidden_features=200),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", KEPT)
def test_the_activations_are_those_that_autograd_keeps(name, precision):
    config = GPTConfig(**(PLAIN | KEPT[name]))
    model = GPT(config)
    row = pack([torch.randint(config.vocab_size, (128,)) for _ in range(4)])
    bias = Packed(row.lengths, inner=model.attention_bias)
    with choose_precision("cpu", precision).autocast():
        kept = saved_bytes(lambda: model.hidden(row.tokens, positions=row.positions, bias=bias))
    found = training_memory(config, length=512, precision=precision)
    head = config.vocab_size * config.dim * 2 if precision == "bf16" else 0
    copies = found.moments["loss"]["half-precision weights"] - head
    assert sum(found.activations.values()) + copies == pytest.approx(kept, rel=0.02)


def test_dense_attention_keeps_a_weight_for_every_pair_of_slots():
    config = GPTConfig(**(PLAIN | TUTORIAL))
    model = dense_attention(GPT(config))
    kept = saved_bytes(lambda: model.hidden(torch.zeros(3, 128, dtype=torch.long)))
    found = training_memory(config, rows=3, length=128, attention="dense")
    assert sum(found.activations.values()) == pytest.approx(kept, rel=0.02)
    assert found.activations["scores"] == config.num_layers * 3 * 4 * 128**2 * 4


@pytest.mark.parametrize("change", [{}, dict(tied_head=False), dict(positions="learned"), dict(bias=True)])
def test_weights_gradients_and_averages_are_counted_to_the_byte(change):
    config = GPTConfig(**(PLAIN | change))
    model = GPT(config)
    found = training_memory(config, length=64)
    size = 4 * model.num_parameters()
    assert (found.parameters, found.gradients) == (size, size)
    optimizer = adamw(model, 1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = [t for held in optimizer.state.values() for t in held.values() if t.dim()]
    assert found.optimizer == sum(t.nbytes for t in state)


def test_the_peak_is_the_largest_of_the_four_moments():
    found = training_memory(GPTConfig(**PLAIN), length=1024)
    assert list(found.moments) == ["forward", "loss", "backward", "optimizer"]
    assert found.peak == max(found.totals.values()) == found.totals[found.moment]
    assert found.totals["loss"] == sum(found.moments["loss"].values())


@pytest.mark.parametrize(
    ("settings", "moment"),
    [
        (dict(length=2048), "loss"),
        (dict(length=2048, chunked_loss=False), "backward"),
        (dict(length=16), "optimizer"),
    ],
)
def test_which_moment_is_the_peak_depends_on_the_work(settings, moment):
    assert training_memory(GPTConfig(**(PLAIN | dict(vocab_size=8192))), **settings).moment == moment


RUNGS: list[tuple[str, dict[str, Any]]] = [
    ("dense scores cost more", dict(attention="dense")),
    ("fp32 costs more", dict(precision="fp32")),
    ("all logits cost more", dict(chunked_loss=False)),
    ("more kv heads cost more", dict(num_kv_heads=4)),
    ("keeping hidden numbers costs more", dict(recompute=False)),
    ("keeping layers costs more", dict(checkpointing="none")),
    ("padding costs more", dict(rows=3)),
]


@pytest.mark.parametrize("change", [change for _, change in RUNGS], ids=[name for name, _ in RUNGS])
def test_every_saving_of_the_course_lowers_the_peak(change):
    lean = case(length=4096, precision="bf16", recompute=True, checkpointing="layers")
    settings = {name: value for name, value in change.items() if name not in GPTConfig.__dataclass_fields__}
    model = {name: value for name, value in change.items() if name in GPTConfig.__dataclass_fields__}
    assert budget(lean | settings | dict(model=lean["model"] | model)).peak > budget(lean).peak


def test_dense_scores_grow_with_the_square_of_the_length_and_nothing_else_does():
    config = GPTConfig(**PLAIN)
    once, twice = (training_memory(config, length=n, attention="dense") for n in (512, 1024))
    assert twice.activations["scores"] == 4 * once.activations["scores"]
    lean = [training_memory(config, length=n).activations for n in (512, 1024)]
    assert sum(lean[1].values()) == 2 * sum(lean[0].values())


def test_a_fused_update_needs_no_workspace():
    held = training_memory(GPTConfig(**PLAIN), length=64, fused=True).moments["optimizer"]
    assert held["workspace"] == 0
    assert training_memory(GPTConfig(**PLAIN), length=64).moments["optimizer"]["workspace"] > 0


def test_a_budget_of_a_run_is_that_of_its_row():
    config = TrainConfig(
        model=GPTConfig(**PLAIN), steps=5, batch_tokens=512, rows_per_step=4, precision="bf16", device="cpu"
    )
    expected = training_memory(config.model, length=512, precision="bf16", accumulate=True)
    assert memory_budget(config) == expected
    assert memory_budget(config, attention="dense").peak > expected.peak


def test_the_precision_auto_is_decided_as_training_decides_it(monkeypatch):
    half = choose_precision("cpu", "bf16")
    monkeypatch.setattr("course_lib.training.memory.choose_precision", lambda device, name: half)
    config = TrainConfig(model=GPTConfig(**PLAIN), steps=5, device="cpu")
    assert memory_budget(config).moments["backward"]["half-precision weights"] > 0


def test_the_table_names_each_part_each_moment_and_the_peak():
    found = training_memory(GPTConfig(**PLAIN), length=1024, precision="bf16")
    lines = found.table().splitlines()
    assert lines[0].split() == ["forward", "loss", "backward", "optimizer"]
    for part in ("weights", "optimizer state", "gradients", "activations", "logits", "total"):
        assert any(line.startswith(part) for line in lines), part
    mark = next(line for line in lines if "peak" in line)
    column = lines[0].index(found.moment) + len(found.moment)
    assert len(mark) == column
    assert all(len(line) <= 100 for line in lines)


def test_a_gpu_updates_all_weights_at_once_where_the_update_is_not_fused():
    found = training_memory(GPTConfig(**PLAIN), length=512, device="cuda")
    assert found.moments["optimizer"]["workspace"] == found.parameters
