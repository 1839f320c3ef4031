"""What the model writes: reproducible, whole graphemes, and an end."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.text import graphemes, load_tokenizer, normalize_bangla
from course_lib.tiny_gpt import TinyGPT, sample

TOKENIZER = load_tokenizer()


class Recited(TinyGPT):
    """A model that says the ids it was given, one after another, whatever it reads."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(dim=8, num_layers=1, num_heads=2)
        self.ids = iter(ids)

    def forward(self, tokens: Tensor, **_: Any) -> Tensor:
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        logits[0, -1, next(self.ids)] = 50.0
        return logits


def bytes_as_tokens(text: str) -> list[int]:
    """Ids that spell the text a byte at a time, as an untrained model may."""
    single = {TOKENIZER.token_bytes(i): i for i in range(TOKENIZER.vocab_size)}
    return [single[bytes([byte])] for byte in text.encode()]


@pytest.fixture(scope="module")
def untrained() -> TinyGPT:
    return TinyGPT(dim=16, num_layers=1, num_heads=2)


def test_the_same_seed_gives_the_same_text(untrained: TinyGPT) -> None:
    texts = [sample(untrained, "এক", seed=seed, max_new_tokens=10) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_sampling_leaves_the_global_generator_alone(untrained: TinyGPT) -> None:
    before = torch.get_rng_state()
    sample(untrained, "A", max_new_tokens=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_prompt_comes_back_in_normal_form_without_spaces_at_its_end(untrained: TinyGPT) -> None:
    prompt = "ব\u09be\u09dc\u09bf  "
    assert sample(untrained, prompt, max_new_tokens=0) == normalize_bangla(prompt).rstrip()
    assert sample(untrained, "", max_new_tokens=0) == ""


def test_what_the_model_reads_begins_with_an_end_of_text() -> None:
    """As in training, where it precedes every text."""
    model = Recited([TOKENIZER.end_of_text])
    read = []
    model.register_forward_pre_hook(lambda module, args: read.append(args[0].tolist()))
    sample(model, "রহিম")
    assert read == [[[TOKENIZER.end_of_text, *TOKENIZER.encode("রহিম")]]]


def test_a_low_temperature_sharpens_and_a_high_one_flattens() -> None:
    class Favouring(Recited):
        def forward(self, tokens: Tensor, **_: Any) -> Tensor:
            logits = torch.full((*tokens.shape, self.vocab_size), -math.inf)
            logits[..., TOKENIZER.encode("A")] = 1.0
            logits[..., TOKENIZER.encode("B")] = 0.0
            return logits

    shares = [
        sample(Favouring([]), "", max_new_tokens=200, temperature=t, seed=1).count("A") / 200
        for t in (0.1, 1.0, 100.0)
    ]
    assert shares[0] > 0.99 and 0.6 < shares[1] < 0.85 and 0.35 < shares[2] < 0.65  # 1, 0.73 and 0.5


def test_writing_stops_at_the_end_of_the_text() -> None:
    model = Recited([*TOKENIZER.encode(" বই পড়ে।"), TOKENIZER.end_of_text, *TOKENIZER.encode("more")])
    assert sample(model, "রহিম", max_new_tokens=50) == "রহিম বই পড়ে।"


@pytest.mark.parametrize("budget", range(1, 16))
def test_a_budget_that_ends_inside_a_grapheme_leaves_it_out(budget: int) -> None:
    word = "ক্ষমা"
    text = sample(Recited(bytes_as_tokens(word)), "", max_new_tokens=min(budget, len(word.encode())))
    assert "\ufffd" not in text and not text.endswith("\u09cd")
    assert word.startswith(text)
    assert budget < 15 or graphemes(text) == graphemes(word)


@pytest.mark.parametrize("prompt", ["", "আ", "ক্", "One "])
@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": None, "temperature": 5.0}, {"top_k": 1}])
def test_even_an_untrained_model_writes_no_broken_character(
    untrained: TinyGPT, prompt: str, options: dict[str, Any]
) -> None:
    for budget in (1, 2, 7, 20):
        text = sample(untrained, prompt, seed=budget, max_new_tokens=budget, **options)
        assert "\ufffd" not in text and text.startswith(prompt.rstrip())


def test_a_byte_that_cannot_follow_gives_way_to_the_next_likeliest_token() -> None:
    """After the first two bytes of ক neither an A nor an end makes a character; its third byte does."""
    first, second, third = bytes_as_tokens("ক")
    model = Recited([first, second, TOKENIZER.encode("A")[0], TOKENIZER.end_of_text])
    likely = model.forward

    def forward(tokens: Tensor, **_: Any) -> Tensor:
        logits = likely(tokens)
        logits[..., [TOKENIZER.end_of_text, third]] += torch.tensor([30.0, 20.0])
        return logits

    model.forward = forward  # type: ignore[method-assign]
    assert sample(model, "", max_new_tokens=9) == "ক"


def test_what_joins_the_prompt_and_stays_unfinished_does_not_take_the_prompt_with_it() -> None:
    """A hasant after ক asks for another consonant, and the budget ends there."""
    assert sample(Recited(TOKENIZER.encode("\u09cd")), "বক", max_new_tokens=1) == "বক"


def test_temperature_zero_takes_the_likeliest(untrained: TinyGPT) -> None:
    greedy = sample(untrained, "A", temperature=0, max_new_tokens=8)
    assert greedy == sample(untrained, "A", top_k=1, temperature=5.0, seed=9, max_new_tokens=8)
    assert greedy == sample(untrained, "A", temperature=0, seed=3, max_new_tokens=8)


def test_padding_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Recited([TOKENIZER.pad])
    monkeypatch.setattr(model, "forward", prefer_padding_to_a_word)
    (word,) = TOKENIZER.encode(" বই")
    assert sample(model, "A", max_new_tokens=2, temperature=0) == "A" + 2 * TOKENIZER.decode([word])


def prefer_padding_to_a_word(tokens: Tensor, **_: Any) -> Tensor:
    logits = torch.zeros(*tokens.shape, TOKENIZER.vocab_size)
    logits[..., TOKENIZER.pad] = 50.0
    logits[..., TOKENIZER.encode(" বই")] = 20.0
    return logits
