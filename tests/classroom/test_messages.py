"""The catalogue is whole: two languages, the same placeholders, nothing missing, nothing unused."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from course_lib.classroom import messages
from course_lib.classroom.exercise import Case
from course_lib.classroom.lesson import Lesson
from course_lib.classroom.messages import CatalogueError, catalogue, read_messages, say, set_language

PACKAGE = Path(messages.__file__).parents[1]
BANGLA = re.compile(r"[ঀ-৿]")


@pytest.fixture(autouse=True)
def _language_is_put_back(monkeypatch):
    monkeypatch.setattr(messages, "_chosen", [])
    monkeypatch.delenv("COURSE_LANGUAGE", raising=False)


def _written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lesson_77.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_message_of_the_course_has_both_languages_and_the_same_placeholders():
    assert len(catalogue()) > 50  # reading it checks each one


def test_bangla_columns_are_in_bangla_and_end_as_bangla_does():
    for key, columns in catalogue().items():
        same = columns["bn"] == columns["en"]  # a bare name, such as float16
        assert same or BANGLA.search(columns["bn"]), f"{key}: no Bangla letter in the bn column"
        assert not BANGLA.search(columns["en"]) or "lesson_" in key, f"{key}: Bangla in a common en column"
        prose = re.sub(r"`[^`]*`", "", columns["bn"])  # code may hold a bar
        assert "|" not in prose, f"{key}: a bar in place of a danda"
        assert not re.search(r"[a-z]\. *$", columns["bn"]), f"{key}: a full stop in place of a danda"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\nen = "x"', "lesson_77.a: expected the columns en and bn"),
        ('[a]\nen = "x"\nbn = " "', "both filled"),
        ('[a]\nen = "{x}"\nbn = "{y}"', "placeholders differ"),
        ('[a]\nen = "x"\nbn = "y"\nfr = "z"', "expected the columns en and bn"),
        ('a = "x"', "lesson_77.a: expected a table"),
        ("[a", "not valid TOML"),
    ],
)
def test_a_faulty_file_is_refused_with_its_key(tmp_path, text, words):
    with pytest.raises(CatalogueError, match=words):
        read_messages(_written(tmp_path, text))


def test_tables_nest_into_keys(tmp_path):
    assert list(read_messages(_written(tmp_path, '[a.b]\nen = "x"\nbn = "y"'))) == ["lesson_77.a.b"]


def test_the_environment_chooses_the_language_and_set_language_overrides_it(monkeypatch):
    assert say("common.status_solved") == "solved"
    monkeypatch.setenv("COURSE_LANGUAGE", "bn_BD.UTF-8")
    assert say("common.status_solved") == "হয়ে গেছে"
    set_language("English")
    assert say("common.status_solved") == "solved"


def test_an_unknown_language_in_the_environment_does_not_stop_a_lesson(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "klingon")
    assert say("common.status_solved") == "solved"
    with pytest.raises(
        ValueError, match=r'language: expected "en" \(English\) or "bn" \(Bangla\), got \'klingon\''
    ):
        set_language("klingon")


def test_numbers_are_bangla_in_bangla_and_code_is_not():
    set_language("bn")
    assert say("common.hint", id="1.1", number=1, count=12, text="x") == "1.1, ১২টি ইঙ্গিতের ১ নম্বর: x"


def test_an_unknown_key_or_a_missing_value_is_an_error():
    with pytest.raises(CatalogueError, match=r"no message 'common\.nonsense'"):
        say("common.nonsense")
    with pytest.raises(CatalogueError, match=r"'common\.not_yet' has no value for the placeholder"):
        say("common.not_yet", id="1.1")


def test_values_with_braces_are_taken_as_they_are():
    assert "{x}" in say("common.crashed", call="f({x})", error="E", line="l")


def _string_parts(path: Path) -> str:
    """All string literals of a module, f-strings with {} for their expressions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        if isinstance(node, ast.JoinedStr):
            found.append("".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values))
    return "\n".join(found)


def test_every_common_key_in_the_code_exists_and_every_common_message_is_used():
    literals = "\n".join(_string_parts(path) for path in PACKAGE.rglob("*.py") if "_chosen" not in path.name)
    used = set(re.findall(r"^common\.[a-z_]*[a-z]$", literals, flags=re.MULTILINE))
    kinds = ("float", "integer", "bool", "complex")
    used |= {f"common.{a}_for_{b}" for a in kinds for b in kinds[:3] if a != b}
    used |= {f"common.status_{status}" for status in ("not_started", "tried", "solved")}
    common = {key for key in catalogue() if key.startswith("common.")}
    assert used - common == set(), "used in the code, not in common.toml"
    assert common - used == set(), "in common.toml, not used in the code"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "classroom/messages").glob("lesson_*.toml")), ids=lambda p: p.stem
)
def test_every_message_of_a_lesson_is_used_by_it(path):
    module = importlib.import_module(f"course_lib.lessons.{path.stem}")
    lessons = [value for value in vars(module).values() if isinstance(value, Lesson)]
    used = {
        key for lesson in lessons for made in lesson.exercises.values() for key in lesson.message_keys(made)
    }
    literals = "\n".join(_string_parts(source) for source in PACKAGE.joinpath("lessons").glob("*.py"))
    unused = [
        key
        for key in read_messages(path)
        if key not in used and key.removeprefix(path.stem + ".") not in literals
    ]
    assert unused == [], f"{path.name}: no exercise and no string of {path.stem}.py uses these"


def test_an_exercise_without_its_messages_is_refused_when_the_lesson_is_imported(demo_messages):
    with pytest.raises(
        CatalogueError, match=r"exercise 9\.1 needs the message 'demo\.softmax\.title' in demo\.toml"
    ):
        Lesson("demo").exercise("9.1", "softmax", solution=len, cases=[Case()])
