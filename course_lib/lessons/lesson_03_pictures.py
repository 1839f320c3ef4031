"""The pictures of lesson 03: lengths, a padded batch, the two masks, bins, costs and a loss curve."""

import math
from collections.abc import Mapping, Sequence

from course_lib.classroom import figures, svg
from course_lib.classroom.messages import say

_UNITS = ("lengths.points", "lengths.graphemes", "lengths.bytes", "lengths.tokens")
_CELL = 26


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_03.{key}", **values)


def percent(share: float) -> str:
    """Whole percents, but a little is not called 0% and not quite all not 100%."""
    return f"{share:.0%}" if share in (0, 1) or 0.005 < share < 0.995 else f"{share:.1%}"


# --- lengths -----------------------------------------------------------------------------------------------------


def _quantile(numbers: Sequence[int], share: float) -> int:
    return sorted(numbers)[min(int(share * len(numbers)), len(numbers) - 1)]


def lengths_figure(counts: Mapping[str, Sequence[Sequence[int]]]) -> svg.Picture:
    """For each language its documents' (code points, graphemes, bytes, tokens): a bar from the first to the last tenth.

    The axis is logarithmic: equal distances are equal ratios.
    """
    left, width, top, row = 112, 400, 30, 58
    spans = {
        (unit, language): [_quantile([c[u] for c in rows], share) for share in (0.1, 0.5, 0.9)]
        for u, unit in enumerate(_UNITS)
        for language, rows in counts.items()
    }
    low = math.log10(min(span[0] for span in spans.values()) / 1.3)
    high = math.log10(max(span[2] for span in spans.values()) * 1.3)

    def at(number: float) -> float:
        return left + width * (math.log10(number) - low) / (high - low)

    shapes = []
    ticks = [n * 10**power for power in range(1, 6) for n in (1, 3) if low < math.log10(n * 10**power) < high]
    bottom = top + row * len(_UNITS)
    for tick in ticks:
        shapes.append(
            svg.rectangle(at(tick), top - 4, 0.5, bottom - top + 4, stroke=svg.FAINT, stroke_width=0.5)
        )
        shapes.append(svg.text(at(tick), top - 10, f"{tick:,}", anchor="middle", size=12))
    for u, unit in enumerate(_UNITS):
        y = top + row * u
        shapes.append(svg.text(left - 10, y + 30, _say(unit), anchor="end", size=13))
        for i, (language, colour) in enumerate(zip(counts, (svg.BLUE, svg.VERMILION), strict=False)):
            first, middle, last = spans[unit, language]
            line = y + 5 + 24 * i
            shapes.append(
                svg.rectangle(at(first), line, at(last) - at(first), 18, fill=colour, stroke="none")
            )
            shapes.append(svg.rectangle(at(middle) - 1.5, line, 3, 18, fill="#ffffff", stroke="none"))
            shapes.append(svg.text(at(middle) + 7, line + 14, f"{middle:,}", size=12, colour="#ffffff"))
            shapes.append(svg.text(at(last) + 6, line + 14, language, size=12))
    said = "; ".join(
        f"{unit.removeprefix('lengths.')}: "
        + ", ".join(f"{language} {spans[unit, language][1]:,}" for language in counts)
        for unit in _UNITS
    )
    title = f"Lengths of the documents, middle values. {said}."
    picture = svg.picture(left + width + 70, bottom + 6, title, *shapes)
    return svg.Picture(svg.card(picture, caption=_say("lengths.caption")), title)


# --- a padded batch ----------------------------------------------------------------------------------------------


def padded_figure(titles: Sequence[str], lengths: Sequence[int]) -> svg.Picture:
    """A batch of documents, a row each: what is text and what only fills up to the longest."""
    longest, total = max(lengths), sum(lengths)
    left, width, row = 190, 380, 22
    shapes = []
    for i, (name, n) in enumerate(zip(titles, lengths, strict=True)):
        y, filled = 4 + row * i, width * n / longest
        short = name if len(name) <= 26 else name[:25].rstrip("\u09cd\u200c\u200d") + "…"
        shapes.append(svg.text(left - 8, y + 13, short, anchor="end", size=12))
        shapes.append(svg.rectangle(left, y, width, 17, stroke=svg.FAINT))
        shapes.append(svg.rectangle(left, y, filled, 17, fill=svg.BLUE, stroke="none"))
        inside = filled > 40
        shapes.append(
            svg.text(
                left + filled + (-5 if inside else 5),
                y + 13,
                f"{n:,}",
                anchor="end" if inside else "start",
                size=12,
                colour="#ffffff" if inside else svg.INK,
            )
        )
    padding = len(lengths) * longest - total
    share = percent(padding / (padding + total))
    title = (
        f"A padded batch of {len(lengths)} documents: {total:,} tokens and {padding:,} of padding, {share}."
    )
    picture = svg.picture(left + width + 4, 8 + row * len(lengths), title, *shapes)
    caption = _say("padded.caption", tokens=f"{total:,}", padding=f"{padding:,}", share=share)
    return svg.Picture(svg.card(picture, caption=caption), title)


# --- masks -------------------------------------------------------------------------------------------------------


