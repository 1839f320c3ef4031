"""A recipe: a file that says all of a run, which flags may change, and the course's own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from course_lib.models import GPTConfig
from course_lib.training import CourseText, TrainConfig
from course_lib.training.command_config import config_of, read_recipe

RECIPE = """
steps = 30            # a comment
learning_rate = 2e-3
stored_as = "fp16"
[model]
family = "gpt"
dim = 32
num_layers = 1
num_heads = 2
[data]
stories = 90
stories_together = 3
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_recipe_says_all_of_a_run(recipe):
    config = config_of({"recipe": recipe})
    assert (config.steps, config.learning_rate, config.stored_as) == (30, 2e-3, "fp16")
    assert config.data == CourseText(stories=90, stories_together=3)
    assert (config.model.dim, config.model.num_kv_heads, config.model.vocab_size) == (32, 1, 4096)


def test_flags_go_before_the_recipe(recipe, tmp_path):
    flags = {"steps": 4, "dim": 64, "stories": 50, "output": tmp_path / "run"}
    config = config_of({"recipe": recipe, **flags})
    assert (config.steps, config.model.dim, config.output) == (4, 64, tmp_path / "run")
    assert config.data == CourseText(stories=50, stories_together=3)


def test_text_of_the_readers_takes_the_place_of_the_recipes(recipe, tmp_path):
    assert config_of({"recipe": recipe, "data": [tmp_path]}).data == tmp_path


def test_without_flags_a_run_is_what_it_always_was():
    model = GPTConfig(vocab_size=4096, dim=256, num_layers=4, num_heads=4, num_kv_heads=2, max_length=512)
    assert config_of({}) == TrainConfig(model=model, steps=400)


ERRORS = {
    "no file": (None, {}, FileNotFoundError, ["recipe", "nowhere.toml"]),
    "no TOML": ("steps = = 3", {}, ValueError, ["recipe", "TOML", "line 1"]),
    "no table": ("model = 3", {}, ValueError, ["recipe", "[model]", "3"]),
    "an unknown field": ("stepz = 3", {}, ValueError, ["TrainConfig", "stepz"]),
    "an unknown part": ("[model]\nwidth = 3", {}, ValueError, ["--width", "'gpt'"]),
    "an unknown family": ("[model]\nfamily = 'llama'", {}, ValueError, ["family", "'opt'", "'llama'"]),
    "unknown text": ("[data]\npoems = 3", {}, ValueError, ["data", "stories", "poems"]),
    "stories of the readers": ("", {"data": [Path("x")], "stories": 3}, ValueError, ["--stories", "--data"]),
    "a run that goes on": ("", {"resume": Path("x")}, ValueError, ["--resume", "leave out --recipe"]),
}


@pytest.mark.parametrize(("text", "options", "error", "words"), ERRORS.values(), ids=ERRORS)
def test_errors(tmp_path, text, options, error, words):
    path = tmp_path / ("nowhere.toml" if text is None else "recipe.toml")
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(error) as caught:
        config_of({"recipe": path, **options})
    for word in words:
        assert word in str(caught.value)


def test_the_courses_recipe_is_of_its_own_text_and_may_be_used_by_anyone():
    path = Path(__file__).parents[2] / "course_lib" / "models" / "data" / "lean-opt-5m.toml"
    recipe = read_recipe(path)
    assert recipe == tomllib.loads(path.read_text(encoding="utf-8"))
    assert recipe["license"] == "cc0-1.0" and recipe["stored_as"] == "fp16"
    assert set(recipe["data"]) == {"stories", "stories_together", "corpus_copies"}
