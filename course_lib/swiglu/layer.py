"""Feed-forwards with a gate: SwiGLU and its siblings (lesson 06).

The feed-forward of Vaswani et al. 2017 is ``W2 relu(W1 x)``. A gated one makes two products of the input, and one of
them decides, number by number, how much of the other passes (Dauphin et al. 2017, "Language modeling with gated
convolutional networks"). Shazeer 2020, "GLU variants improve Transformer", tried the activations below; Llama and
most models after it use SwiGLU.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

# One check and one wording for whole numbers, here and in attention.
from course_lib.attention.bias import as_whole_number

from .activation import GELU, IDENTITY, RELU, SIGMOID, SILU, Activation
from .recompute import recomputed
from .state_dict import check_shapes, fuse


class GatedFeedForward(nn.Module):
    """``w3(activation(gate) * up)``, where ``gate`` and ``up`` are the first and second half of ``w12(x)``.

    A subclass names its ``activation``. ``w12`` [2 * hidden_features, in_features] makes both halves in one product;
    ``w3`` is [out_features, hidden_features]; ``out_features`` is ``in_features`` unless given; ``bias`` gives both a
    bias. The parameters are those of ``xformers.ops.SwiGLU``, so state dicts go over, both ways. One whose halves are
    apart, as ``w1``, ``w2``, ``w3`` or as Llama's ``gate_proj``, ``up_proj``, ``down_proj``, is joined when it is
    loaded.

    ``recompute=True`` keeps only the input (and the parameters) for the backward and computes the rest again: about a
    tenth of the memory, for a fifth more work. It reads the weights of ``w12`` and ``w3`` directly, so hooks on these
    two do not run. It may be switched at any time.
    """

    activation: ClassVar[Activation]

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = True,
        *,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.in_features = as_whole_number("in_features", in_features, 1)
        if isinstance(hidden_features, float):
            raise TypeError(
                f"hidden_features: expected a whole number, got float {hidden_features}. "
                "matched_hidden_features(dim) gives two thirds of a plain feed-forward's, rounded."
            )
        self.hidden_features = as_whole_number("hidden_features", hidden_features, 1)
        self.out_features = (
            self.in_features if out_features is None else as_whole_number("out_features", out_features, 1)
        )
        self.recompute = recompute
        self.w12 = nn.Linear(self.in_features, 2 * self.hidden_features, bias=bias)
        self.w3 = nn.Linear(self.hidden_features, self.out_features, bias=bias)

    def extra_repr(self) -> str:
        return f"activation={self.activation.name}, recompute={self.recompute}"

    def forward(self, x: Float[Tensor, "*tokens in_features"]) -> Float[Tensor, "*tokens out_features"]:
        """Each token of ``x`` [..., in_features] by itself: [..., out_features].

        Any number of dimensions before the last, and of tokens, none included. Under ``torch.autocast`` it computes in
        the autocast dtype, as ``nn.Linear`` does. Raises TypeError or ValueError if ``x`` does not fit.
        """
        dtype = self._checked_dtype(x)
        if self.recompute:
            return recomputed(
                x, self.w12.weight, self.w12.bias, self.w3.weight, self.w3.bias, self.activation, dtype
            )
        gate, up = self.w12(x).chunk(2, dim=-1)
        return self.w3(self.activation.function(gate) * up)

    def _checked_dtype(self, x: Any) -> torch.dtype:
        """Check ``x``; the dtype in which it is to be computed."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x: expected a tensor [..., {self.in_features}], got {type(x).__name__}.")
        if not x.is_floating_point():
            raise TypeError(
                f"x: expected floating-point numbers, got {_name(x.dtype)}. Token ids go through an embedding first; "
                "other numbers through x.float()."
            )
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"x: expected [..., in_features = {self.in_features}], got shape {list(x.shape)}. The last dimension "
                "is a token's features."
            )
        weight = self.w12.weight.dtype
        dtypes = {x.dtype, weight}
        if torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):
            # As autocast does for nn.Linear: everything but float64 becomes its dtype.
            autocast = torch.get_autocast_dtype(x.device.type)
            dtypes = {dtype if dtype == torch.float64 else autocast for dtype in dtypes}
        if len(dtypes) > 1:
            raise TypeError(
                f"x: expected dtype {_name(weight)} as the weights, got {_name(x.dtype)}. Convert it with "
                "x.to(layer.w12.weight.dtype), or run under torch.autocast, which casts all but float64."
            )
        return dtypes.pop()

    def _load_from_state_dict(self, state_dict, prefix, *args):  # type: ignore[no-untyped-def]
        fuse(state_dict, prefix)
        check_shapes(state_dict, prefix, self)
        super()._load_from_state_dict(state_dict, prefix, *args)


class SwiGLU(GatedFeedForward):
    """``w3(silu(gate) * up)``, the feed-forward of Llama, PaLM and Mistral (Shazeer 2020)."""

    activation = SILU


class GeGLU(GatedFeedForward):
    """``w3(gelu(gate) * up)``, (Shazeer 2020). T5 1.1 and Gemma use it, with a tanh that approximates the GELU."""

    activation = GELU


class ReGLU(GatedFeedForward):
    """``w3(relu(gate) * up)`` (Shazeer 2020): a gate that can be shut."""

    activation = RELU


class GLU(GatedFeedForward):
    """``w3(sigmoid(gate) * up)``, the gate of Dauphin et al. 2017.

    ``torch.nn.functional.glu`` takes the second half as the gate; here it is the first, as in the others.
    """

    activation = SIGMOID


class Bilinear(GatedFeedForward):
    """``w3(gate * up)``: no activation at all (Shazeer 2020, after Mnih and Hinton 2007)."""

    activation = IDENTITY


def matched_hidden_features(dim: int, *, expansion: float = 4, multiple_of: int = 8) -> int:
    """The hidden size at which a gated feed-forward has the parameters of a plain one, ``2/3 * expansion * dim``,
    rounded up to a multiple of ``multiple_of``.

    A plain one of ``expansion * dim`` hidden numbers has two matrices of that size, a gated one has three (Shazeer
    2020, section 2): ``matched_hidden_features(512)`` is 1,368, and Llama-7B's 11,008 is
    ``matched_hidden_features(4096, multiple_of=256)``. Raises TypeError or ValueError for a size that is no whole
    number or below 1, and for an expansion that is not above 0.
    """
    dim, multiple_of = as_whole_number("dim", dim, 1), as_whole_number("multiple_of", multiple_of, 1)
    if isinstance(expansion, bool) or not isinstance(expansion, (int, float)):
        raise TypeError(
            f"expansion: expected a number such as 4, got {type(expansion).__name__} {expansion!r}."
        )
    if not 0 < expansion < math.inf:
        raise ValueError(
            f"expansion: expected a number above 0, such as 4, got {expansion}. It is the hidden size of a plain "
            "feed-forward in units of dim."
        )
    # Fractions, because rounding up turns the smallest error of a float into a whole multiple.
    exact = Fraction(2, 3) * Fraction(expansion).limit_denominator(10**6) * dim
    return max(1, math.ceil(exact / multiple_of)) * multiple_of


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
