"""The pictures and the widget of lesson 02: two blocks by hand, tiles, xFormers' masks, memory."""

import math
from collections.abc import Sequence
from html import escape

from course_lib.attention import Causal, Grid
from course_lib.classroom import figures, svg
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice
from course_lib.lessons.lesson_02_masks import MaskExample, mask_examples

SKIP, MASK, WHOLE = "skip", "mask", "whole"
_FILL = {SKIP: "none", MASK: svg.SKY, WHOLE: svg.BLUE}
_INK = {SKIP: svg.INK, MASK: "#1f1f1f", WHOLE: "#ffffff"}


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_02.{key}", **values)


# --- two blocks by hand ------------------------------------------------------------------------------------------


def _short(number: float) -> str:
    return f"{number:g}"


def pieces_figure(
    words: Sequence[str], scores: Sequence[float], values: Sequence[float], cut: int
) -> svg.Picture:
    """One query's scores in two blocks, in base 2: each block's m, l and o, and below them both together."""
    left, column, row = 96, 84, 26
    at = [left + column * j + (28 if j >= cut else 0) for j in range(len(words))]
    blocks = [range(0, cut), range(cut, len(words))]
    shapes = []
    for i, name in enumerate(("", "score s", "value v", "2^(s − m)", "… × v")):
        shapes.append(svg.text(left - 10, 24 + row * i, name, anchor="end", size=13))
    states = []
    for block, colour in zip(blocks, (svg.BLUE, svg.VERMILION), strict=True):
        top = max(scores[j] for j in block)
        weights = {j: 2.0 ** (scores[j] - top) for j in block}
        for j in block:
            lines = (
                words[j],
                _short(scores[j]),
                _short(values[j]),
                _short(weights[j]),
                _short(weights[j] * values[j]),
            )
            for i, line in enumerate(lines):
                shapes.append(svg.text(at[j] + column / 2, 24 + row * i, line, anchor="middle"))
        total, acc = sum(weights.values()), sum(weights[j] * values[j] for j in block)
        states.append((top, total, acc))
        x, width = at[block[0]] + 4, column * len(block) - 8
        shapes.append(svg.rectangle(x, 2, width, row * 5 + 4, stroke=colour, stroke_width=2))
        shapes.append(
            svg.text(
                x + width / 2,
                row * 6 + 8,
                f"m={_short(top)}, l={_short(total)}, o={_short(acc)}",
                anchor="middle",
                weight="bold",
                size=13,
            )
        )
    top = max(state[0] for state in states)
    kept = [(2.0 ** (m - top), total, acc) for m, total, acc in states]
    total, acc = sum(keep * l_ for keep, l_, _ in kept), sum(keep * o for keep, _, o in kept)
    factors = " and ".join(_short(keep) for keep, _, _ in kept)
    y = row * 7 + 10
    width = at[-1] + column - left - 8
    shapes.append(svg.rectangle(left + 4, y, width, 56, stroke=svg.GREEN, stroke_width=2))
    shapes.append(
        svg.text(
            left + 4 + width / 2,
            y + 22,
            f"both: m={_short(top)}, so the blocks count {factors}",
            anchor="middle",
            size=13,
        )
    )
    shapes.append(
        svg.text(
            left + 4 + width / 2,
            y + 44,
            f"l={_short(total)}, o={_short(acc)}, output o/l={acc / total:.2f}",
            anchor="middle",
            weight="bold",
            size=13,
        )
    )
    title = (
        f"Two blocks of {cut} and {len(words) - cut} words with their m, l and o; together m={_short(top)}, "
        f"l={_short(total)}, o={_short(acc)}, output {acc / total:.2f}."
    )
    return svg.Picture(svg.card(svg.picture(at[-1] + column + 4, y + 62, title, *shapes)), title)


