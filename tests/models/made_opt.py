"""Small OPTs of ours and of transformers with the same weights, every parameter random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib.models import OPT, OPTConfig

from .made import VOCABULARY, randomised

PARTS = {
    "pre-norm": {},
    "350m": {"do_layer_norm_before": False, "word_embed_proj_dim": 12},
    "post-norm": {"do_layer_norm_before": False},
    "narrow embedding": {"word_embed_proj_dim": 12},
    "GELU, no bias, norms without weights": {
        "activation_function": "gelu",
        "enable_bias": False,
        "layer_norm_elementwise_affine": False,
    },
    "no final norm": {"_remove_final_layer_norm": True},
    "head_dim 80": {"hidden_size": 160, "num_attention_heads": 2},
    "12 heads": {"num_attention_heads": 12},
    "untied head": {"tie_word_embeddings": False},
}
"""What models of the family differ in, in the words of transformers' config."""


def opt_config(**options: Any) -> OPTConfig:
    sizes = {"vocab_size": VOCABULARY, "dim": 24, "num_layers": 2, "num_heads": 6, "max_length": 96}
    return OPTConfig(**{**sizes, **options})


def small_opt(seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> OPT:
    made = randomised(OPT(opt_config(**options)), seed, dtype)
    assert isinstance(made, OPT)
    return made.eval()


def from_stored(tensors: Mapping[str, Tensor], names: Any) -> dict[str, Tensor]:
    """What transformers keeps under its names, under ours: weights or gradients."""
    found = {}
    for own in names:
        stored = OPT.stored_name(own)
        stored = stored if own == "head.weight" else f"model.decoder.{stored}"
        if stored in tensors:
            found[own] = tensors[stored]
    return found


def twins(dtype: torch.dtype = torch.float32, **options: Any) -> tuple[OPT, Any]:
    """Ours, transformers'. ``options`` are those of its config."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "ffn_dim": 40,
        "max_position_embeddings": 96,
    }
    theirs_config = transformers.OPTConfig(**{**sizes, "dropout": 0.0, **options})
    theirs = randomised(transformers.OPTForCausalLM(theirs_config), dtype=dtype).eval()
    ours = OPT(OPTConfig.from_dict(theirs_config.to_dict())).to(dtype).eval()
    ours.load_state_dict(from_stored(theirs.state_dict(), ours.state_dict()))
    return ours, theirs


def padded_mask() -> Tensor:
    """[4, 19]: all real, padding on the left, on the right, and on both sides of a single token."""
    mask = torch.ones(4, 19, dtype=torch.int64)
    mask[1, :6] = mask[2, 12:] = 0
    mask[3, :9] = mask[3, 10:] = 0
    return mask


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Within ``tolerance`` of the largest number expected."""
    found, expected = found.detach(), expected.detach()
    assert found.shape == expected.shape
    largest = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= tolerance * max(largest, 1e-30)
