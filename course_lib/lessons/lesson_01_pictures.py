"""The pictures and the widget of lesson 01: grids of scores, weights and masks with words beside them, in SVG."""

from collections.abc import Sequence

from torch import Tensor

from course_lib.attention import Causal
from course_lib.classroom import figures, svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider

WORDS = ("নদীর", "ধারে", "বসে", "রহিম", "মাছ", "ধরছে")
"""রহিম is fishing by the river, word by word."""

_CELL = 38
_LEFT = 54
_TOP = 44


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_01.{key}", **values)


# --- grids -------------------------------------------------------------------------------------------------------


def _heat(
    numbers: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    heading: str,
    title: str,
    largest: float,
    digits: int,
    hidden: Sequence[Sequence[bool]] | None = None,
) -> str:
    """One SVG: a number in each cell, the bluer the larger; hidden cells are blank."""
    shapes = [svg.text(_LEFT, 16, heading, weight="bold", size=13)]
    shapes += [svg.text(_LEFT - 6, _TOP + _CELL * i + 24, word, anchor="end") for i, word in enumerate(rows)]
    shapes += [
        svg.text(_LEFT + _CELL * (j + 0.5), _TOP - 7, word, anchor="middle", size=13)
        for j, word in enumerate(columns)
    ]
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            x, y = _LEFT + _CELL * j, _TOP + _CELL * i
            if hidden is not None and hidden[i][j]:
                shapes.append(svg.rectangle(x, y, _CELL, _CELL))
                continue
            share = min(max(number / largest, 0.0), 1.0)
            shapes.append(svg.rectangle(x, y, _CELL, _CELL, fill=f"rgba(0,114,178,{share:.2f})"))
            colour = "#ffffff" if share > 0.85 else svg.INK
            shapes.append(
                svg.text(
                    x + _CELL / 2, y + 24, f"{number:.{digits}f}", anchor="middle", size=12, colour=colour
                )
            )
    return svg.picture(_LEFT + _CELL * len(columns) + 4, _TOP + _CELL * len(rows) + 4, title, *shapes)


def scores_figure(scores: Tensor, words: Sequence[str]) -> svg.Picture:
    """The scaled scores [n, n] of a sentence: rows ask, columns are looked at."""
    grid = _heat(
        scores.tolist(),
        words,
        words,
        heading="scores",
        title="A grid of scores: a row for each word that asks, a column for each word that is looked at.",
        largest=max(float(scores.max()), 1.0) * 1.15,
        digits=1,
    )
    return svg.Picture(
        svg.card(grid, caption=_say("pictures.rows_ask")), "scores, a row for each word that asks"
    )


def weights_figure(grids: Sequence[tuple[str, Tensor]], words: Sequence[str]) -> svg.Picture:
    """Weights [n, n] side by side, each (heading, weights); weights of exactly 0 are left blank."""
    drawn = [
        _heat(
            weights.tolist(),
            words,
            words,
            heading=heading,
            title=f"Weights, {heading}: {int((weights != 0).sum())} of {weights.numel()} cells are above 0.",
            largest=1.0,
            digits=2,
            hidden=(weights == 0).tolist(),
        )
        for heading, weights in grids
    ]
    return svg.Picture(svg.card(*drawn), f"weights: {', '.join(heading for heading, _ in grids)}")


def decode_figure(steps: Sequence[tuple[str, Tensor]], words: Sequence[str]) -> svg.Picture:
    """What each decode step looked at: row t is the weights of step t, which has t + 1 keys."""
    return weights_figure(steps, words)


# --- masks -------------------------------------------------------------------------------------------------------


def _allowed(queries: int, keys: int, align: str, window: int | None = None) -> list[list[bool]]:
    return (Causal(align, window).materialize(queries, keys)[0, 0] == 0).tolist()


def _stands_on(queries: int, keys: int, align: str) -> list[int]:
    """The key that each query is; below 0 or past the last key it is none of them."""
    first = keys - queries if align == "bottom-right" else 0
    return [first + i for i in range(queries)]


def _mask(queries: int, keys: int, align: str, window: int | None, words: Sequence[str], title: str) -> str:
    stands_on = _stands_on(queries, keys, align)
    on_a_key = [0 <= j < keys for j in stands_on]
    return svg.grid(
        _allowed(queries, keys, align, window),
        rows=[words[j] if on else "–" for j, on in zip(stands_on, on_a_key, strict=True)],
        columns=list(words[:keys]),
        title=title,
        ringed=[(i, j) for i, (j, on) in enumerate(zip(stands_on, on_a_key, strict=True)) if on],
    )


def mask_figure(words: Sequence[str]) -> svg.Picture:
    """The causal mask of a whole sentence."""
    n = len(words)
    title = f"A grid of {n} by {n}: each word may look at itself and at the words before it."
    grid = _mask(n, n, "top-left", None, words, title)
    return svg.Picture(svg.card(grid, caption=_say("pictures.mask")), title)


