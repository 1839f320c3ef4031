"""Training the tiny model: reproducible, complete, interruptible."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch

from course_lib.packing import pack
from course_lib.text import load_tokenizer, stories
from course_lib.tiny_gpt import TinyGPT, evaluate, fit, fitting, packed_loss, sample

DOCUMENTS = [[0, 5, 9, 2, 11, 7, 0], [0, 3, 0], [0, 8, 8, 1, 0], [0, 4, 6, 10, 2, 9, 1, 5, 0]]


def small(**changes: Any) -> TinyGPT:
    return TinyGPT(**{"vocab_size": 12, "dim": 16, "num_layers": 1, "num_heads": 2, **changes})


def quiet_fit(model: TinyGPT, documents: Any, **arguments: Any) -> fitting.FitResult:
    return fit(model, documents, progress=False, **arguments)


def test_the_same_seed_and_steps_give_the_same_losses_and_weights() -> None:
    models = [small(), small(), small()]
    results = [
        quiet_fit(m, DOCUMENTS, steps=8, batch_tokens=12, seed=seed)
        for m, seed in zip(models, (4, 4, 5), strict=True)
    ]
    assert results[0].losses == results[1].losses
    assert results[0].losses != results[2].losses
    assert torch.equal(models[0].embed.weight, models[1].embed.weight)


def test_training_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    quiet_fit(small(), DOCUMENTS, steps=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_short_story_is_learned_by_heart_in_each_language() -> None:
    model = TinyGPT(dim=64, num_layers=1, num_heads=2)
    for language, index in (("bn", 0), ("en", 1)):
        story = next(stories(1, seed=index, language=language))
        result = quiet_fit(model, [story], steps=80, lr=1e-2)
        assert result.losses[0] > 5 and result.final_loss < 0.1
        opening = " ".join(story.text.split()[:2])
        assert sample(model, opening, temperature=0) == story.text


def test_texts_are_read_between_two_ends_of_text() -> None:
    model = TinyGPT(dim=16, num_layers=1, num_heads=2)
    end = load_tokenizer().end_of_text
    ids = [end, *load_tokenizer().encode("এক দিন সকালে"), end]
    with torch.no_grad():
        assert evaluate(model, ["এক দিন সকালে"]) == pytest.approx(float(packed_loss(model, pack([ids]))))


def test_texts_are_normalised_before_they_are_encoded() -> None:
    """One letter of বাড়ি in two spellings, U+09DC and two code points, must not be two different words."""
    model = TinyGPT(dim=16, num_layers=1, num_heads=2)
    spellings = ["ব\u09be\u09dc\u09bf", "ব\u09be\u09a1\u09bc\u09bf"]
    assert evaluate(model, spellings[:1]) == evaluate(model, spellings[1:])


def test_documents_texts_ids_and_tensors_may_be_mixed() -> None:
    model = TinyGPT(dim=16, num_layers=1, num_heads=2)
    result = quiet_fit(model, [next(stories(1)), "A text.", [1, 2, 3], torch.tensor([4, 5])], steps=1)
    assert result.tokens > 10


def test_one_tensor_is_one_document() -> None:
    model = small()
    assert evaluate(model, torch.tensor(DOCUMENTS[0])) == evaluate(model, [DOCUMENTS[0]])


def test_a_long_document_is_cut_and_keeps_every_target() -> None:
    model = small(positions="learned", max_length=4)
    ids = list(range(11))
    parts = fitting.document_parts(model, [ids], None, 2048, None)
    assert [p.tolist() for p in parts] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9, 10]]
    assert [len(p) for p in fitting.document_parts(small(), [ids], None, 2048, 5)] == [5, 5, 3]


def test_every_document_is_read_once_a_pass_and_rows_stay_within_the_batch() -> None:
    parts = [torch.full((n,), n) for n in (5, 3, 9, 2, 7, 4)]
    rows = list(fitting._rows(parts, 10))
    assert sorted(n for row in rows for n in row.lengths) == [2, 3, 4, 5, 7, 9]
    assert all(sum(row.lengths) <= 10 for row in rows)


def test_evaluation_is_the_mean_over_tokens_whatever_the_batch() -> None:
    model = small().double()
    assert evaluate(model, DOCUMENTS, batch_tokens=9) == pytest.approx(evaluate(model, DOCUMENTS), abs=1e-12)


def test_fit_trains_where_gradients_are_switched_off() -> None:
    """As in a cell that evaluates under no_grad and then trains on."""
    with torch.no_grad():
        result = quiet_fit(small(), DOCUMENTS, steps=3)
    assert result.losses[-1] < result.losses[0]


def test_a_second_fit_goes_on_from_the_first() -> None:
    model = small()
    first = quiet_fit(model, DOCUMENTS, steps=30, lr=1e-2)
    assert quiet_fit(model, DOCUMENTS, steps=1, lr=1e-2).losses[0] < first.losses[0] - 0.5


def test_seconds_end_a_run_and_steps_may_end_it_sooner() -> None:
    assert quiet_fit(small(), DOCUMENTS, seconds=0.2).steps >= 1
    assert quiet_fit(small(), DOCUMENTS, seconds=3600, steps=3).steps == 3


def test_a_trained_model_is_left_ready_to_be_read_and_holds_no_gradient() -> None:
    model = small()
    quiet_fit(model, DOCUMENTS, steps=1)
    assert not model.training and all(p.grad is None for p in model.parameters())


def test_the_schedule_sets_the_pace_of_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_schedule", lambda done: 0.0)
    model = small()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    quiet_fit(model, DOCUMENTS, steps=3)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_a_gradient_is_cut_to_length_one() -> None:
    model = small()
    loss = 1e4 * packed_loss(model, pack(DOCUMENTS))
    fitting.optimizer_step(model, [], loss, 0)
    norms = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None])
    assert norms.norm().item() == pytest.approx(1.0, rel=1e-3)


def test_a_result_counts_all_tokens_and_averages_the_last_tenth_of_the_losses() -> None:
    result = fitting.FitResult(tuple(float(n) for n in range(20)), tokens=300, seconds=2.0)
    assert (result.steps, result.tokens_per_second, result.final_loss) == (20, 150.0, 18.5)
    nothing = fitting.FitResult((), 0, 0.0)
    assert nothing.tokens_per_second == 0 and math.isnan(nothing.final_loss)
    read = quiet_fit(small(), [DOCUMENTS[0]], steps=3)
    assert read.tokens == 3 * len(DOCUMENTS[0])


def test_every_pass_has_an_order_of_its_own() -> None:
    parts = [torch.full((2,), n) for n in range(20)]
    rows = fitting.packed_batches(parts, 40, random.Random(0))
    first, second = (next(rows).tokens[0, ::2].tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second != list(range(20)) != first


def test_ctrl_c_keeps_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    untrained = model.embed.weight.detach().clone()
    step = fitting.optimizer_step

    def interrupted_at_the_third(*arguments: Any) -> float:
        if arguments[-1] == 2:
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(fitting, "optimizer_step", interrupted_at_the_third)
    result = quiet_fit(model, DOCUMENTS, steps=10)
    assert result.interrupted and result.steps == 2
    assert not torch.equal(model.embed.weight, untrained)


def test_a_loss_that_is_not_finite_stops_before_it_reaches_the_weights() -> None:
    model = small()
    with torch.no_grad():
        model.layers[0].feed_forward.up.bias[0] = math.nan
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(
        FloatingPointError, match=r"step 0: the loss is nan.*weights are those before.*lower lr"
    ):
        quiet_fit(model, DOCUMENTS, steps=3)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) or name.endswith("up.bias")


def test_progress_goes_to_stderr_only(capfd: pytest.CaptureFixture[str]) -> None:
    fit(small(), DOCUMENTS, steps=2)
    out, err = capfd.readouterr()
    assert out == "" and "100%" in err and "loss" in err
    quiet_fit(small(), DOCUMENTS, steps=2)
    assert capfd.readouterr().err == ""


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    rates = [fitting._schedule(done / 1000) for done in range(1001)]
    assert 0 < rates[0] < 0.2 and max(rates) == pytest.approx(1.0)
    assert rates[:50] == sorted(rates[:50]) and rates[50:] == sorted(rates[50:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)
