"""OPT and BLOOM write what those of ``transformers`` write, every parameter random."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.models import OPT, Bloom, BloomConfig, NewToken, OPTConfig, generate
from course_lib.text import load_tokenizer

from .made import randomised

transformers = pytest.importorskip("transformers")

VOCABULARY = 97
SHAPES = {
    "pre-norm": {},
    "350m": {"norm_first": False, "embed_dim": 16},
    "no final norm, GELU, no bias": {"final_norm": False, "activation": "gelu", "bias": False},
}


def pair(seed: int = 0, vocab_size: int = VOCABULARY, **options: Any) -> tuple[OPT, Any]:
    """Our OPT and theirs, with the same random weights."""
    config = OPTConfig(
        vocab_size=vocab_size, dim=48, num_layers=2, num_heads=6, hidden_features=80, max_length=96, **options
    )
    ours = OPT(config)
    randomised(ours, seed)
    theirs = transformers.OPTForCausalLM(transformers.OPTConfig(**config.to_dict())).eval()
    missing = theirs.load_state_dict(ours.to_stored(ours.state_dict()), strict=False).missing_keys
    assert not missing
    return ours, theirs


def bloom_pair(seed: int = 0, **options: Any) -> tuple[Bloom, Any]:
    config = BloomConfig(vocab_size=VOCABULARY, dim=48, num_layers=2, num_heads=6, pad_token_id=1, **options)
    ours = Bloom(config)
    randomised(ours, seed)
    theirs = transformers.BloomForCausalLM(transformers.BloomConfig(**config.to_dict())).eval()
    assert not theirs.load_state_dict(ours.to_stored(ours.state_dict()), strict=False).missing_keys
    return ours, theirs


def padded(
    *lengths: int, left: bool = True, seed: int = 0, vocab_size: int = VOCABULARY
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.ones(len(lengths), max(lengths), dtype=torch.int64)  # 1 is OPT's pad
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        place = slice(-length, None) if left else slice(length)
        tokens[row, place] = torch.randint(3, vocab_size, (length,), generator=generator)
        mask[row, place] = 1
    return tokens, mask


def their_greedy(theirs: Any, tokens: Tensor, mask: Tensor, new: int, **options: Any) -> Tensor:
    options = {"eos_token_id": None, "pad_token_id": 1, **options}
    return theirs.generate(tokens, attention_mask=mask, max_new_tokens=new, do_sample=False, **options)


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("lengths", [(9,), (9, 9, 9), (9, 3, 1)])
def test_sixty_four_greedy_tokens_are_theirs(shape: str, lengths: tuple[int, ...]) -> None:
    ours, theirs = pair(**SHAPES[shape])
    tokens, mask = padded(*lengths)
    wanted = their_greedy(theirs, tokens, mask, 64)
    assert torch.equal(generate(ours, tokens, attention_mask=mask, max_new_tokens=64, stop=()), wanted)


@pytest.mark.parametrize("residual_after_norm", [False, True])
@pytest.mark.parametrize("lengths", [(9,), (9, 3, 1)])
def test_sixty_four_greedy_tokens_of_bloom_are_theirs(
    residual_after_norm: bool, lengths: tuple[int, ...]
) -> None:
    ours, theirs = bloom_pair(residual_after_norm=residual_after_norm)
    tokens, mask = padded(*lengths)
    wanted = their_greedy(theirs, tokens, mask, 64)
    assert torch.equal(generate(ours, tokens, attention_mask=mask, max_new_tokens=64, stop=()), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_with_left_padding_writes_what_a_row_writes_alone(dtype: torch.dtype) -> None:
    """Fault 16: no NaN, and the first tokens agree; later ones may differ by rounding."""
    for ours, _ in (pair(), bloom_pair()):
        ours.to(dtype)
        tokens, mask = padded(9, 3, 1)
        together = generate(ours, tokens, attention_mask=mask, max_new_tokens=20, stop=())
        for row, own in enumerate(mask.bool()):
            alone = generate(ours, tokens[row, own][None], max_new_tokens=20, stop=())
            assert alone[0, -20] == together[row, -20]


@pytest.mark.parametrize("shape", [*SHAPES, "BLOOM"])
def test_right_padding_gives_what_left_padding_gives(shape: str) -> None:
    """Where ``transformers`` warns and writes something else."""
    ours = bloom_pair()[0] if shape == "BLOOM" else pair(**SHAPES[shape])[0]
    new = [
        generate(ours, tokens, attention_mask=mask, max_new_tokens=64, stop=())[:, 9:]
        for tokens, mask in (padded(9, 3, 1, left=left) for left in (True, False))
    ]
    assert torch.equal(*new)


def test_rows_end_at_the_configs_end_token_as_theirs_do() -> None:
    ours, theirs = pair()
    tokens, mask = padded(6, 4, 2)
    free = their_greedy(theirs, tokens, mask, 40)[:, 6:].tolist()
    # An end token that comes at different times, and not last in all rows.
    end = max(range(VOCABULARY), key=lambda token: len({row.index(token) for row in free if token in row}))
    wanted = their_greedy(theirs, tokens, mask, 40, eos_token_id=end)
    ours, _ = pair(eos_token_id=end)
    assert torch.equal(generate(ours, tokens, attention_mask=mask, max_new_tokens=40), wanted)
    assert (wanted == 1).any()


def test_a_stop_string_ends_where_theirs_does() -> None:
    tokenizer = load_tokenizer()
    ours, theirs = pair(vocab_size=tokenizer.vocab_size)
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._backend, eos_token="<|endoftext|>", pad_token="<|pad|>"
    )
    tokens, mask = padded(6, vocab_size=tokenizer.vocab_size)
    free = generate(ours, tokens, max_new_tokens=40, stop=())[0, 6:].tolist()
    stop = tokenizer.token_bytes(free[7]).decode("utf-8", errors="ignore").strip()[:2]
    assert stop
    wanted = their_greedy(theirs, tokens, mask, 40, stop_strings=[stop], tokenizer=peer)
    for own in (tokenizer, peer, tokenizer._backend):
        assert torch.equal(generate(ours, tokens, max_new_tokens=40, stop=stop, tokenizer=own), wanted)


def test_all_kinds_of_tokenizer_stream_the_same_text() -> None:
    tokenizer = load_tokenizer()
    ours, _ = pair(vocab_size=tokenizer.vocab_size)
    peer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._backend, eos_token="<|endoftext|>", pad_token="<|pad|>"
    )
    prompt = torch.tensor([tokenizer.encode("নদীর ধারে")])
    texts = []
    for own in (tokenizer, peer, tokenizer._backend):
        heard: list[NewToken] = []
        generate(
            ours,
            prompt,
            max_new_tokens=60,
            do_sample=True,
            seed=3,
            stop=(),
            tokenizer=own,
            on_token=heard.append,
        )
        texts.append("".join(new.text for new in heard))
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) > 60
