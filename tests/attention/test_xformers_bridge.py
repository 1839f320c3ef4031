"""The way to xFormers' kernels, as far as a machine without a GPU can follow it: which mask object stands for a
bias, and which calls each GPU refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from course_lib.attention import AttentionBias, Band, Causal, KeyPadding, Segments, attention
from course_lib.attention.call import Call
from course_lib.attention.xformers_bridge import packed_lengths, refusal, run, to_xformers

from .running import qkv

pytest.importorskip("xformers.ops", reason="xFormers has no wheel for this platform")

T4, A100, RTX_5090 = (7, 5), (8, 0), (12, 0)
SLOPES = torch.randn(3, 1, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def call_of(
    bias: object, q_len: int, k_len: int | None = None, *, training: bool = False, **shape: object
) -> Call:
    query, key, value = qkv(2, q_len, k_len, **shape)  # type: ignore[arg-type]
    return Call.of(query, key, value, bias, training=training)


EQUIVALENTS = [
    ("LowerTriangularMask", Causal(), 7, 7),
    ("LowerTriangularMask", Causal("top-left"), 3, 5),
    ("LowerTriangularMask", Causal("bottom-right"), 4, 4),
    ("LowerTriangularFromBottomRightMask", Causal("bottom-right"), 3, 5),
    ("LowerTriangularFromBottomRightLocalAttentionMask", Causal("bottom-right", 2), 3, 5),
    ("LowerTriangularFromBottomRightLocalAttentionMask", Causal(window=3), 6, 6),
    ("LocalAttentionFromBottomRightMask", Band(1, 2, "bottom-right"), 3, 5),
    ("Tensor", Causal("top-left", 2), 3, 5),
    ("Tensor", Band(None, 1, "top-left"), 5, 5),
    ("Tensor", Causal() + SLOPES.expand(3, 7, 7)[None], 7, 7),
    ("Tensor", KeyPadding(torch.tensor([[1, 1, 0], [0, 1, 1]])), 4, 3),
]


@pytest.mark.parametrize(("name", "bias", "q_len", "k_len"), EQUIVALENTS)
def test_each_bias_becomes_an_xformers_object_that_means_the_same(
    name: str, bias: AttentionBias, q_len: int, k_len: int
) -> None:
    call = call_of(bias, q_len, k_len)
    theirs = to_xformers(call)
    assert type(theirs).__name__ == name
    own = bias.materialize(q_len, k_len, num_heads=3, dtype=torch.float64)
    full = theirs if isinstance(theirs, Tensor) else theirs.materialize((q_len, k_len), dtype=torch.float64)
    full, own = torch.broadcast_tensors(full, own)
    assert torch.equal(full, own)


PACKED = [
    ("BlockDiagonalMask", [2, 3], None, None),
    ("BlockDiagonalCausalMask", [2, 3], None, Causal()),
    ("BlockDiagonalCausalMask", [2, 1], [3, 2], Causal("top-left")),
    ("BlockDiagonalCausalFromBottomRightMask", [2, 1], [3, 2], Causal("bottom-right")),
    ("BlockDiagonalCausalLocalAttentionFromBottomRightMask", [4, 3], None, Causal(window=2)),
]


@pytest.mark.parametrize(("name", "q_lengths", "k_lengths", "inner"), PACKED)
def test_packed_rows_of_a_batch_become_the_segments_of_one_row(
    name: str, q_lengths: list[int], k_lengths: list[int] | None, inner: AttentionBias | None
) -> None:
    bias = Segments(q_lengths, k_lengths, inner)
    q_len, k_len = sum(q_lengths), sum(k_lengths or q_lengths)
    theirs = to_xformers(call_of(bias, q_len, k_len))
    assert type(theirs).__name__ == name
    one = bias.materialize(q_len, k_len)[0, 0]
    full = theirs.materialize((2 * q_len, 2 * k_len))
    assert torch.equal(full[:q_len, :k_len], one) and torch.equal(full[q_len:, k_len:], one)
    assert full[:q_len, k_len:].isinf().all() and full[q_len:, :k_len].isinf().all()


@pytest.mark.parametrize(
    "bias",
    [
        Segments([2, 3], inner=Causal()) + torch.zeros(5, 5, dtype=torch.float64),
        Segments([2, 3], [1, 4], inner=Causal("bottom-right")),  # its first block has more queries than keys
        Segments([2, 3], inner=Band(1, 1, "top-left")),
    ],
)
def test_what_no_block_diagonal_class_expresses_is_passed_dense(bias: AttentionBias) -> None:
    call = call_of(bias, 5)
    assert packed_lengths(call) is None
    assert torch.equal(to_xformers(call)[0, 0], bias.materialize(5, 5, dtype=torch.float64)[0, 0])


@pytest.mark.parametrize("k_len", [1, 43, 61, 77])
def test_a_dense_bias_has_rows_that_a_kernel_can_read(k_len: int) -> None:
    dense = to_xformers(call_of(torch.zeros(3, k_len), 3, k_len))
    assert dense.shape[-1] == k_len
    assert all(stride % 8 == 0 for stride in dense.stride()[:-1])


@pytest.mark.parametrize(
    ("gpu", "dtype", "bias", "head_dim", "says"),
    [
        (T4, torch.float16, Causal(), 64, None),
        (T4, torch.bfloat16, Causal(), 64, "no bfloat16 kernel; use float16"),
        (T4, torch.float32, None, 64, None),
        (T4, torch.float16, Causal(window=4), 64, "local window"),
        (T4, torch.float16, None, 20, "multiple of 8, got 20"),
        (A100, torch.bfloat16, Causal(window=4), 64, None),
        (A100, torch.float32, Causal(window=4), 64, "local window"),
        (A100, torch.float16, torch.zeros(8, 8), 64, None),
        (A100, torch.float64, None, 64, "no float64 kernel"),
        (RTX_5090, torch.float32, None, 64, "no float32 kernel"),
        (RTX_5090, torch.float16, torch.zeros(8, 8), 64, "no dense bias"),
        (RTX_5090, torch.bfloat16, None, 512, "head_dim up to 256"),
        (RTX_5090, torch.bfloat16, Segments([3, 5], inner=Causal()), 64, None),
    ],
)
def test_each_gpu_refuses_what_it_has_no_kernel_for(
    gpu: tuple[int, int], dtype: torch.dtype, bias: object, head_dim: int, says: str | None
) -> None:
    answer = refusal(gpu, call_of(bias, 8, head_dim=head_dim, dtype=dtype))
    assert answer is None if says is None else says in str(answer)


def test_a_bias_that_learns_is_left_to_a_backend_with_its_gradient() -> None:
    bias = torch.zeros(8, 8, requires_grad=True)
    assert "gradient" in str(refusal(A100, call_of(bias, 8, head_dim=64, dtype=torch.float16)))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
@pytest.mark.parametrize(
    "bias", [None, Causal(), Segments([3, 4], inner=Causal()), Causal("bottom-right")], ids=repr
)
def test_tensors_reach_the_kernel_in_a_layout_it_can_run(
    bias: AttentionBias | None, heads: int, kv_heads: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's place is taken by xFormers' own reference, which accepts the layouts that its kernels do."""
    from xformers.attn_bias_utils import ref_attention

    from course_lib.attention import xformers_bridge

    seen = []

    def kernel(query: Tensor, key: Tensor, value: Tensor, attn_bias: object, scale: float) -> Tensor:
        seen.append(query.dim())
        assert query.shape[2:-1] == key.shape[2:-1] == value.shape[2:-1], "nothing broadcasts in xFormers"
        assert training is False or query.dim() == 4, "its grouped kernels have no backward"
        return ref_attention(query, key, value, attn_bias, scale=scale).to(query.dtype)

    ops = xformers_bridge.xformers_ops()
    monkeypatch.setattr(ops, "memory_efficient_attention", kernel)
    call = call_of(bias, 7, heads=heads, kv_heads=kv_heads, training=training)
    expected = attention(call.query, call.key, call.value, bias, backend="reference")
    torch.testing.assert_close(run(call), expected, rtol=1e-5, atol=1e-6)
    assert seen == [5 if heads != kv_heads and not training else 4]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    "bias", [None, Causal(), Segments([100, 156], inner=Causal()), Causal() + torch.randn(256, 256)], ids=repr
)
def test_on_cuda_every_available_backend_agrees_with_the_reference(bias: object, dtype: torch.dtype) -> None:
    from course_lib.attention import available_backends

    if isinstance(bias, AttentionBias) and bias.adds_scores:
        bias = Causal() + torch.randn(256, 256, device="cuda")
    query, key, value = (
        t.detach().to("cuda", dtype).requires_grad_() for t in qkv(1, 256, heads=8, kv_heads=2, head_dim=64)
    )
    answers = available_backends(query, key, value, bias, training=True)
    wanted = attention(query, key, value, bias, backend="reference")
    grads = torch.autograd.grad(wanted.float().square().sum(), (query, key, value))
    for name, answer in answers.items():
        if answer == "ok":
            out = attention(query, key, value, bias, backend=name)
            torch.testing.assert_close(out, wanted, rtol=2e-2, atol=5e-3)
            found = torch.autograd.grad(out.float().square().sum(), (query, key, value))
            torch.testing.assert_close(found, grads, rtol=5e-2, atol=2e-2)
