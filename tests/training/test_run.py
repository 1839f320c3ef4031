"""train(): what it learns, and that it goes on to the bit."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace

import numpy
import pytest
import torch

from course_lib.models import GPT
from course_lib.packing import Packed, next_token_targets, pack
from course_lib.training import (
    Precision,
    TokenStream,
    adamw,
    choose_precision,
    evaluate,
    learning_rate,
    set_up,
    train,
)
from course_lib.training.held_out import split_documents
from course_lib.training.output import Output
from course_lib.training.progress import read_log

from .runs import MODEL, STORIES, Stopped, losses, small, stop_after

pytestmark = pytest.mark.filterwarnings("ignore:.*split into:UserWarning")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Without the curves, whose picture takes longer than such a run."""
    monkeypatch.setattr(Output, "draw", lambda output: None)


def test_training_lowers_the_loss_on_text_that_was_not_trained_on():
    result = train(small(steps=20, learning_rate=1e-2), progress=False)
    (first, before), (last, after) = result.held_out[0], result.held_out[-1]
    assert (first, last) == (0, 20) and after < before - 0.5
    assert losses(result)[-1] < losses(result)[0] - 0.5
    held = split_documents(STORIES, 0.1).held_out
    assert evaluate(result.model, held, batch_tokens=256) == pytest.approx(after, rel=1e-6)


def test_the_first_step_is_that_of_one_large_batch():
    config = small(steps=1, rows_per_step=3, warm_up=0, weight_decay=0.3, max_norm=0.1)
    result = train(config, progress=False)
    split = split_documents(STORIES, config.held_out)
    stream = TokenStream(split.training, batch_tokens=256, context=64)
    rows = [next(stream) for _ in range(3)]
    model = GPT(MODEL, seed=0)
    batch = pack([part for row in rows for part in row.tokens[0].split(list(row.lengths))])
    logits = model(
        batch.tokens, positions=batch.positions, bias=Packed(batch.lengths, inner=model.attention_bias)
    )
    loss = torch.nn.functional.cross_entropy(logits[0], next_token_targets(batch)[0])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    adamw(model, 1e-3, weight_decay=0.3).step()
    (record,) = result.records
    assert record.loss == pytest.approx(loss.item(), rel=1e-6)
    assert (
        record.targets == int((next_token_targets(batch) >= 0).sum())
        and record.tokens == batch.tokens.numel()
    )
    assert record.norm > 0.1
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(result.model.state_dict()[name], tensor, rtol=1e-3, atol=2e-5)


def test_the_same_config_gives_the_same_losses_and_another_seed_others():
    first, again, other = (train(small(seed=seed), progress=False) for seed in (0, 0, 1))
    assert losses(first) == losses(again) != losses(other)
    assert first.held_out == again.held_out


def test_chunks_change_the_loss_by_rounding_alone():
    whole, chunked = (train(small(chunked_loss=chunked), progress=False) for chunked in (False, True))
    assert losses(whole) == pytest.approx(losses(chunked), rel=1e-5)


@pytest.mark.parametrize("every", [1, 2])
def test_evaluating_more_often_changes_no_loss(every):
    often = train(small(evaluate_every=every), progress=False)
    seldom = train(small(held_out=0.1, evaluate_every=100), progress=False)
    assert losses(often) == losses(seldom)
    assert dict(often.held_out)[6] == dict(seldom.held_out)[6]


def test_the_global_generator_is_left_as_it_was():
    before = torch.get_rng_state()
    train(small(steps=2), progress=False)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("precision", "step"), [("fp32", 1), ("fp32", 4), ("bf16", 5), ("fp16", 4)])
def test_a_run_that_was_stopped_goes_on_with_the_same_losses_to_the_bit(tmp_path, precision, step):
    config = small(output=tmp_path / "run", precision=precision, checkpoint_every=2, evaluate_every=3)
    whole = train(replace(config, output=None), progress=False)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(step))
    resumed = train(config, progress=False)
    assert resumed.resumed_from == (step // 2 * 2 or None)
    assert losses(resumed) == losses(whole)
    assert resumed.held_out == whole.held_out
    assert [record.loss_scale for record in resumed.records] == [
        record.loss_scale for record in whole.records
    ]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_a_loss_scale_that_grows_goes_on_growing_as_it_would_have(tmp_path, monkeypatch):
    def growing(device, requested="auto"):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        return Precision(torch.float16, scaler, "fp16, in a test.", torch.device("cpu"))

    monkeypatch.setattr(set_up, "choose_precision", growing)
    config = small(output=tmp_path, precision="fp16")
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(3))
    resumed = train(config, progress=False)
    assert resumed.resumed_from == 3
    assert [record.loss_scale for record in resumed.records] == [8, 8, 16, 16, 32, 32]


