"""The pictures and the widget of lesson 04: what is kept while writing, heads that share, a cache and its bill."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import torch

from course_lib.classroom import figures, svg
from course_lib.classroom.figures import bytes_text
from course_lib.classroom.messages import say
from course_lib.classroom.widgets import Card, card, choice, slider
from course_lib.gqa import KVCache, kv_cache_bytes


def _say(key: str, /, **values: object) -> str:
    return say(f"lesson_04.{key}", **values)


# --- what is read again ------------------------------------------------------------------------------------------

_CELL = 30
_LEFT = 26


def _steps(words: Sequence[str], cached: bool) -> str:
    """One SVG: row t is the step that reads word t; which words go through the model, which come from a cache."""
    n = len(words)
    letters = max(sum(unicodedata.category(letter)[0] != "M" for letter in word) for word in words)
    top = 36 + 11 * letters
    heading = _say("writing.with" if cached else "writing.without")
    shapes = [svg.text(0, 15, heading, weight="bold", size=13)]
    for j, word in enumerate(words):
        shapes.append(svg.text(_LEFT + _CELL * (j + 0.5) + 5, top - 6, word, turn=-90, size=13))
    for i in range(n):
        shapes.append(svg.text(_LEFT - 8, top + _CELL * i + 20, i + 1, anchor="end", size=13))
        for j in range(n):
            x, y = _LEFT + _CELL * j, top + _CELL * i
            kept = cached and j < i
            fill = "none" if j > i else svg.SKY if kept else svg.BLUE
            shapes.append(svg.rectangle(x, y, _CELL, _CELL, fill=fill))
            if j <= i:
                mark, colour = ("=", "#1f1f1f") if kept else ("•", "#ffffff")
                shapes.append(svg.text(x + _CELL / 2, y + 20, mark, anchor="middle", size=15, colour=colour))
    computed = n if cached else n * (n + 1) // 2
    title = f"{heading}: {n} steps over {n} words, {computed} words go through the model."
    width = max(_LEFT + _CELL * n + 2, 8 * len(heading) + 4)
    return svg.picture(width, top + _CELL * n + 2, title, *shapes)


def writing_figure(words: Sequence[str]) -> svg.Picture:
    """Writing a sentence word by word, without a cache and with one."""
    n = len(words)
    whole = n * (n + 1) // 2
    html = svg.card(
        _steps(words, False), _steps(words, True), caption=_say("writing.caption", whole=whole, n=n)
    )
    return svg.Picture(html, f"{n} words written: {whole} words read without a cache, {n} with one.")


# --- heads that share --------------------------------------------------------------------------------------------

_HEAD = 22


def _sharing(num_heads: int, num_kv_heads: int) -> str:
    """One SVG: query heads above, and below each group of them the one kv head that it uses."""
    group = num_heads // num_kv_heads
    names = {num_heads: "heads.multi_head", 1: "heads.multi_query"}
    heading = _say(names.get(num_kv_heads, "heads.grouped"))
    shapes = [svg.text(0, 15, heading, weight="bold", size=13)]
    shapes += [svg.text(0, 42, _say("heads.queries"), size=12), svg.text(0, 92, _say("heads.kv"), size=12)]
    left = 60
    for h in range(num_heads):
        x = left + (_HEAD + 3) * h
        shapes.append(svg.rectangle(x, 26, _HEAD, _HEAD, fill=svg.BLUE, stroke="none"))
        shapes.append(svg.text(x + _HEAD / 2, 42, h, anchor="middle", size=12, colour="#ffffff"))
        shapes.append(svg.rectangle(x + _HEAD / 2 - 1, 48, 2, 18, fill=svg.FAINT, stroke="none"))
    for kv in range(num_kv_heads):
        x, width = left + (_HEAD + 3) * group * kv, (_HEAD + 3) * group - 3
        shapes.append(svg.rectangle(x, 66, width, 18, fill=svg.ORANGE, stroke="none"))
        shapes.append(svg.rectangle(x, 86, width, 18, fill=svg.GREEN, stroke="none"))
        if num_kv_heads > 1 or group > 1:
            shapes.append(svg.text(x + width / 2, 80, f"k{kv}", anchor="middle", size=12, colour="#1f1f1f"))
            shapes.append(svg.text(x + width / 2, 100, f"v{kv}", anchor="middle", size=12, colour="#ffffff"))
    title = f"{heading}: {num_heads} query heads over {num_kv_heads} key and value heads, {group} query heads to each."
    return svg.picture(left + (_HEAD + 3) * num_heads, 108, title, *shapes)


def heads_figure(num_heads: int, kv_heads: Sequence[int]) -> svg.Picture:
    """The same query heads over several numbers of kv heads."""
    counts = ", ".join(map(str, kv_heads))
    html = svg.card(*(_sharing(num_heads, n) for n in kv_heads), caption=_say("heads.caption"))
    return svg.Picture(html, f"{num_heads} query heads over {counts} kv heads")


# --- the bill ----------------------------------------------------------------------------------------------------


class Published(NamedTuple):
    """Sizes that a model's authors have published, and where."""

    name: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    weights: float
    """Parameters, in billions."""
    source: str

    def cache_bytes(self, *, batch: int = 1, length: int = 1, num_kv_heads: int | None = None) -> int:
        """Of its cache, with as many kv heads as it has unless told otherwise."""
        return kv_cache_bytes(
            batch=batch,
            length=length,
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads if num_kv_heads is None else num_kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
        )


