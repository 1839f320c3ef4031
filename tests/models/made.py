"""Small models with every parameter random: default initialisation hides missing terms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from course_lib.models import GPT, GPTConfig

VOCABULARY = 53


def randomised(module: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4)
    return module.to(dtype)


def config(**options: Any) -> GPTConfig:
    sizes = {"vocab_size": VOCABULARY, "dim": 24, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}
    return GPTConfig(**{**sizes, "max_length": 64, **options})


def small(seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> GPT:
    made = randomised(GPT(config(**options)), seed, dtype)
    assert isinstance(made, GPT)
    return made


def token_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def gradients(model: nn.Module, out: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Those of a random weighted sum of ``out``, by parameter name."""
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad((out * weight.to(out.dtype)).sum(), parameters), strict=True))
