"""What the flags of ``python -m course_lib train``, and a recipe, ask for, as a ``TrainConfig``.

A recipe is a TOML file with fields of ``TrainConfig``, a table ``[model]`` with its ``family`` and fields of that
family's config, and a table ``[data]`` with fields of ``CourseText``. Flags go before it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.models.families import FAMILIES
from course_lib.text import Tokenizer, load_tokenizer

from .config import TrainConfig
from .course_text import CourseText
from .output import read_run_config

STEPS = 400
GPT_SIZES = {
    "dim": 256, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "max_length": 512,
    "positions": "alibi", "feed_forward": "swiglu", "checkpointing": "none",
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "gpt": GPT_SIZES,
    "opt": {"dim": 256, "num_layers": 4, "num_heads": 4, "max_length": 512},
}
"""By family, what a model has that nothing is said of."""
MODEL_TYPES = {"gpt": "lean-gpt"}
"""Where the type in config.json is another word than the family's."""
COURSE_FLAGS = ("stories", "corpus_copies", "stories_together")
NOT_OF_THE_RUN = ("dry_run", "quiet", "watts", "price", "resume", "recipe")


def config_of(options: Mapping[str, Any]) -> TrainConfig:
    """The run that ``options``, as the parser gives them, describe. Raises ValueError for what does not go together."""
    given = {name: value for name, value in options.items() if name not in NOT_OF_THE_RUN}
    sizes = {name: given.pop(name) for name in ("family", *GPT_SIZES) if name in given}
    course = {name: given.pop(name) for name in COURSE_FLAGS if name in given}
    if "data" in given:
        if course:
            raise ValueError(f"{flag(next(iter(course)))}: goes with the course's text, got --data as well.")
        if len(given["data"]) == 1:
            given["data"] = given["data"][0]
    if "resume" in options:
        fixed = [*sizes, *course, *(name for name in ("recipe", "output") if name in options)]
        if fixed:
            raise ValueError(
                "--resume goes on with the model, the text and the folder of a run: leave out "
                + ", ".join(map(flag, fixed))
            )
        return read_run_config(options["resume"], **given)
    recipe = read_recipe(options["recipe"]) if "recipe" in options else {}
    course = {**recipe.pop("data", {}), **course}
    if course and "data" not in given:
        given["data"] = CourseText.from_dict(course)
    sizes = {**recipe.pop("model", {}), **sizes}
    values = {"steps": STEPS, **recipe, **given}
    tokenizer = Tokenizer.load(values["tokenizer"]) if "tokenizer" in values else load_tokenizer()
    return TrainConfig.from_dict({**values, "model": model_config(tokenizer, **sizes)})


def model_config(tokenizer: Tokenizer, *, family: str = "gpt", **sizes: Any) -> Any:
    """The config of a model of that ``family`` for the ids of ``tokenizer``. Raises ValueError for another field."""
    if family not in SIZES:
        raise ValueError(f"family: expected one of {', '.join(map(repr, SIZES))}, got {family!r}.")
    config_class = FAMILIES[MODEL_TYPES.get(family, family)].config_class
    values = {**SIZES[family], **sizes, "vocab_size": tokenizer.vocab_size}
    if family == "gpt" and "num_kv_heads" not in sizes:
        heads = values["num_heads"]
        values["num_kv_heads"] = heads // 2 if heads % 2 == 0 else heads
    if family != "gpt":
        end = tokenizer.end_of_text
        values |= {"bos_token_id": end, "eos_token_id": end, "pad_token_id": tokenizer.pad}
    strange = [name for name in values if name not in config_class.__dataclass_fields__]
    if strange:
        raise ValueError(
            f"{flag(strange[0])}: a model of the family {family!r} has no choice there; leave it out."
        )
    return config_class(**values)


def read_recipe(path: Path) -> dict[str, Any]:
    """The content of a recipe. Raises FileNotFoundError, or ValueError for what is no TOML."""
    if not path.is_file():
        raise FileNotFoundError(f"recipe: expected a file, got {path}, which is none.")
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"recipe: expected TOML in {path}, got what cannot be read ({error}).") from None
    for name in ("model", "data"):
        if not isinstance(recipe.get(name, {}), dict):
            raise ValueError(f"recipe: expected a table [{name}] in {path}, got {recipe[name]!r}.")
    return recipe


def flag(name: str) -> str:
    """What the command calls a field."""
    return "--" + name.removeprefix("num_").replace("_", "-")