def window_figure(words: Sequence[str], window: int) -> svg.Picture:
    """The causal mask of a whole sentence with a sliding window."""
    n = len(words)
    title = f"A grid of {n} by {n}: each word may look at itself and at the {window - 1} words before it."
    grid = _mask(n, n, "top-left", window, words, title)
    return svg.Picture(svg.card(grid, caption=_say("pictures.mask")), title)


def corner_figure(q_len: int, k_len: int, words: Sequence[str] = WORDS) -> svg.Picture:
    """The same queries and keys under both alignments, side by side."""
    parts = []
    for align in ("top-left", "bottom-right"):
        title = f"{align}: a grid of {q_len} queries by {k_len} keys, allowed cells filled."
        grid = _mask(q_len, k_len, align, None, words, title)
        parts.append(f'<div style="font-weight:bold;margin-bottom:6px">{align}</div>{grid}')
    html = svg.card(*parts, caption=_say("pictures.ring"))
    return svg.Picture(html, f"{q_len} queries and {k_len} keys, top-left and bottom-right")


def tiles_figure(n: int, tile: int) -> svg.Picture:
    """An n x n causal score matrix cut into tiles: wholly visible, cut by the diagonal, wholly hidden."""
    side = n // tile
    cell = 26
    shapes = []
    for i in range(side):
        for j in range(side):
            fill = svg.BLUE if j < i else svg.SKY if j == i else "none"
            shapes.append(svg.rectangle(cell * j + 1, cell * i + 1, cell, cell, fill=fill))
            mark = "•" if j < i else "◣" if j == i else ""
            colour = "#ffffff" if j < i else "#1f1f1f"
            shapes.append(
                svg.text(cell * (j + 0.5) + 1, cell * i + 19, mark, anchor="middle", size=14, colour=colour)
            )
    hidden = side * (side - 1) // 2
    title = (
        f"{side} by {side} tiles: {hidden} wholly hidden, {side} on the diagonal, {hidden} wholly visible."
    )
    caption = _say("pictures.tiles", hidden=hidden, diagonal=side, total=side * side)
    return svg.Picture(
        svg.card(svg.picture(cell * side + 2, cell * side + 2, title, *shapes), caption=caption), title
    )


# --- the widget --------------------------------------------------------------------------------------------------


def render_mask_explorer(queries: int, keys: int, align: str, window: str) -> str:
    """The mask of `queries` by `keys` (at most six each) as a card; window is "off" or a number of keys."""
    width = None if window == "off" else int(window)
    seen = [sum(row) for row in _allowed(queries, keys, align, width)]
    title = f"{queries} queries by {keys} keys, {align}, window {window}: the queries see {seen} keys."
    grid = _mask(queries, keys, align, width, WORDS, title)
    parts = [_say("explorer.seen", seen=sum(seen), total=queries * keys)]
    blind = seen.count(0)
    past_the_end = sum(j >= keys for j in _stands_on(queries, keys, align))
    if blind:
        parts.append(_say("explorer.blind", count=blind))
    if past_the_end:
        parts.append(_say("explorer.past_the_end", count=past_the_end))
    if queries == keys and align == "top-left":
        parts.append(_say("explorer.same"))
    elif queries < keys and align == "top-left":
        parts.append(_say("explorer.wrong_for_a_cache", word=WORDS[queries - 1], keys=keys))
    return svg.card(grid, caption=" ".join(parts))


def mask_explorer() -> Card:
    """Queries, keys, alignment and window, and the mask that they make."""
    return card(
        render_mask_explorer,
        slider("queries", 2, 1, 6, label="queries"),
        slider("keys", 5, 1, 6, label="keys"),
        choice("align", "top-left", ["top-left", "bottom-right"], label="align"),
        choice("window", "off", ["off", "1", "2", "3", "4"], label="window"),
    )


# --- bytes -------------------------------------------------------------------------------------------------------


def memory_figure(lengths: Sequence[int], measured: Sequence[int], *, num_heads: int, longest: int) -> None:
    """Bytes of one score matrix as predicted up to `longest` tokens, and the workspace as measured."""
    doubled = list(lengths)
    while doubled[-1] < longest:
        doubled.append(doubled[-1] * 2)
    predicted = [num_heads * n * n * 4 for n in doubled]
    with figures.figure(height=3.4) as (_, axes):
        axes.plot(doubled, predicted, color=figures.BLUE, linestyle="--")
        axes.plot(lengths, measured, color=figures.VERMILION, marker="o")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(doubled, [f"{n:,}" for n in doubled])
        axes.set_xlim(doubled[0] * 0.8, doubled[-1] * 1.9)
        axes.set_ylim(predicted[0] * 0.75, predicted[-1] * 1.9)
        axes.set_xlabel("tokens")
        figures.label_end(axes, doubled, predicted, "scores,\npredicted", figures.BLUE)
        axes.annotate(
            "measured workspace",
            (lengths[-1], measured[-1]),
            xytext=(-8, 8),
            textcoords="offset points",
            ha="right",
            color=figures.VERMILION,
            fontweight="bold",
        )
        figures.bytes_axis(axes.yaxis)
    figures.digest("tokens", doubled)
    figures.digest("predicted score matrix, MiB", [bytes_ // 2**20 for bytes_ in predicted])
