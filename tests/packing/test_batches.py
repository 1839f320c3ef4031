"""Laying documents side by side, taking them apart, and what each token should predict."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.packing import next_token_targets, pack, unpack

DOCUMENTS = st.lists(st.lists(st.integers(0, 4095), max_size=8), max_size=8)


@given(DOCUMENTS)
def test_unpacking_a_packed_batch_gives_the_documents_back(documents: list[list[int]]) -> None:
    batch = pack([torch.tensor(d, dtype=torch.int64) for d in documents])
    assert [t.tolist() for t in unpack(batch.tokens, batch.lengths)] == documents
    assert batch.tokens.shape == batch.positions.shape == (1, sum(map(len, documents)))
    assert batch.tokens.dtype == batch.positions.dtype == torch.int64
    assert batch.lengths == tuple(map(len, documents))


@given(DOCUMENTS)
def test_positions_restart_in_every_document(documents: list[list[int]]) -> None:
    batch = pack(documents)
    assert [p.tolist() for p in unpack(batch.positions, batch.lengths)] == [
        list(range(len(d))) for d in documents
    ]


@given(DOCUMENTS)
def test_a_target_is_the_next_token_of_the_same_document(documents: list[list[int]]) -> None:
    batch = pack(documents)
    expected = [[*d[1:], -100] if d else [] for d in documents]
    assert [t.tolist() for t in unpack(next_token_targets(batch), batch.lengths)] == expected


def test_no_target_lies_in_the_next_document() -> None:
    batch = pack([[1, 2, 3], [7], [], [8, 9]])
    assert next_token_targets(batch).tolist() == [[2, 3, -100, -100, 9, -100]]


def test_targets_leave_the_tokens_as_they_are() -> None:
    batch = pack([[1, 2], [3]])
    next_token_targets(batch)
    assert batch.tokens.tolist() == [[1, 2, 3]]


def test_the_loss_counts_no_document_end() -> None:
    """cross_entropy's mean is over the tokens that have a target: 2 of 5 here."""
    batch = pack([[1, 2], [3], [4, 5]])
    logits = torch.zeros(5, 6, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(logits, next_token_targets(batch).flatten()).backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum(-1).ne(0).tolist() == [True, False, False, True, False]


def test_lists_tensors_and_generators_pack_alike() -> None:
    expected = pack([torch.tensor([5, 6], dtype=torch.int32), torch.tensor([7], dtype=torch.uint8)])
    assert expected.tokens.dtype == torch.int64
    batch = pack(ids for ids in ([5, 6], (7,)))
    assert torch.equal(batch.tokens, expected.tokens) and batch.lengths == expected.lengths


def test_an_empty_tensor_of_any_dtype_is_an_empty_document() -> None:
    batch = pack([torch.tensor([]), torch.tensor([4])])
    assert batch.tokens.tolist() == [[4]] and batch.lengths == (0, 1)


def test_a_packed_batch_is_a_copy() -> None:
    ids = torch.tensor([1, 2, 3])
    batch = pack([ids])
    batch.tokens[0, 0] = 9
    assert ids.tolist() == [1, 2, 3]


def test_unpack_gives_views_that_carry_gradients_and_further_dimensions() -> None:
    tensor = torch.randn(1, 5, 2, 3, requires_grad=True)
    first, second = unpack(tensor, torch.tensor([2, 3]))
    assert first.shape == (2, 2, 3) and second.data_ptr() == tensor[0, 2].data_ptr()
    second.sum().backward()
    assert tensor.grad is not None and tensor.grad.sum().item() == 18


def test_a_batch_moves_whole() -> None:
    batch = pack([[1], [2, 3]]).to("meta")
    assert batch.tokens.device.type == batch.positions.device.type == "meta" and batch.lengths == (1, 2)
