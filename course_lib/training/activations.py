"""What each part of a model keeps for the backward, and what it needs while it works: formulas over shapes.

A part of the model is a :class:`Stage`. With n tokens, d = dim, q = num_heads * head_dim, k = num_kv_heads * head_dim,
h = hidden_features and s the bytes of a number in a matrix product (4 in fp32, 2 under autocast), the parts keep

    norm             4 n d   its input
    attention        s n (2 q + 2 k)   query, key, value, output: no score
      dense          s n 4 q + s heads length² rows   and the weights of every head
      its input      s n d; after a LayerNorm under autocast 3 s n d, a copy for each of q_proj, k_proj and v_proj
    GELU             s n 2 h   before and after the function
    ReLU             s n h     after it
    SwiGLU           s n 4 h   gate and up, silu(gate), its product with up
      recompute      nothing
      their input    s n d
    layer checkpointing   4 n d for a whole layer: its input

Numbers of the residual stream and of norms stay in fp32. Autocast also keeps a half-precision copy of each weight until
its backward. A number or two a head and token, such as the
sums of a softmax, come on top. Tests hold these counts against what autograd keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from course_lib.swiglu.recompute import TOKENS_AT_ONCE, TOKENS_AT_ONCE_ON_A_GPU

from .parts import Parts

FP32 = 4
INDEX = 8
"""Bytes of a token id or position."""


@dataclass(frozen=True)
class Stage:
    """A part of the model; all sizes in bytes.

    ``saved``: what it keeps for the backward, by kind. ``gradient``: of its weights, of which ``early`` are there when
    its backward needs most (None: all). ``copies``: its weights in half precision. ``again``: what a checkpointed stage
    holds once its forward has been repeated, beside what it saved. ``forward`` and
    ``backward``: what it needs beside, while it works.
    """

    name: str
    gradient: int
    saved: dict[str, int] = field(default_factory=dict)
    copies: int = 0
    again: int = 0
    forward: int = 0
    backward: int = 0
    early: int | None = None

    @property
    def kept(self) -> int:
        return sum(self.saved.values())


@dataclass(frozen=True)
class Shapes:
    """A model and what it reads at once: ``rows`` of ``length`` slots, padding included; ``itemsize`` of a product."""

    config: Parts
    rows: int
    length: int
    dense: bool = False
    itemsize: int = FP32
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def half(self) -> bool:
        return self.itemsize < FP32

    @property
    def stream(self) -> int:
        """The residual stream of all tokens, in fp32."""
        return self.tokens * self.config.dim * FP32

    @property
    def head_input(self) -> int:
        """What the head reads, where a product gives it."""
        return self.tokens * self.config.embed_width * self.itemsize

    @property
    def head_input_fp32(self) -> int:
        return self.tokens * self.config.embed_width * FP32

    @property
    def queries(self) -> int:
        """Of all heads and tokens, as a product gives them."""
        return self.tokens * self.config.num_heads * self.config.head_width * self.itemsize

    @property
    def keys(self) -> int:
        """Of all heads and tokens, without the values."""
        return self.tokens * self.config.kv_heads * self.config.head_width * self.itemsize

    @property
    def scores(self) -> int:
        """Of all heads: a number for every pair of slots of a row."""
        return self.rows * self.config.num_heads * self.length**2 * self.itemsize

    def hidden(self, tokens: int | None = None) -> int:
        """The numbers between the two products of the feed-forward."""
        return (self.tokens if tokens is None else tokens) * self.config.hidden_width * self.itemsize

    @property
    def normed(self) -> int:
        """What a norm gives: under autocast RMSNorm gives half precision, LayerNorm fp32."""
        return self.stream // 2 if self.half and self.config.norm == "rmsnorm" else self.stream

    def product_input(self, products: int) -> int:
        """What ``products`` projections keep of one norm's output: that itself, or a half-precision copy each."""
        return products * self.stream // 2 if self.half and self.normed == self.stream else self.normed


def stages(shapes: Shapes) -> list[Stage]:
    """The parts of the model in the order of the forward."""
    config = shapes.config
    layers: list[Stage] = []
    for _ in range(config.num_layers):
        parts = [attention(shapes), feed_forward(shapes)]
        layers += [_checkpointed(shapes, parts)] if config.checkpointing == "layers" else parts
    last = [Stage("norm", _norm_weights(config), norm(shapes))] if config.final_norm else []
    if config.embed_width != config.dim:
        last.append(projection(shapes, "project_out", shapes.product_input(1)))
    return [*first(shapes), *layers, *last]


