"""What ``data`` may not be: found before anything is trained or written, and named as the reader gave it."""

from __future__ import annotations

import pytest
import torch

from course_lib.models import GPT
from course_lib.training import TrainConfig, evaluate, train
from course_lib.training.output import Output

from .runs import MODEL, STORIES, Stopped, losses, small, stop_after

pytestmark = [pytest.mark.error_messages, pytest.mark.filterwarnings("ignore:.*split into:UserWarning")]
TEXTS = [story.text for story in STORIES]

BAD = {
    "numbers": ([1, 2, 3], TypeError, [r"^data\[0\]", "token ids", "int 1"]),
    "rows of a table": (
        [{"text": TEXTS[0]}],
        TypeError,
        [r"^data\[0\]", "dict", r"\[row\['text'\] for row in data\]"],
    ),
    "bytes": ([*TEXTS, TEXTS[0].encode()], TypeError, [r"^data\[40\]", "bytes"]),
    "nothing in a document's place": ([*TEXTS, None], TypeError, [r"^data\[40\]", "NoneType"]),
    "texts in a document": ([["a", "b"]], TypeError, [r"^data\[0\]", "whole numbers", r"\['a', 'b'\]"]),
    "numbers that are not whole": ([[1.0, 2.5]], TypeError, [r"^data\[0\]", "whole numbers"]),
    "ids of a tensor that are not whole": ([torch.ones(3)], TypeError, [r"^data\[0\]", "whole numbers"]),
    "an id out of the vocabulary, late": (
        [*[[7] * 40] * 40, [3, 4096]],
        ValueError,
        [r"^data\[40\]", "0 to 4095", "4096"],
    ),
    "a dict": ({"a": TEXTS[0]}, TypeError, ["^data:", "dict", r"list\(data.values\(\)\)"]),
    "a set": (set(TEXTS), TypeError, ["^data:", "order", r"sorted\(data\)"]),
    "a generator": ((text for text in TEXTS), TypeError, ["^data:", "generator", "spent"]),
    "a function that returns a number": (lambda: 5, TypeError, ["^data:", "function", "int"]),
    "a function that returns a text": (lambda: "text", TypeError, ["^data:", "function", "str"]),
    "one tensor": (torch.arange(9), TypeError, ["^data:", "Tensor"]),
    "a lone surrogate": ([*TEXTS[:9], "a\ud800b" * 99], ValueError, [r"^data\[9\]", r"U\+D800"]),
    "too little": (["one", "two"], ValueError, ["^data:", "256 tokens of a batch"]),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_named_before_anything_is_written(name, tmp_path):
    data, kind, words = BAD[name]
    with pytest.raises(kind) as caught:
        train(small(data=data, held_out=0, output=tmp_path / "run"), progress=False)
    for word in words:
        assert caught.match(word)
    assert not list(tmp_path.iterdir())


def test_the_names_of_files_are_not_trained_on_as_texts():
    with pytest.raises(TypeError, match=r"data: expected Path objects.*'a\.txt'.*Path\(name\) for name"):
        small(data=["a.txt", "b.jsonl"])
    assert small(data=["a.txt", "and a text"]).data == ["a.txt", "and a text"]


@pytest.mark.parametrize("name", ["data", "output"])
def test_an_empty_path_is_not_the_current_folder(name):
    with pytest.raises(ValueError, match=rf"^{name}: expected a path, got an empty text"):
        small(**{name: ""})


def test_a_split_is_told_with_the_documents_name():
    long = [f"{text} " * 3 for text in TEXTS]
    with pytest.warns(UserWarning, match=r"^data\[\d+\] has \d+ tokens, more than the context") as caught:
        train(small(data=long, steps=1), progress=False)
    place = int(str(caught[0].message).partition("[")[2].partition("]")[0])
    tokens = int(str(caught[0].message).split()[2])
    from course_lib.text import load_tokenizer, normalize_bangla

    assert len(load_tokenizer().encode(normalize_bangla(long[place]))) + 2 == tokens


def test_the_output_may_lie_in_the_folder_of_the_data(tmp_path, monkeypatch):
    monkeypatch.setattr(Output, "draw", lambda output: None)
    (tmp_path / "mine.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    config = small(data=tmp_path, output=tmp_path / "run")
    with pytest.raises(Stopped):
        train(config, progress=False, on_step=stop_after(4))
    resumed = train(config, progress=False)
    assert resumed.resumed_from == 3
    assert losses(resumed) == losses(train(small(data=tmp_path / "mine.txt"), progress=False))


def test_hidden_files_of_a_folder_are_not_its_text(tmp_path):
    (tmp_path / "mine.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "._mine.txt").write_bytes(b"\x00\x05\x16\x07\xff")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "mine-checkpoint.txt").write_text("old", encoding="utf-8")
    assert losses(train(small(data=tmp_path), progress=False)) == losses(
        train(small(data=tmp_path / "mine.txt"), progress=False)
    )


def test_a_vocabulary_far_over_the_tokenizers_is_told():
    from dataclasses import replace

    with pytest.warns(
        UserWarning, match="vocab_size is 5000, and the tokenizer has 4096.*904 rows"
    ) as caught:
        train(small(model=replace(MODEL, vocab_size=5000), steps=1), progress=False)
    assert caught[0].filename == __file__


def test_evaluate_takes_no_single_text_for_a_list_of_letters():
    with pytest.raises(TypeError, match=r"^documents: expected a list.*\[text\]"):
        evaluate(GPT(MODEL), "a text, not letters")


def test_evaluate_takes_what_a_stream_takes():
    model = GPT(MODEL)
    found = [evaluate(model, documents) for documents in (STORIES, lambda: STORIES, iter(STORIES))]
    assert found[0] == found[1] == found[2]


def test_an_evaluation_that_fails_leaves_the_model_in_its_mode(monkeypatch):
    model = GPT(MODEL).train()
    monkeypatch.setattr(GPT, "hidden", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(model, STORIES)
    assert model.training and all(layer.training for layer in model.layers)


@pytest.mark.parametrize("seed", [2**63, -(2**63)])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    with pytest.raises(ValueError, match="seed: expected a whole number within 63 bits"):
        small(seed=seed)


def test_numbers_of_numpy_are_numbers():
    import json

    import numpy

    config = small(learning_rate=numpy.float32(0.5), held_out=numpy.float64(0.25), weight_decay=0)
    assert json.loads(json.dumps(config.to_dict()))["learning_rate"] == 0.5
    assert isinstance(config, TrainConfig) and config.weight_decay == 0.0
