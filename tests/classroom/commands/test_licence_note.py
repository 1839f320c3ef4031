"""What is said of a model's licence."""

import re
from pathlib import Path
from typing import Any

import pytest

from course_lib.classroom.commands import licence
from course_lib.classroom.commands.licence import card_fields, family_of, say_licence
from course_lib.classroom.messages import catalogue

OPT = {"model_type": "opt", "vocab_size": 50272}
BLOOM = {"model_type": "bloom", "vocab_size": 250880}


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """said(name, header, config) is what is said of a model whose card has this header."""
    monkeypatch.delenv("COURSE_LANGUAGE", raising=False)

    def said(name: str, header: str = "", config: dict[str, Any] = {}, *, course: bool = False) -> str:  # noqa: B006
        card = f"---\n{header}\n---\n\n# card\n" if header else "# card\n"
        (tmp_path / "README.md").write_text(card, encoding="utf-8")
        say_licence(name, tmp_path, config, course=course)
        return capsys.readouterr().err

    return said


@pytest.mark.parametrize("name", ["facebook/opt-125m", "facebook/opt-6.7b", "facebook/opt-iml-max-1.3b"])
def test_opt_is_for_research_only_with_its_card_and_without(said: Any, name: str) -> None:
    for header in ("", "license: other"):
        words = said(name, header)
        assert name in words and "research only, not for commerce" in words and "paid work" in words


@pytest.mark.parametrize("name", ["bigscience/bloom-560m", "bigscience/bloom", "bigscience/bloomz-7b1-mt"])
def test_bloom_allows_paid_work_but_not_every_use(said: Any, name: str) -> None:
    for header in ("", "license: bigscience-bloom-rail-1.0"):
        words = said(name, header)
        assert "BigScience RAIL" in words and "Paid work is allowed" in words and "forbidden" in words
        assert len(words.splitlines()) == 1


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ("cc0-1.0", "CC0 1.0. Anyone may use it for anything"),
        ('"cc0-1.0"', "CC0 1.0. Anyone may use it for anything"),
        ("mit", "MIT. Free for any use"),
        ("apache-2.0", "Apache 2.0. Free for any use"),
        ("cc-by-4.0", "CC-BY-4.0. Free for any use, paid work included, if you name its makers"),
        ("cc-by-sa-4.0", "must carry the same licence"),
        ("cc-by-nc-4.0", "CC-BY-NC-4.0. Not for commerce"),
        ("cc-by-nc-sa-4.0", "Not for commerce"),
        ("creativeml-openrail-m", "creativeml-openrail-m. Paid work is allowed, but"),
        ("gemma", "gemma. Read its card (README.md)"),
        ("other\nlicense_name: my-terms", "my-terms. Read its card"),
        ("unknown", "none is stated here. Read its card"),
        ("\n- mit", "MIT. Free for any use"),
        ("[mit]", "MIT. Free for any use"),
    ],
)
def test_a_stated_licence_is_named_with_what_it_allows(said: Any, stated: str, words: str) -> None:
    assert words in said("someone/model", f"language: bn\nlicense: {stated}\ntags: [a, b]")


def test_without_a_licence_that_is_said(said: Any) -> None:
    assert "none is stated here" in said("my/model")
    assert "none is stated here" in said("my/model", "language: bn")


def test_a_model_trained_on_from_opt_keeps_opts_licence_whatever_its_card_says(said: Any) -> None:
    words = said("my/helper", "license: mit\nbase_model: facebook/opt-350m")
    assert "card states mit: both have to be kept" in words and "Free for any use" not in words
    assert "made from facebook/opt-350m, whose licence stays in force" in words
    assert "research only" in words
    assert "research only" in said("my/helper", "", OPT | {"_name_or_path": "facebook/opt-1.3b"})
    assert "made from OPT" in said("my/helper", "", OPT)
    assert "made from BLOOM" in said("my/helper", "", BLOOM)


def test_a_model_of_ones_own_is_nobody_elses(said: Any) -> None:
    words = said("runs/opt-125m", "license: cc0-1.0", {"model_type": "opt", "vocab_size": 4096}, course=True)
    assert "CC0" in words and "research" not in words
    assert "research" not in said("my/opt-5m", "", {"model_type": "opt", "vocab_size": 8000})


def test_a_family_is_known_by_the_names_of_its_published_sizes() -> None:
    assert family_of("facebook/opt-125m") == family_of("models/opt-125m/") == "opt"
    assert family_of("bigscience/bloom") == family_of("bloomz-560m") == "bloom"
    assert family_of("lean-opt-5m") is family_of("bloomington") is family_of("") is None


def test_a_name_cannot_repaint_a_terminal(said: Any) -> None:
    assert "\x1b" not in said("my/model", "license: \x1b[31mred\nbase_model: x")


@pytest.mark.parametrize("card", ["", "# no header\nlicense: mit\n", "---\nlicense: mit\n", "\ufeff"])
def test_a_card_without_a_header_states_nothing(tmp_path: Path, card: str) -> None:
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert card_fields(tmp_path) == {}


def test_every_message_of_the_commands_is_used_by_them() -> None:
    folder = Path(licence.__file__).parent
    sources = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    keys = {key.removeprefix("commands.") for key in catalogue() if key.startswith("commands.")}
    named = {f"licence.{kind}" for kind in ("share_alike", "name_makers") if f'"{kind}"' in sources}
    unused = {key for key in keys - named if not re.search(rf'"(commands\.)?{re.escape(key)}"', sources)}
    assert not unused