def test_the_log_of_a_resumed_run_has_every_step_and_evaluation_once(tmp_path):
    config = small(output=tmp_path, checkpoint_every=3, evaluate_every=2)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(5))
    result = train(config, progress=False)
    lines = read_log(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [(line["step"], line["held_out"]) for line in lines if "held_out" in line] == list(result.held_out)
    assert [line["loss"] for line in lines if "loss" in line] == losses(result)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_step_at_work_with_a_checkpoint(tmp_path, number):
    config = small(output=tmp_path, checkpoint_every=100)
    handler = signal.getsignal(number)

    def interrupt(record):
        if record.step == 3:
            os.kill(os.getpid(), number)

    stopped = train(config, progress=False, on_step=interrupt)
    assert stopped.interrupted and stopped.steps == 3
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"]
    assert not (tmp_path / "model").exists()
    assert signal.getsignal(number) == handler
    assert losses(train(config, progress=False)) == losses(train(small(), progress=False))


def test_a_second_ctrl_c_stops_at_once():
    def interrupt(record):
        # Raised in this thread, since two that wait for the process are delivered as one.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(small(), progress=False, on_step=interrupt)


def test_every_step_is_reported_with_what_it_did():
    seen = []
    result = train(small(warm_up=2), progress=False, on_step=seen.append)
    assert tuple(seen) == result.records
    assert [record.step for record in seen] == [1, 2, 3, 4, 5, 6]
    for record in seen:
        assert record.learning_rate == learning_rate(record.step - 1, peak=1e-3, steps=6, warm_up=2)
        assert record.memory > 0 and record.seconds > 0 and not record.skipped
    assert result.tokens == sum(record.tokens for record in seen)
    assert result.tokens_per_second == result.tokens / result.seconds


def test_the_precision_that_was_measured_first_holds_for_the_whole_run(tmp_path, monkeypatch):
    def measured(name):
        def choose(device, requested="auto"):
            return choose_precision(device, name if requested == "auto" else requested)

        monkeypatch.setattr(set_up, "choose_precision", choose)

    config = small(output=tmp_path, precision="auto")
    measured("fp32")
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(3))
    measured("bf16")
    resumed = train(config, progress=False)
    assert resumed.precision.dtype == torch.float32
    assert losses(resumed) == losses(train(small(), progress=False))


def test_training_works_where_gradients_are_switched_off():
    with torch.no_grad():
        result = train(small(), progress=False)
    assert losses(result) == losses(train(small(), progress=False))
    assert not result.model.training


def test_training_works_in_inference_mode():
    with torch.inference_mode():
        result = train(small(steps=2), progress=False)
    assert losses(result) == losses(train(small(steps=2), progress=False))


@pytest.mark.skipif(
    os.environ.get("COURSE_JAXTYPING") == "1", reason="beartype itself draws from Python's generator"
)
def test_a_run_that_goes_on_leaves_the_callers_generators_as_they_were(tmp_path):
    drawn = []

    def draw(record):
        drawn.append((torch.rand(1).item(), random.random(), numpy.random.rand()))
        stop_after(5)(record)

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()

    with pytest.raises(Stopped):
        train(small(output=tmp_path), progress=False, on_step=draw)
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
    before = states()
    train(small(output=tmp_path), progress=False, on_step=lambda record: drawn.append(torch.rand(1).item()))
    assert drawn[5] == drawn[2][0]  # the run's own, as they were at its checkpoint
    assert states() == before


def test_the_kernel_caches_are_bounded_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    train(small(steps=1), progress=False)
    assert (os.environ["LRU_CACHE_CAPACITY"], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) == ("256", "7")


def test_a_file_that_moved_is_the_same_data(tmp_path):
    text = "\n\n".join(document.text for document in STORIES)
    for name in ("here.txt", "there.txt"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = small(output=tmp_path / "run", data=tmp_path / "here.txt", checkpoint_every=2)
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(3))
    resumed = train(replace(config, data=tmp_path / "there.txt"), progress=False)
    assert resumed.resumed_from == 2
    assert losses(resumed) == losses(train(replace(config, output=None), progress=False))


@pytest.mark.error_messages  # a notice: whose line it names is looked at, and a check at run time stands between
def test_a_document_longer_than_the_context_is_split_with_a_notice():
    with pytest.warns(UserWarning, match="more than the context of 32: it is split into") as caught:
        train(small(steps=1, context=32), progress=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.compiled
@pytest.mark.slow
def test_a_compiled_run_has_the_losses_of_a_plain_one():
    compiled = train(small(steps=3, compile=True), progress=False)
    assert losses(compiled) == pytest.approx(losses(train(small(steps=3), progress=False)), rel=1e-4)
