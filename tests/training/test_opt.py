"""Training takes any family's config: what holds of a GPT's run holds of an OPT's; transformers reads its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.bench.memory import workspaces
from course_lib.bench.saved import saved_bytes
from course_lib.models.families import FAMILIES
from course_lib.models.load import load_model
from course_lib.models.opt import OPT
from course_lib.models.opt_config import OPTConfig
from course_lib.packing import Packed, next_token_targets, pack
from course_lib.text import Tokenizer, load_tokenizer
from course_lib.training import TrainConfig, adamw, choose_precision, memory_budget, train
from course_lib.training.__main__ import main
from course_lib.training.command_config import model_config
from course_lib.training.family import build
from course_lib.training.memory import training_memory
from course_lib.training.parallel import ONE
from course_lib.training.row_loss import RowLoss

from . import parallel_cases, resume_cases
from .runs import STORIES, Stopped, losses, small, stop_after
from .together import together

SIZES: dict[str, Any] = dict(dim=16, num_layers=2, num_heads=2, max_length=64)


@pytest.fixture
def config() -> OPTConfig:
    return model_config(load_tokenizer(), family="opt", **SIZES)


def test_an_opt_learns(config):
    result = train(small(model=config, steps=30, learning_rate=0.01), progress=False)
    assert isinstance(result.model, OPT)
    assert result.held_out[-1][1] < result.held_out[0][1] - 0.5


def test_the_config_of_a_run_comes_back_from_json(config):
    wanted = TrainConfig(model=config, steps=3)
    assert TrainConfig.from_dict(json.loads(json.dumps(wanted.to_dict()))) == wanted


def test_documents_of_a_row_do_not_see_each_other(config):
    model = OPT(config, seed=1)
    documents = [torch.arange(5, 12), torch.arange(20, 60), torch.tensor([3, 4])]
    loss = RowLoss(model, chunked=False)
    batch = pack(documents)
    together = loss(batch, next_token_targets(batch), "sum")
    alone = [loss(row, next_token_targets(row), "sum") for row in map(pack, ([d] for d in documents))]
    torch.testing.assert_close(together, sum(alone))


def test_a_run_that_was_stopped_goes_on_to_the_bit(config, tmp_path):
    whole = train(small(model=config, output=tmp_path / "whole"), progress=False)
    stopped = small(model=config, output=tmp_path / "stopped")
    with pytest.raises(Stopped):
        train(stopped, progress=False, on_step=stop_after(4))
    again = train(stopped, progress=False)
    assert again.resumed_from == 3 and losses(again) == losses(whole)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_to_the_bit(config, tmp_path):
    options = {"model": config, "batch_tokens": 128}
    found = []
    for name, kill_at in (("whole", None), ("killed", 7)):
        folder = tmp_path / name
        folder.mkdir()
        if kill_at:
            together(resume_cases.train_here, str(folder / "run"), options, kill_at, folder=folder, count=1)
        (outcome,) = together(resume_cases.train_here, str(folder / "run"), options, folder=folder, count=1)
        found.append(outcome.value)
    assert found[1]["resumed_from"] == 6
    assert all(found[0][key] == found[1][key] for key in ("steps", "held_out", "weights"))


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_two_processes_train_as_one_does(tmp_path: Path, engine: str) -> None:
    small_opt = OPTConfig(
        vocab_size=parallel_cases.VOCABULARY, dim=24, num_layers=2, num_heads=6, max_length=64
    )
    options = {"config": small_opt}
    one = parallel_cases.train_here(ONE, engine, options)
    for outcome in together(parallel_cases.train_here, engine, options, folder=tmp_path):
        assert not outcome.error, outcome
        torch.testing.assert_close(outcome.value["reports"], one["reports"], rtol=1e-7, atol=1e-9)
        for name, weight in outcome.value["weights"].items():
            torch.testing.assert_close(weight, one["weights"][name], rtol=1e-7, atol=1e-9)


def test_the_folder_of_an_opt_is_read_by_transformers(config, tmp_path):
    transformers = pytest.importorskip("transformers")
    result = train(small(model=config, output=tmp_path, stored_as="fp16", steps=1), progress=False)
    folder = tmp_path / "model"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.tensor([load_tokenizer().encode("নদীর ধারে")])
    with torch.no_grad():
        wanted = theirs(tokens).logits
        found = load_model(folder, dtype=torch.float32)(tokens)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert result.model.embed.weight.dtype == torch.float32
    config_file = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ids = load_tokenizer().end_of_text, load_tokenizer().pad
    assert [config_file[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")] == [ids[0], *ids]


def test_transformers_begins_a_text_with_the_token_that_it_began_with_in_training(config, tmp_path):
    transformers = pytest.importorskip("transformers")
    train(small(model=config, output=tmp_path, steps=1), progress=False)
    ours, text = load_tokenizer(), "আমি school-এ যাই। <|endoftext|>"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert theirs("আমি বাড়ি যাই।").input_ids == [ours.end_of_text, *ours.encode("আমি বাড়ি যাই।")]
    assert (theirs.eos_token_id, theirs.pad_token_id) == (ours.end_of_text, ours.pad)
    stored = Tokenizer.load(tmp_path / "model" / "tokenizer.json")
    assert stored.encode(text) == ours.encode(text)


def test_the_command_trains_an_opt_and_its_run_goes_on(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(story.text for story in STORIES), encoding="utf-8")
    flags = ["--family", "opt", "--dim", "16", "--layers", "1", "--heads", "2", "--max-length", "64"]
    flags += ["--data", str(path), "--steps", "2", "--batch-tokens", "256", "--precision", "fp32"]
    assert main([*flags, "--output", str(tmp_path / "run"), "--quiet"]) == 0
    model = load_model(tmp_path / "run" / "model")
    assert (model.config.dim, model.config.vocab_size) == (16, 4096)
    with pytest.warns(UserWarning, match="3 steps"):
        train(
            TrainConfig.from_dict(
                json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8")), steps=3
            ),
            progress=False,
        )
    assert main([*flags, "--dry-run"]) == 0
    assert "peak" in capsys.readouterr().out


@pytest.mark.parametrize("flag", [["--positions", "alibi"], ["--kv-heads", "1"], ["--feed-forward", "gelu"]])
def test_what_an_opt_has_no_choice_of_is_refused(capsys, flag):
    assert main(["--family", "opt", *flag, "--dry-run"]) == 2
    assert f"{flag[0]}: a model of the family 'opt' has no choice" in capsys.readouterr().err


MEMORY: dict[str, dict[str, Any]] = {
    "as the course trains it": dict(length=1024, precision="bf16"),
    "in fp32": dict(length=1024),
    "accumulated gradients": dict(length=512, accumulate=True, chunked_loss=False),
}
OPT_SIZES: dict[str, Any] = dict(vocab_size=2048, dim=256, num_layers=3, num_heads=4, max_length=512)


def test_the_peak_is_predicted_within_a_tenth():
    cases = [dict(model=OPT_SIZES, family="opt", **settings) for settings in MEMORY.values()]
    peaks = workspaces("tests.training.measured_step:step_work", cases)
    for settings, peak in zip(MEMORY.values(), peaks, strict=True):
        found = training_memory(OPTConfig(**OPT_SIZES), **settings)
        assert found.peak == pytest.approx(peak, rel=0.1), settings


KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "an OPT": ("opt", {}),
    "norms after, narrow embeddings": ("opt", dict(norm_first=False, embed_dim=128)),
    "a tuned OPT": ("opt", dict(activation="gelu", final_norm=False, norm_affine=False, tied_head=False)),
    "layer checkpointing": ("opt", dict(checkpointing="layers")),
    "a BLOOM": ("bloom", {}),
}


def config_of(family: str, **changes: Any) -> Any:
    config_class = FAMILIES[family].config_class
    known = {name: value for name, value in OPT_SIZES.items() if name in config_class.__dataclass_fields__}
    return config_class(**{**known, **changes})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [name for name, (family, _) in KEPT.items() if family == "opt"])
def test_the_activations_are_those_that_autograd_keeps(name, precision):
    family, changes = KEPT[name]
    config = config_of(family, **changes)
    model = build(config)
    row = pack([torch.randint(config.vocab_size, (128,)) for _ in range(4)])
    bias = Packed(row.lengths, inner=model.attention_bias)
    with choose_precision("cpu", precision).autocast():
        kept = saved_bytes(lambda: model.hidden(row.tokens, positions=row.positions, bias=bias))
    found = training_memory(config, length=512, precision=precision)
    head = config.vocab_size * model.head.in_features * 2 if precision == "bf16" else 0
    copies = found.moments["loss"]["half-precision weights"] - head
    copies = 0 if "checkpointing" in changes else copies
    assert sum(found.activations.values()) + copies == pytest.approx(kept, rel=0.02)


@pytest.mark.parametrize("name", KEPT)
def test_weights_gradients_and_averages_are_counted_to_the_byte(name):
    family, changes = KEPT[name]
    config = config_of(family, **changes)
    found = training_memory(config, length=64)
    size = 4 * build(config).num_parameters()
    assert (found.parameters, found.gradients) == (size, size)


def test_a_budget_of_a_run_is_that_of_its_row(config):
    wanted = training_memory(config, length=256, precision="fp32", accumulate=True)
    assert memory_budget(small(model=config)) == wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_built_by_its_config_alone(name):
    sizes = dict(vocab_size=40, dim=8, num_layers=1, num_heads=2)
    model = build(FAMILIES[name].config_class(**sizes), seed=3)
    again = build(model.config, seed=3)
    assert isinstance(model, FAMILIES[name])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert adamw(model, 1e-3).param_groups
