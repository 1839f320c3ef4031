"""What a BLOOM is made of: the sizes that were published, and any other that a config.json describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

# One check and one wording for sizes, here and in lesson 04.
from course_lib.gqa.sizes import checked_sizes

from .config_checks import check_flags, check_positive, check_special_tokens, end_tokens

PUBLISHED = {
    "560m": (24, 1024, 16),
    "1b1": (24, 1536, 16),
    "1b7": (24, 2048, 16),
    "3b": (30, 2560, 32),
    "7b1": (30, 4096, 32),
    "176b": (70, 14336, 112),
}
"""Layers, width and heads (BigScience 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", table
3); the feed-forward is four times as wide. The largest is published as plain "bloom"."""
TRAINED_LENGTH = 2048
"""Tokens of the texts that the published models were trained on (the same table)."""
ALIASES = {
    "dim": ("hidden_size", "n_embed"),
    "num_layers": ("n_layer", "num_hidden_layers"),
    "num_heads": ("n_head", "num_attention_heads"),
    "max_length": ("seq_length",),
    "norm_eps": ("layer_norm_epsilon",),
    "init_std": ("initializer_range",),
    "residual_after_norm": ("apply_residual_connection_post_layernorm",),
    "tied_head": ("tie_word_embeddings",),
}
"""What config.json calls the fields that have another name there: first the name to write, then others to read."""


@dataclass(frozen=True, kw_only=True)
class BloomConfig:
    """The sizes and parts of a :class:`Bloom`. Raises TypeError or ValueError that names a field which does not fit."""

    vocab_size: int = 250880
    dim: int = 64
    num_layers: int = 2
    num_heads: int = 8
    max_length: int | None = None
    """Tokens of the texts that the model was trained on, where that is known. Nothing in it ends there: ALiBi reads
    on."""
    residual_after_norm: bool = False
    """Whether attention and feed-forward are added to what their norm returned, rather than to what it read."""
    tied_head: bool = True
    """Whether the embedding is also the output head."""
    norm_eps: float = 1e-5
    checkpointing: str = "none"
    """"layers": keep only the input of each layer for the backward, and run the layer again there."""
    init_std: float = 0.02
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | Sequence[int] | None = 2

    def __post_init__(self) -> None:
        optional = ("max_length",) if self.max_length is not None else ()
        for name in ("vocab_size", "dim", "num_layers", "num_heads", *optional):
            # As ints, so that a size read off a NumPy array can be written as JSON.
            object.__setattr__(self, name, checked_sizes(**{name: getattr(self, name)})[0])
        if self.dim % self.num_heads:
            raise ValueError(f"dim: expected a multiple of num_heads = {self.num_heads}, got {self.dim}.")
        check_flags(self, "residual_after_norm", "tied_head")
        if self.checkpointing not in ("none", "layers"):
            raise ValueError(f"checkpointing: expected one of 'none', 'layers', got {self.checkpointing!r}.")
        check_positive(self, "norm_eps", "init_std")
        check_special_tokens(self)

    @property
    def kv_heads(self) -> int:
        return self.num_heads

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads

    @property
    def hidden_width(self) -> int:
        return 4 * self.dim

    @property
    def embed_width(self) -> int:
        return self.dim

    @property
    def positions(self) -> str:
        return "alibi"

    @property
    def feed_forward(self) -> str:
        return "gelu"

    @property
    def norm(self) -> str:
        return "layernorm"

    @property
    def bias(self) -> bool:
        """Projections and norms all add a vector. The head does not."""
        return True

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return end_tokens(self.eos_token_id)

    @classmethod
    def of_size(cls, name: str) -> BloomConfig:
        """The config of a published model: "560m", "bloom-560m", "bigscience/bloomz-7b1"; "bloom" is the one of 176b.

        BLOOMZ, tuned on instructions, has the same sizes, some of them as "-mt" and "-p3" too. Needs no network. Raises
        ValueError that lists the names for any other.
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected the name of a model, got {type(name).__name__} {name!r}.")
        size = name.lower().removeprefix("bigscience/")
        if size.startswith("bloomz-"):
            size = size.removesuffix("-mt").removesuffix("-p3")
        size = "176b" if size in ("bloom", "bloomz") else size.removeprefix("bloomz-").removeprefix("bloom-")
        if size not in PUBLISHED:
            names = [f"{kind}-{size}" for kind in ("bloom", "bloomz") for size in PUBLISHED]
            raise ValueError(
                f"name: expected one of {', '.join(names)}, or bloom or bloomz for those of 176b, got {name!r}. A "
                "model of one's own is loaded from its folder."
            )
        layers, dim, heads = PUBLISHED[size]
        return cls(dim=dim, num_layers=layers, num_heads=heads, max_length=TRAINED_LENGTH, pad_token_id=3)

    def to_dict(self) -> dict[str, Any]:
        """config.json as ``transformers`` reads it."""
        values: dict[str, Any] = {"model_type": "bloom", "architectures": ["BloomForCausalLM"]}
        for field in fields(self):
            values[ALIASES.get(field.name, (field.name,))[0]] = getattr(self, field.name)
        if isinstance(self.eos_token_id, tuple):
            values["eos_token_id"] = list(self.eos_token_id)  # as JSON gives it back
        for name, left_out in (("seq_length", None), ("checkpointing", "none")):
            if values[name] == left_out:
                del values[name]
        # Dropout is nothing that this course's models do: written out, so that the file says so.
        return {**values, "hidden_dropout": 0.0, "attention_dropout": 0.0}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BloomConfig:
        """The config that a config.json describes, written by ``to_dict`` or by ``transformers``, now or years ago.

        What is missing has the value that it has there. Entries that say nothing of the arithmetic are left out
        (``slow_but_exact`` and ``pretraining_tp`` say in which order to add up), and so are rates of dropout: it is
        for training, and the course's models train without. Raises ValueError for names of one size that differ.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"config: expected a dict of config.json, got {type(values).__name__}.")
        kind = values.get("model_type", "bloom")
        if kind != "bloom":
            raise ValueError(f"config: expected model_type 'bloom', got {kind!r}.")
        given = {}
        for field in fields(cls):
            found = {name: values[name] for name in ALIASES.get(field.name, (field.name,)) if name in values}
            if not found:
                continue
            first, *others = found.values()
            if any(other != first for other in others):
                came = " and ".join(f"{name} = {value!r}" for name, value in found.items())
                raise ValueError(f"config: expected one {field.name}, got {came}. Remove the wrong one.")
            given[field.name] = first
        config = cls(**given)
        inner = values.get("n_inner")
        if inner not in (None, config.hidden_width):
            raise ValueError(
                f"config: expected n_inner = {config.hidden_width}, four times as wide as the model, got {inner!r}. "
                "No BLOOM has another feed-forward."
            )
        return config
