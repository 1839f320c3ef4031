"""SwiGLU and the other gated feed-forwards, which can keep for the backward no more than their input (lesson 06)."""

from .activation import Activation
from .layer import GLU, Bilinear, GatedFeedForward, GeGLU, ReGLU, SwiGLU, matched_hidden_features

__all__ = [
    "GLU",
    "Activation",
    "Bilinear",
    "GatedFeedForward",
    "GeGLU",
    "ReGLU",
    "SwiGLU",
    "matched_hidden_features",
]
