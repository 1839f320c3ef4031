"""The lab bench of lessons 03 to 06: a language model on one screen, trained in a minute, and read.

    model = TinyGPT()
    result = fit(model, stories(6000), seconds=60)
    print(sample(model, "একদিন", seed=1))

What the lessons exchange is an argument of :class:`TinyGPT`: the attention bias, the positions, the number of kv
heads, the feed-forward.
"""

from .fitting import FitResult, evaluate, fit, packed_loss
from .model import FeedForward, LayerCache, TinyGPT
from .positions import POSITIONS, rotate, sinusoids
from .sampling import sample

__all__ = [
    "POSITIONS",
    "FeedForward",
    "FitResult",
    "LayerCache",
    "TinyGPT",
    "evaluate",
    "fit",
    "packed_loss",
    "rotate",
    "sample",
    "sinusoids",
]
