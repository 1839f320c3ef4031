"""Writing with every kind of model and padding, against reading everything again for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from course_lib.gqa import KVCache
from course_lib.models.generate import generate
from course_lib.models.generate_rows import NewToken, SpeedMeter
from course_lib.models.generate_settings import checked_settings

from .made import VOCABULARY, config, small, token_ids

POSITIONS = ["learned", "rotary", "alibi", "none"]


def read_again(model: Any, tokens: Tensor, new: int) -> Tensor:
    """What greedy writing without a cache gives."""
    for _ in range(new):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens


def padded(rows: Sequence[Sequence[int]], masks: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The rows' tokens in the places that their masks mark, other tokens of the vocabulary in the rest."""
    mask = torch.tensor([list(own) for own in masks])
    tokens = token_ids(*mask.shape, seed=99)
    for row, own in enumerate(rows):
        tokens[row, mask[row].bool()] = torch.tensor(own)
    return tokens, mask


PADDED = {
    "left": [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]],
    "right": [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]],
    "holes": [[0, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]],
    "none longest": [[0, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 1, 0]],
}


@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_writing_is_what_reading_all_again_gives(positions: str) -> None:
    model = small(positions=positions, max_length=80)
    prompts = token_ids(3, 7)
    assert torch.equal(generate(model, prompts, max_new_tokens=64), read_again(model, prompts, 64))


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("padding", list(PADDED))
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_row_gets_what_it_gets_alone_wherever_its_padding_is(
    positions: str, padding: str, sampled: bool
) -> None:
    model = small(positions=positions, dtype=torch.float64)
    masks = PADDED[padding]
    rows = [token_ids(sum(own), seed=i).tolist() for i, own in enumerate(masks)]
    tokens, mask = padded(rows, masks)
    options: dict[str, Any] = {"max_new_tokens": 12}
    if sampled:
        options |= {"do_sample": True, "temperature": 1.5, "top_p": 0.95}
    together = generate(model, tokens, attention_mask=mask, seed=[3, 4, 5], **options)
    assert torch.equal(together[:, :5], tokens)
    for i, own in enumerate(rows):
        alone = generate(model, torch.tensor([own]), seed=3 + i, **options)
        assert together[i, 5:].tolist() == alone[0, len(own) :].tolist()


@settings(max_examples=40)
@given(data=st.data(), positions=st.sampled_from(POSITIONS), sampled=st.booleans())
def test_any_padding_and_any_stop_leave_each_row_alone(
    data: st.DataObject, positions: str, sampled: bool
) -> None:
    model = small(positions=positions, dtype=torch.float64)
    length = data.draw(st.integers(1, 6))
    real = st.lists(st.integers(0, 1), min_size=length, max_size=length).filter(any)
    masks = data.draw(st.lists(real, min_size=1, max_size=4))
    stop = data.draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=12))
    new = data.draw(st.integers(0, 10))
    rows = [token_ids(sum(own), seed=i).tolist() for i, own in enumerate(masks)]
    tokens, mask = padded(rows, masks)
    heard: list[NewToken] = []
    together = generate(
        model,
        tokens,
        attention_mask=mask,
        max_new_tokens=new,
        stop=stop,
        do_sample=sampled,
        seed=list(range(len(rows))),
        on_token=heard.append,
    )
    ends = []
    for i, own in enumerate(rows):
        alone = generate(
            model, torch.tensor([own]), max_new_tokens=new, stop=stop, do_sample=sampled, seed=i
        )[0, len(own) :].tolist()
        ends.append(len(alone))
        rest = together[i, length:].tolist()
        pad = stop[0] if stop else 0
        assert rest == alone + [pad] * (len(rest) - len(alone))
        assert [event.token for event in heard if event.row == i] == alone
        assert [event.last for event in heard if event.row == i] == [False] * (len(alone) - 1) + [
            True
        ] * bool(alone)
    assert together.shape[1] == length + max(ends)


def test_nothing_new_gives_the_prompt_back_as_a_tensor_of_its_own() -> None:
    prompts = token_ids(2, 5)
    out = generate(small(), prompts, max_new_tokens=0)
    assert torch.equal(out, prompts)
    assert out.data_ptr() != prompts.data_ptr()


def test_a_batch_without_rows_gives_one_back() -> None:
    assert generate(small(), token_ids(0, 5), max_new_tokens=4).shape == (0, 5)


def test_the_stop_token_is_kept_and_the_rest_of_the_row_is_padding() -> None:
    model = small()
    prompts = token_ids(2, 4)
    free = generate(model, prompts, max_new_tokens=10)[:, 4:].tolist()
    stop = next(token for token in free[0][:6] if token not in free[1])
    end = free[0].index(stop)
    out = generate(model, prompts, max_new_tokens=10, stop=stop)[:, 4:].tolist()
    assert out[0] == free[0][: end + 1] + [stop] * (9 - end)  # without a pad token, one that ends a text
    assert out[1] == free[1]


