"""Two results are compared as a teacher would: what matters is named first, and rounding is no mistake."""

import numpy as np
import pytest
import torch

from course_lib.classroom.attempt import _Capped
from course_lib.classroom.compare import Tolerance, agree, difference, show


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (torch.tensor([torch.nan, torch.inf]), torch.tensor([torch.nan, torch.inf])),
        (torch.tensor([1.0 + 1e-5]), torch.tensor([1.0])),
        (torch.tensor([1.001], dtype=torch.float16), torch.tensor([1.0])),
        (torch.tensor([1.0], dtype=torch.float64, requires_grad=True), torch.tensor([1.0])),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.eye(2).to_sparse(), torch.eye(2)),
        (torch.tensor([1, 2], dtype=torch.int32), torch.tensor([1, 2])),
        (torch.tensor([1, 2]), [1, 2]),
        (np.array([1, 2]), (1, 2)),
        ((1, 2.0), [1, 2]),
        ([torch.ones(2), 3], (torch.ones(2), 3)),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (torch.tensor(True), True),
        (float("nan"), float("nan")),
        (None, None),
        ("নদী", "নদী"),
    ],
)
def test_these_agree(got, wanted):
    assert agree(got, wanted)


@pytest.mark.parametrize(
    ("got", "wanted", "key", "place"),
    [
        (torch.tensor([1.0 + 1e-3]), torch.tensor([1.0]), "wrong_value", "result[0]"),
        (torch.tensor([2.0, torch.nan]), torch.tensor([1.0, 1.0]), "not_a_number", "result[1]"),
        (torch.tensor([1.0]), torch.tensor([torch.nan]), "wrong_value", "result[0]"),
        (torch.tensor(2.0), torch.tensor(1.0), "wrong_value", "result"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "axes_swapped", "result"),
        (torch.zeros(2, 3), torch.zeros(6), "wrong_shape", "result"),
        (torch.ones(2), torch.ones(2, dtype=torch.long), "float_for_integer", "result"),
        (torch.ones(2), torch.ones(2, dtype=torch.bool), "float_for_bool", "result"),
        ((torch.ones(2), None), (torch.ones(2), torch.ones(1)), "part_is_none", "result[1]"),
        ([1, [2, 3]], [1, [2, 4]], "wrong_answer", "result[1][1]"),
        ([1], [1, 2], "wrong_length", "result"),
        ({"a": 1}, {"b": 1}, "wrong_keys", "result"),
        ({"a": 1}, {"a": 2}, "wrong_answer", "result['a']"),
        (1, True, "wrong_type", "result"),
        (True, 1, "wrong_type", "result"),
        ("12", 12, "wrong_type", "result"),
        ("12", [1, 2], "wrong_type", "result"),
        (float("nan"), 1.0, "number_is_nan", "result"),
        (4097, 4096, "wrong_answer", "result"),
        (5, None, "wrong_type", "result"),
    ],
)
def test_these_differ_in_what_is_named(got, wanted, key, place):
    found = difference(got, wanted)
    assert found is not None and found.key == f"common.{key}" and found.values["place"] == place


def test_a_tolerance_can_be_asked_for():
    assert agree(torch.tensor([1.1]), torch.tensor([1.0]), Tolerance(atol=0.2))
    assert agree(1.1, 1, Tolerance(atol=0.2)) and not agree(1.1, 1)
    assert not agree(torch.tensor([1.0 + 1e-5]), torch.tensor([1.0]), Tolerance(rtol=0, atol=0))


def test_values_are_shown_short():
    assert show(1 / 3) == "0.33333" and show(float("-inf")) == "-inf"
    assert show(torch.arange(3.0)) == "[0, 1, 2]" and show(torch.zeros(2, 9)) == "tensor [2, 9]"
    assert show(list(range(20))) == "[0, 1, 2, 3, 4, 5, 6, 7, …]" and len(show("x" * 500)) < 62


def test_captured_printing_is_capped_whatever_the_pieces():
    kept = _Capped()
    for _ in range(50):
        kept.write("x" * 999)
    assert len(kept.getvalue()) == 4000
