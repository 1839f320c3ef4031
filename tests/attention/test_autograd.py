"""attention within training: partial gradients, compile, checkpointing, inference, second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .cases import HOLES
from .oracle import assert_agrees, attend, attend_with_gradients, causal, matrix
from .running import ALWAYS, BACKENDS, check, may_decline, qkv, randn


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("names", ["q", "k", "v", "qk", "qv", "kv"])
def test_gradients_may_be_wanted_for_some_inputs_only(backend: str, names: str) -> None:
    tensors = dict(zip("qkv", qkv(2, 6, 9, heads=4, kv_heads=2, head_dim=8, grad=False), strict=True))
    for name in names:
        tensors[name].requires_grad_()
    may_decline(backend, *tensors.values(), Causal("bottom-right"))
    out = attention(*tensors.values(), Causal("bottom-right"), backend=backend)
    grad_out = randn(*out.shape, seed=1)
    out.backward(grad_out)
    expected = attend_with_gradients(*tensors.values(), grad_out, visible=matrix(causal(3), 6, 9))
    for name, full in zip("qkv", ("query", "key", "value"), strict=True):
        if name in names:
            assert_agrees(tensors[name].grad, expected[full], f"gradient of {full}")
        else:
            assert tensors[name].grad is None


@pytest.mark.parametrize("backend", ALWAYS)
def test_a_bias_alone_may_want_a_gradient(backend: str) -> None:
    query, key, value = qkv(2, 6, 9, grad=False)
    bias = randn(1, 3, 6, 1, seed=2)
    bias = torch.cat([bias, randn(1, 3, 6, 8, seed=3)], -1).requires_grad_()
    out = attention(query, key, value, bias, backend=backend)
    grad_out = randn(*out.shape, seed=1)
    out.backward(grad_out)
    assert_agrees(
        bias.grad, attend_with_gradients(query, key, value, grad_out, bias=bias)["bias"], "gradient of bias"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_tensor_may_be_query_key_and_value_at_once(backend: str) -> None:
    x = randn(2, 6, 3, 8, seed=4, grad=True)
    may_decline(backend, x, x, x, Causal())
    out = attention(x, x, x, Causal(), backend=backend)
    grad_out = randn(*out.shape, seed=1)
    out.backward(grad_out)
    expected = attend_with_gradients(x, x, x, grad_out, visible=matrix(causal(), 6, 6))
    assert_agrees(out, expected["out"], "out")
    assert_agrees(x.grad, expected["query"] + expected["key"] + expected["value"], "gradient")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_modes_give_the_same_output_without_a_graph(backend: str, mode) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32)
    with mode():
        for bias in (None, Causal(), Causal(window=2), KeyPadding(HOLES), Segments([3, 4])):
            may_decline(backend if bias is None else "auto", query, key, value, bias)
            usable = backend if bias is None or backend != "torch_sdpa" else "auto"
            out = attention(query, key, value, bias, backend=usable)
            assert not out.requires_grad
            visible = torch.ones(7, 7, dtype=torch.bool) if bias is None else bias.materialize(7, 7) == 0
            assert_agrees(out, attend(query, key, value, visible=visible)[0].detach(), "out")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_may_be_walked_twice_when_it_is_kept(backend: str) -> None:
    query, key, value = qkv(2, 6)
    may_decline(backend, query, key, value, Causal())
    out = attention(query, key, value, Causal(), backend=backend)
    first = torch.autograd.grad(out.sum(), [query, key, value], retain_graph=True)
    second = torch.autograd.grad(out.sum(), [query, key, value])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_changing_an_input_in_place_before_the_backward_is_noticed_or_harmless(backend: str) -> None:
    query, key, value = qkv(2, 6)
    doubled = key * 2
    may_decline(backend, query, doubled, value)
    out = attention(query, doubled, value, backend=backend)
    expected = attend_with_gradients(query, doubled, value, torch.ones_like(out))
    doubled.add_(1)
    try:
        (gradient,) = torch.autograd.grad(out.sum(), query)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return
    assert_agrees(gradient, expected["query"], "gradient of query")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("around", ["alone", "in a sum", "in a sum of segments", "within segments"])
def test_changing_a_mask_in_place_before_the_backward_is_noticed_or_harmless(
    backend: str, dtype: torch.dtype, around: str
) -> None:
    """One buffer for the masks of two forwards, and then their backwards."""
    mask = torch.ones(6, 6, dtype=dtype)
    query, key, value = qkv(2, 6, head_dim=8)
    bias = {
        "alone": lambda: mask,
        "in a sum": lambda: Causal() + mask,
        "in a sum of segments": lambda: mask + Segments([2, 4]),
        "within segments": lambda: Segments([6], inner=mask),
    }[around]()
    may_decline(backend, query, key, value, bias)
    out = attention(query, key, value, bias, backend=backend)
    expected = torch.autograd.grad(out.sum(), [query, key, value], retain_graph=True)
    mask[:, 1:] = 0 if dtype == torch.bool else -torch.inf
    try:
        found = torch.autograd.grad(out.sum(), [query, key, value])
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_made_in_inference_mode_serves_training(backend: str) -> None:
    with torch.inference_mode():
        mask = matrix(causal(), 6, 6).double().log()
    check(backend, *qkv(2, 6, head_dim=8), mask, visible=matrix(causal(), 6, 6))


def test_a_bias_frozen_between_forward_and_backward_is_told_apart() -> None:
    table = torch.zeros(6, 6, dtype=torch.float64, requires_grad=True)
    query, key, value = qkv(2, 6)
    out = attention(query, key, value, Causal() + table, backend="tiled")
    table.requires_grad_(False)
    with pytest.raises(RuntimeError, match="frozen"):
        out.sum().backward()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_activation_checkpointing_gives_the_same_gradients(backend: str, use_reentrant: bool) -> None:
    query, key, value = qkv(2, 6, dtype=torch.float32)
    bias = randn(1, 3, 1, 6, seed=5, dtype=torch.float32, grad=backend in ("reference", "tiled"))
    total = Causal() + bias if bias.requires_grad else Causal()
    may_decline(backend, query, key, value, total)

    def block(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query.sin(), key, value, total, backend=backend).cos()

    leaves = [query, key, value] + ([bias] if bias.requires_grad else [])
    plain = torch.autograd.grad(block(query, key, value).square().sum(), leaves)
    for leaf in leaves:
        leaf.grad = None
    checkpoint(block, query, key, value, use_reentrant=use_reentrant).square().sum().backward()
    for leaf, gradient in zip(leaves, plain, strict=True):
        torch.testing.assert_close(leaf.grad, gradient, rtol=0, atol=1e-6)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_works_under_autocast(use_reentrant: bool) -> None:
    query, key, value = qkv(2, 6, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call = lambda *t: attention(*t, Causal(), backend="tiled")  # noqa: E731
        out = checkpoint(call, query, key, value, use_reentrant=use_reentrant)
    out.float().sum().backward()
    assert query.grad.dtype == torch.float32
    assert torch.isfinite(query.grad).all()


@pytest.mark.parametrize("bias", [None, Causal(), Segments([2, 4])], ids=["none", "causal", "segments"])
def test_a_second_derivative_of_tiled_is_refused_with_a_sentence(bias) -> None:
    query, key, value = qkv(1, 6)
    out = attention(query, key, value, bias, backend="tiled")
    with pytest.raises((RuntimeError, NotImplementedError, ValueError)) as refusal:
        (gradient,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
        gradient.square().sum().backward()
    message = str(refusal.value)
    assert "second derivative" in message.lower()
    assert "reference" in message
    assert len(message.split()) > 10


@pytest.mark.parametrize("wanted", ["query", "key", "value", "output gradient"])
def test_no_second_derivative_of_tiled_is_silently_wrong(wanted: str) -> None:
    """Whichever leaf the second pass ends at, it is refused, never a number that leaves a term out."""
    query, key, value = qkv(1, 6)
    grad_out = randn(1, 6, 3, 5, seed=1, grad=True)
    out = attention(query, key, value, Causal(), backend="tiled")
    first = torch.autograd.grad(out, [query, key, value], grad_out, create_graph=True)
    leaf = {"query": query, "key": key, "value": value, "output gradient": grad_out}[wanted]
    with pytest.raises((RuntimeError, NotImplementedError, ValueError), match="second derivative"):
        torch.autograd.grad(sum(g.square().sum() for g in first), leaf)


@pytest.mark.parametrize("backend", ["reference", "auto", "torch_sdpa"])
def test_a_second_derivative_elsewhere_is_right_or_refused(backend: str) -> None:
    query, key, value = qkv(1, 6)

    def penalty(call) -> Tensor:
        (gradient,) = torch.autograd.grad(call().square().sum(), query, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), query)[0]

    expected = penalty(lambda: attend(query, key, value, visible=matrix(causal(), 6, 6))[0])
    try:
        got = penalty(lambda: attention(query, key, value, Causal(), backend=backend))
    except (RuntimeError, NotImplementedError):
        assert backend != "reference"
        return
    assert_agrees(got, expected, "second derivative")


@pytest.mark.parametrize("bias", [None, Causal("bottom-right")], ids=["none", "causal"])
def test_the_reference_passes_gradgradcheck(bias) -> None:
    query, key, value = qkv(1, 2, 3, heads=2, kv_heads=1, head_dim=2)
    assert torch.autograd.gradgradcheck(
        lambda *t: attention(*t, bias, backend="reference"), (query, key, value)
    )


@pytest.mark.parametrize("backend", ALWAYS)
@pytest.mark.parametrize("name", ["none", "causal", "window", "segments", "padding"])
def test_gradcheck(backend: str, name: str) -> None:
    bias = {
        "none": None,
        "causal": Causal("bottom-right"),
        "window": Causal("bottom-right", window=2),
        "segments": Segments([1, 2], [3, 1]),
        "padding": KeyPadding(torch.tensor([[1, 0, 1, 1]])),
    }[name]
    tensors = qkv(1, 3, 4, heads=2, kv_heads=1, head_dim=3, value_dim=2)
    assert torch.autograd.gradcheck(lambda *t: attention(*t, bias, backend=backend), tensors)


@pytest.fixture
def fresh_compiler() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_gives_the_same_answer_and_gradients(backend: str, compiler: str) -> None:
    query, key, value = qkv(2, 6, dtype=torch.float32)
    may_decline(backend, query, key, value, Causal())

    def step(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query * 2, key, value, Causal(), backend=backend).sin()

    expected = step(query, key, value)
    wanted = torch.autograd.grad(expected.sum(), [query, key, value])
    got = torch.compile(step, backend=compiler)(query, key, value)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    found = torch.autograd.grad(got.sum(), [query, key, value])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["window", "segments", "padding", "dense sum"])
@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_with_every_kind_of_bias(name: str) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32)
    dense = randn(7, 7, seed=6, dtype=torch.float32, grad=True)
    make = {
        "window": lambda: Causal(window=2),
        "segments": lambda: Segments([3, 4], inner=Causal()),
        "padding": lambda: KeyPadding(HOLES),
        "dense sum": lambda: Causal() + dense,
    }[name]
    call = lambda *t: attention(*t, make())  # noqa: E731
    expected = call(query, key, value)
    wanted = torch.autograd.grad(expected.square().sum(), [query, key, value])
    got = torch.compile(call, backend="eager")(query, key, value)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    found = torch.autograd.grad(got.square().sum(), [query, key, value])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("error:.*recompile")
def test_torch_compile_serves_packed_batches_none_like_another(dynamic: bool | None) -> None:
    def step(x: Tensor, bias: Segments) -> Tensor:
        return attention(x * 2, x, x, bias).sin()

    compiled = torch.compile(step, backend="eager", dynamic=dynamic)
    for lengths in ([2, 3], [4, 3], [1, 1, 7], [12], [3, 3, 3], [5, 8], [14], [2] * 8, [9, 8], [4, 4, 1]):
        (x, *_) = qkv(2, sum(lengths), head_dim=8)
        bias = Segments(lengths, inner=Causal())
        out, expected = compiled(x, bias), step(x, bias)
        torch.testing.assert_close(out, expected)
        (got,), (wanted,) = (torch.autograd.grad(o.sum(), [x]) for o in (out, expected))
        torch.testing.assert_close(got, wanted)


@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_serves_lengths_that_change() -> None:
    compiled = torch.compile(lambda *t: attention(*t, Causal("bottom-right")), backend="eager")
    for q_len, k_len in [(3, 5), (4, 6), (1, 9), (1, 10)]:
        query, key, value = qkv(1, q_len, k_len, dtype=torch.float32, grad=False)
        expected, _ = attend(query, key, value, visible=matrix(causal(k_len - q_len), q_len, k_len))
        assert_agrees(compiled(query, key, value), expected, "out")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_call_gives_the_same_bits(backend: str) -> None:
    query, key, value = qkv(2, 70, 90, heads=4, head_dim=16, dtype=torch.float32, grad=False)
    state = torch.get_rng_state()
    first = attention(query, key, value, Causal("bottom-right"), backend=backend)
    second = attention(query, key, value, Causal("bottom-right"), backend=backend)
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)