MODELS = (
    Published("OPT-175B", 96, 96, 96, 128, torch.float16, 175, "Zhang et al. 2022"),
    Published("BLOOM", 70, 112, 112, 128, torch.bfloat16, 176, "Le Scao et al. 2022"),
    Published("Llama-2-70B", 80, 64, 8, 128, torch.float16, 70, "Touvron et al. 2023"),
    Published("GLM-4-9B", 40, 32, 2, 128, torch.bfloat16, 9, "Team GLM 2024"),
)
"""The dtypes are those in which the weights are published."""

# Memory is sold in powers of two; of a T4's 16 about 15 can be used.
MEMORIES = (("calculator.phone", 4 * 2**30), ("calculator.laptop", 8 * 2**30), ("calculator.t4", 15 * 2**30))
KV_HEADS = ("published", "multi-head", "8", "4", "2", "1")
DTYPES = {"16 bit": torch.float16, "32 bit": torch.float32, "8 bit": torch.int8}


def _model(name: str) -> Published:
    return next(model for model in MODELS if model.name == name)


def render_cache_calculator(model: str, kv_heads: str, dtype: str, batch: int, length: int) -> str:
    """The cache of a published model as a card: its bytes beside the memory of a phone, a laptop and a T4."""
    chosen = _model(model)
    counts = {"published": chosen.num_kv_heads, "multi-head": chosen.num_heads}
    count = counts.get(kv_heads) or int(kv_heads)
    if chosen.num_heads % count:
        raise ValueError(
            _say("calculator.does_not_divide", model=model, heads=str(chosen.num_heads), kv=str(count))
        )
    sized = chosen._replace(num_kv_heads=count, dtype=DTYPES[dtype])
    token, whole = sized.cache_bytes(), sized.cache_bytes(batch=batch, length=length)
    items = [(_say("calculator.bar"), whole, bytes_text(whole))]
    items += [(_say(key), size, _fits(whole, size, size // token)) for key, size in MEMORIES]
    title = f"{model}, {count} kv heads, {dtype}, {batch} x {length} tokens: a cache of {bytes_text(whole)}."
    colours = [svg.VERMILION, *[svg.SKY] * len(MEMORIES)]
    caption = _say(
        "calculator.caption",
        token=bytes_text(token),
        layers=str(chosen.num_layers),
        kv=str(count),
        dim=str(chosen.head_dim),
        size=str(sized.dtype.itemsize),
    )
    return svg.card(svg.bars(items, title=title, width=600, colours=colours), caption=caption)


def _fits(whole: int, memory: int, tokens: int) -> str:
    return _say("calculator.fits" if whole <= memory else "calculator.too_small", tokens=f"{tokens:,}")


def cache_calculator() -> Card:
    """Model, kv heads, dtype, batch and length, and the cache that they make."""
    return card(
        render_cache_calculator,
        choice("model", "Llama-2-70B", [model.name for model in MODELS], label="model"),
        choice("kv_heads", "published", KV_HEADS, label="kv heads"),
        choice("dtype", "16 bit", list(DTYPES), label="numbers of"),
        slider("batch", 1, 1, 64, label="sequences"),
        choice("length", 4096, [512, 1024, 2048, 4096, 8192, 32768, 131072], label="tokens each"),
    )


# --- room --------------------------------------------------------------------------------------------------------


def room_figure(cache: KVCache, words: Sequence[Sequence[str]], block_size: int) -> svg.Picture:
    """The room of a cache: a row for each sequence, its tokens from column 0 on, blocks marked off."""
    lengths = cache.host_lengths
    columns = max(-(-max(lengths) // block_size), 1) * block_size
    cell, left = 58, 24
    shapes = []
    for i, length in enumerate(lengths):
        y = 22 + 34 * i
        shapes.append(svg.text(left - 8, y + 21, i, anchor="end"))
        for j in range(columns):
            held = j < length
            shapes.append(svg.rectangle(left + cell * j, y, cell, 30, fill=svg.SKY if held else "none"))
            if held:
                middle = left + cell * (j + 0.5)
                shapes.append(
                    svg.text(middle, y + 20, words[i][j], anchor="middle", size=12, colour="#1f1f1f")
                )
    for edge in range(0, columns + 1, block_size):
        shapes.append(
            svg.rectangle(
                left + cell * edge - 1.5, 16, 3, 34 * len(lengths) + 6, fill=svg.VERMILION, stroke="none"
            )
        )
    title = f"A cache of {len(lengths)} sequences with {list(lengths)} tokens in room for {columns} each."
    caption = _say("room.caption", block=block_size, held=sum(lengths), places=columns * len(lengths))
    html = svg.card(
        svg.picture(left + cell * columns + 4, 34 * len(lengths) + 26, title, *shapes), caption=caption
    )
    return svg.Picture(html, title)


# --- measured ----------------------------------------------------------------------------------------------------


def decode_figure(steps: dict[int, tuple[Sequence[int], Sequence[float]]]) -> None:
    """Milliseconds of a decode step against the bytes of the cache that it reads; a line for each number of kv
    heads, given as {kv heads: (bytes of each cache, seconds of each step)}."""
    with figures.figure(height=3.4) as (_, axes):
        for (kv_heads, (sizes, seconds)), colour in zip(steps.items(), figures.PALETTE, strict=False):
            mebibytes, milliseconds = [s / 2**20 for s in sizes], [1e3 * s for s in seconds]
            axes.plot(mebibytes, milliseconds, color=colour, marker="o")
            axes.annotate(
                f"{kv_heads} kv heads",
                (mebibytes[-1], milliseconds[-1]),
                xytext=(-2, 8),  # above the line's end; the next line goes on to its right
                textcoords="offset points",
                ha="right",
                color=colour,
                fontweight="bold",
            )
        ticks = sorted({size // 2**20 for sizes, _ in steps.values() for size in sizes})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlim(ticks[0] * 0.8, ticks[-1] * 1.25)
        axes.margins(y=0.16)
        axes.set_xlabel("cache that one step reads, MiB")
        axes.set_ylabel("ms a step")
    for kv_heads, (sizes, _) in steps.items():
        figures.digest(f"MiB read, {kv_heads:2} kv heads", [size / 2**20 for size in sizes])


def pooling_figure(before: float, losses: dict[str, tuple[float | None, float]]) -> None:
    """Held-out loss after cutting kv heads and after re-training, a row each as {name: (after the cut, at the end)};
    `before` is the multi-head model's."""
    names = list(losses)
    with figures.figure(height=0.62 * len(names) + 1.2) as (_, axes):
        axes.axvline(before, color=figures.GREY, linestyle="--")
        for row, (cut, end) in enumerate(losses.values()):
            moved = cut is not None and abs(cut - end) > 0.1
            if moved:
                axes.annotate(
                    "",
                    (end, row),
                    xytext=(cut, row),
                    arrowprops=dict(arrowstyle="-|>", color=figures.BLUE, linewidth=2, shrinkA=4, shrinkB=5),
                )
                axes.plot(cut, row, "o", color=figures.VERMILION)
            axes.plot(end, row, "o", color=figures.BLUE)
            place = dict(xytext=(0, 8), ha="center") if moved else dict(xytext=(8, 0), ha="left", va="center")
            axes.annotate(f"{end:.2f}", (end, row), textcoords="offset points", **place)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.6)
        axes.set_xlabel("held-out loss, nats a token")
        axes.grid(axis="y", visible=False)