def first(shapes: Shapes) -> list[Stage]:
    """What stands before the layers."""
    config = shapes.config
    found = [embedding(shapes)]
    if config.embed_width != config.dim:
        found.append(projection(shapes, "project_in", shapes.head_input))
    if config.embedding_norm:
        found.append(Stage("norm", _norm_weights(config), norm(shapes)))
    return found


def projection(shapes: Shapes, name: str, kept: int) -> Stage:
    """Between embeddings, or the head, and layers that are wider."""
    weights = shapes.config.dim * shapes.config.embed_width
    copies = weights * shapes.itemsize if shapes.half else 0
    return Stage(name, weights * FP32, {"inputs of products": kept}, copies=copies)


def embedding(shapes: Shapes) -> Stage:
    config = shapes.config
    table = config.vocab_size * config.embed_width * FP32
    saved = {"ids": shapes.tokens * INDEX}
    if config.positions == "learned":
        table += config.position_rows * config.dim * FP32
        saved["ids"] += shapes.tokens * INDEX
    if config.positions == "rotary" and not shapes.half:
        saved["rotary"] = 2 * shapes.tokens * config.head_width * FP32
    return Stage("embedding", table, saved)


def norm(shapes: Shapes) -> dict[str, int]:
    statistics = 2 if shapes.config.norm == "layernorm" else 1
    return {"norms": shapes.stream + statistics * shapes.tokens * FP32}


def attention(shapes: Shapes) -> Stage:
    config = shapes.config
    width, kv_width = config.num_heads * config.head_width, config.kv_heads * config.head_width
    weights = config.dim * (2 * width + 2 * kv_width)
    biases = (width + 2 * kv_width + config.dim) if config.bias else 0
    saved = {**norm(shapes), "inputs of products": shapes.product_input(3)}
    if shapes.dense:
        saved["attention"] = 4 * shapes.queries + shapes.length**2
        saved["scores"] = shapes.scores
    else:
        rows = shapes.tokens * config.num_heads * FP32
        # The tiled backend, which ALiBi needs, keeps the largest score of a row beside the sum.
        sums = (2 if config.positions == "alibi" else 1) * rows
        saved["attention"] = 2 * shapes.queries + 2 * shapes.keys + sums
    if config.positions == "rotary" and shapes.half:
        saved["rotary"] = 2 * shapes.tokens * config.head_width * shapes.itemsize
    return Stage(
        "attention",
        (weights + biases) * FP32 + _norm_weights(config),
        saved,
        copies=(weights + biases) * shapes.itemsize if shapes.half else 0,
        forward=2 * shapes.scores if shapes.dense else shapes.stream,
        backward=max(2 * shapes.scores if shapes.dense else 0, 2 * shapes.stream + 2 * shapes.queries),
    )


def feed_forward(shapes: Shapes) -> Stage:
    config = shapes.config
    gated = config.feed_forward == "swiglu"
    weights = (3 if gated else 2) * config.dim * config.hidden_width
    biases = ((2 if gated else 1) * config.hidden_width + config.dim) if config.bias else 0
    saved = norm(shapes)
    copies = (weights + biases) * shapes.itemsize if shapes.half else 0
    forward, early = shapes.stream, None
    if config.recompute:
        saved["inputs of products"] = shapes.normed
        at_once = TOKENS_AT_ONCE if shapes.device == "cpu" else TOKENS_AT_ONCE_ON_A_GPU
        some = shapes.hidden(min(at_once, shapes.tokens))
        forward, backward = copies + 4 * some, copies + 8 * some + 2 * shapes.stream
        copies = 0
    else:
        saved["inputs of products"] = shapes.product_input(1)
        saved["feed-forward"] = config.hidden_kept * shapes.hidden()
        backward = (2 if gated else 1) * shapes.hidden() + shapes.stream
        early = config.dim * config.hidden_width * FP32  # of the second product, which comes first
    return Stage(
        "feed-forward",
        (weights + biases) * FP32 + _norm_weights(config),
        saved,
        copies=copies,
        forward=forward,
        backward=backward,
        early=early,
    )


def _checkpointed(shapes: Shapes, parts: list[Stage]) -> Stage:
    """A layer that keeps its input, and in the backward all that its parts keep."""
    return Stage(
        "layer",
        sum(part.gradient for part in parts),
        {"inputs of layers": shapes.stream},
        copies=sum(part.copies for part in parts),
        again=sum(part.kept + part.copies for part in parts) - shapes.stream,
        forward=max(part.kept + part.forward for part in parts) + sum(part.copies for part in parts),
        backward=max(part.backward for part in parts),
        early=parts[-1].early,  # the feed-forward is where a layer's backward begins
    )


def _norm_weights(config: Parts) -> int:
    return config.norm_vectors * config.dim * FP32
