"""Which documents a run is not trained on: whole ones, the same each time, and none on both sides."""

from __future__ import annotations

import pytest
import torch

from course_lib.text import Document, load_corpus, stories
from course_lib.training import TokenStream, TrainConfig, evaluate
from course_lib.training.course_text import CourseText
from course_lib.training.held_out import split_documents

from .runs import MODEL, small

TEXTS = [document.text for document in stories(300, seed=9)]


def test_every_document_is_on_one_side():
    split = split_documents(TEXTS, 0.1)
    training = list(split.training())
    assert sorted([*training, *split.held_out]) == sorted(TEXTS)
    assert not set(training) & set(split.held_out)
    assert 15 <= len(split.held_out) <= 50 and split.documents == 300


def test_no_token_of_a_held_out_document_reaches_the_stream_even_where_documents_are_split():
    # Document n is made of n alone, so that every part tells where it is from.
    documents = [[number] * 50 for number in range(1, 60)]
    split = split_documents(documents, 0.2)
    held = {document[0] for document in split.held_out}
    with pytest.warns(UserWarning, match="split into"):
        seen = {
            int(token)
            for row in TokenStream(split.training, batch_tokens=64, context=16, passes=2)
            for token in row.tokens.unique()
        }
    assert held and not held & seen
    assert held | seen == set(range(1, 60))


def test_copies_of_a_document_go_the_same_way():
    split = split_documents(TEXTS * 3, 0.1)
    assert not set(split.training()) & set(split.held_out)
    assert len(split.held_out) == 3 * len(set(split.held_out))


def test_text_that_is_added_moves_no_document():
    before, after = (split_documents(texts, 0.1) for texts in (TEXTS[:200], TEXTS))
    assert set(before.held_out) <= set(after.held_out)


def test_the_order_of_documents_does_not_matter_to_the_choice():
    assert set(split_documents(TEXTS, 0.1).held_out) == set(split_documents(TEXTS[::-1], 0.1).held_out)


def test_another_seed_holds_out_others():
    assert split_documents(TEXTS, 0.1, seed=1).held_out != split_documents(TEXTS, 0.1).held_out


def test_at_least_one_document_is_held_out_unless_the_share_is_0():
    assert len(split_documents(TEXTS[:5], 1e-9).held_out) == 1
    assert split_documents(TEXTS[:5], 0).held_out == ()
    assert len(list(split_documents(TEXTS[:5], 0).training())) == 5


def test_the_checksum_tells_other_documents_and_another_order():
    sums = {split_documents(texts, 0.1).checksum for texts in (TEXTS, TEXTS[::-1], TEXTS[:-1])}
    assert len(sums) == 3
    assert split_documents(tuple(TEXTS), 0.2).checksum in sums


def test_ids_are_split_alike_as_lists_and_tensors():
    lists = [[number, number + 1, 5] for number in range(100)]
    tensors = [torch.tensor(ids) for ids in lists]
    held = split_documents(tensors, 0.1).held_out
    assert [ids.tolist() for ids in held] == list(split_documents(lists, 0.1).held_out)


def test_the_courses_data_are_corpus_and_stories_mixed_in_both_languages():
    documents = list(split_documents("course", 0).training())
    corpus = {document.id for document in load_corpus()}
    assert len(documents) == 4000 + len(corpus) == len({document.id for document in documents})
    for part in (documents[:1000], documents[-1000:]):
        assert {document.language for document in part} == {"bn", "en", "mixed", "banglish"}
        assert sum(document.id in corpus for document in part) > 50
    assert documents == list(CourseText().documents())


def test_names_are_ids_or_places_in_the_data():
    documents = [Document(f"d{i}", "en", "", "", text) for i, text in enumerate(TEXTS)]
    split, plain = split_documents(documents, 0.1), split_documents(TEXTS, 0.1)
    training = list(split.training())
    assert split.names([0, 50]) == [training[0].id, training[50].id]
    assert plain.names([50]) == [f"data[{training[50].id.removeprefix('d')}]"]


def test_files_and_folders_are_read(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS[:10]), encoding="utf-8")
    (tmp_path / "deep" / "b.txt").write_text("\n\n".join(TEXTS[10:20]), encoding="utf-8")
    folder = split_documents(tmp_path, 0)
    assert [document.text for document in folder.training()] == TEXTS[:20]
    both = split_documents([tmp_path / "a.txt", tmp_path / "deep" / "b.txt"], 0)
    assert both.checksum == folder.checksum == split_documents(str(tmp_path), 0).checksum


ERRORS = {
    "nothing": ([], 0.1, ["data", "at least one document", "none"]),
    "one document": (["one text"], 0.1, ["two different documents", "got 1", "held_out=0"]),
    "copies of one document": (["one text"] * 4, 0.1, ["two different documents", "got 4"]),
    "a generator": (stories(3), 0.1, ["documents", "generator", "spent"]),
}


@pytest.mark.error_messages
@pytest.mark.parametrize("name", ERRORS)
def test_the_error_says_what_is_wrong(name):
    data, share, words = ERRORS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        split_documents(data, share)
    for word in words:
        assert caught.match(word)


@pytest.mark.error_messages
def test_a_folder_without_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"data: expected \.txt or \.jsonl files in the folder"):
        split_documents(tmp_path, 0.1)


def test_a_held_out_loss_is_the_mean_over_all_targets():
    from course_lib.models import GPT
    from course_lib.packing import next_token_targets, pack
    from course_lib.text import load_tokenizer

    model, tokenizer = GPT(MODEL, seed=4), load_tokenizer()
    texts = [text[:60] for text in TEXTS[:7]]
    summed = count = 0.0
    for text in texts:
        batch = pack([[tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text]])
        with torch.no_grad():
            logits = model(batch.tokens).double()
        targets = next_token_targets(batch)
        summed += torch.nn.functional.cross_entropy(logits[0, :-1], targets[0, :-1], reduction="sum").item()
        count += targets.numel() - 1
    for batch_tokens in (128, 512):
        assert evaluate(model, texts, batch_tokens=batch_tokens) == pytest.approx(summed / count, rel=1e-6)


def test_evaluating_changes_no_weight_no_mode_and_no_generator():
    from course_lib.models import GPT

    model = GPT(MODEL, seed=4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator = torch.get_rng_state()
    for training in (True, False):
        model.train(training)
        evaluate(model, TEXTS[:3])
        assert model.training is training and all(part.training is training for part in model.modules())
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_default_data_are_the_courses():
    assert TrainConfig(model=MODEL, steps=1).data == "course" and small().data != "course"
