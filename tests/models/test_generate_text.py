"""The text of new tokens: whole graphemes, and stop strings wherever they begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course_lib.models.generate import generate
from course_lib.models.generate_rows import NewToken
from course_lib.models.generate_text import RowText, spellings
from course_lib.text import graphemes, load_tokenizer

from .made import small


class Bytes:
    """Each byte a token, so that every character of Bangla is three; 256 ends a text."""

    vocab_size = 257
    pad = 256

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""


class ByDecoding:
    """The same for those who only decode, with a start token before what they encode (fault 21)."""

    def __len__(self) -> int:
        return 257

    def encode(self, text: str) -> list[int]:
        return [256, *text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token < 256).decode("utf-8", errors="replace")


def scripted(*rows: Sequence[int], vocabulary: int = 257) -> Any:
    """A model that writes ``rows``, whatever it reads."""
    model = small(vocab_size=vocabulary, positions="none", tied_head=False)
    steps: list[int] = []

    def say(_: Any, inputs: Any, out: Tensor) -> Tensor:
        step = len(steps)
        steps.append(step)
        said = torch.zeros_like(out)
        for row, own in enumerate(rows):
            said[row, own[min(step, len(own) - 1)]] = 5.0
        return said

    model.head.register_forward_hook(say)
    return model


def run(
    tokens: Sequence[int], tokenizer: Any, stop: Any = (), new: int | None = None
) -> tuple[list[int], str]:
    """The new ids of a single row, and the text that was streamed."""
    heard: list[NewToken] = []
    out = generate(
        scripted(list(tokens)),
        torch.tensor([[256]]),
        max_new_tokens=len(tokens) if new is None else new,
        stop=stop,
        tokenizer=tokenizer,
        on_token=heard.append,
    )
    return out[0, 1:].tolist(), "".join(event.text for event in heard)


TOKENIZERS = [Bytes(), ByDecoding()]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_newline_stops_though_the_tokenizer_prepends_a_start_token(tokenizer: Any) -> None:
    """Fault 21."""
    ids, text = run(b"yes\nno", tokenizer, "\n")
    assert ids == list(b"yes\n")
    assert text == "yes"


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_stop_string_may_span_tokens_and_is_never_shown(tokenizer: Any) -> None:
    ids, text = run("ভালো।\nQ: আর?".encode(), tokenizer, ["\nQ:", "\nA:"])
    assert ids == list("ভালো।\nQ:".encode())
    assert text == "ভালো।"


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_what_only_began_like_a_stop_string_is_shown_in_the_end(tokenizer: Any) -> None:
    ids, text = run(b"a\nQ\nQ. b\nQ", tokenizer, "\nQ:")
    assert text == "a\nQ\nQ. b\nQ"
    assert len(ids) == 10


def test_a_stop_string_may_begin_and_end_inside_tokens() -> None:
    tokenizer = load_tokenizer()
    text = "আমি ভাত খাই। তুমি কী খাও?"
    ids = tokenizer.encode(text)
    assert len(tokenizer.token_bytes(ids[1]).decode()) > 2
    model = scripted(ids, vocabulary=tokenizer.vocab_size)
    heard: list[NewToken] = []
    inside = tokenizer.token_bytes(ids[1]).decode()[1:2]
    out = generate(
        model,
        torch.tensor([[0]]),
        max_new_tokens=20,
        stop=inside,
        tokenizer=tokenizer,
        on_token=heard.append,
    )
    assert out[0, 1:].tolist() == ids[:2]
    shown = "".join(event.text for event in heard)
    assert tokenizer.decode(ids[:2]).startswith(shown)
    assert inside not in shown


class Words:
    """One token, of much text."""

    vocab_size = 1

    def token_bytes(self, token: int) -> bytes:
        return "শেষ। Q: end.".encode()


@pytest.mark.parametrize("stops", [[".", "।", "Q:"], ["Q:", "।", "."]])
def test_of_two_stop_strings_in_a_token_the_first_to_stand_there_ends_the_text(stops: list[str]) -> None:
    row = RowText(Words(), stops)
    assert row.push(0) == "শেষ"
    assert row.stopped
    assert row.finish(cut=True) == ""


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("stop", ["\u09df", "\u09af\u09bc"])
@pytest.mark.parametrize("written", ["ভ\u09df!", "ভ\u09af\u09bc!"])
def test_a_letter_with_a_dot_is_found_in_either_spelling(tokenizer: Any, stop: str, written: str) -> None:
    ids, text = run(written.encode(), tokenizer, stop)
    assert bytes(ids).decode() == written[:-1]
    assert text == "ভ"


def test_other_spellings_are_of_the_same_text() -> None:
    assert spellings("stop") == {"stop"}
    assert "ক\u09c7\u09be" in spellings("কো") and "কো" in spellings("ক\u09c7\u09be")
    assert spellings("উত্তর|") == {"উত্তর|"}  # not the danda, which is another sign here


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_stop_id_shows_no_text_and_the_rest_of_the_row_is_the_tokenizers_pad(tokenizer: Any) -> None:
    ids, text = run([*"হাঁ".encode(), 10, 65], tokenizer, 10)
    assert ids == [*"হাঁ".encode(), 10]
    assert text == "হাঁ"


def test_each_call_gets_whole_graphemes() -> None:
    written = "স্ত্রী ক্ষমা 👨‍👩‍👧 é"
    heard: list[NewToken] = []
    generate(
        scripted([*written.encode(), 256]),
        torch.tensor([[256]]),
        max_new_tokens=200,
        stop=256,
        tokenizer=Bytes(),
        on_token=heard.append,
    )
    parts = [event.text for event in heard if event.text]
    assert [letter for part in parts for letter in graphemes(part)] == graphemes(written)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("কথা স্", "কথা "),  # a hasant waits for a consonant
        ("কথা র\u200d", "কথা "),
        (b"abc \xe0\xa6", "abc"),  # the letter before might have got a sign
        ("কথা", "কথা"),
        (b"\xe0", ""),
    ],
)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_grapheme_that_the_last_token_left_unfinished_is_left_out(
    tokenizer: Any, written: str | bytes, shown: str
) -> None:
    data = written if isinstance(written, bytes) else written.encode()
    assert run(data, tokenizer)[1] == shown


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_bytes_that_are_no_character_show_as_a_replacement_and_hide_no_stop(tokenizer: Any) -> None:
    ids, text = run(b"a\xff\xff\xff\xff\xffb\n", tokenizer, "\n")
    assert ids[-1] == 10
    assert text == "a\ufffd\ufffd\ufffd\ufffd\ufffdb"


def test_a_special_token_ends_the_character_before_it() -> None:
    first, last = "ক".encode()[:2], "ক".encode()[2:]
    assert run([*first, 256, *last], Bytes())[1] == "\ufffd"


def test_an_id_of_a_vocabulary_that_was_padded_beyond_the_tokenizers_has_no_text() -> None:
    class Smaller:
        vocab_size = 256

        def token_bytes(self, token: int) -> bytes:
            return bytes([token])

    assert run([65, 256, 66], Smaller())[1] == "AB"


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_bytes_that_never_end_a_character_do_not_pile_up(tokenizer: Any) -> None:
    row = RowText(tokenizer)
    assert len("".join(row.push(0xFF) for _ in range(100))) > 90


def test_the_space_before_a_word_is_kept_though_the_tokenizer_strips_the_first() -> None:
    """As SentencePiece decodes."""

    class Words:
        def __len__(self) -> int:
            return 257

        def decode(self, ids: Sequence[int]) -> str:
            return "".join([" one", " two", " three"][token % 3] for token in ids).removeprefix(" ")

    assert run([1, 2, 0], Words())[1] == " two three one"


def test_rows_stop_each_for_itself() -> None:
    model = scripted(list(b"one.two"), list(b"three.x"))
    texts = ["", ""]

    def listen(new: NewToken) -> None:
        texts[new.row] += new.text

    out = generate(
        model, torch.tensor([[256], [256]]), max_new_tokens=7, stop=".", tokenizer=Bytes(), on_token=listen
    )
    assert texts == ["one", "three"]
    assert out[0].tolist() == [256, *b"one.", 256, 256]
    assert out[1].tolist() == [256, *b"three."]


def test_a_stop_string_in_the_prompt_stops_nothing() -> None:
    model = scripted(list(b"\nb"))
    out = generate(model, torch.tensor([list(b"a\n")]), max_new_tokens=2, stop="\n\n", tokenizer=Bytes())
    assert out[0].tolist() == list(b"a\n\nb")


LETTERS = st.text(alphabet="ab\nক্ষি\u200dয়\u09bcো👍é ", max_size=14)


@given(written=LETTERS, stops=st.lists(LETTERS.filter(bool), max_size=3), which=st.sampled_from([0, 1]))
def test_streamed_text_is_what_stands_before_the_first_stop(
    written: str, stops: list[str], which: int
) -> None:
    row = RowText(TOKENIZERS[which], stops)
    shown, read = "", b""
    for byte in written.encode():
        read += bytes([byte])
        part = row.push(byte)
        shown += part
        if row.stopped:
            break
    shown += row.finish(cut=False)
    text = read.decode("utf-8", errors="replace")
    patterns = [form for stop in stops for form in spellings(stop)]
    # Stopped as soon as one stood there, and not before.
    assert row.stopped == any(form in written for form in patterns)
    if row.stopped:
        assert not any(form in read[:-1].decode("utf-8", errors="ignore") for form in patterns)
        first = min(text.find(form) for form in patterns if form in text)
        assert text.startswith(shown) and len(shown) <= first
        assert len(text[len(shown) : first]) == 0 or graphemes(text[len(shown) :])[0] not in patterns
    else:
        assert shown == written
    for form in patterns:
        assert form not in shown
