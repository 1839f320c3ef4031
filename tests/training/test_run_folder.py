"""What train() writes into its folder, and what it shows."""

from __future__ import annotations

import json
import re

import pytest
import torch

from course_lib.models import GPT
from course_lib.text import Tokenizer, load_tokenizer
from course_lib.training import evaluate, train
from course_lib.training.held_out import split_documents

from .runs import STORIES, small

pytestmark = pytest.mark.filterwarnings("ignore:.*split into:UserWarning")


def test_a_finished_run_is_given_back_and_its_model_is_left_alone(tmp_path):
    config = small(output=tmp_path)
    first = train(config, progress=False)
    (tmp_path / "model" / "README.md").write_text("my own card", encoding="utf-8")
    again = train(config, progress=False)
    assert again.records == first.records and again.held_out == first.held_out and again.resumed_from == 6
    assert (tmp_path / "model" / "README.md").read_text(encoding="utf-8") == "my own card"
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_the_folder_of_the_model_can_be_used(tmp_path):
    result = train(small(output=tmp_path), progress=False)
    model = GPT.load(tmp_path / "model")
    tokenizer = Tokenizer.load(tmp_path / "model" / "tokenizer.json")
    assert tokenizer.to_json() == load_tokenizer().to_json()
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
    held = split_documents(STORIES, 0.1).held_out
    assert evaluate(model, held, tokenizer=tokenizer, batch_tokens=256) == result.held_out[-1][1]


def test_the_card_says_on_what_the_model_was_trained_and_how(tmp_path):
    result = train(small(output=tmp_path, data=STORIES), progress=False)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    held = len(split_documents(STORIES, 0.1).held_out)
    assert f"{40 - held} documents, and {held} more held out" in card
    for fact in (
        "| steps | 6 |",
        f"{result.tokens:,}, with repetition",
        "fp32",
        f"{result.held_out[-1][1]:.3f} after",
    ):
        assert fact in card
    assert 'language: ["bn", "en"]' in card


def test_the_card_names_the_files_but_not_the_folders_of_the_readers_text(tmp_path):
    (tmp_path / "diary.txt").write_text("\n\n".join(d.text for d in STORIES), encoding="utf-8")
    train(small(output=tmp_path / "run", data=tmp_path / "diary.txt", steps=1), progress=False)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "text from diary.txt" in card and str(tmp_path) not in card


def test_the_folder_of_a_run_holds_what_the_docs_say(tmp_path):
    train(small(output=tmp_path / "deep" / "run"), progress=False)
    found = {path.name for path in (tmp_path / "deep" / "run").iterdir()}
    assert found == {"run.json", "log.jsonl", "curves.png", "checkpoints", "model"}
    assert json.loads((tmp_path / "deep" / "run" / "run.json").read_text(encoding="utf-8"))["steps"] == 6
    assert (tmp_path / "deep" / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_an_output_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(small(steps=2), progress=False)
    assert not list(tmp_path.iterdir())


def test_nothing_is_shown_unless_asked_for(capfd):
    train(small(steps=2), progress=False)
    out, err = capfd.readouterr()
    assert not out and not err


def test_what_is_shown_tells_model_data_precision_loss_speed_memory_and_time(capfd):
    result = train(small(steps=6))
    shown = capfd.readouterr().out
    assert f"{result.model.num_parameters():,} parameters" in shown and "more held out" in shown
    assert result.precision.why in shown
    for words in ("step 6 of 6", "tokens/s", "held-out loss", "still to come: 2 steps take about"):
        assert words in shown
    assert re.search(r"tokens/s · [\d.]+ [MG]iB", shown)
