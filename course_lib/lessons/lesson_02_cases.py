"""The inputs on which the exercises of lesson 02 are tried."""

import math

import torch


def parts(*blocks: tuple[list[float], list[float]]) -> tuple[torch.Tensor, ...]:
    """For each block: m [rows, 1] and l [rows, 1] as given, and an o [rows, 3] that fits them."""
    made: list[torch.Tensor] = []
    for i, (tops, totals) in enumerate(blocks):
        values = torch.randn(len(tops), 3, generator=torch.Generator().manual_seed(i))
        total = torch.tensor(totals)[:, None]
        made += [torch.tensor(tops)[:, None], total, total * values]
    return tuple(made)


class AllKeysAtOnce(RuntimeError):
    """Raised where an answer holds the scores of all keys at once."""


class TileTooLarge(RuntimeError):
    """Raised where an answer takes more keys at a time than it was told to."""


class Watched(torch.Tensor):
    """A tensor that raises AllKeysAtOnce when something as long as the keys, yet no longer keys, is made of it.

    And TileTooLarge when the scores of more than TILE keys are: key.chunk(3) makes three tiles of 4.
    """

    Q_LEN, K_LEN, HEAD_DIM, TILE = 5, 11, 6, 3

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            raise AllKeysAtOnce("PyTorch's own attention was called")
        result = super().__torch_function__(func, types, args, kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():  # asking for a shape is a call as well
            made = result.shape if isinstance(result, torch.Tensor) else ()
            given = [t.shape for t in args if isinstance(t, torch.Tensor)]
        if any(cls.K_LEN in shape and cls.HEAD_DIM not in shape for shape in (made, *given)):
            raise AllKeysAtOnce(f"scores of all {cls.K_LEN} keys were made")
        are_scores = cls.HEAD_DIM not in made and any(cls.HEAD_DIM in shape for shape in given)
        if are_scores and math.prod(made) > cls.Q_LEN * cls.TILE:
            raise TileTooLarge(f"{math.prod(made)} scores were made at a time")
        return result


def heads(
    q_len: int, k_len: int, tile: int, head_dim: int = 4
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    generator = torch.Generator().manual_seed(100 * q_len + k_len)
    shapes = ((q_len, head_dim), (k_len, head_dim), (k_len, 3))
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    return query, key, value, tile


def with_scores(rows: list[list[float]], tile: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Queries and keys whose scaled scores are exactly these rows: the keys are unit vectors."""
    scores = torch.tensor(rows)
    width = scores.shape[-1]
    value = torch.randn(width, 3, generator=torch.Generator().manual_seed(width))
    return scores * math.sqrt(width), torch.eye(width), value, tile


def watched() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    query, key, value, tile = heads(Watched.Q_LEN, Watched.K_LEN, Watched.TILE, Watched.HEAD_DIM)
    return query.as_subclass(Watched), key.as_subclass(Watched), value, tile


def backward_tile(q_len: int, k_len: int, keys: int, *, causal: bool = False) -> tuple[torch.Tensor, ...]:
    """A tile of the first `keys` columns of a score matrix, and what the forward kept of its whole rows."""
    generator = torch.Generator().manual_seed(10 * k_len + keys)
    scores, value, grad_out = (
        torch.randn(shape, generator=generator) for shape in ((q_len, k_len), (k_len, 2), (q_len, 2))
    )
    if causal:
        scores = scores.masked_fill(torch.ones(q_len, k_len, dtype=torch.bool).triu(1), -math.inf)
    top = scores.amax(-1, keepdim=True)
    total = (scores - top).exp().sum(-1, keepdim=True)
    out = scores.softmax(-1) @ value
    return scores[:, :keys], top, total, value[:keys], out, grad_out
