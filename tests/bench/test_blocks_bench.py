"""The workloads of `bench blocks`: that peers compute the same, and what becomes a claim. No test depends on a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from course_lib.bench import alibi, blocks, grouped, packed, swiglu
from course_lib.bench.__main__ import BENCHES, main
from course_lib.bench.comparison import Comparison
from course_lib.bench.report import Report
from course_lib.bench.saved import saved_bytes
from course_lib.packing import PackedBatch, pack
from course_lib.text import load_corpus
from course_lib.tiny_gpt import TinyGPT, fit, packed_loss

BOUNDS = {
    "gqa.memory": "<= 0.34",
    "gqa.decode": ">= 4",
    "gqa.decode.peer": "<= 1.05",
    "packed.train": ">= 2",
    "alibi.memory": "<= 0.05",
    "alibi.time.fp32": "<= 0.67",
    "swiglu.saved": "<= 0.25",
    "swiglu.time": "<= 1.3",
}
TINY = blocks.Sizes(length=64, cache_length=16, batch_tokens=(256, 128), claimed_tokens=128, pairs=1)


def comparison(**settings: object) -> Comparison:
    options = {"report": Report("blocks", {}), "device": "cpu", "pairs": 1, "progress": lambda *_: None}
    return Comparison(**(options | settings))  # type: ignore[arg-type]


def randomised(model: TinyGPT) -> TinyGPT:
    """In float64, with no parameter left at the 0 or 1 that it begins with."""
    generator = torch.Generator().manual_seed(7)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


# packed.train


@pytest.mark.parametrize("loss_of", [packed.padded_loss, packed.masked_loss])
def test_a_padded_batch_has_the_loss_and_the_gradients_of_the_packed_row(
    loss_of: Callable[..., torch.Tensor],
) -> None:
    row = pack([[1, 2, 3, 4, 5, 6, 7], [8, 9], [10, 11, 12, 0], [4, 4, 1]])
    model = randomised(TinyGPT(vocab_size=16, dim=16, num_heads=2))
    expected = packed_loss(model, row)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    loss = loss_of(model, packed.PaddedBatch.of(row))
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
    for found, want in zip(torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(found, want, rtol=0, atol=1e-10)


def test_a_padded_batch_is_as_wide_as_its_longest_document_and_asks_nothing_of_padding() -> None:
    batch = packed.PaddedBatch.of(pack([[5, 6, 7], [8]]))
    assert batch.tokens.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.targets.tolist() == [[6, 7, -100], [-100, -100, -100]]
    assert batch.real.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_the_rows_are_those_that_fit_trains_on() -> None:
    documents = load_corpus()[:12]
    (row, *_) = packed.training_rows(256, 3, documents=documents)
    result = fit(TinyGPT(), documents, steps=1, batch_tokens=256, progress=False)
    (loss,) = packed.trainer([row], packed_loss)()
    assert result.tokens == row.tokens.shape[1]
    assert loss == pytest.approx(result.losses[0], abs=1e-6)


def test_packed_and_padded_training_stay_together_step_after_step() -> None:
    rows = packed.training_rows(256, 4, documents=load_corpus()[:12])
    together = packed.trainer(rows, packed_loss, steps=4)()
    apart = packed.trainer([packed.PaddedBatch.of(row) for row in rows], packed.padded_loss, steps=4)()
    assert together == pytest.approx(apart, abs=1e-3)
    assert len(set(together)) == 4, "a model that stays as it is would agree with anything"


def test_each_timing_trains_on_the_batches_that_follow() -> None:
    rows = packed.training_rows(128, 5, documents=load_corpus()[:12])
    seen: list[object] = []

    def watched(model: TinyGPT, row: PackedBatch) -> torch.Tensor:
        seen.append(row)
        return packed_loss(model, row)

    train = packed.trainer(rows, watched, steps=2)
    assert len(train()) == 2 and seen == rows[:2]
    train()
    assert seen == rows[:4]


def test_one_timing_reads_as_much_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, int]] = []

    def trainer(batches: list, loss_of: Callable, *, steps: int, device: str) -> Callable[[], None]:
        trained.append((len(batches), steps))
        return lambda: None

    monkeypatch.setattr(packed, "trainer", trainer)
    monkeypatch.setattr(packed, "load_corpus", lambda: load_corpus()[:6])
    packed.measure(comparison(pairs=2), batch_tokens=(64, 128), claimed=64)
    assert trained == [(6, 2)] * 4 + [(3, 1)] * 2, "three timings of each, the warm-up among them"


# gqa


def test_three_ways_to_share_heads_are_one_computation() -> None:
    outs, *gradients = zip(*(grouped.training_step(way, 24, "cpu")() for way in grouped.WAYS), strict=True)
    for ours, *others in (outs, *gradients):
        for other in others:
            torch.testing.assert_close(other, ours, rtol=0, atol=1e-5)


def test_gradients_of_shared_heads_have_the_shape_of_the_shared_heads() -> None:
    out, *gradients = grouped.training_step("grouped attention()", 8, "cpu")()
    assert [t.shape[2] for t in (out, *gradients)] == [32, 32, 4, 4]


def test_a_decode_step_with_32_kv_heads_computes_what_pytorchs_kernel_does() -> None:
    (cache,), (other,) = (grouped.filled_caches(32, length=9, device="cpu") for _ in range(2))
    newest = grouped.newest_token(32, device="cpu")
    ours = grouped.decode_steps([cache], newest)()
    theirs = grouped.sdpa_decode_steps(other, newest)()
    assert len(ours) == len(theirs) == grouped.STEPS
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_every_decode_step_reads_a_cache_of_the_length_named(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, ...]] = []

    def watched(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: object) -> torch.Tensor:
        read.append((*key.shape[1:3], key.data_ptr()))
        return query

    monkeypatch.setattr(grouped, "attention", watched)
    caches = grouped.filled_caches(4, length=9, device="cpu")
    run = grouped.decode_steps(caches, grouped.newest_token(4, device="cpu"))
    run()
    run()
    assert {(length, heads) for length, heads, _ in read} == {(9, 4)}
    assert len({where for *_, where in read}) == 8, "as many caches as hold what one of 32 heads holds"


# alibi


@pytest.mark.parametrize("ready", [False, True])
def test_the_dense_alibi_bias_and_the_tiles_are_one_computation(ready: bool) -> None:
    ours = alibi.training_step(alibi.TILED, 40, "cpu", bias_is_ready=ready)()
    dense = alibi.training_step(alibi.DENSE, 40, "cpu", bias_is_ready=ready)()
    for a, b in zip(ours, dense, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_the_dense_bias_is_made_inside_of_what_memory_counts_and_outside_of_what_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    dense_bias = alibi.dense_bias

    def watched(length: int, *args: object) -> torch.Tensor:
        made.append(length)
        return dense_bias(length, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(alibi, "dense_bias", watched)
    run = alibi.memory_work(way=alibi.DENSE, length=16, device="cpu")
    made.clear()
    run()
    assert made == [16]
    run = alibi.training_step(alibi.DENSE, 16, "cpu", bias_is_ready=True)
    made.clear()
    run()
    assert made == []


# swiglu


def test_three_ways_to_swiglu_are_one_computation() -> None:
    made, x = swiglu.layers(), swiglu.drawn_input(6)
    hidden = made[swiglu.EAGER].w1.out_features
    assert (swiglu.WIDTH, hidden) == (512, 1368)
    results = {way: swiglu.training_step(layer, x)() for way, layer in made.items()}
    for tensor, *others in zip(*(results[way] for way in (swiglu.RECOMPUTED, swiglu.FUSED)), strict=True):
        torch.testing.assert_close(others[0], tensor, rtol=1e-5, atol=1e-5)
    out, grad_x, w1, b1, w2, b2, *rest = results[swiglu.EAGER]
    joined = [out, grad_x, torch.cat([w1, w2]), torch.cat([b1, b2]), *rest]
    for tensor, expected in zip(results[swiglu.RECOMPUTED], joined, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-5)


def test_both_eager_ways_keep_the_input_and_four_hidden_numbers_a_token() -> None:
    made, x = swiglu.layers(), swiglu.drawn_input(6)
    expected = 4 * 6 * (512 + 4 * 1368)
    kept = {way: saved_bytes(partial(layer, x)) for way, layer in made.items()}
    assert kept == {swiglu.RECOMPUTED: 4 * 6 * 512, swiglu.FUSED: expected, swiglu.EAGER: expected}


# the whole


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "figures.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "QUICK", TINY)
        assert main(["blocks", "--quick", "--json", str(path)]) == 0
    return path


def test_a_quick_run_measures_every_claim_and_decides_none(quick: Path) -> None:
    content = json.loads(quick.read_text(encoding="utf-8"))
    bounds = {claim["name"]: claim["bound"] for claim in content["claims"]}
    assert bounds.items() >= BOUNDS.items()
    assert content["bench"] == "blocks" and content["quick"] is True
    assert quick.with_suffix(".png").exists()


def test_rows_hold_what_was_measured_and_of_what(quick: Path) -> None:
    rows = json.loads(quick.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        assert row["name"]
        assert len({"ratio", "workspace_bytes", "saved_bytes"} & set(row)) == 1, row
    training = {row["batch_tokens"]: row for row in rows if row["name"] == "training, padded / packed"}
    assert set(training) == {128, 256}
    assert all(row["tokens_per_second"] > 0 < row["peer_tokens_per_second"] for row in training.values())
    assert "training, padded, masked / packed" in [row["name"] for row in rows]


@pytest.mark.parametrize(("features", "claimed"), [(["AVX2"], False), (["AVX2", "AVX-512 bf16"], True)])
def test_bf16_is_claimed_where_the_processor_has_it_and_is_a_row_everywhere(
    monkeypatch: pytest.MonkeyPatch, features: list[str], claimed: bool
) -> None:
    for name in ("grouped", "packed", "swiglu"):
        monkeypatch.setattr(getattr(blocks, name), "measure", lambda bench, **kwargs: None)
    monkeypatch.setattr(Comparison, "workspace", lambda *args, **kwargs: [1, 100])
    monkeypatch.setattr(blocks, "QUICK", TINY)
    monkeypatch.setattr(blocks, "this_machine", lambda device: {"cpu": {"features": features}})
    report = blocks.run(quick=True)
    assert {row.get("dtype") for row in report.rows} == {"float32", "bfloat16"}
    assert ("alibi.time.bf16" in {claim.name for claim in report.claims}) is claimed


def test_figures_from_a_gpu_become_rows_and_no_claims() -> None:
    bench = comparison(device="cuda")
    bench.claim("gqa.memory", 9.0, "<= 0.34")
    assert bench.report.claims == []


def test_on_a_gpu_the_workspace_is_pytorchs_peak_less_what_was_there_and_what_comes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, answer in {
        "synchronize": None,
        "reset_peak_memory_stats": None,
        "memory_allocated": 1000,
        "max_memory_allocated": 1000 + 64 + 300,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    asked: list[dict[str, object]] = []

    def work(**setting: object) -> Callable[[], list[torch.Tensor]]:
        asked.append(setting)
        return lambda: [torch.zeros(16)]  # 64 bytes of result

    monkeypatch.setattr(grouped, "memory_work", work)
    bench = comparison(device="cuda")
    found = bench.workspace(
        "course_lib.bench.grouped:memory_work", [{"way": "a", "length": 8}], dtype="float32"
    )
    assert found == [300]
    assert asked == [{"way": "a", "length": 8, "device": "cuda"}]
    assert bench.report.rows == [{"name": "workspace, a", "dtype": "float32", "workspace_bytes": 300}]


def test_a_comparison_counts_its_pairs_aloud_and_keeps_every_ratio() -> None:
    told: list[tuple[str, int, int]] = []
    bench = comparison(pairs=3, progress=lambda *said: told.append(said))
    times = bench.time("ours", lambda: None, "theirs", lambda: None, length=8)
    assert told == [("ours against theirs", done, 3) for done in (1, 2, 3)]
    (row,) = bench.report.rows
    assert row["name"] == "ours / theirs" and row["length"] == 8
    assert row["ratios"] == times.ratios and row["ratio"] == times.ratio and row["pairs"] == 3


@pytest.mark.parametrize(("value", "code"), [(2.1, 0), (1.9, 1)])
def test_all_benches_write_one_file_whose_claims_decide_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    def measured(name: str, found: float) -> Callable[..., Report]:
        def run(**kwargs: object) -> Report:
            report = Report(name, {"device": "cpu"}, [{"name": "a row"}])
            report.claim(f"{name}.x", found, ">= 2")
            return report

        return run

    for name in BENCHES:
        monkeypatch.setattr(
            f"course_lib.bench.{name}.run", measured(name, value if name == "blocks" else 3.0)
        )
    path = tmp_path / "figures.json"
    assert main(["all", "--json", str(path)]) == code
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["bench"] == "all"
    assert [claim["name"] for claim in content["claims"]] == [f"{name}.x" for name in BENCHES]
    assert [row["bench"] for row in content["rows"]] == list(BENCHES)
    assert {p.name for p in tmp_path.glob("*.png")} == {f"figures-{name}.png" for name in BENCHES}
