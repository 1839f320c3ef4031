"""The finished model's folder: in which precision, with which card, and its copy in the place of an older one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from course_lib.models import GPT
from course_lib.training import CourseText, TrainConfig, evaluate, train
from course_lib.training.held_out import split_documents
from course_lib.training.model_folder import as_stored, publish

from .runs import MODEL, small


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("stored_as", ["fp16", "bf16"])
def test_a_model_may_be_stored_in_half_the_bytes_and_stays_as_it_is_in_memory(tmp_path, stored_as):
    result = train(small(output=tmp_path, steps=1, stored_as=stored_as), progress=False)
    stored = GPT.load(tmp_path / "model")
    for name, tensor in result.model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(stored.state_dict()[name], tensor.to(stored.state_dict()[name].dtype))
    assert stored.embed.weight.dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}[stored_as]
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert size < 2.1 * result.model.num_parameters() + 4096
    assert f"weights in {stored_as}" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_stored_copy_keeps_a_tied_head_tied():
    stored = as_stored(GPT(MODEL), "fp16")
    assert stored.head.weight is stored.embed.weight


def test_a_weight_that_fp16_cannot_hold_is_named():
    model = GPT(MODEL)
    with torch.no_grad():
        model.layers[0].attention.q_proj.weight[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"stored_as: .*fp16.*65504.*layers\.0\.attention\.q_proj"):
        as_stored(model, "fp16")
    assert as_stored(model, "bf16").layers[0].attention.q_proj.weight.isfinite().all()


def test_the_card_has_licence_seed_and_schedule(tmp_path):
    train(small(output=tmp_path, steps=2, license="cc0-1.0", seed=7), progress=False)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert 'license: "cc0-1.0"' in card and "| seed | 7 |" in card
    assert "learning rate 0.001 after 1 steps, 0.0001 at the end" in card


def losses_on_card(folder: Path) -> dict[str, float]:
    """Of the rows "| held out, stories (3 documents) | 1.234 nats a token |"."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    return {
        what: float(loss) for what, loss in re.findall(r"\| held out, (\w+) \(.*?\) \| ([\d.]+) nats", card)
    }


def test_the_card_tells_the_loss_of_the_stories_and_of_the_corpus_apart(tmp_path):
    data = CourseText(stories=60)
    result = train(small(output=tmp_path, data=data, steps=1), progress=False)
    held = split_documents(data, 0.1).held_out
    stories = [document for document in held if document.id.startswith("story-")]
    corpus = [document for document in held if document not in stories]
    on_card = losses_on_card(tmp_path / "model")
    assert on_card["stories"] == pytest.approx(evaluate(result.model, stories), abs=2e-3)
    assert on_card["corpus"] == pytest.approx(evaluate(result.model, corpus), abs=2e-3)
    assert on_card["stories"] != on_card["corpus"]


def test_a_card_for_text_of_ones_own_has_one_held_out_loss(tmp_path):
    train(small(output=tmp_path, steps=1), progress=False)
    assert losses_on_card(tmp_path / "model") == {}


def test_a_copy_goes_where_it_is_asked_for(tmp_path):
    target = tmp_path / "deep" / "mine"
    train(small(output=tmp_path / "run", model_folder=target, steps=1), progress=False)
    made = tmp_path / "run" / "model"
    assert names(target) == names(made)
    assert all((target / name).read_bytes() == (made / name).read_bytes() for name in names(made))
    assert names(target.parent) == {"mine"}


def test_an_older_model_is_replaced_and_a_newer_card_of_the_same_weights_is_not(tmp_path):
    target = tmp_path / "mine"
    GPT(MODEL, seed=9).save(target, trained="long ago")
    config = small(output=tmp_path / "run", model_folder=target, steps=1)
    result = train(config, progress=False)
    assert torch.equal(GPT.load(target).embed.weight, result.model.embed.weight)
    (target / "README.md").write_text("my own card", encoding="utf-8")
    train(config, progress=False)
    assert (target / "README.md").read_text(encoding="utf-8") == "my own card"


def test_a_run_that_ended_before_the_copy_makes_it_when_called_again(tmp_path):
    target = tmp_path / "mine"
    train(small(output=tmp_path / "run", steps=1), progress=False)
    GPT(MODEL, seed=9).save(target)
    train(small(output=tmp_path / "run", model_folder=target, steps=1), progress=False)
    weights = [folder / "model.safetensors" for folder in (target, tmp_path / "run" / "model")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_copy_that_fails_leaves_the_older_model_whole(tmp_path, monkeypatch):
    source, target = tmp_path / "new", tmp_path / "old"
    GPT(MODEL, seed=1).save(source)
    GPT(MODEL, seed=2).save(target)
    rename, before = os.rename, (target / "model.safetensors").read_bytes()

    def failing(old, new):
        if Path(old).name == "new":
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="No space"):
        publish(source, target)
    assert (target / "model.safetensors").read_bytes() == before
    assert names(tmp_path) == {"new", "old"}


def test_a_folder_of_something_else_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "thesis.docx").write_text("years of work", encoding="utf-8")
    with pytest.raises(ValueError, match=r"model_folder: .*also holds thesis\.docx"):
        train(small(output=tmp_path.parent / "run of mine", model_folder=tmp_path), progress=False)
    assert not (tmp_path.parent / "run of mine").exists()


def test_a_copy_needs_an_output():
    with pytest.raises(ValueError, match="model_folder: expected an output"):
        TrainConfig(model=MODEL, steps=1, model_folder="x")
