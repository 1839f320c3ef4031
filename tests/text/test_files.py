import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.text import Document, graphemes, load_corpus, read_documents, shuffled
from course_lib.text.cutting import bounded_pieces, cut_position

from .bijoy_encoder import to_bijoy


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def texts(path: Path, **options) -> list[str]:
    return [document.text for document in read_documents(path, **options)]


def test_blank_lines_separate_the_documents_of_a_text_file(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.txt", "\n\nনদীর ধারে।\nদুই\n \t\n\n  three\nfour\n\n")
    assert list(read_documents(path)) == [
        Document("notes-1", "bn", "user", "notes", "নদীর ধারে।\nদুই"),
        Document("notes-2", "en", "user", "notes", "three\nfour"),
    ]


def test_a_line_or_the_file_can_be_the_document(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\ntwo\n\nthree")
    assert texts(path, split="line") == ["one", "two", "three"]
    assert texts(path, split="file") == ["one\ntwo\n\nthree"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_byte_order_mark_and_any_line_end_are_understood(tmp_path: Path, mark: bytes, end: bytes) -> None:
    lines = ["এক", "two", "", "তিন", ""]
    path = write(tmp_path / "a.TXT", mark + end.join(line.encode("utf-8") for line in lines))
    assert texts(path) == ["এক\ntwo", "তিন"]


def test_a_line_separator_of_unicode_is_no_line_end(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.txt", "a\u2028b\x0bc\x85d"), split="line") == ["a\u2028b\x0bc\x85d"]


def test_json_lines_keep_what_they_name(tmp_path: Path) -> None:
    lines = [
        {"id": "x", "language": "bn", "topic": "rivers", "title": "নদী", "text": "পদ্মা।\nযমুনা।"},
        {"text": "two", "id": 7, "more": [1]},
    ]
    path = write(
        tmp_path / "a.jsonl",
        "\ufeff" + "\r\n\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines),
    )
    assert list(read_documents(path)) == [
        Document("x", "bn", "rivers", "নদী", "পদ্মা।\nযমুনা।"),
        Document("a-2", "en", "user", "a", "two"),
    ]


def test_another_key_can_hold_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"content": "নদী"}')
    assert texts(path, text_key="content") == ["নদী"]


def test_the_courses_own_corpus_reads_as_load_corpus_does() -> None:
    import course_lib.text.documents as module

    path = Path(module.__file__).parent / "data" / "corpus_bn.jsonl"
    assert tuple(read_documents(path)) == load_corpus("bn")


def test_text_is_normalised_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\u09df|")
    assert texts(path) == ["\u09af\u09bc।"]
    assert texts(path, normalize=False) == ["\u09df|"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("নদীর ধারে", "bn"),
        ("by the river", "en"),
        ("model টা train হবে", "mixed"),
        ("১২ + ৩", "bn"),
        ("12!", "other"),
    ],
)
def test_the_script_decides_the_language(tmp_path: Path, text: str, language: str) -> None:
    [document] = read_documents(write(tmp_path / "a.txt", text))
    assert document.language == language


def test_several_files_follow_each_other_and_can_be_shuffled(tmp_path: Path) -> None:
    first = write(tmp_path / "ক খ.txt", "a\n\nb\n\nc")
    second = write(tmp_path / "b.jsonl", '{"text": "d"}\n{"text": "e"}')
    documents = list(shuffled(read_documents(first, second), buffer_size=3, seed=1))
    assert sorted(document.text for document in documents) == ["a", "b", "c", "d", "e"]
    assert len({document.id for document in documents}) == 5


def test_where_a_block_ends_changes_nothing(tmp_path: Path) -> None:
    for length in range((1 << 16) - 4, (1 << 16) + 3):
        line = "a" * length
        assert texts(write(tmp_path / "a.txt", f"{line}\r\nb\r\n\r\nনদী")) == [f"{line}\nb", "নদী"]


def test_a_long_document_is_cut_where_it_hurts_least(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "নদীতে নৌকা চলে। মাঝি গান গায়। আমরা পাড়ে বসে শুনি।")
    assert texts(path, longest=35) == ["নদীতে নৌকা চলে। মাঝি গান গায়।", "আমরা পাড়ে বসে শুনি।"]
    path = write(tmp_path / "a.jsonl", '{"id": "k", "text": "one two three"}')
    assert [(document.id, document.text) for document in read_documents(path, longest=8)] == [
        ("k", "one two"),
        ("k-2", "three"),
    ]


@given(st.text(st.sampled_from("ক্ষয়\u09cd\u200d া🇧🇩\u0301\n.। ab\r")), st.integers(1, 12))
def test_cut_pieces_join_to_the_text_and_split_no_grapheme(text: str, longest: int) -> None:
    pieces = list(bounded_pieces(iter(text), longest))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= longest for piece in pieces)
    if max(map(len, graphemes(text)), default=0) <= longest:
        assert [character for piece in pieces for character in graphemes(piece)] == graphemes(text)


def test_a_grapheme_longer_than_a_piece_is_the_only_thing_cut_inside() -> None:
    assert cut_position("a" + "\u0301" * 20, 5) == 5


def _peak(documents: Iterator[Document]) -> tuple[int, int]:
    """Code points read, and bytes of Python memory at the peak."""
    tracemalloc.start()
    total = sum(len(document.text) for document in documents)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return total, peak


@pytest.mark.parametrize("kind", ["paragraphs", "one line", "one Bangla line without spaces", "jsonl"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    unit = {
        "paragraphs": "নদীর ধারে বসে রহিম মাছ ধরছে।\n\n" * 50,
        "one line": "by the river, " * 200,
        "one Bangla line without spaces": "নদীরধারে" * 100,
        "jsonl": '{"text": "নদীর ধারে বসে রহিম মাছ ধরছে।"}\n' * 50,
    }[kind]
    path = tmp_path / ("a.jsonl" if kind == "jsonl" else "a.txt")
    with path.open("w", encoding="utf-8") as file:
        for _ in range(2_000_000 // len(unit.encode("utf-8"))):
            file.write(unit)
    documents = read_documents(path, longest=3_000, check_encoding=kind != "one Bangla line without spaces")
    total, peak = _peak(shuffled(documents, buffer_size=10, seed=0))
    assert total > 600_000
    assert peak < 1_000_000


def test_nothing_is_read_before_the_first_document_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"fine\n" + b"fine \n" * 200_000 + b"\xff")
    documents = read_documents(path, split="line")
    assert next(documents).text == "fine"


BIJOY = to_bijoy("আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।")

TWICE = "নদীর".encode().decode("cp1252", errors="replace")


@pytest.mark.error_messages
class TestErrors:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.txt", b"", "a.txt: the file is empty, or holds nothing but space"),
            ("a.txt", b"\xef\xbb\xbf", "a.txt: the file is empty"),
            ("a.jsonl", b"\n \n", "a.jsonl: the file is empty"),
            (
                "a.txt",
                "নদী".encode("utf-16"),
                "line 1: this file begins with the byte order mark of UTF-16; save",
            ),
            ("a.txt", "নদী".encode("utf-32"), "line 1: this file begins with the byte order mark of UTF-32"),
            (
                "a.txt",
                "নদীর ধারে বসে".encode("utf-16-le"),
                "it looks like UTF-16 without a byte order mark; save",
            ),
            (
                "a.txt",
                "by the river\n".encode("utf-16-be"),
                "line 1: this file looks like UTF-16 without a byte",
            ),
            (
                "a.txt",
                b"one\r\ntwo\r\ncaf\xe9 noir",
                "line 3: the byte 0xE9 is not UTF-8; it looks like Windows-1252",
            ),
            (
                "a.txt",
                b"one\r\ntwo\r\ncaf\xe9 noir",
                "where it would read …ne two café noir…; save it again as UTF-8",
            ),
            (
                "a.txt",
                "নদী".encode()[:-1],
                "line 1: the file ends in the middle of a character; it was cut short",
            ),
            (
                "a.txt",
                b"a\n\xed\xa0\xbd\xed\xb8\x80",
                "line 2: this line holds a surrogate, half of a UTF-16 pair",
            ),
            ("a.txt", b"a\nb\nPK\0\0", "line 3: this line holds a NUL byte, so it is no plain text"),
            (
                "a.jsonl",
                b'{"text": "a"}\n{"text": "b"',
                "line 2: this line is not JSON (Expecting ',' delimiter",
            ),
            (
                "a.jsonl",
                b'{"text": "a"}\n\n["b"]',
                'line 3: expected an object such as {"text": "…"}, got a list',
            ),
            (
                "a.jsonl",
                b'{"body": "a", "n": 1}',
                "line 1: there is no key 'text'; the keys are 'body', 'n'; name",
            ),
            ("a.jsonl", b"{}", "line 1: there is no key 'text'; the keys are none"),
            ("a.jsonl", b'{"text": null}', "line 1: 'text': expected a string, got null"),
            ("a.jsonl", b'{"text": 5}', "line 1: 'text': expected a string, got a number"),
            ("a.jsonl", b'{"text": " "}', "line 1: 'text' is empty; remove the line"),
            (
                "a.jsonl",
                b'{"text": "a\\ud83d"}',
                "line 1: 'text': the character at index 1 is U+D83D, a lone",
            ),
            (
                "a.jsonl",
                b'{"text": "a", "title": "\\udc00"}',
                "line 1: 'title': the character at index 0 is U+DC00",
            ),
            ("a.jsonl", b"[" * 100_000, "line 1: this line is nested too deeply"),
            (
                "a.txt",
                f"ঠিক আছে।\n\n\n{BIJOY}",
                "line 4: “Avgvi ‡mvbvi evsjv, Avwg ‡Zvgvq fv‡jvevw” looks like",
            ),
            (
                "a.txt",
                BIJOY,
                "a Bijoy font (SutonnyMJ), which is Latin letters to any other program; convert the file",
            ),
            ("a.txt", BIJOY, "If it is something else, pass check_encoding=False"),
            (
                "a.txt",
                BIJOY.encode("cp1252"),
                "line 1: the byte 0x87 is not UTF-8; this looks like Bangla typed for",
            ),
            ("a.txt", b"un caf\xe9", "line 1: the byte 0xE9 is not UTF-8; it looks like Windows-1252"),
            (
                "a.txt",
                f"ঠিক\n{TWICE}",
                "line 2: this is Bangla whose UTF-8 was taken for Windows-1252 and encoded",
            ),
            ("a.jsonl", f'{{"text": "a\\n{TWICE}"}}', "line 1: this is Bangla whose UTF-8 was taken for"),
            (
                "a.jsonl",
                b'{"text": "a", "n": ' + b"1" * 5000 + b"}",
                "line 1: this line is not JSON (Exceeds",
            ),
            ("a.jsonl", '{"text": "ঠিক"}\n' + json.dumps({"text": f"a\n{BIJOY}"}), "a.jsonl, line 2: “Avgvi"),
        ],
    )
    def test_what_cannot_be_read_is_named_with_its_line(
        self, tmp_path: Path, name: str, content: bytes | str, message: str
    ) -> None:
        path = write(tmp_path / name, content)
        with pytest.raises(ValueError) as caught:
            list(read_documents(path))
        assert str(path) in str(caught.value)
        assert message in str(caught.value)

    def test_a_wrong_byte_far_into_the_file_is_named_with_its_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "নদীর ধারে বসে রহিম মাছ ধরছে।\r\n".encode() * 20_000 + b"\x92")
        with pytest.raises(ValueError, match=r"line 20001: the byte 0x92 is not UTF-8"):
            list(read_documents(path))

    def test_lines_are_counted_through_a_document_that_is_cut(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "ঠিক আছে।\n" * 40 + BIJOY)
        with pytest.raises(ValueError, match="line 41: “Avgvi"):
            list(read_documents(path, longest=50))

    def test_a_json_file_on_one_line_is_not_read_into_memory(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", b"[" + b'{"text": "abcdefgh"}, ' * 1_000_000)
        with pytest.raises(
            ValueError, match=r"line 1: this line is longer than 16,777,216 characters; a \.jsonl"
        ):
            list(read_documents(path))

    def test_a_path_is_checked_at_the_call(self, tmp_path: Path) -> None:
        with pytest.raises(
            IsADirectoryError, match=r"this is a folder; name the \.txt or \.jsonl files in it"
        ):
            read_documents(tmp_path)
        with pytest.raises(
            FileNotFoundError, match=r"none\.txt: there is no such file; the current folder is"
        ):
            read_documents(write(tmp_path / "a.txt", "a"), tmp_path / "none.txt")
        for name in ("a.docx", "a", "a.txt.gz"):
            with pytest.raises(ValueError, match=r"expected a \.txt or \.jsonl file, got the suffix"):
                read_documents(write(tmp_path / name, "a"))
        with pytest.raises(ValueError, match=r"a \.json file can be written as \.jsonl"):
            read_documents(write(tmp_path / "a.json", "[]"))

    def test_options_are_checked_at_the_call(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", "a")
        with pytest.raises(ValueError, match='split: expected "paragraph", "line" or "file", got \'word\''):
            read_documents(path, split="word")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="longest: expected at least 1 code point, got 0"):
            read_documents(path, longest=0)

    def test_bijoy_can_be_let_through(self, tmp_path: Path) -> None:
        assert texts(write(tmp_path / "a.txt", BIJOY), check_encoding=False) == [
            BIJOY.removesuffix("|") + "|"
        ]