def _mask(words: Sequence[str], document: Sequence[int], packed: bool, heading: str) -> str:
    """One grid; where packed is False, cells in which one document reads another are orange and ringed by a cross."""
    n = len(words)
    left, top = 74, 92
    shapes = [svg.text(4, 16, heading, weight="bold", size=13)]
    for i, word in enumerate(words):
        shapes.append(svg.text(left - 6, top + _CELL * i + 18, word, anchor="end", size=13))
        shapes.append(svg.text(left + _CELL * (i + 0.5) + 5, top - 6, word, turn=-90, size=13))
    leaks = 0
    for i in range(n):
        for j in range(n):
            own = document[i] == document[j]
            seen = j <= i and (own or not packed)
            leak = seen and not own
            leaks += leak
            fill = svg.ORANGE if leak else svg.BLUE if seen else "none"
            x, y = left + _CELL * j, top + _CELL * i
            shapes.append(svg.rectangle(x, y, _CELL, _CELL, fill=fill))
            if seen:
                mark, ink = ("×", "#1f1f1f") if leak else ("•", "#ffffff")
                shapes.append(svg.text(x + _CELL / 2, y + 19, mark, anchor="middle", size=16, colour=ink))
    title = f"{heading}: {n} by {n} cells; in {leaks} of them one document reads another."
    return svg.picture(left + _CELL * n + 2, top + _CELL * n + 2, title, *shapes)


def masks_figure(documents: Sequence[Sequence[str]]) -> svg.Picture:
    """Documents of a few words in one row: the mask of one causal row, and that of a packed one."""
    words = [word for document in documents for word in document]
    number = [i for i, document in enumerate(documents) for _ in document]
    grids = [
        _mask(words, number, packed, _say(key))
        for packed, key in ((False, "masks.causal"), (True, "masks.packed"))
    ]
    title = f"{len(documents)} documents in one row of {len(words)} words: one causal row, and packed."
    return svg.Picture(svg.card(*grids, caption=_say("masks.caption")), title)


# --- bins --------------------------------------------------------------------------------------------------------


def bins_figure(lengths: Sequence[int], rows: Sequence[Sequence[int]], capacity: int) -> svg.Picture:
    """Rows of a fixed size and the documents that lie in them, each with its length where there is room."""
    width, height = 560, 20
    shapes = []
    for r, row in enumerate(rows):
        x, y = 4.0, 4 + (height + 4) * r
        shapes.append(svg.rectangle(4, y, width, height, stroke=svg.FAINT))
        for k, i in enumerate(row):
            part = width * lengths[i] / capacity
            fill, ink = ((svg.BLUE, "#ffffff"), (svg.SKY, "#1f1f1f"))[k % 2]
            shapes.append(svg.rectangle(x, y, part, height, fill=fill, stroke=svg.PAPER))
            if part > 24:
                shapes.append(
                    svg.text(x + part / 2, y + 14, lengths[i], anchor="middle", size=11, colour=ink)
                )
            x += part
    empty = percent(1 - sum(lengths) / (len(rows) * capacity))
    title = f"{len(lengths)} documents in {len(rows)} rows of {capacity:,} tokens; {empty} is empty."
    picture = svg.picture(width + 8, 8 + (height + 4) * len(rows), title, *shapes)
    return svg.Picture(
        svg.card(
            picture, caption=_say("bins.caption", rows=len(rows), capacity=f"{capacity:,}", share=empty)
        ),
        title,
    )


# --- costs -------------------------------------------------------------------------------------------------------


def cost_figure(lengths: Sequence[int]) -> svg.Picture:
    """The scores of three layouts as bars."""
    total = sum(lengths)
    counts = {
        "cost.padded": len(lengths) * max(lengths) ** 2,
        "cost.one_row": total**2,
        "cost.packed": sum(n * n for n in lengths),
    }
    title = (
        "Scores: "
        + ", ".join(f"{name.removeprefix('cost.')} {count:,}" for name, count in counts.items())
        + "."
    )
    bars = svg.bars(
        [(_say(name), count, f"{count:,}") for name, count in counts.items()],
        title=title,
        colours=(svg.VERMILION, svg.ORANGE, svg.BLUE),
        width=610,
    )
    caption = _say("cost.caption", documents=len(lengths), tokens=f"{total:,}")
    return svg.Picture(svg.card(bars, caption=caption), title)


# --- training ----------------------------------------------------------------------------------------------------


def loss_figure(losses: Sequence[float], vocab_size: int, held_out: float) -> None:
    """The loss of each step, and the mean of each ten; where it starts if the model knows nothing; unseen stories."""
    tens = [losses[i : i + 10] for i in range(0, len(losses), 10)]
    with figures.figure(height=3.4) as (_, axes):
        axes.plot(range(1, len(losses) + 1), losses, color=figures.SKY, linewidth=1)
        middles = [10 * i + len(ten) / 2 for i, ten in enumerate(tens)]
        axes.plot(middles, [sum(ten) / len(ten) for ten in tens], color=figures.BLUE)
        nothing = math.log(vocab_size)
        axes.axhline(nothing, color=figures.GREY, linestyle="--", linewidth=1)
        axes.text(
            len(losses), nothing - 0.15, "knows nothing: ln 4096", ha="right", va="top", color=figures.GREY
        )
        axes.axhline(held_out, color=figures.VERMILION, linestyle=":", linewidth=1.5)
        axes.text(
            len(losses),
            held_out - 0.1,
            "stories it has never read",
            ha="right",
            va="top",
            color=figures.VERMILION,
        )
        axes.set_ylim(0, nothing + 0.6)
        axes.set_xlim(0, len(losses) + 1)
        axes.set_xlabel("step")
        axes.set_ylabel("loss, nats a token")
