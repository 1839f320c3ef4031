"""Makes the tokenizer that the course ships: ``python -m course_lib.text.build_tokenizer``.

It is trained on the corpus and on stories of the story grammar, nothing else: these are the same on every
machine, which Python's own documentation (``python_topics``) is not. ``data/tokenizer_recipe.json`` records
what went in; ``--check`` makes it again and compares.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tokenizers

from .documents import load_corpus
from .stories import stories
from .tokenizer import Tokenizer, train_tokenizer

VOCAB_SIZE: Final = 4096
STORY_COUNT: Final = 600
STORY_SEED: Final = 0

DATA: Final = Path(__file__).parent / "data"


def training_texts() -> Iterator[str]:
    """Yield every text the tokenizer is trained on: the corpus, then the stories."""
    for document in load_corpus():
        yield document.text
    for document in stories(STORY_COUNT, seed=STORY_SEED):
        yield document.text


def build() -> tuple[Tokenizer, dict[str, object]]:
    """Train the tokenizer; return it and the recipe: what went in, how much, and its checksum."""
    texts = list(training_texts())
    digest = hashlib.sha256("\0".join(texts).encode("utf-8")).hexdigest()
    tokenizer = train_tokenizer(texts, VOCAB_SIZE)
    recipe: dict[str, object] = {
        "command": "python -m course_lib.text.build_tokenizer",
        "vocab_size": VOCAB_SIZE,
        "pattern": "bangla",
        "corpus_documents": len(load_corpus()),
        "stories": STORY_COUNT,
        "stories_seed": STORY_SEED,
        "characters": sum(map(len, texts)),
        "texts_sha256": digest,
        "tokenizer_sha256": hashlib.sha256(tokenizer.to_json().encode("utf-8")).hexdigest(),
        "tokenizers": tokenizers.__version__,
    }
    return tokenizer, recipe


def main(arguments: list[str] | None = None) -> int:
    """Build and write the tokenizer, or with ``--check`` say whether the shipped one is what a build
    gives."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.text.build_tokenizer", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the shipped file, write nothing")
    options = parser.parse_args(arguments)
    tokenizer, recipe = build()
    if options.check:
        same = (DATA / "tokenizer.json").read_text(encoding="utf-8") == tokenizer.to_json()
        print(
            "tokenizer.json is what this corpus gives."
            if same
            else "tokenizer.json is out of date: build it again."
        )
        return 0 if same else 1
    tokenizer.save(DATA / "tokenizer.json")
    text = json.dumps(recipe, indent=2, ensure_ascii=False) + "\n"
    (DATA / "tokenizer_recipe.json").write_text(text, encoding="utf-8", newline="\n")
    print(f"{tokenizer} from {recipe['characters']:,} characters -> {DATA / 'tokenizer.json'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
