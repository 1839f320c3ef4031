"""The fair comparison of lesson 06: feed-forwards of equal parameters, on equal data, with several seeds.

compare(("ReLU", "GELU", "SwiGLU"))                                     # what the notebook runs, half a minute
compare(("ReLU", "GELU", "GeGLU", "SwiGLU"), seeds=8, steps=400)        # what it quotes, ten minutes or so
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from course_lib.swiglu import GLU, GatedFeedForward, GeGLU, ReGLU, SwiGLU, matched_hidden_features
from course_lib.text import Document, Tokenizer, stories, train_tokenizer
from course_lib.tiny_gpt import FeedForward, TinyGPT, evaluate, fit

DIM = 96
NUM_HEADS = 4
VOCABULARY = 512
"""Small, so that most of the work and of the parameters lies in the layers and not in the table of tokens."""
BATCH_TOKENS = 512
TRAINING_STORIES, UNSEEN_STORIES = 2000, 100


class ReLUFeedForward(FeedForward):
    """The feed-forward of Vaswani et al. 2017: ``down(relu(up(x)))``."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


def _gated(kind: type[GatedFeedForward]) -> Callable[[int], nn.Module]:
    return lambda dim: kind(dim, matched_hidden_features(dim))


FEED_FORWARDS: dict[str, Callable[[int], nn.Module]] = {
    "ReLU": ReLUFeedForward,
    "GELU": FeedForward,
    "GLU": _gated(GLU),
    "ReGLU": _gated(ReGLU),
    "GeGLU": _gated(GeGLU),
    "SwiGLU": _gated(SwiGLU),
}
"""Each a function of the width that makes the module; at a width of 96 all have the same number of weights."""


def compare(
    names: Sequence[str], *, seeds: int = 4, steps: int = 80, progress: bool = True
) -> dict[str, list[float]]:
    """The loss on unseen stories, in nats a token, of a small model with each feed-forward, one for each seed.

    The models have two layers of width 96 and a vocabulary of 512, and are trained for ``steps`` steps of about 512
    tokens. Runs of one seed read the same stories in the same order and begin with the same embeddings. One step takes
    about 0.03 s on one core. Raises ValueError for a name that is not in ``FEED_FORWARDS``,
    KeyboardInterrupt where Ctrl-C ended a run.
    """
    if isinstance(names, str):
        raise TypeError(f"names: expected several names, got one text. Write ({names!r},) for a single one.")
    if seeds < 1:
        raise ValueError(f"seeds: expected at least 1, got {seeds}.")
    unknown = [name for name in names if name not in FEED_FORWARDS]
    if unknown:
        raise ValueError(f"names: expected names among {', '.join(FEED_FORWARDS)}, got {unknown[0]!r}.")
    training, unseen = _data()
    losses: dict[str, list[float]] = {name: [] for name in names}
    runs = [(seed, name) for seed in range(seeds) for name in names]
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # such small products gain nothing from a second, and the sums are the same everywhere
    try:
        for seed, name in tqdm(runs, unit="run", disable=not progress):
            model = TinyGPT(VOCABULARY, DIM, 2, NUM_HEADS, feed_forward=FEED_FORWARDS[name], seed=seed)
            run = fit(model, training, steps=steps, seed=seed, batch_tokens=BATCH_TOKENS, progress=False)
            if run.interrupted:  # fit keeps what was learned; half a run cannot be compared
                raise KeyboardInterrupt
            losses[name].append(evaluate(model, unseen))
    finally:
        torch.set_num_threads(threads)
    return losses


def measured_beforehand() -> dict[str, list[float]]:
    """What ``compare(("ReLU", "GELU", "SwiGLU"), seeds=8, steps=400)`` gave with torch 2.13 on an x86 CPU."""
    return {name: list(losses) for name, losses in _BEFOREHAND.items()}


_BEFOREHAND: dict[str, tuple[float, ...]] = {
    "ReLU": (2.1098, 2.0312, 2.0905, 2.0418, 2.0048, 2.0356, 2.0923, 2.0879),
    "GELU": (2.0229, 1.9942, 2.0669, 1.9769, 1.9515, 1.9691, 2.0300, 2.0820),
    "SwiGLU": (2.0189, 1.9308, 2.0811, 2.0183, 2.0621, 2.0034, 2.0488, 2.0504),
}


@cache
def _data() -> tuple[list[Tensor], list[Tensor]]:
    """The token ids of the stories to train on, and of those to judge by."""
    tokenizer = train_tokenizer([story.text for story in stories(600, seed=9)], VOCABULARY)
    training = [_ids(tokenizer, story) for story in stories(TRAINING_STORIES, seed=1)]
    return training, [_ids(tokenizer, story) for story in stories(UNSEEN_STORIES, seed=77)]


def _ids(tokenizer: Tokenizer, story: Document) -> Tensor:
    end = tokenizer.end_of_text
    return torch.tensor([end, *tokenizer.encode(story.text), end])
