"""What decays, when it learns how fast, and that a batch in instalments is the batch."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lib.packing import NO_TARGET
from course_lib.training import (
    accumulation_weights,
    adamw,
    choose_precision,
    chunked_cross_entropy,
    decay_groups,
    learning_rate,
    optimization_step,
    set_learning_rate,
)


class Small(nn.Module):
    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.LayerNorm(6)
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(self.norm(self.embed(tokens)))


def names(model: nn.Module, group: dict[str, object]) -> set[str]:
    params = group["params"]
    assert isinstance(params, list)
    return {name for name, p in model.named_parameters() if any(p is q for q in params)}


def test_matrices_decay_and_norms_biases_and_embeddings_do_not():
    model = Small(tied=False)
    decayed, kept = decay_groups(model, 0.3)
    assert names(model, decayed) == {"inner.weight", "head.weight"} and decayed["weight_decay"] == 0.3
    assert names(model, kept) == {"embed.weight", "norm.weight", "norm.bias", "inner.bias"}
    assert kept["weight_decay"] == 0


def test_a_tied_head_is_the_embedding_and_decays_only_by_choice():
    model = Small()
    assert names(model, decay_groups(model)[0]) == {"inner.weight"}
    assert names(model, decay_groups(model, decay_embeddings=True)[0]) == {"inner.weight", "embed.weight"}


def test_each_parameter_is_in_one_group_and_frozen_ones_in_none():
    model = Small()
    model.inner.weight.requires_grad_(False)
    (group,) = decay_groups(model)
    assert names(model, group) == {"embed.weight", "norm.weight", "norm.bias", "inner.bias"}
    assert [len(g["params"]) for g in adamw(model, 1e-3).param_groups] == [4]


def test_without_a_gradient_only_what_decays_shrinks():
    model = Small()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = adamw(model, 0.5, weight_decay=0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 0.95 if name == "inner.weight" else 1.0
        torch.testing.assert_close(p.detach(), before[name] * factor)


def test_the_learning_rate_rises_in_a_line_to_its_peak_and_falls_to_its_floor():
    rates = [learning_rate(i, peak=2.0, steps=101, warm_up=4, floor=0.1) for i in range(101)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert max(rates) == 2.0 and all(a > b for a, b in itertools.pairwise(rates[3:]))
    assert rates[-1] == pytest.approx(0.2) and learning_rate(500, peak=2.0, steps=101, warm_up=4) == rates[-1]


def test_half_way_down_the_cosine_is_the_mean_of_peak_and_floor():
    assert learning_rate(50, peak=1.0, steps=101, floor=0.2) == pytest.approx(0.6)


@pytest.mark.parametrize(("steps", "warm_up"), [(1, 0), (1, 1), (2, 1), (5, 5), (5, 0)])
def test_short_runs_have_a_learning_rate_at_every_step(steps, warm_up):
    rates = [learning_rate(i, peak=1.0, steps=steps, warm_up=warm_up) for i in range(steps)]
    assert all(0 < rate <= 1 for rate in rates) and 1.0 in rates


def test_setting_the_learning_rate_reaches_every_group():
    optimizer = adamw(Small(), 1e-3)
    set_learning_rate(optimizer, 5e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 5e-4]


def test_a_learning_rate_in_a_tensor_stays_that_tensor():
    rate = torch.tensor(1e-3)
    optimizer = torch.optim.AdamW(Small().parameters(), lr=rate)
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.25


def test_instalments_weighted_by_their_targets_take_the_step_of_the_large_batch():
    torch.manual_seed(0)
    tokens = torch.randint(11, (1, 20))
    targets = torch.randint(11, (1, 20))
    targets[0, [0, 1, 2, 12, 19]] = NO_TARGET
    pieces = [slice(0, 4), slice(4, 13), slice(13, 20)]  # of 1, 8 and 6 targets
    steps = []
    for instalments in ([slice(0, 20)], pieces):
        torch.manual_seed(1)
        model = Small().double()
        optimizer = torch.optim.SGD(decay_groups(model), lr=1.0)
        counts = [int((targets[:, rows] != NO_TARGET).sum()) for rows in instalments]
        weights = accumulation_weights(counts)
        losses = (
            weight * chunked_cross_entropy(model(tokens[:, rows]), model.head.weight, targets[:, rows])
            for weight, rows in zip(weights, instalments, strict=True)
        )
        report = optimization_step(losses, optimizer, choose_precision("cpu", "fp32"), max_norm=0.5)
        steps.append((report, model.state_dict()))
    (whole, expected), (parts, found) = steps
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    with torch.no_grad():
        model = Small().double()
        model.load_state_dict(expected)
        means = [
            F.cross_entropy(model.head(model(tokens[:, rows]))[0], targets[0, rows]).item() for rows in pieces
        ]
    assert sum(means) / 3 != pytest.approx(whole.loss, rel=1e-3)


def test_weights_are_shares_of_the_targets():
    assert accumulation_weights([1, 0, 3]) == (0.25, 0.0, 0.75)
