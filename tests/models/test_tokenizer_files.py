"""The tokenizers that lie beside models."""

import json
from pathlib import Path

import pytest
from tokenizers import ByteLevelBPETokenizer

from course_lib.models.tokenizer_files import load_tokenizer_of
from course_lib.text import load_tokenizer

TEXT = "একদিন </s> র‍্যাম, hello"


@pytest.fixture(params=["tokenizer.json", "vocab.json"])
def opt(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    own = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    own.train_from_iterator([TEXT] * 3, vocab_size=300, special_tokens=special, show_progress=False)
    own.save(str(tmp_path / "tokenizer.json")) if request.param == "tokenizer.json" else own.save_model(
        str(tmp_path)
    )
    config = {"model_type": "opt", "bos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def test_opt_begins_a_prompt_and_no_other_text_with_its_end_token(opt: Path) -> None:
    tokenizer = load_tokenizer_of(opt)
    assert tokenizer.prompt(TEXT) == [2, *tokenizer.encode(TEXT)]
    assert 2 not in tokenizer.encode(TEXT)


def test_bytes_and_text_of_ids_are_the_text(opt: Path) -> None:
    tokenizer = load_tokenizer_of(opt)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8") == TEXT
    assert tokenizer.token_bytes(2) == b""


def test_an_added_token_is_its_own_text_also_with_letters_that_stand_for_other_bytes(tmp_path: Path) -> None:
    own = ByteLevelBPETokenizer()
    own.train_from_iterator([TEXT], vocab_size=270, show_progress=False)
    own.add_tokens(["café", "ঢাকা"])
    own.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    tokenizer = load_tokenizer_of(tmp_path)
    ids = tokenizer.encode("café ঢাকা")
    assert len(ids) == 3
    assert b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8") == "café ঢাকা"


def test_a_prompt_of_the_course_begins_with_end_of_text(tmp_path: Path) -> None:
    own = load_tokenizer()
    own.save(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer_of(tmp_path)
    assert tokenizer.prompt("একদিন") == [own.end_of_text, *own.encode("একদিন")]


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json, or vocab\.json and merges\.txt"):
        load_tokenizer_of(tmp_path)


def test_a_broken_tokenizer_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="expected a tokenizer in"):
        load_tokenizer_of(tmp_path)
