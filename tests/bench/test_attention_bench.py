"""The workloads of `bench attention`, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from course_lib.attention import Causal, Segments
from course_lib.bench import attention as bench
from course_lib.bench.__main__ import main
from course_lib.bench.report import Report

CLAIMS = {
    "tiled.memory": "<= 0.04",
    "tiled.time.fp32": "<= 1.6",
    "auto.overhead": "<= 1.05",
    "packed.speedup": ">= 3",
    "packed.over_loop": ">= 0.95",
    "window.speedup": ">= 3.5",
}


def test_packed_lengths_are_64_log_normal_documents_of_8_to_512_tokens() -> None:
    lengths = bench.packed_lengths()
    assert len(lengths) == 64
    assert all(isinstance(length, int) and 8 <= length <= 512 for length in lengths)
    assert max(lengths) == 512, "some are clipped, which makes padding dear"
    logs = torch.tensor(lengths).double().log()
    assert abs(logs.median() - 4.5) < 0.4
    assert 0.6 < logs.std() < 1.2


def test_packed_lengths_are_the_same_in_every_run_and_others_with_another_seed() -> None:
    state = torch.get_rng_state()
    assert bench.packed_lengths() == bench.packed_lengths(64, 0)
    assert bench.packed_lengths(seed=1) != bench.packed_lengths(seed=0)
    assert torch.equal(torch.get_rng_state(), state), "drawn from PyTorch's own generator"


def test_the_peers_compute_what_we_compute() -> None:
    lengths = [5, 1, 3]
    query, key, value = (
        torch.randn(1, 9, 2, 4, generator=torch.Generator().manual_seed(s)) for s in range(3)
    )
    torch.testing.assert_close(
        bench.sdpa(query, key, value), bench.ours(Causal())(query, key, value), rtol=0, atol=1e-6
    )
    packed = bench.ours(Segments(lengths, inner=Causal()), "reference")(query, key, value)
    torch.testing.assert_close(bench.loop_over(lengths)(query, key, value), packed, rtol=0, atol=1e-6)


def test_a_step_gives_the_gradients_of_all_three_inputs() -> None:
    gradients = bench.step(bench.sdpa, (1, 4, 2, 8), torch.bfloat16, "cpu")()
    assert [tuple(g.shape) for g in gradients] == [(1, 4, 2, 8)] * 3
    assert {g.dtype for g in gradients} == {torch.bfloat16}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", bench.Sizes(length=64, long_length=64, documents=2, pairs=1))


@pytest.mark.usefixtures("tiny")
def test_a_quick_bench_measures_every_claim_and_fails_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    assert main(["attention", "--quick", "--json", str(path)]) == 0
    content = json.loads(path.read_text(encoding="utf-8"))
    bounds = {claim["name"]: claim["bound"] for claim in content["claims"]}
    assert bounds.items() >= CLAIMS.items()
    assert content["quick"] is True
    assert all("name" in row for row in content["rows"])
    assert path.with_suffix(".png").exists()
    assert str(path) in capsys.readouterr().out


def test_the_exit_code_says_whether_every_claim_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(value: float):
        def run(**kwargs: object) -> Report:
            report = Report("attention", {})
            report.claim("packed.speedup", value, ">= 3")
            return report

        return run

    arguments = ["attention", "--json", str(tmp_path / "figures.json")]
    monkeypatch.setattr(bench, "run", measured(3.5))
    assert main(arguments) == 0
    monkeypatch.setattr(bench, "run", measured(2.5))
    assert main(arguments) == 1


def test_a_cuda_bench_without_cuda_says_so_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["attention", "--device", "cuda"]) == 2
    said = capsys.readouterr()
    assert "no CUDA device" in said.err and "doctor" in said.err
    assert said.out == "" and "Traceback" not in said.err


def test_an_unknown_bench_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["atention"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "atention" in said and "attention" in said
