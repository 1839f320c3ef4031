"""ALiBi with everything that may stand beside it: output and gradients against dense float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.alibi import ALiBi, alibi_slopes
from course_lib.attention import Causal, KeyPadding, Segments, attention, available_backends
from course_lib.packing import Packed

from .oracle import Predicate, attend, lowered, published_slopes, qkv, randn, seen

HEADS, KV_HEADS = 6, 3
SLOPES = torch.tensor(published_slopes(HEADS), dtype=torch.float64)
BACKENDS = ("reference", "tiled", "torch_sdpa", "auto")


@pytest.fixture(params=["one tile", "many tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sequences this short fit into one tile: cut them, too, into tiles of at most 2 sequences of 7 by 7."""
    if request.param == "many tiles":
        from course_lib.attention import tiled

        monkeypatch.setattr(tiled, "SHORTEST_TILE", 4)
        monkeypatch.setattr(tiled, "SCORES_PER_TILE", 2 * HEADS * 16)
    return request.param


def agree(got: Tensor, expected: Tensor, what: str, atol: float = 1e-10) -> None:
    torch.testing.assert_close(
        got.double(), expected, rtol=atol, atol=atol, msg=lambda text: f"{what}: {text}"
    )


def check(
    backend: str,
    bias: Any,
    scores: Tensor,
    visible: Tensor | None,
    *,
    batch: int = 2,
    kv_heads: int = KV_HEADS,
    slopes: Tensor | None = None,
) -> None:
    """Output, log-sum-exp and gradients, that of ``slopes`` too, which ``scores`` must have been made from."""
    q_len, k_len = scores.shape[-2:]
    query, key, value = qkv(batch, q_len, k_len, HEADS, kv_heads)
    leaves = [query, key, value] if slopes is None else [query, key, value, slopes]
    grad_out = randn(*query.shape, seed=5)
    out, lse = attend(query, key, value, scores, visible)
    expected = torch.autograd.grad(out, leaves, grad_out)
    if available_backends(query, key, value, bias, training=True).get(backend, "ok") != "ok":
        assert backend == "torch_sdpa"
        return
    got = attention(query, key, value, bias, backend=backend)
    agree(got, out, "out")
    names = ("query", "key", "value", "slopes")
    for name, mine, theirs in zip(names, torch.autograd.grad(got, leaves, grad_out), expected, strict=False):
        agree(mine, theirs, f"gradient of {name}")
    if backend != "torch_sdpa":
        agree(attention(query, key, value, bias, backend=backend, return_lse=True)[1], lse, "lse")


def bottom_right(q_len: int, k_len: int) -> range:
    return range(k_len - q_len, k_len)


