"""The model that comes with the course."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import torch

from course_lib.models import LEAN_OPT, OPT, generate, lean_opt_folder, load_model
from course_lib.text import load_corpus, load_tokenizer, stories
from course_lib.training import CourseText, evaluate
from course_lib.training.held_out import split_documents

CARD = (lean_opt_folder() / "README.md").read_text(encoding="utf-8")
RECIPE = tomllib.loads(lean_opt_folder().with_name(LEAN_OPT + ".toml").read_text(encoding="utf-8"))
OPENINGS = {
    "bn": ("একদিন সকালে", "একদিন বিকেলে", "এক ছুটির দিনে"),
    "en": ("One morning", "One afternoon", "One Friday"),
}
PUNCTUATION = "“”‘’\"'.,!?।;:()–—-…"


def words_of(text: str) -> list[str]:
    return [word for word in (part.strip(PUNCTUATION) for part in text.split()) if word]


@pytest.fixture(scope="module")
def model() -> OPT:
    return load_model(LEAN_OPT, dtype=torch.float32)


def test_its_weights_take_at_most_12_megabytes():
    assert (lean_opt_folder() / "model.safetensors").stat().st_size <= 12e6


def test_it_is_what_its_recipe_describes(model):
    wanted = RECIPE["model"]
    config = json.loads((lean_opt_folder() / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == wanted["family"] == "opt"
    assert (model.config.dim, model.config.num_layers, model.config.num_heads, model.config.max_length) == (
        *(wanted[name] for name in ("dim", "num_layers", "num_heads", "max_length")),
    )
    for row in (f"| steps | {RECIPE['steps']:,} |", f"| seed | {RECIPE['seed']} |", 'license: "cc0-1.0"'):
        assert row in CARD


def test_its_folder_is_all_that_transformers_needs(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(lean_opt_folder(), dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(lean_opt_folder())
    text = "একদিন সকালে রিনা and her brother"
    ids = tokenizer(text, return_tensors="pt").input_ids
    own = load_tokenizer()
    assert ids.tolist() == [[own.end_of_text, *own.encode(text)]]
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=1e-5, atol=1e-4)
    written = theirs.generate(ids, max_new_tokens=48, do_sample=False, attention_mask=torch.ones_like(ids))
    assert torch.equal(generate(model, ids, max_new_tokens=48), written)


def test_its_card_tells_the_losses_that_it_has(model):
    held = split_documents(
        CourseText.from_dict(RECIPE["data"]), RECIPE["held_out"], seed=RECIPE["seed"]
    ).held_out
    corpus = [document for document in held if not document.id.startswith("story-")]
    told = float(re.search(r"\| held out, corpus \(\d+ documents\) \| ([\d.]+) nats", CARD)[1])
    assert evaluate(model, corpus) == pytest.approx(told, abs=0.01)


@pytest.mark.parametrize("language", ["bn", "en"])
def test_nearly_all_that_it_writes_are_words_of_the_language(model, language):
    """A word that is cut off at the end, and what is no word, is not counted; what it never read is a fault."""
    tokenizer = load_tokenizer()
    read = " ".join(document.text for document in (*load_corpus(), *stories(20_000)))
    known = set(words_of(read))
    for opening in OPENINGS[language]:
        prompt = torch.tensor([[tokenizer.end_of_text, *tokenizer.encode(opening)]]).repeat(4, 1)
        written = generate(
            model, prompt, max_new_tokens=100, do_sample=True, temperature=0.7, top_p=0.9, seed=5, stop=()
        )
        for row in written.tolist():
            words = words_of(tokenizer.decode(row[1:]))[:-1]
            strange = [word for word in words if word not in known]
            assert len(words) > 20
            assert len(strange) <= len(words) // 20, strange