def shares_figure(words: Sequence[str], first_share: Sequence[float], cut: int) -> svg.Picture:
    """For each query word a full bar: how much of its attention lies with the first `cut` keys, and with the rest."""
    left, width, row = 70, 420, 28
    shapes = []
    for i, (word, share) in enumerate(zip(words, first_share, strict=True)):
        y, middle = 8 + row * i, width * share
        shapes.append(svg.text(left - 8, y + 16, word, anchor="end"))
        shapes.append(svg.rectangle(left, y, middle, 22, fill=svg.BLUE, stroke="none"))
        shapes.append(svg.rectangle(left + middle, y, width - middle, 22, fill=svg.SKY, stroke="none"))
        shapes.append(svg.text(left + 6, y + 16, f"{share:.2f}", size=12, colour="#ffffff"))
        shapes.append(
            svg.text(left + width - 6, y + 16, f"{1 - share:.2f}", anchor="end", size=12, colour="#1f1f1f")
        )
    y = 8 + row * len(words) + 16
    shapes.append(svg.text(left, y, " ".join(words[:cut]), size=13))
    shapes.append(svg.text(left + width, y, " ".join(words[cut:]), anchor="end", size=13))
    title = f"Shares of the first {cut} keys for {len(words)} queries: {', '.join(f'{x:.2f}' for x in first_share)}."
    return svg.Picture(svg.card(svg.picture(left + width + 4, y + 10, title, *shapes)), title)


def backward_figure() -> svg.Picture:
    """One step of the tiled backward as three columns: what was kept, what is made again, what is added to."""
    columns = (
        ("kept, n rows", ("Q, K, V", "O, and dO → δ", "m, l"), svg.BLUE),
        (
            "one tile, thrown away",
            ("S = scale · Q Kᵀ + mask", "P = e^(S − m) / l", "dS = P ∘ (dO Vᵀ − δ)"),
            svg.VERMILION,
        ),
        ("added to, n rows", ("dV += Pᵀ dO", "dQ += scale · dS K", "dK += scale · dSᵀ Q"), svg.GREEN),
    )
    widths, height, gap, shapes = (120, 186, 150), 34, 28, []
    x = 2
    for i, (heading, lines, colour) in enumerate(columns):
        width = widths[i]
        shapes.append(svg.text(x + width / 2, 18, heading, anchor="middle", size=13, weight="bold"))
        for j, line in enumerate(lines):
            y = 30 + (height + 10) * j
            shapes.append(svg.rectangle(x, y, width, height, stroke=colour, stroke_width=2))
            shapes.append(svg.text(x + width / 2, y + 22, line, anchor="middle", size=13))
        if i < 2:
            shapes.append(
                svg.text(x + width + gap / 2, 30 + 1.5 * (height + 10), "→", anchor="middle", size=20)
            )
        x += width + gap
    title = "One step of the tiled backward: from Q, K, V, O, m and l a tile of S, P and dS, added to dV, dQ and dK."
    return svg.Picture(svg.card(svg.picture(x - gap + 2, 36 + 3 * (height + 10), title, *shapes)), title)


# --- tiles -------------------------------------------------------------------------------------------------------


def tile_kinds(q_len: int, k_len: int, tile: int, mask: Causal) -> list[list[str]]:
    """For each tile what the mask says of it: nothing visible, part of it, or all of it."""
    grid = Grid(1, 1, q_len, k_len)
    kinds = []
    for q in range(0, q_len, tile):
        queries = range(q, min(q + tile, q_len))
        visible = mask.visible_keys(queries, grid)
        row = []
        for k in range(0, k_len, tile):
            keys = range(k, min(k + tile, k_len))
            if keys.stop <= visible.start or keys.start >= visible.stop:
                row.append(SKIP)
            else:
                row.append(WHOLE if mask.is_zero(queries, keys, grid) else MASK)
        kinds.append(row)
    return kinds


def count_kinds(kinds: Sequence[Sequence[str]]) -> dict[str, int]:
    """How many tiles of each kind."""
    return {kind: sum(row.count(kind) for row in map(list, kinds)) for kind in (SKIP, MASK, WHOLE)}


