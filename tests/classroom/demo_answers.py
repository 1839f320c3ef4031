"""A right and a wrong answer to the small lesson of these tests."""

import torch
from torch import Tensor


def mask(q_len, k_len):
    """[q_len, k_len] of 0 and -inf, bottom-right aligned."""
    stands_on = torch.arange(q_len)[:, None] + k_len - q_len
    return torch.zeros(q_len, k_len).masked_fill(torch.arange(k_len) > stands_on, -torch.inf)


def top_left(q_len: int, k_len: int) -> Tensor:
    return torch.zeros(q_len, k_len).masked_fill(
        torch.arange(k_len) > torch.arange(q_len)[:, None], -torch.inf
    )
