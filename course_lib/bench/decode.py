"""What lesson 09 claims of decoding: tokens a second beside transformers', and how near it comes to its weights.

A token costs the reading of all weights that take part in a product, once for the whole batch. transformers' decode
step at batch 8 takes 2.4 times as long as at batch 1 on a CPU, though it reads the same weights: its products run
through a routine made for many rows (``course_lib.models.few_rows``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from ..models import OPT, OPTConfig, generate
from ..models.few_rows import few_rows
from .blocks import NATIVE_BF16
from .comparison import Comparison, Progress
from .decode_loading import load_memory
from .report import Report, this_machine

OURS, PEER = "generate()", "transformers' generate"
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
CLAIMED = {1: ">= 0.95", 8: ">= 1.3"}
"""By the batch: at 1 the peer runs at the memory's speed already."""


@dataclass(frozen=True)
class Sizes:
    """A model of random weights, the tokens of each prompt, and how many tokens follow in a timing; and one that is
    loaded."""

    config: OPTConfig = field(default_factory=lambda: OPTConfig.of_size("opt-125m"))
    prompt: int = 32
    new: int = 64
    pairs: int | None = None
    loaded: OPTConfig = field(default_factory=lambda: OPTConfig.of_size("opt-1.3b"))


SMALL = OPTConfig(vocab_size=512, dim=64, num_layers=2, num_heads=4, max_length=64)
QUICK = Sizes(
    SMALL, 8, 6, 2, loaded=OPTConfig(vocab_size=4096, dim=512, num_layers=4, num_heads=8, max_length=64)
)


def run(
    *, device: str = "cpu", quick: bool = False, progress: Progress = lambda name, done, of: None
) -> Report:
    """Measure everything. ``quick`` takes a tiny model and shows that it runs, not what holds.

    Without transformers there is nothing to stand beside: then only the bandwidth and the memory of loading are
    measured. On CUDA: the same work, without claims.
    """
    report = Report("decode", this_machine(device), quick=quick)
    bench = Comparison(report, device, (QUICK if quick else Sizes()).pairs, progress)
    measure(bench, QUICK if quick else Sizes())
    return report


def measure(bench: Comparison, sizes: Sizes) -> None:
    """All rows and claims of a model of these sizes."""
    native = NATIVE_BF16 & set(bench.report.machine.get("cpu", {}).get("features", ()))
    for dtype, name in NAMES.items():
        model = OPT(sizes.config, seed=0).to(bench.device, dtype).eval()
        peer = transformers_twin(model)
        if peer is None:
            bench.report.rows.append({"name": f"{PEER}: not installed", "dtype": name})
        else:
            for batch, bound in CLAIMED.items():
                value = _beside_the_peer(bench, sizes, model, peer, batch, name)
                if name == "fp32" or native:
                    bench.claim(f"decode.over_transformers.{name}.b{batch}", value, bound)
        del peer
        if dtype == torch.float32:
            bench.claim("decode.bandwidth", _bandwidth(bench, sizes, model, name), ">= 0.85")
        del model
    # Into the memory of this machine, whatever decodes.
    loading = load_memory(sizes.loaded)
    bench.report.rows.append({"name": "loading shards in fp16", "peak_over_model": loading})
    bench.claim("load.memory", loading, "<= 1.1")


def _beside_the_peer(bench: Comparison, sizes: Sizes, model: OPT, peer: Any, batch: int, dtype: str) -> float:
    """How many times as many tokens a second ours writes."""
    tokens = prompts(sizes, batch, bench.device)
    times = bench.time(
        OURS,
        ours(model, tokens, sizes.new),
        PEER,
        theirs(peer, tokens, sizes.new),
        dtype=dtype,
        batch=batch,
        prompt=sizes.prompt,
        new=sizes.new,
    )
    row = bench.report.rows[-1]
    row["of_tokens_per_second"] = batch * sizes.new / row["seconds"]
    return 1 / times.ratio


def _bandwidth(bench: Comparison, sizes: Sizes, model: OPT, dtype: str) -> float:
    """The speed at which weights are read while decoding, over that of their products alone."""
    steps, first = sizes.new, prompts(sizes, 1, bench.device)[:, :1]
    # A prompt of one token: its prefill is a step like those that follow.
    decoding = ours(model, first, steps)
    times = bench.time(
        "decoding", decoding, "its products alone", products_alone(model, steps), dtype=dtype, batch=1
    )
    row = bench.report.rows[-1]
    row["gigabytes_per_second"] = steps * weight_bytes(model) / row["seconds"] / 1e9
    return 1 / times.ratio


def prompts(sizes: Sizes, batch: int, device: str) -> Int64[Tensor, "batch length"]:
    """Drawn ids, none of the first ten, among which the special ones are."""
    generator = torch.Generator().manual_seed(5)
    shape = (batch, sizes.prompt)
    return torch.randint(10, sizes.config.vocab_size, shape, generator=generator).to(device)


def ours(model: OPT, tokens: Tensor, new: int) -> Callable[[], Tensor]:
    """Writes ``new`` tokens, whichever they are."""
    return lambda: generate(model, tokens, max_new_tokens=new, stop=())


def theirs(peer: Any, tokens: Tensor, new: int) -> Callable[[], Tensor]:
    """The same by transformers."""
    mask = torch.ones_like(tokens)

    def run() -> Tensor:
        with torch.no_grad():
            return peer.generate(
                tokens,
                attention_mask=mask,
                max_new_tokens=new,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=1,
            )

    return run


def transformers_twin(model: OPT) -> Any:
    """transformers' OPT of the same config with the same weights and SDPA, or None where it is not installed."""
    try:
        import transformers
    except ImportError:
        return None
    config = {**model.config.to_dict(), "eos_token_id": None, "attn_implementation": "sdpa"}
    peer: Any = transformers.OPTForCausalLM(transformers.OPTConfig(**config))
    weight = model.head.weight
    peer = peer.to(weight.device, weight.dtype).eval()
    peer.generation_config.eos_token_id = None
    stored = model.to_stored(model.state_dict())
    peer.load_state_dict(stored, strict=True)
    return peer


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def weight_bytes(model: nn.Module) -> int:
    """What a step has to read: the weights that take part in a product, the head's among them."""
    return sum(layer.weight.nbytes for layer in linear_layers(model))


def products_alone(model: nn.Module, steps: int) -> Callable[[], None]:
    """One row through each linear layer, ``steps`` times, as decoding does it and with nothing in between."""
    layers = linear_layers(model)
    rows = {layer: torch.ones_like(layer.weight[:1]) for layer in layers}

    def run() -> None:
        with torch.no_grad(), few_rows(model, 1, steps=steps):
            for _ in range(steps):
                for layer in layers:
                    layer(rows[layer])

    return run
