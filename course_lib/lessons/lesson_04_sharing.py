"""What a way of sharing kv heads allocates: the functions of a notebook, measured in a process of their own."""

import inspect
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.attention import attention
from course_lib.bench.memory import workspaces


def allocated(
    functions: Sequence[Callable[..., Any]],
    *,
    length: int = 8192,
    num_heads: int = 32,
    num_kv_heads: int = 4,
    head_dim: int = 64,
) -> list[int]:
    """Bytes that each function(query, key, value) needs at its peak beyond its arguments and its result, in one step
    of decoding: query [1, 1, num_heads, head_dim], key and value [1, length, num_kv_heads, head_dim], float32.

    A function is sent as its source, so it must be written with `def` and use only `torch`, `math`, `attention` and
    its arguments.
    """
    sizes = dict(length=length, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    written = [textwrap.dedent(inspect.getsource(function)) for function in functions]
    settings = [
        {"source": source, "name": function.__name__, **sizes}
        for source, function in zip(written, functions, strict=True)
    ]
    return workspaces("course_lib.lessons.lesson_04_sharing:decode_work", settings)


def decode_work(
    *, source: str, name: str, length: int, num_heads: int, num_kv_heads: int, head_dim: int
) -> Callable[[], list[Tensor]]:
    """The step that `workspaces` measures; a short one first, which brings in threads and code."""
    names: dict[str, Any] = {"torch": torch, "math": math, "attention": attention}
    exec(compile(source, f"<{name}>", "exec"), names)

    def step(k_len: int) -> Callable[[], list[Tensor]]:
        query = torch.randn(1, 1, num_heads, head_dim)
        # As a KVCache lays them: the keys of a head together.
        key, value = (torch.randn(1, num_kv_heads, k_len, head_dim).transpose(1, 2) for _ in range(2))
        return lambda: [names[name](query, key, value)]

    step(64)()
    return step(length)
