"""What an OPT is made of: the sizes that were published, and any other that a config.json describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from course_lib.gqa.sizes import checked_sizes

from .activations import ACTIVATIONS
from .config_checks import check_flags, check_positive, check_special_tokens, end_tokens

PUBLISHED = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "1.3b": (24, 2048, 32),
    "2.7b": (32, 2560, 32),
    "6.7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "66b": (64, 9216, 72),
    "175b": (96, 12288, 96),
}
"""Layers, width and heads (Zhang et al. 2022, "OPT", table 1); the feed-forward is four times as wide."""
INSTRUCTED = ("1.3b", "30b", "175b")
"""Sizes that were also published as OPT-IML, tuned on instructions (Iyer et al. 2022), plain and "max"."""

STORED_AS = {
    "dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_features": "ffn_dim",
    "max_length": "max_position_embeddings",
    "embed_dim": "word_embed_proj_dim",
    "norm_first": "do_layer_norm_before",
    "activation": "activation_function",
    "bias": "enable_bias",
    "norm_affine": "layer_norm_elementwise_affine",
    "tied_head": "tie_word_embeddings",
}
"""What config.json calls the fields that have another name there."""
WITHOUT_FINAL_NORM = "_remove_final_layer_norm"


@dataclass(frozen=True, kw_only=True)
class OPTConfig:
    """The sizes and parts of an :class:`OPT`. Raises TypeError or ValueError that names the field which does not fit.

    What is None follows from the rest: a feed-forward of ``4 * dim``, embeddings as wide as the model.
    """

    vocab_size: int = 50272
    dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    hidden_features: int | None = None
    """The width between the two products of the feed-forward."""
    max_length: int = 2048
    """The number of learned positions, in tokens."""
    embed_dim: int | None = None
    """The width of embedding and head; where it is not ``dim``, a projection stands after the one and before the
    other (OPT-350m: 512 against 1,024)."""
    norm_first: bool = True
    """Whether norms stand before attention and feed-forward, and one after the last layer; OPT-350m has them after
    what is added, and none at the end."""
    final_norm: bool | None = None
    """Whether a norm follows the last layer. None: with ``norm_first`` it does. False: models that were tuned from
    faulty early checkpoints go without."""
    activation: str = "relu"
    bias: bool = True
    """Whether projections add a vector. The head never does."""
    norm_affine: bool = True
    """Whether norms have weights of their own."""
    tied_head: bool = True
    checkpointing: str = "none"
    """"layers": keep only the input of each layer for the backward, and run the layer again there."""
    init_std: float = 0.02
    pad_token_id: int | None = 1
    bos_token_id: int | None = 2
    eos_token_id: int | Sequence[int] | None = 2

    def __post_init__(self) -> None:
        optional = (name for name in ("hidden_features", "embed_dim") if getattr(self, name) is not None)
        for name in ("vocab_size", "dim", "num_layers", "num_heads", "max_length", *optional):
            object.__setattr__(self, name, checked_sizes(**{name: getattr(self, name)})[0])
        if self.dim % self.num_heads:
            raise ValueError(f"dim: expected a multiple of num_heads = {self.num_heads}, got {self.dim}.")
        check_flags(self, "norm_first", "bias", "norm_affine", "tied_head")
        if self.final_norm not in (None, True, False):
            raise TypeError(f"final_norm: expected True, False or None, got {self.final_norm!r}.")
        if self.final_norm and not self.norm_first:
            raise ValueError(
                "final_norm: expected False or None with norm_first=False, whose layers end with a norm, got True."
            )
        for name, known in (("activation", tuple(ACTIVATIONS)), ("checkpointing", ("none", "layers"))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}: expected one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}."
                )
        check_positive(self, "init_std")
        check_special_tokens(self)

    @property
    def kv_heads(self) -> int:
        return self.num_heads

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads

    @property
    def hidden_width(self) -> int:
        return 4 * self.dim if self.hidden_features is None else self.hidden_features

    @property
    def embed_width(self) -> int:
        return self.dim if self.embed_dim is None else self.embed_dim

    @property
    def has_final_norm(self) -> bool:
        return self.norm_first if self.final_norm is None else self.final_norm

    @property
    def positions(self) -> str:
        return "learned"

    @property
    def feed_forward(self) -> str:
        return self.activation

    @property
    def norm(self) -> str:
        return "layernorm"

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return end_tokens(self.eos_token_id)

    @classmethod
    def of_size(cls, name: str) -> OPTConfig:
        """The config of a published model: "125m", "opt-125m", "facebook/opt-125m", "opt-iml-max-1.3b".

        Needs no network. Raises ValueError that lists the names for any other.
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected the name of a model, got {type(name).__name__} {name!r}.")
        size = name.lower().removeprefix("facebook/").removeprefix("opt-")
        instructed = size.startswith("iml-")
        size = size.removeprefix("iml-").removeprefix("max-") if instructed else size
        if size not in (INSTRUCTED if instructed else PUBLISHED):
            names = [f"opt-{size}" for size in PUBLISHED]
            names += [f"opt-iml{kind}-{size}" for size in INSTRUCTED for kind in ("", "-max")]
            raise ValueError(
                f"name: expected one of {', '.join(names)}, got {name!r}. A model of one's own is loaded from its "
                "folder."
            )
        layers, dim, heads = PUBLISHED[size]
        return cls(
            dim=dim,
            num_layers=layers,
            num_heads=heads,
            embed_dim=512 if size == "350m" else None,
            norm_first=size != "350m",
        )

    def to_dict(self) -> dict[str, Any]:
        """config.json as ``transformers`` reads it."""
        values: dict[str, Any] = {"model_type": "opt", "architectures": ["OPTForCausalLM"]}
        skipped = ("final_norm", "checkpointing")
        for field in fields(self):
            if field.name not in skipped:
                values[STORED_AS.get(field.name, field.name)] = getattr(self, field.name)
        values["ffn_dim"], values["word_embed_proj_dim"] = self.hidden_width, self.embed_width
        values[WITHOUT_FINAL_NORM] = self.norm_first and not self.has_final_norm
        if isinstance(self.eos_token_id, tuple):
            values["eos_token_id"] = list(self.eos_token_id)
        # Dropout is nothing that this course's models do; written out, since transformers' default is another.
        values |= {"dropout": 0.0, "attention_dropout": 0.0, "layerdrop": 0.0}
        if self.checkpointing != "none":
            values["checkpointing"] = self.checkpointing
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> OPTConfig:
        """The config that a config.json describes, written by ``to_dict`` or by ``transformers``.

        What is missing has the value that it has there. Entries that say nothing of the arithmetic are left out, and
        so are rates of dropout: it is for training, and the course's models train without. Raises TypeError or
        ValueError that names the field which does not fit, and what config.json calls it.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"config: expected a dict of config.json, got {type(values).__name__}.")
        kind = values.get("model_type", "opt")
        if kind != "opt":
            raise ValueError(f"config: expected model_type 'opt', got {kind!r}.")
        given = {
            field.name: values[STORED_AS.get(field.name, field.name)]
            for field in fields(cls)
            if field.name != "final_norm" and STORED_AS.get(field.name, field.name) in values
        }
        given.setdefault("hidden_features", 3072)
        if values.get(WITHOUT_FINAL_NORM) and given.get("norm_first", True):
            given["final_norm"] = False
        # One form for one model, so that configs compare as equal.
        dim = given.get("dim", cls.dim)
        if given["hidden_features"] == 4 * dim:
            given["hidden_features"] = None
        if given.get("embed_dim") == dim:
            given["embed_dim"] = None
        try:
            return cls(**given)
        except (TypeError, ValueError) as error:
            name = str(error).partition(":")[0]
            where = f" {name} is {STORED_AS[name]} in config.json." if name in STORED_AS else ""
            raise type(error)(f"{error}{where}") from None
