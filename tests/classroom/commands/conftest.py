"""Small models to write with: made here, and by `train`."""

from pathlib import Path

import pytest
from shell import process

from course_lib.models import OPT, Bloom, BloomConfig, OPTConfig
from course_lib.text import load_tokenizer


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OPT with 64 positions, which has learned nothing: it writes any bytes."""
    path = tmp_path_factory.mktemp("models") / "small"
    tokenizer = load_tokenizer()
    end = tokenizer.end_of_text
    config = OPTConfig(
        vocab_size=tokenizer.vocab_size, dim=16, num_layers=1, num_heads=2, max_length=64,
        bos_token_id=end, eos_token_id=end, pad_token_id=tokenizer.pad,
    )  # fmt: skip
    OPT(config, seed=0).save(path)
    tokenizer.save(path / "tokenizer.json")
    return path


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BLOOM, whose context has no end."""
    path = tmp_path_factory.mktemp("models") / "endless"
    tokenizer = load_tokenizer()
    Bloom(BloomConfig(vocab_size=tokenizer.vocab_size, dim=16, num_layers=1, num_heads=2), seed=0).save(path)
    tokenizer.save(path / "tokenizer.json")
    return path


def trained(path: Path, *more: str) -> Path:
    sizes = ("--dim", 16, "--layers", 1, "--heads", 2, "--max-length", 128, "--batch-tokens", 256)
    done = process("train", "--steps", 2, *sizes, "--stories", 20, "--quiet", "--output", path, *more)
    assert done.code == 0, done.said
    return path


@pytest.fixture(scope="session")
def gpt_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `train` writes: a run, and a GPT in it."""
    return trained(tmp_path_factory.mktemp("runs") / "gpt")


@pytest.fixture(scope="session")
def opt_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an OPT in it, stored as float16."""
    more = ("--family", "opt", "--stored-as", "fp16", "--license", "cc0-1.0")
    return trained(tmp_path_factory.mktemp("runs") / "opt", *more)