def test_writing_ends_early_once_all_rows_have_stopped() -> None:
    model = small()
    prompts = token_ids(2, 4)
    free = generate(model, prompts, max_new_tokens=10)[:, 4:].tolist()
    stop = {free[0][1], free[1][2]}
    ends = [next(i for i, token in enumerate(row) if token in stop) for row in free]
    out = generate(model, prompts, max_new_tokens=10, stop=stop)
    assert out.shape == (2, 4 + max(ends) + 1)
    assert max(ends) < 9


def test_a_stop_token_in_the_prompt_stops_nothing() -> None:
    model = small()
    prompt = token_ids(1, 6)
    free = generate(model, prompt, max_new_tokens=5, stop=())
    stop = next(token for token in prompt[0].tolist() if token not in free[0, 6:].tolist())
    assert torch.equal(generate(model, prompt, max_new_tokens=5, stop=stop), free)


@pytest.mark.parametrize(
    "given_as",
    [lambda ids: ids, tuple, set, torch.tensor, lambda ids: iter(ids), lambda ids: {i: 0 for i in ids}],
)
def test_stop_ids_may_come_in_any_collection(given_as: Any) -> None:
    model = small()
    prompts = token_ids(1, 4)
    free = generate(model, prompts, max_new_tokens=8)
    wanted = free[:, :7] if free[0, 6] not in free[0, 4:6] else None
    out = generate(model, prompts, max_new_tokens=8, stop=given_as([int(free[0, 6])]))
    assert wanted is None or torch.equal(out, wanted)
    assert int(out[0, -1]) == int(free[0, 6])


def test_the_same_seed_draws_the_same_and_another_seed_something_else() -> None:
    model = small()
    prompts = token_ids(3, 4)
    options: dict[str, Any] = {"max_new_tokens": 20, "do_sample": True}
    first = generate(model, prompts, seed=1, **options)
    assert torch.equal(first, generate(model, prompts, seed=1, **options))
    assert not torch.equal(first, generate(model, prompts, seed=2, **options))
    assert not torch.equal(generate(model, prompts, **options), generate(model, prompts, **options))


def test_the_same_prompt_in_several_rows_is_continued_in_several_ways() -> None:
    out = generate(small(), token_ids(1, 4).repeat(4, 1), max_new_tokens=20, do_sample=True, seed=0)
    assert len({tuple(row) for row in out.tolist()}) == 4


def test_a_longer_run_begins_with_the_shorter() -> None:
    model = small(positions="rotary")
    options: dict[str, Any] = {"do_sample": True, "seed": 5}
    long = generate(model, token_ids(2, 4), max_new_tokens=300, **options)
    short = generate(model, token_ids(2, 4), max_new_tokens=7, **options)
    assert torch.equal(long[:, :11], short)


def test_top_k_of_one_is_greedy() -> None:
    model = small()
    greedy = generate(model, token_ids(2, 4), max_new_tokens=20)
    drawn = generate(model, token_ids(2, 4), max_new_tokens=20, do_sample=True, top_k=1)
    assert torch.equal(greedy, drawn)


def test_the_global_generators_and_the_model_are_left_alone() -> None:
    model = small().train()
    before = torch.get_rng_state()
    generate(model, token_ids(2, 4), max_new_tokens=4, do_sample=True)
    assert torch.equal(before, torch.get_rng_state())
    assert model.training
    assert torch.is_grad_enabled()


def test_what_comes_back_can_be_trained_on() -> None:
    model = small()
    model(generate(model, token_ids(1, 4), max_new_tokens=4)).sum().backward()
    assert model.embed.weight.grad is not None


