"""The short way of a decode step gives what the long way gives, and is not taken where it must not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.attention import Causal, attention
from course_lib.attention.one_query import one_query


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


SHAPES = [(1, 1, 1, 8), (1, 40, 12, 64), (3, 7, 4, 16), (2, 300, 6, 80)]


def of_shape(batch: int, keys: int, heads: int, dim: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(batch + keys)
    return [
        torch.randn(batch, length, heads, dim, generator=generator).to(dtype) for length in (1, keys, keys)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_single_query_comes_out_as_by_the_long_way_to_the_bit(
    shape: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    query, key, value = of_shape(*shape, dtype)
    short = one_query(query, key, value)
    assert short is not None
    assert torch.equal(short, attention(query, key, value, backend="torch_sdpa"))
    assert torch.equal(short, attention(query, key, value, Causal("bottom-right")))
    assert torch.equal(attention(query, key, value), short)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [*SHAPES, (5, 700, 12, 64)], ids=str)
def test_in_half_precision_the_short_way_is_at_least_as_near_to_the_definition(
    shape: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    query, key, value = of_shape(*shape, dtype)
    exact = attention(query.double(), key.double(), value.double(), backend="reference")
    short, long = one_query(query, key, value), attention(query, key, value, backend="torch_sdpa")
    assert short is not None and short.dtype == dtype
    errors = [float((found.double() - exact).abs().max()) for found in (short, long)]
    rounding = torch.finfo(dtype).eps * float(exact.abs().max())
    assert errors[0] <= max(errors[1], rounding), errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_row_in_half_precision_does_not_depend_on_the_others(dtype: torch.dtype) -> None:
    query, key, value = of_shape(5, 700, 12, 64, dtype)
    together = one_query(query, key, value)
    assert together is not None
    for row in range(5):
        alone = one_query(query[row : row + 1], key[row : row + 1], value[row : row + 1])
        assert alone is not None and torch.equal(alone[0], together[row])


def test_keys_in_the_order_of_a_cache_are_read_where_they_lie() -> None:
    query, key, value = of_shape(2, 9, 4, 16)
    room = torch.zeros(2, 4, 30, 16)
    room[:, :, :9] = key.transpose(1, 2)
    short = one_query(query, room[:, :, :9].transpose(1, 2), value)
    assert short is not None
    torch.testing.assert_close(short, attention(query, key, value, backend="reference"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["query", "every key", "one key"])
def test_nan_is_not_taken_for_a_row_that_sees_nothing(where: str) -> None:
    query, key, value = of_shape(1, 5, 2, 8)
    if where == "query":
        query[:] = float("nan")
    else:
        key[:, : 5 if where == "every key" else 1] = float("nan")
    found = attention(query, key, value)
    assert bool(found.isnan().all())


def grouped(tensors: list[Tensor]) -> list[Tensor]:
    return [tensors[0], tensors[1][:, :, :2], tensors[2][:, :, :2]]


def wide_values(tensors: list[Tensor]) -> list[Tensor]:
    return [*tensors[:2], torch.cat([tensors[2]] * 2, -1)]


def two_queries(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.cat([tensors[0]] * 2, 1), *tensors[1:]]


def no_keys(tensors: list[Tensor]) -> list[Tensor]:
    return [tensors[0], tensors[1][:, :0], tensors[2][:, :0]]


def of_two_dtypes(tensors: list[Tensor]) -> list[Any]:
    return [tensors[0].half(), *tensors[1:]]


def spread_numbers(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.transpose(2, 3).contiguous().transpose(2, 3) for tensor in tensors]


def subclass(tensors: list[Tensor]) -> list[Any]:
    return [torch.nn.Parameter(tensors[0], requires_grad=False), *tensors[1:]]


@pytest.mark.parametrize(
    "change", [grouped, wide_values, two_queries, no_keys, of_two_dtypes, spread_numbers, subclass]
)
def test_what_is_not_such_a_call_goes_the_long_way(change: Any) -> None:
    assert one_query(*change(of_shape(2, 6, 4, 8))) is None


def test_gradients_and_autocast_go_the_long_way() -> None:
    tensors = of_shape(1, 6, 2, 8)
    with torch.enable_grad():
        tensors[0].requires_grad_()
        assert one_query(*tensors) is None
        assert attention(*tensors).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert one_query(*tensors) is None
        assert attention(*tensors).dtype == torch.bfloat16


@pytest.mark.error_messages
def test_a_fault_is_told_in_the_same_words_as_ever() -> None:
    query, key, value = of_shape(2, 6, 4, 8)
    with pytest.raises(ValueError, match="key: expected batch 2 as in query, got 1"):
        attention(query, key[:1], value[:1])
    with pytest.raises(ValueError, match="expected one dtype outside of autocast"):
        attention(query.half(), key, value)
    with pytest.raises(ValueError, match="key: expected head_dim 8 as in query, got 4"):
        attention(query, key[..., :4], value[..., :4])
