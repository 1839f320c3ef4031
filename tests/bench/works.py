"""Work for the measuring child to do: it imports these by name."""

from __future__ import annotations

from collections.abc import Callable

MIB = 2**20


def allocate(
    *, temporary: int = 0, kept: int = 0, held: int = 0, talkative: bool = False, seconds: float = 0
) -> Callable[[], list]:
    """Fills so many MiB: of a temporary, of results, and of inputs that are there before it is measured.

    The temporary is held for so many seconds.
    """
    import time

    import torch

    inputs = torch.ones(held * MIB // 4)

    def work() -> list[torch.Tensor]:
        if talkative:
            print("go\nready\n12345")
        results = [torch.ones(kept * MIB // 4), inputs.sum()]
        filled = torch.ones(temporary * MIB // 4)
        time.sleep(seconds)
        return [*results, filled.sum()]

    return work


# What follows needs no PyTorch, which takes seconds to import.


def failing() -> Callable[[], list]:
    def work() -> list:
        raise ArithmeticError("the tiles do not meet: মেলে না")

    return work


def unprepared(mask: str) -> Callable[[], list]:
    raise LookupError(f"there is no mask {mask}")


def dying() -> Callable[[], list]:
    """Ends without a word, as a process does that the system kills for its memory."""
    import os

    return lambda: os._exit(1)