def test_tokens_made_in_inference_mode_and_a_call_within_it_are_fine() -> None:
    model = small()
    wanted = generate(model, token_ids(2, 4), max_new_tokens=4)
    with torch.inference_mode():
        inside = generate(model, token_ids(2, 4), max_new_tokens=4)
    assert torch.equal(inside, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_with_left_padding_gives_no_nan(dtype: torch.dtype) -> None:
    """Fault 16."""
    model = small(dtype=dtype)
    tokens, mask = token_ids(2, 6), torch.tensor([[0, 0, 0, 0, 0, 1], [1] * 6])
    out = generate(model, tokens, attention_mask=mask, max_new_tokens=8, do_sample=True, seed=0)
    assert out.shape == (2, 14)


def test_autocast_around_it_is_taken() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert generate(small(), token_ids(2, 4), max_new_tokens=6).shape == (2, 10)


def test_logits_are_computed_for_the_last_position_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    seen: list[tuple[int, ...]] = []
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    read: list[tuple[int, ...]] = []
    model.embed.register_forward_pre_hook(lambda _, inputs: read.append(tuple(inputs[0].shape)))
    generate(model, token_ids(2, 9), max_new_tokens=3)
    assert seen == [(2, 24)] * 3
    assert read == [(2, 9), (2, 1), (2, 1)]  # each token is read once, the last one never


def test_a_cache_takes_its_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []
    made = KVCache._with_room

    def with_room(self: KVCache, room: Tensor | None, tensor: Tensor, width: int) -> Tensor:
        out = made(self, room, tensor, width)
        if out is not room:
            rooms.append(out.shape[2])
        return out

    monkeypatch.setattr(KVCache, "_with_room", with_room)
    generate(small(), token_ids(2, 9), max_new_tokens=30)
    assert len(rooms) == 4  # keys and values of two layers
    assert set(rooms) <= {38, 39}


def test_the_last_position_can_be_read_and_a_token_written_after_it() -> None:
    model = small(positions="learned", max_length=12)
    out = generate(model, token_ids(1, 5), max_new_tokens=8)
    assert torch.equal(out, read_again(model, token_ids(1, 5), 8))


@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_computed_positions_have_no_end(positions: str) -> None:
    model = small(positions=positions, max_length=8)
    assert generate(model, token_ids(1, 5), max_new_tokens=20).shape == (1, 25)


def test_each_token_is_heard_of_once_with_its_row_and_place() -> None:
    heard: list[NewToken] = []
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    out = generate(small(), token_ids(2, 4), attention_mask=mask, max_new_tokens=3, on_token=heard.append)
    assert [(new.row, new.step) for new in heard] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert [new.position for new in heard] == [3, 4, 4, 5, 5, 6]
    assert [new.token for new in heard] == out[:, 4:].T.flatten().tolist()
    assert [new.last for new in heard] == [False] * 4 + [True] * 2
    assert [new.text for new in heard] == [""] * 6
    assert sorted(new.seconds for new in heard) == [new.seconds for new in heard]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("stop")])
def test_what_on_token_raises_goes_out_and_what_it_heard_stays(error: Any) -> None:
    heard: list[int] = []

    def listen(new: NewToken) -> None:
        heard.append(new.token)
        if len(heard) == 3:
            raise error

    model = small()
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        generate(model, token_ids(1, 4), max_new_tokens=9, on_token=listen)
    assert heard == generate(model, token_ids(1, 4), max_new_tokens=3)[0, 4:].tolist()


def test_a_meter_counts_prefill_and_decode_apart() -> None:
    heard: list[NewToken] = []
    meter = SpeedMeter(heard.append)
    assert meter.prefill_tokens_per_second is None
    mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    for _ in range(2):  # the second call starts anew
        generate(small(), token_ids(2, 4), attention_mask=mask, max_new_tokens=6, on_token=meter)
        assert (meter.prompt_tokens, meter.decode_tokens) == (7, 10)
    assert meter.prefill_tokens_per_second == 7 / meter.prefill_seconds
    assert meter.decode_tokens_per_second == 10 / meter.decode_seconds
    assert len(heard) == 24
    generate(small(), token_ids(1, 4), max_new_tokens=1, on_token=meter)
    assert (meter.prompt_tokens, meter.decode_tokens_per_second) == (4, None)


def test_the_time_spent_in_on_token_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("course_lib.models.generate_rows.time.perf_counter", lambda: clock[0])

    def slow(new: NewToken) -> None:
        clock[0] += 100

    model = small()
    model.embed.register_forward_pre_hook(lambda *_: clock.__setitem__(0, clock[0] + 1))
    meter = SpeedMeter(slow)
    generate(model, token_ids(2, 4), max_new_tokens=5, on_token=meter)
    assert (meter.prefill_seconds, meter.decode_seconds) == (1, 4)


def test_a_row_that_has_ended_may_go_on_to_nan() -> None:
    model = small()
    prompts = token_ids(2, 4)
    free = generate(model, prompts, max_new_tokens=6)[:, 4:].tolist()
    stop = free[0][0]
    assert stop not in free[1]
    model.head.register_forward_hook(
        lambda _, inputs, out: out.index_fill(0, torch.tensor([0]), float("nan")) if model_step() else out
    )
    steps = iter(range(100))

    def model_step() -> int:
        return next(steps)

    for options in ({}, {"do_sample": True, "top_k": 1, "top_p": 0.5}, {"do_sample": True, "top_p": 1e-9}):
        steps = iter(range(100))
        out = generate(model, prompts, max_new_tokens=6, stop=stop, **options)
        assert out[1, 4:].tolist() == free[1]


@pytest.mark.parametrize(("model", "tokenizer"), [(50272, 50265), (250880, 250680), (320, 300), (4096, 4096)])
def test_a_vocabulary_may_be_padded_beyond_its_tokenizers(model: int, tokenizer: int) -> None:
    class Known:
        vocab_size = tokenizer

        def token_bytes(self, token: int) -> bytes:
            return b"a"

    settings = checked_settings(
        config(vocab_size=model), torch.zeros(1, 1, dtype=torch.int64), max_new_tokens=1, tokenizer=Known()
    )
    assert settings.tokenizer.vocab_size == tokenizer
