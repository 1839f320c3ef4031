"""Small BLOOMs of ours and of transformers with the same weights, every parameter random."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from course_lib.alibi import alibi_slopes
from course_lib.models import Bloom, BloomConfig

from .made import VOCABULARY, randomised


def bloom_config(**options: Any) -> BloomConfig:
    return BloomConfig(**{"vocab_size": VOCABULARY, "dim": 24, "num_layers": 2, "num_heads": 6, **options})


def small_bloom(seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> Bloom:
    made = randomised(Bloom(bloom_config(**options)), seed, dtype)
    assert isinstance(made, Bloom)
    return made.eval()


def from_stored(tensors: Mapping[str, Tensor], config: BloomConfig) -> dict[str, Tensor]:
    """What transformers keeps under its names, under ours: weights or gradients. A tied head is named once there."""
    found = {}
    for part in Bloom.stored_parts(config):
        name = part.stored if part.own == "head.weight" else f"transformer.{part.stored}"
        if name in tensors:
            found[part.own] = tensors[name] if part.take is None else part.take(tensors[name])
    return found


def twins(
    dtype: torch.dtype = torch.float32, *, heads: int = 6, head_dim: int = 4, **options: Any
) -> tuple[Bloom, Any]:
    """(ours, transformers'); ``options`` are those of transformers' config."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BloomConfig(
        vocab_size=VOCABULARY,
        hidden_size=heads * head_dim,
        n_layer=2,
        n_head=heads,
        **{"layer_norm_epsilon": 1e-3, **options},
    )
    theirs = randomised(transformers.BloomForCausalLM(config), dtype=dtype).eval()
    ours = Bloom(BloomConfig.from_dict(config.to_dict())).to(dtype).eval()
    ours.load_state_dict(from_stored(theirs.state_dict(), ours.config))
    return ours, theirs


def without_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have transformers' BLOOM compute in float64 what it rounds to float32 on the way: softmax and slopes."""
    modeling = pytest.importorskip("transformers.models.bloom.modeling_bloom")

    def softmax(scores: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        return scores.softmax(dim)

    def slopes(num_heads: int, device: torch.device) -> Tensor:
        return alibi_slopes(num_heads).double()

    functional = SimpleNamespace(**{**vars(F), "softmax": softmax})
    monkeypatch.setattr(modeling, "F", functional)
    monkeypatch.setattr(modeling, "_get_alibi_slopes", slopes)


def assert_close(found: Tensor, expected: Tensor, tolerance: float, largest: float | None = None) -> None:
    """Within ``tolerance`` of the ``largest`` number, that of ``expected`` unless given."""
    largest = float(expected.detach().abs().max()) if largest is None else largest
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * largest)


def padded_mask() -> Tensor:
    """Four sequences of 19: whole, left-padded, right-padded, padded on both sides."""
    mask = torch.ones(4, 19, dtype=torch.int64)
    mask[1, :6] = mask[2, 12:] = 0
    mask[3, :3] = mask[3, 15:] = 0
    return mask
