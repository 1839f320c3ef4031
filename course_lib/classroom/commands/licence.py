"""What a model's licence allows, by its card, or else by the family that its weights come from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .streams import note

SIZES = {
    "opt": r"opt-(iml-)?(max-)?(125m|350m|1\.3b|2\.7b|6\.7b|13b|30b|66b|175b)",
    "bloom": r"bloomz?(-(560m|1b1|1b7|3b|7b1))?(-mt|-p3)?",
}
"""What the published models are called, behind their author's name, in lower case."""
VOCABULARIES = {"opt": 50272, "bloom": 250880}
"""Whoever trains such a model further keeps its vocabulary."""
BLOOM_LICENCE = "BigScience RAIL"
NAMES = {"opt": "OPT", "bloom": "BLOOM"}
OPEN = {
    "mit": "MIT",
    "apache-2.0": "Apache 2.0",
    "bsd-3-clause": "BSD 3-Clause",
    "bsd-2-clause": "BSD 2-Clause",
}
NAMED = re.compile(r"[^\w ./+-]")
"""What no name of a licence or model has, and a terminal might obey."""


def say_licence(name: str, folder: Path, config: Mapping[str, Any], *, course: bool) -> None:
    """Say on stderr what may be done with the model ``name``; ``course``: whether its tokenizer is the course's, so
    that its weights are nobody else's."""
    fields = card_fields(folder)
    stated = " ".join(fields.get("license", []))
    if stated in ("", "other", "unknown"):
        stated = " ".join(fields.get("license_name", []))
    family, made_from = None, ""
    if not course:
        bases = [*fields.get("base_model", []), str(config.get("_name_or_path") or "")]
        family = family_of(name) or family_of(folder.name)
        if family is None:
            base = next((base for base in bases if family_of(base)), "")
            family = family_of(base) or _by_vocabulary(config)
            made_from = NAMED.sub("", base) or NAMES.get(family or "", "")
    if family is None or (family == "bloom" and "rail" in stated):
        _say_stated(name, stated)
        return
    if made_from:
        note("licence.made_from", model=name, base=made_from)
    if family == "opt":
        note("licence.opt", model=made_from or name)
    else:
        note("licence.rail", model=made_from or name, licence=BLOOM_LICENCE)
    if stated and family not in stated:
        note("licence.both", licence=_clean(stated))


def _say_stated(model: str, stated: str) -> None:
    if not stated:
        note("licence.none", model=model)
    elif stated == "cc0-1.0":
        note("licence.cc0", model=model)
    elif stated in OPEN:
        note("licence.open", model=model, licence=OPEN[stated])
    elif re.match(r"cc-by-\S*nc", stated):
        note("licence.not_commercial", model=model, licence=stated.upper())
    elif re.fullmatch(r"cc-by(-sa)?-[\d.]+", stated):
        kind = "share_alike" if "-sa" in stated else "name_makers"
        note(f"licence.{kind}", model=model, licence=stated.upper())
    elif "rail" in stated:
        note("licence.rail", model=model, licence=BLOOM_LICENCE if "bloom" in stated else _clean(stated))
    else:
        note("licence.unknown", model=model, licence=_clean(stated))


def family_of(name: str) -> str | None:
    """The family whose published weights are called ``name``, an id or a folder's name; None: none that is known."""
    last = name.lower().rstrip("/").rsplit("/", 1)[-1]
    return next((family for family, sizes in SIZES.items() if re.fullmatch(sizes, last)), None)


def _by_vocabulary(config: Mapping[str, Any]) -> str | None:
    kind = config.get("model_type")
    return kind if kind in VOCABULARIES and config.get("vocab_size") == VOCABULARIES[kind] else None


def card_fields(folder: Path) -> dict[str, list[str]]:
    """The header of the folder's README.md: each field's words in lower case, lists and plain values alike."""
    card = folder / "README.md"
    try:
        text = card.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    header = re.match(r"\ufeff?\s*---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    fields: dict[str, list[str]] = {}
    own: list[str] = []
    for line in header[1].splitlines() if header else ():
        if field := re.match(r"(\w+):\s*(.*)", line):
            own = fields.setdefault(field[1].lower(), [])
            words = field[2].strip("[] ").split(",")
        elif item := re.match(r"\s*-\s+(.*)", line):
            words = [item[1]]
        else:
            continue
        own += [bare for word in words if (bare := word.strip(" \t\"'").lower())]
    return fields


def _clean(text: str) -> str:
    return NAMED.sub("", text)[:60].strip() or "?"
