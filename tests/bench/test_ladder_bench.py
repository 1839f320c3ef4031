"""`bench ladder`: its peers, what it measures of whom, and what becomes a claim. No test depends on a time."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.bench import ladder
from course_lib.bench.__main__ import main
from course_lib.bench.ladder import RUNGS, Rung, Workload, batches, peer, real_tokens, trainer
from course_lib.bench.ladder_losses import Learned
from course_lib.bench.ladder_memory import CHUNKED, WHOLE, loss_work, started
from course_lib.bench.ladder_peers import TEACHING, TRANSFORMERS
from course_lib.bench.ladder_picture import Bar, picture
from course_lib.bench.ladder_products import Products
from course_lib.bench.ladder_profile import GROUPS, shares
from course_lib.models import GPT

BOUNDS = {
    "ladder.speedup": ">= 4",
    "ladder.memory": ">= 4",
    "ladder.over_transformers": ">= 2",
    "ladder.mfu": ">= 0.25",
    "ladder.loss_gap": "<= 0",
    "chunked_loss.memory": "<= 0.1",
}
SMALL = Workload(width=48, layers=2, heads=6, documents=6, cut=64)
TINY = ladder.Sizes(
    workload=Workload(width=24, layers=1, heads=3, kv_heads=1, documents=3, cut=32),
    rounds=2,
    learned_documents=2,
    learned_steps=2,
    agreeing_steps=1,
    seeds=2,
    loss_tokens=64,
    loss_vocabulary=256,
)


# Peers.


@pytest.mark.parametrize(("name", "rung"), [(TRANSFORMERS, RUNGS[-1]), (TEACHING, RUNGS[1])])
def test_a_peer_is_as_large_as_the_rung_that_it_stands_beside(name: str, rung: Rung) -> None:
    if name == TRANSFORMERS:
        pytest.importorskip("transformers")
    (batch,) = batches(SMALL, 1)
    work = Workload()
    own = trainer(rung, work, [batch], precision="fp32").model
    theirs = peer(name, work, [batch], precision="fp32").model
    # Without the table of learned positions, which Llama's rotary ones do not need.
    ours, other = (
        sum(
            p.numel()
            for n, p in model.named_parameters()
            if n not in ("position_embed.weight", "places.weight")
        )
        for model in (own, theirs)
    )
    assert other == pytest.approx(ours, rel=0.001)


def test_the_teaching_gpt_computes_what_rung_1_does() -> None:
    (batch,) = batches(SMALL, 1)
    ours = trainer(RUNGS[1], SMALL, [batch], seed=4)
    theirs = peer(TEACHING, SMALL, [batch], precision="fp32")
    state = {
        name.replace("position_embed", "places")
        .replace("layers", "blocks")
        .replace("attention_norm", "norm1")
        .replace("feed_forward_norm", "norm2")
        .replace("attention.o_proj", "out")
        .replace("feed_forward.", ""): tensor
        for name, tensor in ours.model.state_dict().items()
        if name != "head.weight"
    }
    for block in range(SMALL.layers):
        joined = [state.pop(f"blocks.{block}.attention.{part}_proj.weight") for part in "qkv"]
        state[f"blocks.{block}.qkv.weight"] = torch.cat(joined)
    theirs.model.load_state_dict(state)
    assert theirs.step().loss == pytest.approx(ours.step().loss, abs=1e-5)


def test_transformers_learns_from_the_same_targets() -> None:
    transformers = pytest.importorskip("transformers")
    (batch,) = batches(SMALL, 1)
    training = peer(TRANSFORMERS, SMALL, [batch], precision="fp32")
    model = training.model
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert model.config._attn_implementation == "sdpa"
    total, count = 0.0, 0
    with torch.no_grad():
        for ids in batch:  # one by one, without padding
            logits = model(ids[None]).logits[0, :-1]
            total += float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
            count += len(ids) - 1
    step = training.step()
    assert step.loss == pytest.approx(total / count, abs=1e-4)
    assert step.tokens == real_tokens(batch)


@pytest.mark.parametrize("name", [TRANSFORMERS, TEACHING])
def test_peers_train_under_autocast_in_the_dtype_of_the_top(name: str) -> None:
    if name == TRANSFORMERS:
        pytest.importorskip("transformers")
    (batch,) = batches(SMALL, 1)
    training = peer(name, SMALL, [batch], precision="bf16")
    seen: list[torch.dtype] = []
    (linear, *_) = [m for m in training.model.modules() if isinstance(m, torch.nn.Linear)]
    linear.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    first, *_, last = (training.step().loss for _ in range(4))
    assert set(seen) == {torch.bfloat16} and last < first
    assert {p.dtype for p in training.model.parameters()} == {torch.float32}


# What is measured.


def test_products_are_those_of_the_models_own_weights() -> None:
    (batch,) = batches(SMALL, 1)
    model = trainer(RUNGS[-1], SMALL, [batch], precision="fp32").model
    assert isinstance(model, GPT)
    products = Products(model, 20, torch.float32)
    linears = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    assert products.flops(7) == 6 * 7 * linears
    products.run(7)
    for product in products.products:
        torch.testing.assert_close(product.outputs[:7], product.inputs[:7] @ product.weight.T)
        torch.testing.assert_close(product.input_gradient[:7], product.gradient[:7] @ product.weight)
        torch.testing.assert_close(product.weight_gradient, product.gradient[:7].T @ product.inputs[:7])


def test_the_profile_gives_every_kind_of_work_its_share() -> None:
    (batch,) = batches(SMALL, 1)
    found = shares(trainer(RUNGS[-1], SMALL, [batch], precision="bf16"))
    assert tuple(found) == GROUPS and sum(found.values()) == pytest.approx(1)
    missing = {name for name, share in found.items() if not share} - {"casts and copies"}
    assert not missing
    assert found["other"] < 0.4


def test_the_profiler_says_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    (batch,) = batches(SMALL, 1)
    shares(trainer(RUNGS[2], SMALL, [batch]))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("way", [CHUNKED, WHOLE])
def test_both_losses_are_one_computation(way: str) -> None:
    sizes = {"tokens": 9, "vocab": 50, "width": 8, "device": "cpu"}
    expected = loss_work(way=WHOLE, **sizes)()  # type: ignore[arg-type]
    for found, want in zip(loss_work(way=way, **sizes)(), expected, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(found, want)


def test_every_rung_and_peer_is_started_by_its_name() -> None:
    (batch,) = batches(SMALL, 1)
    names = [*(rung.name for rung in RUNGS), TEACHING]
    assert [started(name, SMALL, [batch], precision="fp32").name for name in names] == names


def test_a_rung_that_learns_worse_by_more_than_seeds_differ_contradicts_the_claim() -> None:
    naive = Learned(RUNGS[0], (5.0, 5.2, 5.1), 100)
    assert naive.mean == pytest.approx(5.1) and naive.spread == pytest.approx(0.2)


def compared(agreeing_steps: int | None) -> list[Learned]:
    return ladder.compare_losses(
        TINY.workload,
        steps=3,
        seeds=2,
        device="cpu",
        precision="fp32",
        agreeing_steps=agreeing_steps,
        progress=lambda *_: None,
    )


def test_rungs_that_agree_with_packing_step_by_step_have_its_held_out_loss() -> None:
    alone, together = compared(None), compared(2)
    assert [found.apart for found in alone] == [None] * 7
    assert all(found.apart is not None and found.apart < 1e-3 for found in together[:2])
    assert together[0].losses == together[1].losses == together[2].losses
    for a, b in zip(alone, together, strict=True):
        assert a.losses == pytest.approx(b.losses, abs=1e-4) and len(set(a.losses)) == 2
        assert a.tokens == b.tokens > 0


def test_a_rung_that_does_not_agree_is_trained_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.bench import ladder_losses

    monkeypatch.setattr(ladder_losses, "AGREEMENT", -1.0)
    steps: list[tuple[str, int | None]] = []
    trained = ladder_losses.trained_rung

    def watched(rung: ladder.Rung, **settings: Any) -> ladder.Trainer:
        steps.append((rung.name, settings.get("steps")))
        return trained(rung, **settings)

    monkeypatch.setattr(ladder_losses, "trained_rung", watched)
    found = compared(2)
    assert len(found[0].losses) == 2
    assert [of for name, of in steps if name == "naive"] == [2, None, 2, None]


def test_the_picture_is_a_png_with_a_bar_for_each() -> None:
    import matplotlib.image

    drawn = picture([Bar("0 naive", 100, 2**30), Bar("6 top", 1200, 2**27), Bar("a peer", 300, None, True)])
    height, width, _ = matplotlib.image.imread(io.BytesIO(drawn)).shape
    assert width > 600 and height > 150


# The whole.


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("ladder") / "figures.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "QUICK", TINY)
        assert main(["ladder", "--quick", "--json", str(path)]) == 0
    return path


@pytest.mark.slow
def test_a_quick_run_measures_every_claim_and_decides_none(quick: Path) -> None:
    content = json.loads(quick.read_text(encoding="utf-8"))
    assert {claim["name"]: claim["bound"] for claim in content["claims"]} == BOUNDS
    assert all(math.isfinite(claim["value"]) for claim in content["claims"])
    assert content["bench"] == "ladder" and content["quick"] is True
    assert (
        quick.with_suffix(".png").exists() and quick.with_stem("figures-rungs").with_suffix(".png").exists()
    )


@pytest.mark.slow
def test_rows_hold_speed_memory_and_loss_of_every_rung(quick: Path) -> None:
    rows = {row["name"]: row for row in json.loads(quick.read_text(encoding="utf-8"))["rows"]}
    assert rows["work"]["documents"] == TINY.workload.documents and 0 < rows["work"]["padding"] < 1
    for rung in RUNGS:
        row = rows[f"{rung.number} {rung.name}"]
        assert row["tokens_per_second"] > 0 and row["peak_bytes"] > 0 and len(row["ratios"]) == 2
        assert len(row["losses"]) == 2 and row["loss"] == pytest.approx(sum(row["losses"]) / 2)
    for name in (TRANSFORMERS, TEACHING):
        assert rows[name]["tokens_per_second"] > 0 and rows[name]["peak_bytes"] > 0
        assert rows[name]["dtype"] == rows["work"]["precision"]
    naive, packed = rows["0 naive"], rows["2 packing"]
    assert naive["losses"] == pytest.approx(packed["losses"], abs=1e-4), "one computation in two orders"
    assert sum(row["share"] for name, row in rows.items() if name.startswith("share of")) == pytest.approx(1)


def measured(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str], float]) -> None:
    """Let every piece of work take the seconds that are said, without doing it."""
    monkeypatch.setattr(ladder, "QUICK", TINY)

    def interleaved(works: dict[str, object], **_: object) -> ladder.Rounds:
        return ladder.Rounds({name: [seconds(name)] * 2 for name in works})

    monkeypatch.setattr(ladder, "interleaved", interleaved)
    monkeypatch.setattr(ladder, "shares", lambda training: {"matmul": 1.0})
    monkeypatch.setattr(
        ladder.Comparison,
        "measured_workspaces",
        lambda self, work, settings: [800 if setting["way"] == "naive" else 100 for setting in settings],
    )
    monkeypatch.setattr(ladder.Comparison, "workspace", lambda *args, **kwargs: [10, 100])
    learned = [Learned(rung, (5.0, 5.3) if rung.number == 0 else (5.1, 5.3), 50) for rung in RUNGS]
    monkeypatch.setattr(ladder, "compare_losses", lambda *args, **kwargs: learned)


def test_claims_are_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    measured(monkeypatch, lambda name: {"naive": 12.0, TRANSFORMERS: 3.0}.get(name, 1.0))
    report = ladder.run(quick=True)
    found = {claim.name: claim.value for claim in report.claims}
    assert found["ladder.speedup"] == 12 and found["ladder.over_transformers"] == 3
    assert found["ladder.memory"] == 8 and found["chunked_loss.memory"] == 0.1
    assert found["ladder.loss_gap"] == pytest.approx(5.2 - 5.15 - 0.3)
    # As long as its products alone: model FLOP are those and the scores.
    assert 1 < found["ladder.mfu"] < 1.5


def test_without_transformers_its_claim_is_left_out_and_a_row_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    measured(monkeypatch, lambda name: 1.0)
    report = ladder.run(quick=True)
    assert {claim.name for claim in report.claims} == BOUNDS.keys() - {"ladder.over_transformers"}
    (refused,) = [row for row in report.rows if "refused" in row]
    assert refused["name"] == TRANSFORMERS and "cannot be imported" in refused["refused"]


def test_the_full_run_is_the_work_of_the_table() -> None:
    sizes = ladder.Sizes()
    assert sizes.workload == Workload() and sizes.rounds is None and sizes.seeds == 3
    assert (sizes.loss_tokens, sizes.loss_vocabulary, asdict(sizes.workload)["width"]) == (4096, 50_272, 384)
