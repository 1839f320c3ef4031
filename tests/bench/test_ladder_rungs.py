"""The ladder's work and its rungs: what is fixed, and what is equal where it must be. No test depends on a time."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch

from course_lib.bench.ladder import (
    RUNGS,
    Rung,
    Workload,
    batches,
    held_out,
    held_out_loss,
    loss_of,
    real_tokens,
    trainer,
)
from course_lib.bench.ladder_rungs import INIT_STD, LEARNING_RATE
from course_lib.models import GPT
from course_lib.swiglu import matched_hidden_features
from course_lib.text import load_corpus, load_tokenizer, normalize_bangla, stories

SMALL = Workload(width=48, layers=2, heads=6, documents=6, cut=64)


def number_of_parameters(rung: Rung, workload: Workload) -> int:
    with torch.device("meta"):
        return GPT(rung.config(workload)).num_parameters()


# The work.


def test_the_work_is_64_documents_of_at_most_512_tokens_for_a_model_of_width_384() -> None:
    work = Workload()
    assert (work.width, work.layers, work.heads, work.kv_heads) == (384, 6, 6, 2)
    assert (work.documents, work.cut, work.seed) == (64, 512, 0)
    (batch,) = batches(work, 1)
    assert len(batch) == 64 and max(map(len, batch)) == 512
    assert all(ids.dtype == torch.int64 and ids.dim() == 1 for ids in batch)


def test_the_first_batch_is_the_same_on_every_machine() -> None:
    (batch,) = batches(Workload(), 1)
    assert real_tokens(batch) == 9798
    assert [len(ids) for ids in batch[:6]] == [508, 38, 512, 167, 24, 36]


def test_documents_and_stories_are_mixed_and_each_ends_where_it_ends_or_is_cut() -> None:
    tokenizer = load_tokenizer()
    end = tokenizer.end_of_text
    corpus = {tuple(tokenizer.encode(normalize_bangla(d.text))) for d in load_corpus()}
    told = {tuple(tokenizer.encode(normalize_bangla(d.text))) for d in stories(len(load_corpus()), seed=0)}
    whole = [tuple(ids.tolist()) for ids in chain(*batches(Workload(), 4)) if len(ids) < 512]
    assert all(ids[0] == end == ids[-1] for ids in whole)
    bare = [ids[1:-1] for ids in whole]
    of_corpus, of_stories = sum(ids in corpus for ids in bare), sum(ids in told for ids in bare)
    assert of_corpus + of_stories == len(bare)
    assert 0.35 < of_corpus / len(bare) < 0.65


def test_a_pass_reads_every_document_once_and_none_that_is_held_out() -> None:
    kept = {tuple(ids.tolist()) for ids in held_out(Workload())}
    read = [tuple(ids.tolist()) for ids in chain(*batches(Workload(documents=67), 10))]
    assert len(read) == 670 and len(kept) == 76
    assert not kept & set(read)
    assert len(set(read[:668])) == 668


def test_another_seed_is_another_order_and_the_same_seed_the_same() -> None:
    def lengths(seed: int) -> list[int]:
        return [len(ids) for ids in batches(Workload(seed=seed), 1)[0]]

    assert lengths(0) == lengths(0) != lengths(1)


def test_more_batches_begin_with_those_of_fewer() -> None:
    few, many = batches(SMALL, 2), batches(SMALL, 3)
    for some, more in zip(few, many, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(some, more, strict=True))


@pytest.mark.error_messages
def test_a_batch_larger_than_the_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match=r"documents: expected at most the 668 .* got 5000 a batch"):
        batches(Workload(documents=5000), 1)


@pytest.mark.error_messages
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 100}, "width: expected a multiple of heads = 6, got 100"),
        ({"kv_heads": 4}, "kv_heads: expected a divisor of heads = 6, got 4"),
        ({"documents": 0}, "documents: "),
        ({"cut": 1}, "cut: "),
    ],
)
def test_work_that_fits_no_model_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload(**settings)


@pytest.mark.error_messages
def test_training_on_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batches: expected at least one, got none"):
        trainer(RUNGS[2], SMALL, [])


# The rungs.


def test_each_rung_has_all_that_the_one_below_has_and_one_idea_more() -> None:
    ideas = ("packed", "amp", "grouped", "swiglu", "chunked_loss", "fused")
    has = [{idea for idea in ideas if getattr(rung, idea)} for rung in RUNGS]
    assert [rung.number for rung in RUNGS] == list(range(7))
    assert [rung.dense for rung in RUNGS] == [True] + [False] * 6
    assert has[0] == has[1] == set()
    assert [above - below for below, above in pairwise(has[1:])] == [
        {"packed"},
        {"amp"},
        {"grouped"},
        {"swiglu"},
        {"chunked_loss", "fused"},
    ]
    assert all(below <= above for below, above in pairwise(has))
    assert len({rung.name for rung in RUNGS}) == 7 and all(rung.adds for rung in RUNGS)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_model_has_the_parameters_of_rung_0_less_the_heads_that_grouped_queries_leave_out(
    rung: Rung,
) -> None:
    naive, own = (number_of_parameters(r, Workload()) for r in (RUNGS[0], rung))
    left_out = 6 * 2 * 384 * 4 * 64 if rung.grouped else 0
    assert own == naive - left_out


def test_swiglu_has_the_width_that_lesson_06_gives_it() -> None:
    assert RUNGS[5].config(Workload()).hidden_width == 1024 == matched_hidden_features(384)


@pytest.mark.parametrize("rung", RUNGS[1:3], ids=lambda rung: rung.name)
def test_padded_dense_padded_and_packed_are_one_computation(rung: Rung) -> None:
    (batch,) = batches(SMALL, 1)
    losses, gradients = [], []
    for way in (RUNGS[0], rung):
        model = trainer(way, SMALL, [batch], seed=3).model
        assert isinstance(model, GPT)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        loss = loss_of(way, model, batch)
        losses.append(loss)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-5)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_loss_in_chunks_is_the_loss_of_all_logits() -> None:
    (batch,) = batches(SMALL, 1)
    model = trainer(RUNGS[5], SMALL, [batch], precision="fp32").model
    whole, chunked = (loss_of(rung, model, batch) for rung in RUNGS[5:])  # type: ignore[arg-type]
    torch.testing.assert_close(whole, chunked, rtol=0, atol=1e-5)


def test_rungs_in_fp32_stay_together_step_after_step() -> None:
    read = batches(SMALL, 3)
    runs = []
    for rung in RUNGS[:3]:
        training = trainer(rung, SMALL, read, seed=1)
        runs.append([training.step().loss for _ in range(3)])
    assert runs[1] == pytest.approx(runs[0], abs=1e-4) and runs[2] == pytest.approx(runs[0], abs=1e-4)
    assert len(set(runs[0])) == 3, "a model that stays as it is would agree with anything"


def test_bf16_learns_nearly_what_fp32_does() -> None:
    read = batches(SMALL, 3)
    single = trainer(RUNGS[2], SMALL, read, seed=1)
    half = trainer(RUNGS[3], SMALL, read, seed=1, precision="bf16")
    assert half.precision.dtype == torch.bfloat16 and single.precision.dtype == torch.float32
    expected = [single.step().loss for _ in range(3)]
    assert [half.step().loss for _ in range(3)] == pytest.approx(expected, abs=0.02)


def test_only_real_tokens_count_on_every_rung() -> None:
    read = batches(SMALL, 2)
    for rung in RUNGS:
        training = trainer(rung, SMALL, read, precision="fp32")
        first = training.step()
        assert first.tokens == training.tokens == sum(len(ids) for ids in read[0])
        training.step()
        training.step()  # the first batch again
        assert training.tokens == 2 * real_tokens(read[0]) + real_tokens(read[1])


def test_the_naive_rung_stores_every_score_and_the_others_none() -> None:
    from course_lib.bench.saved import saved_tensors

    (batch,) = batches(SMALL, 1)
    longest = max(map(len, batch))
    for rung in RUNGS[:2]:
        model = trainer(rung, SMALL, [batch]).model
        found = {saved.shape[-2:] for saved in saved_tensors(lambda r=rung, m=model: loss_of(r, m, batch))}  # type: ignore[misc]
        assert ((longest, longest) in found) is rung.dense


def test_the_top_updates_in_one_pass_and_the_others_as_pytorch_does_unasked() -> None:
    (batch,) = batches(SMALL, 1)
    fused = [trainer(rung, SMALL, [batch], precision="fp32").optimizer.defaults["fused"] for rung in RUNGS]
    assert fused[-1] is True and not any(fused[:-1])


def test_a_step_learns_at_the_rate_it_is_given() -> None:
    (batch,) = batches(SMALL, 1)
    training = trainer(RUNGS[2], SMALL, [batch])
    assert {group["lr"] for group in training.optimizer.param_groups} == {LEARNING_RATE}
    training.step(lr=1e-5)
    assert {group["lr"] for group in training.optimizer.param_groups} == {1e-5}


def test_the_held_out_loss_is_that_of_every_rung_alike() -> None:
    work = replace(SMALL, layers=1, width=24)
    read = batches(work, 1)
    losses = [held_out_loss(trainer(rung, work, read, seed=2), rung, work) for rung in RUNGS[:3]]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)
    guess = (
        math.log(4096) + 24 * INIT_STD**2 / 2
    )  # logits that vary cost half their variance more than equal ones
    assert losses[0] == pytest.approx(guess, abs=0.1)
