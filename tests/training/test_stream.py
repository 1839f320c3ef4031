"""The stream: nothing lost, nothing twice, and after any stop exactly what would have followed."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.packing import NO_TARGET, PackedBatch, next_token_targets
from course_lib.text import load_corpus, load_tokenizer, read_documents, stories
from course_lib.training import TokenStream

pytestmark = pytest.mark.filterwarnings("ignore:documents.*split into")


def numbers(count: int = 40, longest: int = 9, seed: int = 0) -> list[list[int]]:
    """Documents whose ids all differ, so that each token of a batch can be traced."""
    rng = random.Random(seed)
    lengths = [rng.randint(2, longest) for _ in range(count)]
    ids = iter(range(4096))
    return [[next(ids) for _ in range(n)] for n in lengths]


def stream(documents: Any, **changes: Any) -> TokenStream:
    return TokenStream(documents, **{"batch_tokens": 20, "context": 9, "buffer_size": 7, **changes})


def same(one: PackedBatch, other: PackedBatch) -> bool:
    tensors = ((one.tokens, other.tokens), (one.positions, other.positions))
    return one.lengths == other.lengths and all(torch.equal(a, b) for a, b in tensors)


def pairs(batches: list[PackedBatch]) -> Counter[tuple[int, int]]:
    """How often each token was asked for each next one."""
    return Counter(
        (int(token), int(target))
        for batch in batches
        for token, target in zip(batch.tokens[0], next_token_targets(batch)[0], strict=True)
        if target != NO_TARGET
    )


def pairs_of(documents: list[list[int]]) -> Counter[tuple[int, int]]:
    return Counter(pair for ids in documents for pair in pairwise(ids))


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(lambda n: sum(n) > 60),
    context=st.integers(2, 20),
    buffer_size=st.integers(1, 50),
    seed=st.integers(0, 9),
)
def test_a_pass_asks_for_every_target_once_whatever_the_lengths(lengths, context, buffer_size, seed):
    ids = iter(range(4096))
    documents = [[next(ids) for _ in range(n)] for n in lengths]
    if sum(n for n in lengths if n > 1) < 20:
        return
    batches = list(
        stream(documents, context=context, buffer_size=buffer_size, seed=seed, passes=1, vocab_size=4096)
    )
    assert pairs(batches) == pairs_of(documents)
    assert all(batch.tokens.shape[1] <= 20 and max(batch.lengths) <= context for batch in batches)


@settings(max_examples=40)
@given(
    stop=st.integers(0, 40),
    buffer_size=st.integers(1, 60),
    longest=st.integers(2, 30),
    world_size=st.integers(1, 3),
)
def test_resuming_after_any_batch_gives_the_batches_of_an_uninterrupted_run(
    stop, buffer_size, longest, world_size
):
    options = dict(buffer_size=buffer_size, world_size=world_size, rank=world_size - 1)
    whole = stream(numbers(longest=longest), **options)
    for _ in range(stop):
        next(whole)
    state = json.loads(json.dumps(whole.state_dict()))
    resumed = stream(numbers(longest=longest), **options)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == whole.state_dict()
    for _ in range(30):
        assert same(next(resumed), next(whole))


def test_resuming_a_file_that_is_read_as_a_stream(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("\n\n".join(document.text for document in stories(30)), encoding="utf-8")
    options: dict[str, Any] = dict(batch_tokens=256, context=64, buffer_size=5)
    whole = TokenStream(lambda: read_documents(file), **options)
    for _ in range(17):
        next(whole)
    resumed = TokenStream(lambda: read_documents(file), **options)
    resumed.load_state_dict(whole.state_dict())
    assert all(same(next(resumed), next(whole)) for _ in range(40))


def test_the_same_seed_gives_the_same_batches_and_another_gives_others():
    one, two, other = (stream(numbers(), seed=seed) for seed in (3, 3, 4))
    first, again, different = ([next(s) for _ in range(25)] for s in (one, two, other))
    assert all(map(same, first, again)) and not any(map(same, first[:3], different[:3]))


def test_each_pass_has_an_order_of_its_own():
    documents = stream(numbers())
    passes: list[list[int]] = [[], []]
    while documents.passes_done < 2:
        number = documents.passes_done
        passes[number] += next(documents).tokens[0].tolist()
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(sum(map(len, numbers()))))
    assert passes[0] != passes[1]


def test_a_buffer_of_one_keeps_the_order_and_a_large_one_mixes_all():
    ordered, mixed = (list(stream(numbers(), buffer_size=size, passes=1)) for size in (1, 1000))
    in_order = [token for ids in numbers() for token in ids]
    assert torch.cat([b.tokens[0] for b in ordered]).tolist() == in_order
    starts = [int(b.tokens[0, 0]) for b in mixed]
    assert min(starts[:5]) < 110 < max(starts[:5])


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_share_out_the_batches_of_one_process_in_equal_numbers(world_size):
    alone = list(stream(numbers(), passes=1))
    ranks = [list(stream(numbers(), passes=1, rank=r, world_size=world_size)) for r in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    dealt = [batch for turn in zip(*ranks, strict=True) for batch in turn]
    assert all(map(same, alone, dealt)) and len(dealt) - len(alone) < world_size


def test_a_run_resumes_with_another_number_of_processes():
    pair = [stream(numbers(), rank=r, world_size=2) for r in range(2)]
    for _ in range(3):
        for one in pair:
            next(one)
    assert pair[0].state_dict() == pair[1].state_dict()
    alone = stream(numbers())
    alone.load_state_dict(pair[0].state_dict())
    for _ in range(10):
        assert all(same(next(alone), next(one)) for one in pair)


def test_a_long_document_is_split_with_one_warning_that_says_how():
    documents = [list(range(20)), list(range(20, 50)), list(range(50, 55))]
    with pytest.warns(UserWarning) as told:
        list(stream(documents, passes=1))
    assert [str(w.message) for w in told if "split" in str(w.message)] == [
        "documents[0] has 20 tokens, more than the context of 9: it is split into 3 parts, and so are others like it. "
        "Every token is still learned, but a part does not see the ones before it. A longer context= keeps "
        "documents whole."
    ]


def test_documents_within_the_context_come_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(stream(numbers(), passes=2))


def test_a_text_stands_between_two_end_of_text_tokens():
    tokenizer = load_tokenizer()
    batch = next(TokenStream(["আমি ভাত খাই।"] * 3, batch_tokens=12, tokenizer=tokenizer))
    ids = batch.tokens[0, : batch.lengths[0]].tolist()
    assert ids[0] == ids[-1] == tokenizer.end_of_text and tokenizer.decode(ids[1:-1]) == "আমি ভাত খাই।"


def test_the_bilingual_corpus_comes_whole():
    corpus = load_corpus()[:60]
    tokenizer = load_tokenizer()
    batches = list(TokenStream(corpus, batch_tokens=512, context=128, buffer_size=20, passes=1))
    expected = sum(len(tokenizer.encode(document.text)) + 1 for document in corpus)  # all but the first end
    assert sum(int((next_token_targets(batch) != NO_TARGET).sum()) for batch in batches) == expected


def test_what_was_drawn_for_a_batch_that_ctrl_c_broke_off_still_comes():
    stops: list[int] = []

    def documents() -> Any:
        for number, ids in enumerate(numbers()):
            if number == 25 and not stops:
                stops.append(number)
                raise KeyboardInterrupt
            yield ids

    interrupted, whole = stream(documents), stream(numbers())
    found: list[PackedBatch] = []
    while len(found) < 30:
        try:
            found.append(next(interrupted))
        except KeyboardInterrupt:
            assert interrupted.state_dict()["batches"] == len(found)
    assert stops and all(same(batch, next(whole)) for batch in found)


def test_the_state_is_small_and_plain():
    documents = stream(numbers(count=400), buffer_size=100)
    next(documents)
    assert len(json.dumps(documents.state_dict())) < 2000


def test_a_model_may_have_more_rows_than_the_tokenizer_has_ids():
    stream = TokenStream(["one two three four five six"] * 3, batch_tokens=8, vocab_size=50_272)
    assert next(stream).tokens.max() < stream.tokenizer.vocab_size < stream.vocab_size
