"""A model larger than memory, that writes: its weights, caches and activations split over memory and disk."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from course_lib.models.generate_settings import checked_settings
from course_lib.models.load import lay_out
from course_lib.models.open_checkpoint import Checkpoint, open_checkpoint

from .batches import Batch, blocks
from .block import run_block
from .direct_io import ALIGNMENT
from .kept_activations import Activations
from .kept_caches import Caches
from .lanes import Lanes
from .placement import Placement
from .policy import OffloadPolicy
from .skeleton import Skeleton
from .staged_weights import StagedWeights
from .tensor_store import Progress, TensorStore
from .trace import Trace

CACHE = Path("~", ".cache", "lean-transformers", "offload")
"""Where files of weights lie unless a folder is given."""


class OffloadedModel:
    """``with OffloadedModel.from_pretrained(folder, policy=OffloadPolicy(weights=(0.2, 0, 0.8))) as model: ...``

    ``generate`` writes as ``course_lib.models.generate`` does, in fp32 the very same tokens. ``trace`` tells what the
    last call did, and when. Without a GPU, device and host are both the memory of this machine.
    """

    def __init__(
        self, skeleton: Skeleton, store: TensorStore, policy: OffloadPolicy, *, folder: Path
    ) -> None:
        for name in ("weight_bits", "cache_bits"):
            if getattr(policy, name) is not None:
                raise ValueError(
                    f"{name}: expected None, since an offloaded model keeps its dtype, got {getattr(policy, name)}. "
                    "quantize_model() makes a model that is resident smaller."
                )
        self.config = skeleton.config
        self.policy = policy
        self.trace = Trace()
        self._skeleton = skeleton
        self._store = store
        self._folder = folder
        self._weights = StagedWeights(store, skeleton.layers, skeleton.outside, skeleton.head, policy.weights)
        skeleton.set_small({name: store.read(name) for name in skeleton.small})
        skeleton.set_tables(self._weights)
        self._dtype = store.dtype(skeleton.head)
        self._placements = {"weights": self._weights.placement}

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        policy: OffloadPolicy,
        dtype: torch.dtype | None = None,
        offload_dir: str | Path | None = None,
        revision: str | None = None,
        progress: Progress | None = None,
    ) -> OffloadedModel:
        """The model in a folder or of a hub, of any family that ``load_model`` knows, with its weights in a file of
        their own in ``offload_dir`` (None: in the user's cache folder).

        The file is made at the first call, one tensor at a time, checked and used again by later ones; ``remove()``
        deletes it. ``dtype`` None: as stored. Raises as ``load_model`` does, and OSError for a folder that will not do.
        """
        if not isinstance(policy, OffloadPolicy):
            raise TypeError(f"policy: expected an OffloadPolicy, got {type(policy).__name__}.")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype: expected a floating-point torch.dtype or None, got {dtype!r}.")
        folder = CACHE if offload_dir is None else Path(offload_dir)
        with open_checkpoint(path, revision=revision) as checkpoint:
            layout = lay_out(checkpoint)
            kind = layout.dtype if dtype is None else dtype
            skeleton = Skeleton(layout.model)
            sizes = dict(layout.model.named_parameters())
            nbytes = sum(sizes[name].numel() * kind.itemsize + ALIGNMENT for name in skeleton.in_order)
            store = TensorStore.open_or_create(
                folder,
                _key(checkpoint, kind),
                nbytes,
                lambda: ((name, layout.tensor(name).to(kind)) for name in skeleton.in_order),
                progress=progress,
            )
        try:
            return cls(skeleton, store, policy, folder=store.path.parent)
        except BaseException:
            store.close()
            raise

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        *,
        attention_mask: Tensor | None = None,
        max_new_tokens: int,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Any = None,
        seed: Any = None,
        tokenizer: Any = None,
        on_token: Any = None,
    ) -> Tensor:
        """[batch, length + new]: as ``course_lib.models.generate``, with its arguments; any number of prompts, in
        blocks of ``policy.block_size``. Results stand in the order of the prompts."""
        settings = checked_settings(
            self.config,
            tokens,
            attention_mask=attention_mask,
            max_new_tokens=max_new_tokens,
            do_sample=do_sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            stop=stop,
            seed=seed,
            tokenizer=tokenizer,
            on_token=on_token,
        )
        if self.policy.block_size < len(tokens) and self.policy.weights[2] > 0:
            warnings.warn(
                f"{len(tokens)} prompts in blocks of {self.policy.block_size}: the weights on disk are read "
                f"{-(-len(tokens) // self.policy.block_size)} times in each step. A larger batch_size or num_batches "
                "reads them less often.",
                stacklevel=2,
            )
        self.trace = Trace()
        self._placements |= {
            "cache": Placement(self.policy.cache),
            "activations": Placement(self.policy.activations),
        }
        written: list[Batch] = []
        with Lanes(self.trace, overlap=self.policy.overlap) as lanes:
            self._weights.begin(lanes)
            for block in blocks(tokens, settings, self.policy.batch_size, self.policy.num_batches):
                self._run(block, lanes, settings.max_new_tokens)
                written += block
        return _in_order(tokens, written, settings.pad)

    def _run(self, block: list[Batch], lanes: Lanes, max_new_tokens: int) -> None:
        sizes = [len(batch.numbers) for batch in block]
        longest = max(batch.length for batch in block)
        caches = Caches(
            self.config,
            sizes,
            longest + max_new_tokens,
            self._placements["cache"],
            lanes,
            dtype=self._dtype,
            folder=self._folder,
        )
        try:
            activations = Activations(
                [size * batch.length for size, batch in zip(sizes, block, strict=True)],
                self.config.dim,
                self._placements["activations"],
                lanes,
                dtype=self._dtype,
                folder=self._folder,
            )
            try:
                run_block(block, self._skeleton, self._weights, caches, activations, lanes, max_new_tokens)
            finally:
                lanes.drain("activations")
                activations.close()
        finally:
            lanes.drain("load cache", "store cache")
            caches.close()

    def placement(self) -> dict[str, tuple[float, ...]]:
        """The shares of (device, host, disk), as placed: of the weights, and of the last call's cache and
        activations."""
        return {name: placement.shares() for name, placement in self._placements.items()}

    def close(self) -> None:
        """Close the file of weights, which stays."""
        self._store.close()

    def remove(self) -> None:
        """Close the file of weights and delete it."""
        self._store.remove()

    def __enter__(self) -> OffloadedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _key(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    """All that the bytes of a file of weights depend on."""
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in checkpoint.files]
    return {
        "model": checkpoint.config,
        "files": [list(file) for file in files],
        "dtype": str(dtype).removeprefix("torch."),
    }


def _in_order(tokens: Tensor, batches: list[Batch], pad: int) -> Tensor:
    """[prompts, length + new]: the prompts as they came, and what was written after each."""
    new = max((batch.written().shape[1] for batch in batches), default=0)
    result = torch.cat([tokens, tokens.new_full((len(tokens), new), pad)], dim=1)
    for batch in batches:
        written = batch.written()
        result[batch.numbers, tokens.shape[1] : tokens.shape[1] + written.shape[1]] = written
    return result
