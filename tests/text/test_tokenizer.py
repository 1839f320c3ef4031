import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_lib.text import Tokenizer, graphemes, load_corpus, load_tokenizer, train_tokenizer
from course_lib.text.tokenizer import BANGLA_PATTERN

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
BANGLA = st.text(
    st.sampled_from("কখতদযরলশষসহড়ঢ়য়ৎংঃঁািীুূৃেৈোৌ্ অআই ।,০১২৯a1'\n\r\t\u200c\u200d\ufe0f👨👩🇧🇩\u0301"), max_size=40
)
SEVEN_WORDS = "বাংলাদেশের বিশ্ববিদ্যালয়গুলোতে শিক্ষার্থীরা প্রতিদিন বাংলা বই পড়ে।"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer()


@pytest.fixture(scope="module")
def gpt2_like() -> Tokenizer:
    return train_tokenizer([document.text for document in load_corpus()], pattern="gpt2")


def cut(tokenizer: Tokenizer, text: str) -> list[str]:
    """What the pattern alone makes of a text, before BPE."""
    return tokenizer.pattern_pieces(text)


@given(st.one_of(ANY_TEXT, BANGLA))
@example("")
@example("\0\x01\x7f\x85\u2028\ufeff")
@example("  দুই  ফাঁক \r\n\r\n ")
@example("\u09cd\u09be\u200d")
@example("\U00010ffff\U000e0001\U0001f468\u200d\U0001f469")
@settings(max_examples=500)
def test_any_text_comes_back_exactly(text: str) -> None:
    tokenizer = load_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_unicode_character_comes_back(tokenizer: Tokenizer) -> None:
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_nothing_is_normalised_inside(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("\u09df") != tokenizer.encode("\u09af\u09bc")


@pytest.mark.parametrize(
    "typed", ["<|endoftext|>", "<|pad|>", "</s>", "<s>", "[PAD]", "আমি <|endoftext|>।", "<unk>"]
)
def test_special_tokens_that_are_typed_are_text(tokenizer: Tokenizer, typed: str) -> None:
    ids = tokenizer.encode(typed)
    assert not {tokenizer.end_of_text, tokenizer.pad} & set(ids)
    assert tokenizer.decode(ids) == typed


def test_special_tokens_stay_text_when_trained_on() -> None:
    trained = train_tokenizer(["<|endoftext|> <|pad|>"] * 50, 400)
    assert not {trained.end_of_text, trained.pad} & set(trained.encode("<|endoftext|><|pad|> <|endoftext|>"))


def test_special_tokens_decode_to_nothing_or_to_their_names(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("এক"), tokenizer.end_of_text, *tokenizer.encode("দুই"), tokenizer.pad]
    assert tokenizer.decode(ids) == "একদুই"
    assert tokenizer.decode(ids, show_special=True) == "এক<|endoftext|>দুই<|pad|>"


@pytest.mark.parametrize(
    "word", ["বাংলা", "র‍্যাম", "উদ্‌যাপন", "স্ত্রী", "বিশ্ববিদ্যালয়", "হঠাৎ", "দুঃখ", "চাঁদ", "naïve", "e\u0301tude"]
)
def test_a_word_is_whole_before_bpe(tokenizer: Tokenizer, word: str) -> None:
    assert cut(tokenizer, word) == [word]
    assert cut(tokenizer, f"আহা {word}।") == ["আহা", f" {word}", "।"]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("১,২৩,৪৫৬ টাকা", ["১", ",", "২", "৩", ",", "৪", "৫", "৬", " টাকা"]),
        ("in 1971", ["in", " 1", "9", "7", "1"]),
        ("don't we'll 'sir'", ["don", "'t", " we", "'ll", " '", "sir", "'"]),
        ("it’s", ["it", "’s"]),
        ("a  b\n\n  c ", ["a", " ", " b", "\n\n", " ", " c", " "]),
        ("x\r\n\ty", ["x", "\r\n", "\t", "y"]),
        ("“যাব।” বলল", ["“", "যাব", "।”", " বলল"]),
        ("ভালো 👨‍👩‍👧❤️ না", ["ভালো", " 👨‍👩‍👧❤️", " না"]),
        ("model টা train", ["model", " টা", " train"]),
        ("৪জিবি", ["৪", "জিবি"]),
    ],
)
def test_the_pattern_cuts_where_a_reader_would(tokenizer: Tokenizer, text: str, pieces: list[str]) -> None:
    assert cut(tokenizer, text) == pieces


def test_gpt2s_pattern_tears_a_bangla_word_and_ours_does_not(
    tokenizer: Tokenizer, gpt2_like: Tokenizer
) -> None:
    assert cut(gpt2_like, "বাংলা") == ["ব", "াং", "ল", "া"]
    assert cut(tokenizer, "বাংলা") == ["বাংলা"]


def test_under_gpt2s_pattern_seven_words_cannot_go_under_thirty_two_tokens(gpt2_like: Tokenizer) -> None:
    assert len(SEVEN_WORDS.split()) == 7
    assert len(cut(gpt2_like, SEVEN_WORDS)) >= 32
    assert len(gpt2_like.encode(SEVEN_WORDS)) >= 32