def tiles_figure(words: Sequence[str], tile: int) -> svg.Picture:
    """The causal score matrix of a sentence, cut into tiles that are numbered as the loop visits them."""
    n, cell, left, top = len(words), 34, 64, 30
    kinds = tile_kinds(n, n, tile, Causal())
    shapes = [svg.text(left - 8, top + cell * i + 22, word, anchor="end") for i, word in enumerate(words)]
    shapes += [
        svg.text(left + cell * (j + 0.5), top - 9, word, anchor="middle", size=12)
        for j, word in enumerate(words)
    ]
    for i in range(n):
        for j in range(n):
            x, y = left + cell * j, top + cell * i
            shapes.append(svg.rectangle(x, y, cell, cell, fill=svg.BLUE if j <= i else "none"))
            if j <= i:
                shapes.append(svg.text(x + cell / 2, y + 22, "•", anchor="middle", size=12, colour="#ffffff"))
    number = 0
    for i, row in enumerate(kinds):
        for j, kind in enumerate(row):
            x, y, side = left + cell * tile * j, top + cell * tile * i, cell * tile
            shapes.append(svg.rectangle(x, y, side, side, stroke=svg.ORANGE, stroke_width=3))
            number += kind != SKIP
            name = "skipped" if kind == SKIP else f"{number}"
            if kind == SKIP:
                blank = svg.rectangle(x + 2, y + 2, side - 4, side - 4, fill=svg.PAPER, stroke="none")
                shapes += [blank, svg.text(x + side / 2, y + side / 2 + 5, name, anchor="middle", size=13)]
            else:
                shapes.append(svg.rectangle(x + 3, y + 3, 18, 18, fill=svg.ORANGE, stroke="none"))
                shapes.append(
                    svg.text(x + 12, y + 17, name, anchor="middle", size=13, weight="bold", colour="#1f1f1f")
                )
    counts = count_kinds(kinds)
    title = (
        f"{n} by {n} scores cut into {len(kinds) ** 2} tiles of {tile} by {tile}: {counts[SKIP]} skipped, "
        f"{counts[MASK]} on the diagonal, {counts[WHOLE]} wholly visible."
    )
    return svg.Picture(svg.card(svg.picture(left + cell * n + 6, top + cell * n + 6, title, *shapes)), title)


