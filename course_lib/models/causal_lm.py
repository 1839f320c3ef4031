"""What the families of models share: how tokens, masks, positions and caches become logits, layer by layer.

A family says what stands before the first layer (``begin``), what a layer is, and what stands after the last
(``finish``). Its layers are called alike, so that whoever has no room for all of them can load one at a time:

    x = model.begin(tokens, positions)
    for layer in model.layers:
        x = layer(x, bias, rotary, attention_mask, cache)
    logits = model.head(model.finish(x))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.alibi import ALiBi
from course_lib.attention import AttentionBias, Causal, KeyPadding, Segments
from course_lib.attention.bias import as_whole_number
from course_lib.attention.combine import as_bias
from course_lib.gqa import KVCache

# One check and one wording for tokens, positions and caches, here and in the tiny model.
from course_lib.tiny_gpt.model import check_token_positions, check_tokens, checked_caches

from .alibi_at import ALiBiAt, has_holes
from .card import model_card
from .checkpoint import write_model
from .stored_part import StoredPart


class CausalLM(nn.Module):
    """A causal language model: ``embed``, ``layers`` and ``head`` are its parts, ``config`` says which.

    ``attention_bias`` is what may attend to what within a document, ALiBi's slopes (``alibi``) included: the ``inner``
    of a packed row.
    """

    config_class: ClassVar[Any]
    model_type: ClassVar[str]
    """What config.json calls the family."""
    embed: nn.Embedding
    layers: nn.ModuleList
    head: nn.Linear

    def __init__(self, config: Any) -> None:
        super().__init__()
        if not isinstance(config, self.config_class):
            name = self.config_class.__name__
            raise TypeError(
                f"config: expected {'an' if name[0] in 'AEIO' else 'a'} {name}, got {type(config).__name__} {config!r}."
            )
        self.config = config
        # Slopes are numbers to compute with even while torch.device("meta") lays the weights out without memory.
        with torch.device("cpu"):
            self.alibi = ALiBi(config.num_heads) if config.positions == "alibi" else None
        causal = Causal("bottom-right")
        self.attention_bias: AttentionBias = causal if self.alibi is None else causal + self.alibi

    def tie(self) -> None:
        """Make the head's weight the embedding's where the config says so: what a move from "meta" undoes."""
        if self.config.tied_head:
            self.head.weight = self.embed.weight

    @torch.no_grad()
    def initialise(self, seed: int = 0) -> None:
        """Draw all weights anew: normal with ``init_std``, biases 0, norms 1.

        What each layer adds to the stream is scaled by ``1 / sqrt(2 * num_layers)``, the number of such additions
        (Radford et al. 2019, section 2.3). Drawn on the CPU, so a seed means the same weights on every device.
        """
        generator = torch.Generator().manual_seed(as_whole_number("seed", seed))
        std = self.config.init_std
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            elif not parameter.is_meta:
                added = name.endswith(("o_proj.weight", "w3.weight", "down.weight"))
                scale = std / math.sqrt(2 * self.config.num_layers) if added else std
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)

    def begin(
        self, tokens: Int64[Tensor, "batch length"], positions: Int64[Tensor, "rows length"]
    ) -> Float[Tensor, "batch length dim"]:
        """What the first layer reads."""
        raise NotImplementedError

    def finish(self, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length width"]:
        """What the head reads, from what the last layer gives."""
        raise NotImplementedError

    def rotary(
        self, positions: Int64[Tensor, "rows length"], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor] | None:
        """By which angles the layers turn queries and keys, as (cos, sin); None: they do not."""
        return None

    def forward(
        self,
        tokens: Int64[Tensor, "batch length"],
        *,
        attention_mask: Tensor | None = None,
        positions: Int64[Tensor, "rows length"] | None = None,
        bias: Any = None,
        cache: Sequence[KVCache] | None = None,
    ) -> Float[Tensor, "batch length vocab_size"]:
        """The logits of the token after each of ``tokens``: ``head(hidden(tokens, ...))``."""
        return self.head(
            self.hidden(tokens, attention_mask=attention_mask, positions=positions, bias=bias, cache=cache)
        )

    def hidden(
        self,
        tokens: Int64[Tensor, "batch length"],
        *,
        attention_mask: Tensor | None = None,
        positions: Int64[Tensor, "rows length"] | None = None,
        bias: Any = None,
        cache: Sequence[KVCache] | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """What the head reads, [batch, length, width]: for a loss that never builds all logits at once.

        - ``attention_mask`` [batch, length]: 1 for a real token, 0 for padding, on either side or in between. Rows of
          padding mean nothing.
        - ``positions`` [batch or 1, length] count the real tokens, from 0 or from what the ``cache`` holds, unless
          given. A packed row brings its own.
        - ``bias`` takes the place of ``attention_bias``: ``Packed(lengths, inner=model.attention_bias)``. With a
          ``cache``, which is causal by itself, it takes the place of ALiBi.
        - ``cache``: a ``KVCache`` for each layer, all of them empty before the first token; the mask is then that of
          the new tokens alone.

        Raises TypeError or ValueError for arguments that do not fit.
        """
        config = self.config
        attention_mask, positions, bias, caches = self._checked(
            tokens, attention_mask, positions, bias, cache
        )
        x = self.begin(tokens, positions)
        rotary = self.rotary(positions, x.dtype)
        again = config.checkpointing == "layers" and torch.is_grad_enabled() and cache is None
        for layer, own in zip(self.layers, caches, strict=True):
            if again:
                # Nothing random happens in a layer, so no generator needs to be brought back.
                arguments = (x, bias, rotary, attention_mask, None)
                x = checkpoint(layer, *arguments, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, bias, rotary, attention_mask, own)
        return self.finish(x)

    @torch.compiler.disable  # its questions about the numbers in a tensor would break the graph, with a warning
    def _checked(self, tokens: Any, attention_mask: Any, positions: Any, bias: Any, cache: Any) -> Any:
        """What the layers need: (mask or None, positions, bias, a cache or None for each layer)."""
        check_tokens(tokens, self.config.vocab_size)
        caches = [None] * len(self.layers) if cache is None else checked_caches(cache, len(self.layers))
        attention_mask = checked_mask(attention_mask, tokens, " With a cache it marks the new tokens alone.")
        positions = self._checked_positions(tokens, positions, attention_mask, bias, caches[0])
        if bias is None:
            bias = self.attention_bias if cache is None else self.alibi
            hidden = None if cache is not None else attention_mask
            if self.alibi is not None and hidden is not None and has_holes(hidden):
                bias = Causal("bottom-right") + ALiBiAt(self.alibi.slopes, hidden)  # as a cache would count
        if cache is None and attention_mask is not None:
            bias, attention_mask = KeyPadding(attention_mask) + bias, None  # once, for all layers
        return attention_mask, positions, bias, caches

    def _checked_positions(
        self, tokens: Tensor, positions: Any, attention_mask: Tensor | None, bias: Any, cache: Any
    ) -> Tensor:
        batch, length = tokens.shape
        learned = self.config.positions == "learned"
        if positions is None:
            # Rotary positions matter by their differences alone, which are right inside every document.
            if learned and isinstance(as_bias(bias), Segments):
                raise ValueError(
                    "positions: expected those of the packed row, which restart in every document, got none. "
                    "pack(...).positions are they."
                )
            held = () if cache is None else cache.host_lengths
            if attention_mask is None and held.count(held[0] if held else 0) == len(held):
                start = held[0] if held else 0
                positions = torch.arange(start, start + length, device=tokens.device)[None]
            else:
                real = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask
                positions = (KVCache() if cache is None else cache).next_positions(real)
        check_token_positions(positions, batch, length, self.config.max_length if learned else None)
        return positions

    def num_parameters(self, *, embeddings: bool = True) -> int:
        """The weights, a tied head counted once; without ``embeddings``, those of neither table nor head."""
        outside = () if embeddings else ("embed.", "position_embed.", "head.")
        return sum(p.numel() for name, p in self.named_parameters() if not name.startswith(outside))

    def flops_per_token(self, length: float) -> float:
        """Floating-point operations that training needs for each token of documents of ``length`` tokens.

        ``6 * N + 12 * num_layers * num_heads * head_dim * (length + 1) / 2``: N weights take part in a matrix product
        (the head does, tables that are looked up do not), each by a multiplication and an addition, once forward and
        twice backward; and a token sees (length + 1) / 2 keys on average, with a product of ``head_dim`` numbers to
        score each and another to gather it. After Chowdhery et al. 2022, "PaLM", appendix B, which counts all
        ``length`` keys; norms, softmax and what is computed a second time do not count. For packed documents,
        ``length`` is the mean over tokens: ``sum(n * n) / sum(n)``.
        """
        if isinstance(length, bool) or not isinstance(length, (int, float)):
            raise TypeError(f"length: expected a number of tokens, got {type(length).__name__} {length!r}.")
        if not 1 <= length < math.inf:
            raise ValueError(f"length: expected at least 1 token, got {length}.")
        config = self.config
        tables = ("embed.weight", "position_embed.weight", "head.weight")
        in_products = self.head.weight.numel() + sum(
            p.numel() for name, p in self.named_parameters() if p.dim() == 2 and name not in tables
        )
        width = config.num_layers * config.num_heads * config.head_width
        return 6 * in_products + 12 * width * (length + 1) / 2

    @classmethod
    def stored_parts(cls, config: Any) -> list[StoredPart]:
        """Where a checkpoint keeps each tensor of the state dict: under its own name unless a family says else."""
        with torch.device("meta"):
            names = list(cls(config).state_dict())
        return [StoredPart(own, own, optional=own == "head.weight" and config.tied_head) for own in names]

    def to_stored(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of ``state``, a state dict or part of one, under the names that a saved model has for them."""
        return dict(state)

    def save(
        self, folder: str | Path, *, trained: str = "", license: str = "", languages: Sequence[str] = ()
    ) -> Path:
        """Write model.safetensors, config.json and a model card, README.md; returns the folder, which is made.

        ``load_model`` reads the folder, and so does ``transformers`` where it knows the family. ``trained`` says, as
        Markdown, on what and how the model was trained, ``license`` which licence it has ("cc0-1.0"), ``languages`` are
        codes ("bn", "en"). A card that is there is kept unless one of these is given. Each file is complete before it
        takes the place of an older one: an interruption or a full disk leaves what was there. A tied head is stored
        once. Raises ValueError for weights of several dtypes, OSError that says where nothing could be written.
        """
        tensors = {name: tensor for name, tensor in self.state_dict().items() if name not in self._aliases}
        size = self.num_parameters()
        card = model_card(self.config, size, trained=trained, license=license, languages=languages)
        keep_card = not (trained or license or languages)
        stored = self.to_stored(tensors)
        return write_model(folder, self.model_type, self.config.to_dict(), stored, card, keep_card=keep_card)

    @property
    def _aliases(self) -> tuple[str, ...]:
        """Names in the state dict of tensors that have another name there."""
        return ("head.weight",) if self.config.tied_head else ()


def checked_mask(attention_mask: Any, tokens: Tensor, hint: str = "") -> Tensor | None:
    """The mask as bool [batch, length], or None where no token is padding: there is then nothing to hide.

    Raises TypeError or ValueError, with ``hint`` at its end, for a mask of other tokens.
    """
    if attention_mask is None:
        return None
    real = KeyPadding(attention_mask).real.to(tokens.device)
    if real.shape != tokens.shape:
        raise ValueError(
            f"attention_mask: expected [batch, length] = {list(tokens.shape)} as tokens, got shape {list(real.shape)}."
            f"{hint}"
        )
    return None if bool(real.all()) else real