def test_bangla_costs_at_most_as_much_as_gpt2s_pattern_and_english_about_the_same(
    gpt2_like: Tokenizer,
) -> None:
    ours = train_tokenizer([document.text for document in load_corpus()])

    def tokens_per_word(tokenizer: Tokenizer, language: str) -> float:
        texts = [document.text for document in load_corpus(language)]
        return sum(len(tokenizer.encode(text)) for text in texts) / sum(len(text.split()) for text in texts)

    assert tokens_per_word(ours, "bn") < 0.6 * tokens_per_word(gpt2_like, "bn")
    assert tokens_per_word(ours, "en") < 1.1 * tokens_per_word(gpt2_like, "en")


def test_the_shipped_tokenizer_has_4096_tokens_and_ids_in_range(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 4096
    assert len({tokenizer.end_of_text, tokenizer.pad}) == 2
    assert all(0 <= token < 4096 for document in load_corpus() for token in tokenizer.encode(document.text))


def test_every_id_but_the_special_ones_stands_for_bytes_of_its_own(tokenizer: Tokenizer) -> None:
    contents = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    assert [token for token, content in enumerate(contents) if not content] == sorted(
        [tokenizer.end_of_text, tokenizer.pad]
    )
    assert len(set(contents)) == tokenizer.vocab_size - 1
    assert {bytes([byte]) for byte in range(256)} <= set(contents)


@given(st.lists(st.integers(0, 4095), max_size=40))
@settings(max_examples=300)
def test_any_ids_decode_to_text_and_the_stream_says_the_same(ids: list[int]) -> None:
    tokenizer = load_tokenizer()
    text = tokenizer.decode(ids)
    text.encode("utf-8")
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == text
    stream = tokenizer.stream(show_special=True)
    assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids, show_special=True)


@given(st.one_of(ANY_TEXT, BANGLA), st.booleans())
@settings(max_examples=300)
def test_the_stream_gives_out_whole_graphemes_only(text: str, byte_by_byte: bool) -> None:
    tokenizer = load_tokenizer()
    byte_ids = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    ids = (
        [byte_ids[bytes([byte])] for byte in text.encode("utf-8")] if byte_by_byte else tokenizer.encode(text)
    )
    stream = tokenizer.stream()
    parts = [*map(stream.push, ids), stream.flush()]
    assert "".join(parts) == text
    assert [character for part in parts for character in graphemes(part)] == graphemes(text)


def test_the_stream_waits_for_a_conjunct_a_joiner_and_the_second_half_of_a_flag(tokenizer: Tokenizer) -> None:
    byte_ids = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    for whole in ("ক্ষ", "র‍্যা", "🇧🇩", "👩‍🌾", "❤️"):
        stream = tokenizer.stream()
        assert [stream.push(byte_ids[bytes([byte])]) for byte in whole.encode()] == [""] * len(whole.encode())
        assert stream.push(tokenizer.encode("\n")[0]) == whole + "\n"
        assert stream.flush() == ""


def test_a_special_token_ends_what_the_stream_held_back(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    held = [stream.push(token) for token in tokenizer.encode("যাব না।")]
    assert "".join(held) == "যাব না"
    assert stream.push(tokenizer.end_of_text) == "।"


def test_a_stream_can_be_used_again_after_flush(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    stream.push(tokenizer.encode("নদী")[0])
    stream.flush()
    assert stream.push(tokenizer.encode("x")[0]) + stream.flush() == "x"


def test_bytes_that_make_no_character_become_the_replacement_character(tokenizer: Tokenizer) -> None:
    byte_ids = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    assert tokenizer.decode([byte_ids[b"\xe0"], byte_ids[b"\xa6"]]) == "\ufffd"
    assert tokenizer.decode([byte_ids[b"\xff"], byte_ids[b"a"]]) == "\ufffda"


@given(st.one_of(ANY_TEXT, BANGLA))
@settings(max_examples=300)
def test_pieces_join_to_the_text_its_ids_and_whole_graphemes(text: str) -> None:
    tokenizer = load_tokenizer()
    pieces = tokenizer.pieces(text)
    assert "".join(piece.text for piece in pieces) == "".join(tokenizer.tokens(text)) == text
    assert [token for piece in pieces for token in piece.ids] == tokenizer.encode(text)
    assert [character for piece in pieces for character in graphemes(piece.text)] == graphemes(text)


def test_a_tensor_of_ids_decodes(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(torch.tensor(tokenizer.encode("নদীর ধারে"))) == "নদীর ধারে"


def test_saving_and_loading_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "আমার নোট"
    folder.mkdir()
    tokenizer.save(folder / "t.json")
    again = Tokenizer.load(folder / "t.json")
    assert again.to_json() == tokenizer.to_json()
    assert again.encode("<|endoftext|> নদী") == tokenizer.encode("<|endoftext|> নদী")
    assert [file.name for file in folder.iterdir()] == ["t.json"]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda original: pickle.loads(pickle.dumps(original))])
def test_a_copy_also_takes_special_tokens_literally(tokenizer: Tokenizer, duplicate) -> None:
    assert duplicate(tokenizer).encode("<|endoftext|> নদী") == tokenizer.encode("<|endoftext|> নদী")


def test_transformers_reads_the_file_and_finds_the_same_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path / "tokenizer.json")
    other = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = "নদীর ধারে বসে রহিম মাছ ধরছে। It's 5 o'clock."
    assert other(text)["input_ids"] == tokenizer.encode(text)
    assert other.decode(tokenizer.encode(text)) == text


