"""One call for attention, whatever may attend to what and wherever it runs (lessons 01 and 02)."""

from .bias import AttentionBias, Band, Block, Causal, Grid
from .dispatch import attention, available_backends
from .merge import merge_attentions
from .segments import Segments
from .stored import KeyPadding

__all__ = [
    "AttentionBias",
    "Band",
    "Block",
    "Causal",
    "Grid",
    "KeyPadding",
    "Segments",
    "attention",
    "available_backends",
    "merge_attentions",
]
