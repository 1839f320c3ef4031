"""Layers in four and eight bits: as F.linear of what they unpack, in the plain and in the fast way."""

from __future__ import annotations

import copy
import json
import platform

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.offload import QuantizedLinear, dequantize, quantize
from course_lib.offload import quantized_linear as module


def linear(inside: int = 128, outside: int = 96, *, bias: bool = True, dtype=torch.float32) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inside, outside, bias=bias).to(dtype)


def rows(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def by_definition(layer: QuantizedLinear, x: torch.Tensor) -> torch.Tensor:
    """In float64, from what dequantize() gives."""
    bias = None if layer.bias is None else layer.bias.double()
    return F.linear(x.double(), dequantize(layer.quantized, torch.float32).double(), bias)


def off(came: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((came.double() - wanted).norm() / wanted.norm()).item()


KINDS = [
    {"bits": 4},
    {"bits": 4, "symmetric": True},
    {"bits": 4, "group_size": 32},
    {"bits": 4, "group_size": 48},
    {"bits": 8},
    {"bits": 8, "symmetric": True, "group_size": None},
]
CLOSE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("fast", [True, False])
@torch.no_grad()
def test_a_layer_multiplies_by_what_it_unpacks(how, dtype, bias, fast):
    layer = QuantizedLinear.from_linear(linear(bias=bias, dtype=dtype), fast=fast, **how)
    for shape in [(128,), (1, 128), (2, 3, 128), (40, 128), (0, 128)]:
        x = rows(*shape, dtype=dtype)
        came = layer(x)
        assert came.shape == (*shape[:-1], 96) and came.dtype == dtype
        if came.numel():
            assert off(came, by_definition(layer, x)) < CLOSE[dtype]


@torch.no_grad()
def test_a_weight_of_several_parts_is_the_weight(monkeypatch):
    monkeypatch.setattr(module, "UNPACKED_AT_ONCE", 128 * 36)
    layer = QuantizedLinear.from_linear(linear(), bits=4)
    x = rows(5, 128)
    assert off(layer(x), by_definition(layer, x)) < 1e-6


@pytest.mark.parametrize("outside", [64, 96, 200, 48, 33])
@pytest.mark.parametrize("how", [{"bits": 4}, {"bits": 8, "symmetric": True, "group_size": None}])
@torch.no_grad()
def test_few_rows_in_bfloat16_agree_whatever_shapes_the_kernels_take(outside, how):
    layer = QuantizedLinear.from_linear(linear(outside=outside, dtype=torch.bfloat16), **how)
    x = rows(3, 128, dtype=torch.bfloat16)
    assert off(layer(x), by_definition(layer, x)) < 1e-2


@torch.no_grad()
def test_the_kernel_is_used_for_few_rows_and_only_where_it_was_found_to_agree(monkeypatch):
    layer = QuantizedLinear.from_linear(linear(dtype=torch.bfloat16), bits=4)
    if not module._has_int4_kernel(32, 64):
        pytest.skip("this build of PyTorch has no 4-bit kernel")
    used = []
    kernel = module._int4_product
    monkeypatch.setattr(module, "_int4_product", lambda *a: used.append(len(a[0])) or kernel(*a))
    layer(rows(1, 128, dtype=torch.bfloat16))
    layer(rows(2, 16, 128, dtype=torch.bfloat16))
    layer(rows(33, 128, dtype=torch.bfloat16))
    assert used == [1, 32]
    monkeypatch.setattr(module, "_has_int4_kernel", lambda *a: False)
    layer(rows(1, 128, dtype=torch.bfloat16))
    assert used == [1, 32]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="measured on x86 alone")
def test_the_kernels_of_pytorch_agree_with_the_definition_here():
    assert module._has_int4_kernel(0, 64) and module._has_int4_kernel(32, 64)
    assert module._has_int8_kernel(0, 128)


def test_a_kernel_that_is_missing_or_wrong_is_not_used(monkeypatch):
    def fails(*_):
        raise RuntimeError("no such operator")

    for broken in (fails, lambda x, *_: x.new_zeros(3, 64)):
        monkeypatch.setattr(module, "_int4_product", broken)
        assert not module._has_int4_kernel.__wrapped__(0, 64)


@torch.no_grad()
def test_the_kernels_copy_is_counted_and_can_be_dropped():
    layer = QuantizedLinear.from_linear(linear(bias=False, dtype=torch.bfloat16), bits=4)
    assert layer.nbytes == 128 * 96 * 4.5 / 8
    layer(rows(1, 128, dtype=torch.bfloat16))
    if module._has_int4_kernel(32, 64):
        assert layer.nbytes == 2 * 128 * 96 * 4.5 / 8
    layer.release()
    assert layer.nbytes == 128 * 96 * 4.5 / 8


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_layer_comes_back_from_its_tensors_and_settings(how, bias):
    layer = QuantizedLinear.from_linear(linear(bias=bias, dtype=torch.bfloat16), **how)
    kept = {name: tensor.clone() for name, tensor in layer.tensors().items()}
    again = QuantizedLinear.from_tensors(kept, **json.loads(json.dumps(layer.settings)))
    x = rows(40, 128, dtype=torch.bfloat16)
    assert again(x).equal(layer(x))
    assert again.data.data_ptr() == kept["data"].data_ptr()
    assert not again.state_dict().keys() ^ layer.state_dict().keys()


@torch.no_grad()
def test_a_state_dict_goes_from_one_layer_to_another():
    one = QuantizedLinear.from_linear(linear(dtype=torch.bfloat16), bits=4)
    other = QuantizedLinear(quantize(torch.zeros(96, 128, dtype=torch.bfloat16), bits=4), torch.zeros(96))
    x = rows(1, 128, dtype=torch.bfloat16)
    other.bfloat16()(x)
    other.load_state_dict(one.state_dict())
    assert other(x).equal(one(x))


@torch.no_grad()
def test_another_dtype_is_one_of_the_arithmetic_alone():
    layer = QuantizedLinear.from_linear(linear(), bits=4)
    before = {name: tensor.clone() for name, tensor in layer.tensors().items()}
    for dtype in (torch.bfloat16, torch.float64, torch.float32):
        layer.to(dtype)
        assert layer.weight.dtype == layer.dtype == dtype == layer(rows(2, 128, dtype=dtype)).dtype
    after = layer.tensors()
    assert all(after[name].equal(before[name]) for name in ("data", "step", "minimum"))
    assert copy.deepcopy(layer)(rows(2, 128)).equal(layer(rows(2, 128)))
    assert layer.to_empty(device="cpu").step.dtype == torch.float16


@torch.no_grad()
def test_autocast_decides_the_dtype_as_for_any_linear():
    plain = linear()
    layer = QuantizedLinear.from_linear(plain, bits=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        came, wanted = layer(rows(40, 128)), plain(rows(40, 128))
    assert came.dtype == wanted.dtype == torch.bfloat16
    assert off(came, wanted.double()) < 0.02


def test_gradients_reach_the_input_and_the_bias():
    layer = QuantizedLinear.from_linear(linear(), bits=4)
    x = rows(3, 128).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and layer.bias is not None and layer.bias.grad is not None
    torch.testing.assert_close(x.grad, layer.unpacked().sum(0).expand(3, -1))


def test_the_weight_tells_shape_and_dtype_and_has_no_numbers():
    layer = QuantizedLinear.from_linear(linear(), bits=4)
    assert layer.weight.is_meta and layer.weight.shape == (96, 128)
    assert layer.unpacked().equal(dequantize(layer.quantized))
    assert "in_features=128, out_features=96, bias=True, bits=4, group_size=64" in repr(layer)


@pytest.mark.error_messages
def test_what_does_not_fit_is_named():
    layer = QuantizedLinear.from_linear(linear(), bits=4)
    with pytest.raises(
        ValueError, match=r"x: expected \[\.\.\., in_features = 128\] torch.float32.* got \[2, 64\]"
    ):
        layer(rows(2, 64))
    with pytest.raises(
        ValueError, match=r"x: expected .*float32, as this layer computes, got .* torch.bfloat16"
    ):
        layer(rows(2, 128, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"quantized: expected a weight .* along its rows"):
        QuantizedLinear(quantize(rows(64, 64), bits=4, axis=0))
    with pytest.raises(
        ValueError, match=r"bias: expected \[out_features\] = \[64\] or None, got shape \[3\]"
    ):
        QuantizedLinear(quantize(rows(64, 64), bits=4), torch.zeros(3))
    with pytest.raises(ValueError, match=r"tensors: expected data, step, .* got data\."):
        QuantizedLinear.from_tensors({"data": layer.data}, **layer.settings)
    short = {**layer.tensors(), "step": layer.step[:, :1]}
    with pytest.raises(ValueError, match=r"shapes \[96, 64\] and \[96, 2\] .* got \[96, 64\] and \[96, 1\]"):
        QuantizedLinear.from_tensors(short, **layer.settings)