TRAIN = """
import hashlib, sys
sys.stdout.reconfigure(encoding="utf-8")
from course_lib.text import train_tokenizer
words = ["ab", "ba", "কখ", "খক", "xy", "yx", "নদী", "দীন"]  # many pairs tie
pairs = [words[i % 8] + words[(3 * i + 1) % 8] for i in range(240)]
texts = [" ".join(pairs[start : start + 40]) for start in range(200)]
print(hashlib.sha256(train_tokenizer(texts, 330).to_json().encode()).hexdigest())
"""


def test_training_is_the_same_on_any_number_of_threads() -> None:
    def digest(**environment: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", TRAIN],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            env=os.environ | {"PYTHONHASHSEED": "random"} | environment,
        )
        return result.stdout.strip()

    digests = {
        digest(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false"),
        digest(RAYON_NUM_THREADS="4", TOKENIZERS_PARALLELISM="true"),
        digest(RAYON_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true"),
    }
    assert len(digests) == 1


def test_a_small_corpus_gives_a_smaller_vocabulary_that_still_reads_everything() -> None:
    small = train_tokenizer(["নদী নদী"], 4096)
    assert 258 <= small.vocab_size < 300
    assert small.decode(small.encode("ঢাকা & 👩‍🌾")) == "ঢাকা & 👩‍🌾"


@pytest.mark.parametrize("letter", ["a", "ক", "্", " ", "\n", "।", "১", "👩"])
def test_a_hundred_thousand_of_one_character_are_encoded(tokenizer: Tokenizer, letter: str) -> None:
    assert tokenizer.decode(tokenizer.encode(letter * 100_000)) == letter * 100_000


def test_the_pattern_is_in_the_file_as_written(tokenizer: Tokenizer) -> None:
    stored = json.loads(tokenizer.to_json())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    assert stored == BANGLA_PATTERN


@pytest.mark.error_messages
class TestErrors:
    @pytest.mark.parametrize(
        ("text", "index", "name"), [("\ud800", 0, "U\\+D800"), ("নদী \udfff.", 4, "U\\+DFFF")]
    )
    def test_a_lone_surrogate_is_refused_with_its_index(
        self, tokenizer: Tokenizer, text: str, index: int, name: str
    ) -> None:
        with pytest.raises(
            ValueError, match=f"text: the character at index {index} is {name}, a lone surrogate"
        ):
            tokenizer.encode(text)
        with pytest.raises(ValueError, match=rf"texts\[1\]: the character at index {index} is {name}"):
            train_tokenizer(["ok", text])

    @pytest.mark.parametrize("wrong", [-1, 4096, 10**9])
    def test_an_id_outside_the_vocabulary_is_refused(self, tokenizer: Tokenizer, wrong: int) -> None:
        message = f"token: expected an id from 0 to 4095, got {wrong}; was it made by another tokenizer"
        for call in (lambda: tokenizer.decode([0, wrong]), lambda: tokenizer.token_bytes(wrong)):
            with pytest.raises(ValueError, match=message):
                call()
        with pytest.raises(ValueError, match=message):
            tokenizer.stream().push(wrong)

    def test_wrong_types_are_refused(self, tokenizer: Tokenizer) -> None:
        with pytest.raises(TypeError, match="text: expected a str, got list; encode one text at a time"):
            tokenizer.encode(["নদী"])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ids: expected token ids, got str"):
            tokenizer.decode("নদী")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"token: expected an int, got float 1\.5"):
            tokenizer.decode([1.5])  # type: ignore[list-item]
        with pytest.raises(
            TypeError, match=r"texts: expected an iterable of str, got one str; write \[text\]"
        ):
            train_tokenizer("নদী")
        with pytest.raises(TypeError, match=r"texts\[0\]: expected a str, got Document; pass document\.text"):
            train_tokenizer(load_corpus())  # type: ignore[arg-type]

    def test_training_arguments_are_checked(self) -> None:
        with pytest.raises(
            ValueError, match=r"vocab_size: expected at least 258 \(256 bytes and 2 special tokens\)"
        ):
            train_tokenizer(["a"], 257)
        with pytest.raises(ValueError, match='pattern: expected "bangla" or "gpt2", got \'bpe\''):
            train_tokenizer(["a"], pattern="bpe")  # type: ignore[arg-type]

    def test_files_that_are_no_tokenizer_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.json; train_tokenizer"):
            Tokenizer.load(tmp_path / "none.json")
        (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ValueError, match=r"bad\.json is not a tokenizer\.json"):
            Tokenizer.load(tmp_path / "bad.json")
        with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist; make it first"):
            load_tokenizer().save(tmp_path / "no" / "t.json")
