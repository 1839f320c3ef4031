"""Models that nobody published: what someone trained on, saved under a name of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.models import generate, load_model

from .made import token_ids
from .made_opt import PARTS, twins

TOKENS = token_ids(2, 9)


@pytest.mark.parametrize("options", PARTS.values(), ids=PARTS)
def test_a_fine_tuned_opt_of_any_name_shape_and_size_is_loaded(
    options: dict[str, Any], tmp_path: Path
) -> None:
    _, theirs = twins(**options)
    folder = tmp_path / "চিঠির উত্তর v2"
    theirs.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["_name_or_path"] = "someone/letters-in-bangla"
    config["task_specific_params"] = {"letters": {"tone": "polite"}}
    path.write_text(json.dumps(config), encoding="utf-8")
    model = load_model(folder)
    with torch.no_grad():
        torch.testing.assert_close(model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
        wanted = theirs.generate(TOKENS, max_new_tokens=5, do_sample=False, eos_token_id=None)
    assert torch.equal(generate(model, TOKENS, max_new_tokens=5, stop=()), wanted)


def test_a_family_that_is_not_known_is_named_with_those_that_are(tmp_path: Path) -> None:
    _, theirs = twins()
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"model_type": "mystery"}
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"mystery.*") as refused:
        load_model(tmp_path)
    assert all(family in str(refused.value) for family in ("opt", "bloom"))