SHAPES = [(13, 13), (4, 17), (17, 4), (1, 9), (9, 1), (1, 1)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q_len", "k_len"), SHAPES)
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
def test_alone_it_lowers_scores_by_distance_in_both_directions(
    backend: str, q_len: int, k_len: int, kv_heads: int, tiles: str
) -> None:
    scores = lowered(SLOPES, bottom_right(q_len, k_len), k_len)
    check(backend, ALiBi(HEADS), scores, None, kv_heads=kv_heads)


def test_alone_it_hides_nothing() -> None:
    bias = ALiBi(HEADS).materialize(9, 5, num_heads=HEADS)
    assert bias.shape == (1, HEADS, 9, 5)
    assert bias.isfinite().all() and (bias <= 0).all()


CAUSAL: dict[str, tuple[Causal, Callable[[int, int], Predicate]]] = {
    "bottom-right": (Causal("bottom-right"), lambda m, n: lambda i, j: j <= i + n - m),
    "top-left": (Causal("top-left"), lambda m, n: lambda i, j: j <= i),
    "window": (Causal("bottom-right", 3), lambda m, n: lambda i, j: i + n - m - 3 < j <= i + n - m),
    "window, top-left": (Causal("top-left", 2), lambda m, n: lambda i, j: i - 2 < j <= i),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("q_len", "k_len"), SHAPES)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_mask_of_either_corner_and_a_window_come_on_top(
    backend: str, q_len: int, k_len: int, name: str, tiles: str
) -> None:
    causal, can_see = CAUSAL[name]
    expected = (
        lowered(SLOPES, bottom_right(q_len, k_len), k_len),
        seen(can_see(q_len, k_len), q_len, k_len),
    )
    check(backend, causal + ALiBi(HEADS), *expected)
    check(backend, ALiBi(HEADS) + causal, *expected)


PADDED = {"left": [[0, 0, 0, 1, 1], [1] * 5], "right": [[1, 1, 0, 0, 0], [1] * 5], "all": [[0] * 5, [1] * 5]}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("side", PADDED)
def test_padding_on_either_side_leaves_distances_as_they_are(backend: str, side: str, tiles: str) -> None:
    mask = torch.tensor(PADDED[side])
    visible = seen(lambda i, j: j <= i, 5, 5) & mask.bool()[:, None, None, :]
    bias = KeyPadding(mask) + Causal() + ALiBi(HEADS)
    check(backend, bias, lowered(SLOPES, range(5), 5), visible)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sequence_comes_out_as_it_does_alone(side: str) -> None:
    mask = torch.tensor(PADDED[side])
    real = mask[0].bool()
    query, key, value = qkv(2, 5, 5, HEADS, KV_HEADS)
    padded = attention(query, key, value, KeyPadding(mask) + Causal() + ALiBi(HEADS))
    alone = attention(*(t[:1, real] for t in (query, key, value)), Causal() + ALiBi(HEADS))
    agree(padded[:1, real], alone, "out")


def by_document(q_lengths: Sequence[int], k_lengths: Sequence[int], corner: str) -> tuple[Tensor, Tensor]:
    """Scores and visibility of documents side by side, each written out on its own and put in its place."""
    scores = torch.zeros(HEADS, sum(q_lengths), sum(k_lengths), dtype=torch.float64)
    visible = torch.zeros(sum(q_lengths), sum(k_lengths), dtype=torch.bool)
    row = column = 0
    for m, n in zip(q_lengths, k_lengths, strict=True):
        shift = n - m if corner == "bottom-right" else 0
        at = slice(row, row + m), slice(column, column + n)
        scores[:, at[0], at[1]] = lowered(SLOPES, bottom_right(m, n), n)
        visible[at] = seen(lambda i, j, shift=shift: j <= i + shift, m, n)
        row, column = row + m, column + n
    return scores, visible


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("corner", ["top-left", "bottom-right"])
@pytest.mark.parametrize(
    ("q_lengths", "k_lengths"),
    [([5, 1, 9], [5, 1, 9]), ([2, 3, 1], [6, 3, 8]), ([4, 0, 3], [2, 2, 5]), ([3, 2], [3, 0])],
)
def test_packed_positions_restart_in_every_document(
    backend: str, corner: str, q_lengths: list[int], k_lengths: list[int], tiles: str
) -> None:
    bias = Packed(q_lengths, k_lengths, inner=Causal(corner) + ALiBi(HEADS))
    check(backend, bias, *by_document(q_lengths, k_lengths, corner))


def test_a_packed_document_comes_out_as_it_does_alone() -> None:
    lengths = [7, 12, 1, 5]
    query, key, value = qkv(1, 25, 25, HEADS, KV_HEADS)
    packed = attention(query, key, value, Packed(lengths, inner=Causal() + ALiBi(HEADS)))
    start = 0
    for length in lengths:
        own = slice(start, start + length)
        alone = attention(query[:, own], key[:, own], value[:, own], Causal() + ALiBi(HEADS))
        agree(packed[:, own], alone, f"document from {start}")
        start += length


@pytest.mark.parametrize("backend", BACKENDS)
def test_beside_documents_of_as_many_queries_as_keys_it_says_the_same_as_within(
    backend: str, tiles: str
) -> None:
    lengths = [5, 0, 1, 9]
    expected = by_document(lengths, lengths, "top-left")
    check(backend, Packed(lengths) + Causal() + ALiBi(HEADS), *expected)
    check(backend, ALiBi(HEADS) + Packed(lengths, inner=Causal()), *expected)
    check(backend, Causal() + (ALiBi(HEADS) + Segments(lengths)), *expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["bool", "float", "a number a key", "-inf"])
@pytest.mark.parametrize("dense_first", [True, False])
def test_a_dense_tensor_may_stand_on_either_side(
    backend: str, kind: str, dense_first: bool, tiles: str
) -> None:
    scores = lowered(SLOPES, bottom_right(7, 10), 10)
    visible = None
    if kind == "bool":
        dense = visible = randn(7, 10, seed=3) > -0.5
    else:
        dense = randn(2, 1, 1, 10, seed=3) if kind == "a number a key" else randn(1, HEADS, 7, 10, seed=3)
        if kind == "-inf":
            dense = dense.masked_fill(dense < -0.8, -torch.inf)
        scores = scores + dense
    check(backend, dense + ALiBi(HEADS) if dense_first else ALiBi(HEADS) + dense, scores, visible)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask_first", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_xformers_masks_may_stand_on_either_side(backend: str, mask_first: bool, tiles: str) -> None:
    pytest.importorskip("xformers", reason="xFormers has wheels for Linux and Windows only")
    from xformers.ops import fmha

    masks = fmha.attn_bias
    documents = by_document([4, 5], [4, 5], "top-left")
    causal = lowered(SLOPES, range(9), 9), seen(lambda i, j: j <= i, 9, 9)
    for mask, expected in (
        (masks.LowerTriangularMask(), causal),
        (masks.LowerTriangularFromBottomRightMask(), causal),
        (masks.BlockDiagonalMask.from_seqlens([4, 5]).make_causal(), documents),
    ):
        check(backend, mask + ALiBi(HEADS) if mask_first else ALiBi(HEADS) + mask, *expected)


def test_what_dense_scores_hold_where_a_mask_hides_never_shows() -> None:
    query, key, value = qkv(1, 6, 6, HEADS, KV_HEADS)
    dense = randn(6, 6, seed=2)
    future = seen(lambda i, j: j > i, 6, 6)
    wild = dense.masked_fill(future, torch.inf).masked_fill(future & (dense > 0), torch.nan)
    for backend in ("reference", "tiled"):
        tame = attention(query, key, value, Causal() + ALiBi(HEADS) + dense, backend=backend)
        assert torch.equal(
            attention(query, key, value, Causal() + ALiBi(HEADS) + wild, backend=backend), tame
        )
        tame = attention(query, key, value, Causal() + dense, backend=backend)
        assert torch.equal(attention(query, key, value, Causal() + wild, backend=backend), tame)
        tame = attention(query, key, value, Segments([4, 2], inner=Causal()) + dense, backend=backend)
        got = attention(query, key, value, Segments([4, 2], inner=Causal()) + wild, backend=backend)
        assert torch.equal(got, tame)


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
def test_a_key_that_is_nan_reaches_those_that_see_it_and_no_other(backend: str) -> None:
    query, key, value = (t.detach() for t in qkv(1, 6, 6, HEADS, KV_HEADS))
    clean = attention(query, key, value, Causal() + ALiBi(HEADS))
    key[:, 3] = torch.nan
    out = attention(query, key, value, Causal() + ALiBi(HEADS), backend=backend)
    agree(out[:, :3], clean[:, :3], "rows before the NaN")
    assert out[:, 3:].isnan().all()


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_slopes_that_train_get_their_exact_gradient(
    backend: str, packed: bool, own: bool, tiles: str
) -> None:
    slopes = SLOPES.clone().requires_grad_()
    causal = Causal()
    bias = Packed([5, 8], inner=causal + ALiBi(slopes)) if packed else causal + ALiBi(slopes)
    if own:  # beside a dense bias of the batch
        bias = bias + torch.zeros(2, 1, 1, 13, dtype=torch.float64)
    places = [*range(5), *range(8)] if packed else list(range(13))
    documents = [0] * 5 + [1] * 8 if packed else [0] * 13
    distance = torch.tensor(
        [
            [abs(places[i] - places[j]) if documents[i] == documents[j] else 0 for j in range(13)]
            for i in range(13)
        ]
    )
    visible = seen(lambda i, j: j <= i and documents[i] == documents[j], 13, 13)
    check(backend, bias, -slopes[:, None, None] * distance, visible, slopes=slopes)


def test_slopes_may_be_made_from_what_trains() -> None:
    query, key, value = qkv(1, 6, 6, HEADS, HEADS)
    log_slopes = SLOPES.log().requires_grad_()
    loss = attention(query, key, value, Causal() + ALiBi(log_slopes.exp())).square().sum()
    (got,) = torch.autograd.grad(loss, log_slopes)
    scores = lowered([1.0], range(6), 6) * log_slopes.exp()[:, None, None]
    out, _ = attend(query, key, value, scores, seen(lambda i, j: j <= i, 6, 6))
    agree(got, torch.autograd.grad(out.square().sum(), log_slopes)[0], "gradient")


def test_a_list_of_slopes_that_train_loses_no_gradient() -> None:
    query, key, value = (t.detach() for t in qkv(1, 6, 6, 2, 2))
    apart = [torch.tensor(slope, dtype=torch.float64, requires_grad=True) for slope in (0.5, 0.25)]
    together = torch.tensor([0.5, 0.25], dtype=torch.float64, requires_grad=True)
    got = torch.autograd.grad(attention(query, key, value, ALiBi(apart)).square().sum(), apart)
    (expected,) = torch.autograd.grad(attention(query, key, value, ALiBi(together)).square().sum(), together)
    agree(torch.stack(got), expected, "gradient")


def test_a_parameter_trains_in_whatever_dtype_it_is_kept() -> None:
    query, key, value = qkv(1, 9, 9, HEADS, HEADS, torch.float32)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        slopes = torch.nn.Parameter(alibi_slopes(HEADS).to(dtype))
        attention(query, key, value, Causal() + ALiBi(slopes)).square().sum().backward()
        assert slopes.grad is not None and slopes.grad.dtype == dtype and slopes.grad.abs().min() > 0


def test_a_parameter_that_thaws_later_trains_then() -> None:
    query, key, value = qkv(1, 4, 4, HEADS, HEADS)
    slopes = torch.nn.Parameter(SLOPES.clone(), requires_grad=False)
    bias = Causal() + ALiBi(slopes)
    attention(query, key, value, bias).sum().backward()
    assert slopes.grad is None
    slopes.requires_grad_()
    attention(query, key, value, bias).square().sum().backward()
    assert slopes.grad is not None


@pytest.mark.parametrize("frozen", [False, True])
def test_slopes_that_change_before_the_backward_are_noticed(frozen: bool) -> None:
    query, key, value = qkv(1, 4, 4, HEADS, HEADS)
    slopes = torch.nn.Parameter(SLOPES.clone(), requires_grad=not frozen)
    out = attention(query, key, value, Causal() + ALiBi(slopes), backend="tiled")
    with torch.no_grad():
        slopes.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_slopes_that_do_not_train_are_the_biass_own() -> None:
    slopes = torch.tensor([0.5])
    bias = ALiBi(slopes)
    slopes.zero_()
    assert bias.materialize(1, 2).flatten().tolist() == [-0.5, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
def test_half_precision_inputs_do_not_round_positions(backend: str, dtype: torch.dtype) -> None:
    """The log-sum-exp of equal scores is a sum over distances alone, and float32 holds it: were they rounded to half,
    it would be off in the third digit."""
    n = 1500
    query, key, value = (torch.zeros(1, n, 2, 8, dtype=dtype) for _ in range(3))
    slopes = [2.0**-9, 2.0**-12]
    _, lse = attention(query, key, value, Causal() + ALiBi(slopes), backend=backend, return_lse=True)
    steps = torch.arange(n, dtype=torch.float64)
    for head, slope in enumerate(slopes):
        expected = torch.logcumsumexp(-slope * steps, 0)
        torch.testing.assert_close(lse[0, head].double(), expected, rtol=1e-6, atol=2e-6)


def test_bfloat16_knows_513_of_the_first_1024_positions_and_alibi_all() -> None:
    assert len(torch.arange(1024).to(torch.bfloat16).unique()) == 513
    bias = ALiBi([1.0]).tile(range(1023, 1024), range(1024), grid_of(1024, torch.bfloat16))
    assert len(bias.unique()) == 1024


def grid_of(n: int, dtype: torch.dtype) -> Any:
    from course_lib.attention import Grid

    return Grid(1, 1, n, n, dtype)


def test_positions_beyond_a_hundred_thousand_keep_their_distances() -> None:
    n = 120_000
    query = torch.zeros(1, 1, 1, 4)
    key, value = torch.zeros(1, n, 1, 4), torch.zeros(1, n, 1, 4)
    _, lse = attention(query, key, value, Causal("bottom-right") + ALiBi([2.0**-14]), return_lse=True)
    expected = torch.logsumexp(-(2.0**-14) * torch.arange(n, dtype=torch.float64), 0)
    torch.testing.assert_close(lse.flatten().double()[0], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_queries_or_no_keys_are_no_trouble(backend: str, shape: tuple[int, int]) -> None:
    query, key, value = qkv(1, *shape, HEADS, KV_HEADS)
    out = attention(query, key, value, Causal("bottom-right") + ALiBi(HEADS), backend=backend)
    out.sum().backward()
    assert out.shape == (1, shape[0], HEADS, 5) and not out.any()


def test_under_autocast_positions_stay_exact() -> None:
    query, key, value = (t.detach().float() for t in qkv(1, 300, 300, 2, 2))
    bias = Causal() + ALiBi([2.0**-9, 2.0**-12])
    with torch.autocast("cpu", torch.bfloat16):
        _, lse = attention(query, key, value, bias, return_lse=True)
    rounded = (t.bfloat16() for t in (query, key, value))
    scores = lowered([2.0**-9, 2.0**-12], range(300), 300)
    _, expected = attend(*rounded, scores, seen(lambda i, j: j <= i, 300, 300))
    torch.testing.assert_close(lse.double(), expected, rtol=1e-5, atol=1e-5)
