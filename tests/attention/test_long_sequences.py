"""Beyond 32,768 positions, where 16-bit indices end, in memory of order n."""

from __future__ import annotations

import pytest
import torch

from course_lib.attention import Causal, KeyPadding, Segments, attention

from .oracle import assert_agrees, attend, attend_with_gradients
from .running import qkv
from .test_memory import largest_tensor

N = 40_000
ROWS = [0, 1, 15, 16, 511, 512, 32_766, 32_767, 32_768, 32_769, 35_000, N - 1]


@pytest.mark.parametrize("backend", ["tiled", "auto"])
def test_a_window_beyond_32768_tokens_forward_and_backward(backend: str) -> None:
    query, key, value = qkv(1, N, heads=1, head_dim=4, dtype=torch.float32)
    outs: list[torch.Tensor] = []

    def work() -> None:
        out = attention(query, key, value, Causal(window=16), backend=backend)
        outs.append(out)
        out.sum().backward()

    entries, operation = largest_tensor(work)
    assert entries <= 100 * N, f"{operation} made a tensor of {entries} entries"
    for row in ROWS:
        near = slice(max(0, row - 15), row + 1)
        expected, _ = attend(query[:, row : row + 1], key[:, near], value[:, near])
        assert_agrees(outs[0][:, row : row + 1], expected, f"row {row}")
    # The gradients of the last 200 tokens depend on those and on the 15 before them only.
    tail, start = slice(N - 215, N), 215 - 200
    i = torch.arange(215)
    visible = (i[:, None] >= i[None]) & (i[:, None] - i[None] < 16)
    expected = attend_with_gradients(
        query[:, tail], key[:, tail], value[:, tail], torch.ones(1, 215, 1, 4), visible=visible
    )
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        assert_agrees(tensor.grad[:, N - 200 :], expected[name][:, start:], f"gradient of {name}")


@pytest.mark.parametrize("backend", ["tiled", "auto"])
def test_segments_beyond_32768_tokens_forward_and_backward(backend: str) -> None:
    lengths = [397, 3, 0, 400] * (N // 800)
    query, key, value = qkv(1, N, heads=1, head_dim=4, dtype=torch.float32)
    outs: list[torch.Tensor] = []

    def work() -> None:
        out = attention(query, key, value, Segments(lengths, inner=Causal()), backend=backend)
        outs.append(out)
        out.sum().backward()

    entries, operation = largest_tensor(work)
    assert entries <= 10 * N, f"{operation} made a tensor of {entries} entries"
    for first, length in [(0, 397), (397, 3), (32_400, 400), (32_800, 397), (N - 400, 400)]:
        part = slice(first, first + length)
        visible = torch.ones(length, length, dtype=torch.bool).tril()
        expected = attend_with_gradients(
            query[:, part], key[:, part], value[:, part], torch.ones(1, length, 1, 4), visible=visible
        )
        assert_agrees(outs[0][:, part], expected["out"], f"out at {first}")
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            assert_agrees(tensor.grad[:, part], expected[name], f"gradient of {name} at {first}")


@pytest.mark.parametrize("backend", ["tiled", "auto"])
def test_a_decoding_step_against_a_padded_cache_beyond_32768_tokens(backend: str) -> None:
    query, key, value = qkv(2, 1, N, heads=2, kv_heads=1, head_dim=4, dtype=torch.float32, grad=False)
    mask = torch.ones(2, N, dtype=torch.long)
    mask[0, :33_333] = 0
    out = attention(query, key, value, Causal("bottom-right") + KeyPadding(mask), backend=backend)
    expected, _ = attend(query, key, value, visible=mask.bool()[:, None, None])
    assert_agrees(out, expected, "out")


@pytest.mark.filterwarnings("ignore")
def test_xformers_masks_beyond_32768_tokens() -> None:
    pytest.importorskip("xformers", reason="xFormers has wheels for Linux and Windows only")
    from xformers.ops.fmha import attn_bias as xf

    query, key, value = qkv(1, N, heads=1, head_dim=4, dtype=torch.float32, grad=False)
    packed = attention(
        query, key, value, xf.BlockDiagonalMask.from_seqlens([400] * 100).make_local_attention(16)
    )
    ours = attention(query, key, value, Segments([400] * 100, inner=Causal(window=16)), backend="tiled")
    torch.testing.assert_close(packed, ours, rtol=0, atol=1e-5)
    local = attention(query, key, value, xf.LowerTriangularFromBottomRightMask().make_local_attention(16))
    row = 32_768
    expected, _ = attend(query[:, row : row + 1], key[:, row - 15 : row + 1], value[:, row - 15 : row + 1])
    assert_agrees(local[:, row : row + 1], expected, "out")
