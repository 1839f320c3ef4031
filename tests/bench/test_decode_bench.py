"""The workload of `bench decode`: both models compute the same, and what becomes a claim. No test depends on a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from course_lib.bench import decode
from course_lib.bench.__main__ import BENCHES, main
from course_lib.bench.decode_loading import load_memory
from course_lib.models import OPT, OPTConfig

BOUNDS = {
    "decode.over_transformers.fp32.b1": ">= 0.95",
    "decode.over_transformers.fp32.b8": ">= 1.3",
    "decode.over_transformers.bf16.b1": ">= 0.95",
    "decode.over_transformers.bf16.b8": ">= 1.3",
    "decode.bandwidth": ">= 0.85",
    "load.memory": "<= 1.1",
}


@pytest.fixture(scope="module")
def model() -> OPT:
    return OPT(decode.QUICK.config, seed=1).eval()


@pytest.mark.parametrize("batch", [1, 8])
def test_both_write_the_same_tokens(model: OPT, batch: int) -> None:
    pytest.importorskip("transformers")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2, generator=torch.Generator().manual_seed(2))
    tokens = decode.prompts(decode.QUICK, batch, "cpu")
    found = decode.ours(model, tokens, 6)()
    assert found.shape == (batch, decode.QUICK.prompt + 6)
    assert torch.equal(found, decode.theirs(decode.transformers_twin(model), tokens, 6)())


def test_the_peer_attends_by_sdpa_in_the_same_dtype(model: OPT) -> None:
    pytest.importorskip("transformers")
    peer = decode.transformers_twin(model.to(torch.bfloat16))
    model.to(torch.float32)
    assert peer.config._attn_implementation == "sdpa"
    assert {parameter.dtype for parameter in peer.parameters()} == {torch.bfloat16}


def test_the_products_alone_are_those_of_a_decode_step(model: OPT) -> None:
    shapes: list[tuple[int, ...]] = []
    hooks = [
        layer.register_forward_hook(lambda layer, inputs, _: shapes.append(tuple(layer.weight.shape)))
        for layer in decode.linear_layers(model)
    ]
    decode.products_alone(model, 3)()
    alone = sorted(shapes)
    shapes.clear()
    decode.ours(model, decode.prompts(decode.QUICK, 1, "cpu")[:, :1], 3)()
    for hook in hooks:
        hook.remove()
    assert alone == sorted(shapes) and len(alone) == 3 * (6 * 2 + 1)


def test_the_bytes_of_a_step_are_the_weights_of_its_products(model: OPT) -> None:
    assert decode.weight_bytes(model) == 4 * (2 * 12 * 64 * 64 + 512 * 64)


def test_what_is_loaded_in_full_is_of_the_size_of_1_3b() -> None:
    config = decode.Sizes().loaded
    assert (config.num_layers, config.dim, config.num_heads) == (24, 2048, 32)


@pytest.mark.parametrize(
    ("files", "loaded"), [("safetensors", None), ("safetensors", torch.float32), ("bin", None)]
)
def test_loading_takes_the_model_and_a_tensor_more(files: str, loaded: torch.dtype | None) -> None:
    config = OPTConfig(vocab_size=20_000, dim=768, num_layers=6, num_heads=12, max_length=64)
    peak = load_memory(config, files=files, loaded=loaded, shard_bytes=20_000_000)
    assert 0.9 < peak < (1.35 if files == "safetensors" else 1.5), peak


def test_the_full_run_is_of_a_125m_sized_model() -> None:
    config = decode.Sizes().config
    assert (config.num_layers, config.dim, config.vocab_size) == (12, 768, 50272)


def test_quick_measures_every_claim_and_decides_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "decode.json"
    assert main(["decode", "--quick", "--json", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    bf16 = decode.NATIVE_BF16 & set(found["machine"]["cpu"]["features"])
    wanted = {name: bound for name, bound in BOUNDS.items() if bf16 or "bf16" not in name}
    assert {claim["name"]: claim["bound"] for claim in found["claims"]} == wanted
    assert all(claim["value"] > 0 for claim in found["claims"])
    assert "decode.bandwidth" in capsys.readouterr().out
    assert "decode" in BENCHES


def test_without_transformers_the_bandwidth_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "transformers_twin", lambda model: None)
    report = decode.run(quick=True)
    assert [claim.name for claim in report.claims] == ["decode.bandwidth", "load.memory"]
    assert "not installed" in report.rows[0]["name"]