def render_tiles_explorer(length: int, tile: int, window: str) -> str:
    """The tiles of a causal score matrix of `length` tokens as a card; window is "off" or a number of keys."""
    width = None if window == "off" else int(window)
    kinds = tile_kinds(length, length, tile, Causal(window=width))
    counts = count_kinds(kinds)
    side = max(9, min(26, 416 // len(kinds)))
    shapes = []
    for i, row in enumerate(kinds):
        for j, kind in enumerate(row):
            x, y = 1 + side * j, 1 + side * i
            shapes.append(svg.rectangle(x, y, side, side, fill=_FILL[kind]))
            mark = {SKIP: "", MASK: "/", WHOLE: "•"}[kind]
            if mark:
                middle, base = x + side / 2, y + side / 2 + side / 5
                size = max(7, side // 2)
                shapes.append(svg.text(middle, base, mark, anchor="middle", size=size, colour=_INK[kind]))
    total, touched = len(kinds) ** 2, counts[MASK] + counts[WHOLE]
    title = f"{total} tiles: {counts[SKIP]} skipped, {counts[MASK]} need a mask, {counts[WHOLE]} need none."
    drawing = svg.picture(side * len(kinds) + 2, side * len(kinds) + 2, title, *shapes)
    caption = _say(
        "explorer.counts",
        total=total,
        touched=touched,
        skipped=counts[SKIP],
        masked=counts[MASK],
        whole=counts[WHOLE],
        share=f"{100 * touched / total:.0f}",
        visible=f"{100 * _visible(length, width) / length**2:.0f}",
    )
    return svg.card(drawing, caption=caption)


def _visible(length: int, window: int | None) -> int:
    """How many scores of a causal square are visible."""
    window = min(window or length, length)
    return window * (window + 1) // 2 + (length - window) * window


def tiles_explorer() -> Card:
    """Length, tile and window, and the tiles that are touched."""
    return card(
        render_tiles_explorer,
        choice("length", 2048, [512, 1024, 2048, 4096], label="tokens"),
        choice("tile", 256, [128, 256, 512], label="tile"),
        choice("window", "off", ["off", "128", "256", "512", "1024"], label="window"),
    )


# --- xFormers' masks ---------------------------------------------------------------------------------------------


def _small_grid(example: MaskExample) -> str:
    """A grid of a few strokes in all: twenty of them must stay small beside the text of a notebook."""
    cell = 14
    dense = example.dense()[0, 0].tolist()
    filled, scores, rows = [], [], []
    for i, row in enumerate(dense):
        rows.append("".join("." if number == -math.inf else "1" for number in row))
        for j, number in enumerate(row):
            x, y = 1 + cell * j, 1 + cell * i
            if number != -math.inf:
                filled.append(f"M{x} {y}h{cell}v{cell}h-{cell}z")
            if -math.inf < number < 0:
                scores.append(
                    svg.text(x + 7, y + 11, f"−{-number:.0f}", anchor="middle", size=9, colour="#ffffff")
                )
    wide, high = cell * example.k_len, cell * example.q_len
    lines = [f"M1 {1 + cell * i}h{wide}" for i in range(example.q_len + 1)]
    lines += [f"M{1 + cell * j} 1v{high}" for j in range(example.k_len + 1)]
    shapes = [
        f'<path d="{"".join(filled)}" style="fill:{svg.BLUE}"/>',
        f'<path d="{"".join(lines)}" style="stroke:{svg.FAINT}"/>',
        *scores,
    ]
    title = f"{example.name}, {example.q_len} queries by {example.k_len} keys: {'/'.join(rows)}"
    return svg.picture(wide + 2, high + 2, title, *shapes)


def mask_gallery() -> svg.Picture:
    """A table of every mask class of xFormers with a small grid each, two to a row."""
    examples = mask_examples()
    cells = [
        f'<td style="text-align:center;padding:6px;min-width:116px">{_small_grid(example)}</td>'
        f'<td style="text-align:left;padding:6px;overflow-wrap:anywhere"><code>{_breakable(example.name)}</code>'
        f"<br>{escape(example.use)}</td>"
        for example in examples
    ]
    rows = "".join(f"<tr>{''.join(cells[i : i + 2])}</tr>" for i in range(0, len(cells), 2))
    table = f'<table style="font-size:12px;color:{svg.INK}"><tbody>{rows}</tbody></table>'
    return svg.Picture(svg.card(table), f"{len(examples)} mask classes of xFormers, a small grid each")


def _breakable(name: str) -> str:
    """A long class name with places to break it, before each capital letter."""
    return "".join(f"<wbr>{letter}" if letter.isupper() and i else letter for i, letter in enumerate(name))


# --- memory ------------------------------------------------------------------------------------------------------


def memory_figure(
    lengths: Sequence[int], reference: Sequence[int], tiled: Sequence[int], predicted: Sequence[int]
) -> None:
    """Workspace in bytes by length: the reference's as predicted (dashed) and measured, and the tiled one's."""
    with figures.figure(height=3.8) as (_, axes):
        axes.plot(lengths, predicted, color=figures.BLUE, linestyle="--")
        axes.plot(lengths[: len(reference)], reference, color=figures.BLUE, marker="o", linestyle="none")
        axes.plot(lengths, tiled, color=figures.VERMILION, marker="s")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.set_xlim(lengths[0] * 0.85, lengths[-1] * 2.1)
        axes.set_ylim(2**21, predicted[-1] * 1.6)
        axes.set_xlabel("tokens")
        axes.set_ylabel("workspace")
        figures.label_end(
            axes, lengths, predicted, "reference:\n3 matrices\n(dashed),\nmeasured\n(dots)", figures.BLUE
        )
        figures.label_end(axes, lengths, tiled, "tiled", figures.VERMILION)
        figures.bytes_axis(axes.yaxis)
    figures.digest("tokens", lengths)
    figures.digest("reference, predicted, MiB", [n / 2**20 for n in predicted], digits=4)
