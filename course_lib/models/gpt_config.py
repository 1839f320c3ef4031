"""What a GPT is made of, as numbers and names that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

# One check and one wording for sizes and heads, here and in lesson 04.
from course_lib.gqa.sizes import check_groups, checked_sizes
from course_lib.swiglu import matched_hidden_features
from course_lib.tiny_gpt.positions import BASE

from .config_checks import check_flags, check_positive

CHOICES = {
    "positions": ("alibi", "rotary", "learned", "none"),
    "feed_forward": ("swiglu", "gelu"),
    "norm": ("rmsnorm", "layernorm"),
    "checkpointing": ("none", "layers"),
}
"""What each of these fields understands."""


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes and parts of a :class:`GPT`. Raises TypeError or ValueError that names the field which does not fit.

    What is None follows from the rest, also after ``dataclasses.replace``: as many kv heads as heads, heads that
    together are as wide as the model, and a hidden width of ``4 * dim`` for "gelu" or the one with as many parameters
    for "swiglu". ``kv_heads``, ``head_width`` and ``hidden_width`` are the numbers.
    """

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    hidden_features: int | None = None
    """The width between the two products of the feed-forward."""
    max_length: int = 1024
    """Tokens: the size of the table of learned positions; with other positions, what the model is meant for."""
    positions: str = "alibi"
    feed_forward: str = "swiglu"
    norm: str = "rmsnorm"
    tied_head: bool = True
    """Whether the embedding is also the output head."""
    bias: bool = False
    """Whether projections and layer norms add a vector. The head never does."""
    recompute: bool = False
    """Whether SwiGLU keeps only its input for the backward (lesson 06)."""
    checkpointing: str = "none"
    """"layers": keep only the input of each layer for the backward, and run the layer again there."""
    rope_theta: float = BASE
    norm_eps: float = 1e-5
    init_std: float = 0.02
    """The standard deviation of weights before training."""
    end_token_ids: Sequence[int] = ()
    """The tokens that end a text, where ``generate`` stops unless told otherwise."""
    pad_token_id: int | None = None
    """What ``generate`` fills a row with that has ended before the others."""

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "dim", "num_layers", "num_heads", "max_length")
        optional = ("num_kv_heads", "head_dim", "hidden_features")
        for name in (*sizes, *(name for name in optional if getattr(self, name) is not None)):
            # As ints, so that a size read off a NumPy array can be written as JSON.
            object.__setattr__(self, name, checked_sizes(**{name: getattr(self, name)})[0])
        check_groups(self.num_heads, self.kv_heads)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}: expected one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}."
                )
        check_flags(self, "tied_head", "bias", "recompute")
        if not isinstance(self.end_token_ids, (list, tuple)):
            raise TypeError(f"end_token_ids: expected a tuple of token ids, got {self.end_token_ids!r}.")
        ids = tuple(self._checked_id("end_token_ids", token) for token in self.end_token_ids)
        object.__setattr__(self, "end_token_ids", ids)  # JSON gives a list back
        if self.pad_token_id is not None:
            object.__setattr__(self, "pad_token_id", self._checked_id("pad_token_id", self.pad_token_id))
        check_positive(self, "rope_theta", "norm_eps", "init_std")
        if self.head_dim is None and self.dim % self.num_heads:
            raise ValueError(
                f"dim: expected a multiple of num_heads = {self.num_heads}, got {self.dim}. Pass head_dim=... for "
                "heads that together are not as wide as the model."
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"head_dim: expected an even number for rotary positions, which turn pairs, got {self.head_width}."
            )
        if self.recompute and self.feed_forward != "swiglu":
            raise ValueError(
                f'recompute: expected False with feed_forward = {self.feed_forward!r}, got True. Only "swiglu" can '
                "recompute; checkpointing='layers' works with both."
            )

    def _checked_id(self, name: str, token: Any) -> int:
        (token,) = checked_sizes(at_least=0, **{name: token})
        if token >= self.vocab_size:
            raise ValueError(
                f"{name}: expected ids from 0 to {self.vocab_size - 1}, those of vocab_size = {self.vocab_size}, got "
                f"{token}."
            )
        return token

    @property
    def kv_heads(self) -> int:
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def head_width(self) -> int:
        return self.dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def hidden_width(self) -> int:
        if self.hidden_features is not None:
            return self.hidden_features
        return matched_hidden_features(self.dim) if self.feed_forward == "swiglu" else 4 * self.dim

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them; without tokens that are not set, as earlier versions wrote it."""
        unset = {"end_token_ids": (), "pad_token_id": None}
        return {name: value for name, value in asdict(self).items() if unset.get(name, ...) != value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GPTConfig:
        """The config of ``to_dict``. Raises ValueError that names keys which are unknown, or missing."""
        if not isinstance(values, Mapping):
            raise TypeError(f"config: expected a dict of the fields, got {type(values).__name__}.")
        known = {field.name: field for field in fields(cls)}
        unknown = [str(name) for name in values if name not in known]
        if unknown:
            raise ValueError(
                f"config: expected only the fields of GPTConfig ({', '.join(known)}), got also {', '.join(unknown)}. "
                "Was it written by a later version, or for another model?"
            )
        missing = [name for name, field in known.items() if field.default is MISSING and name not in values]
        if missing:
            raise ValueError(
                f"config: expected at least vocab_size, dim, num_layers and num_heads, got none for "
                f"{', '.join(missing)}."
            )
        return cls(**values)
