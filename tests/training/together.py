"""Runs a function on several processes of this machine, connected as torchrun would have them."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_lib.training.parallel import Processes, processes

LIMIT = 100
"""Seconds after which processes that still wait are ended, which is what the tests would find."""


@dataclass(frozen=True)
class Outcome:
    """What a process returned, or the type and sentence of its error; neither where it ended without a word."""

    value: Any = None
    error: str = ""
    sentence: str = ""


def together(case: Callable[..., Any], *options: Any, folder: Path, count: int = 2) -> list[Outcome]:
    """``case(group, *options)`` on ``count`` processes. ``case`` is a module's own, its value plain data."""
    # Like torchrun, which keeps what the processes tell each other when one of them has ended.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    files = [folder / f"outcome-{rank}.json" for rank in range(count)]
    for file in files:
        file.unlink(missing_ok=True)
    start = _context()
    made = [
        start.Process(target=_one, args=(case, options, rank, count, store.port, files[rank]))  # type: ignore[attr-defined]
        for rank in range(count)
    ]
    for process in made:
        process.start()
    for process in made:
        process.join(LIMIT)
    for process in made:
        if process.is_alive():
            process.kill()
            process.join()
    return [
        Outcome(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else Outcome()
        for file in files
    ]


def _context() -> BaseContext:
    """A server that has imported everything once, where the system can fork."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "course_lib.training.run", "course_lib.training.curves"])
    return context


def _one(
    case: Callable[..., Any], options: tuple[Any, ...], rank: int, count: int, port: int, file: Path
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    torch.set_num_threads(1)
    try:
        with processes("cpu") as group:
            assert isinstance(group, Processes) and group.world_size == count
            outcome = {"value": case(group, *options)}
    except BaseException as error:
        outcome = {"error": type(error).__name__, "sentence": str(error)}
        file.write_text(json.dumps(outcome), encoding="utf-8")
        # Before the error and its frames are freed: once in some forty times the end of a gloo group, while the other
        # process ends its own, waits for ever.
        os._exit(0)
    file.write_text(json.dumps(outcome), encoding="utf-8")
