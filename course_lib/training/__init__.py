"""Training in mixed precision on packed rows (lessons 07 and 08).

loss        chunked_cross_entropy(hidden, head_weight, targets)
stream      TokenStream(documents, batch_tokens=...)
precision   choose_precision(device) · optimization_step(loss, optimizer, precision)
"""

from .loss import chunked_cross_entropy
from .precision import (
    Capability,
    Precision,
    StepReport,
    choose_precision,
    measured_capability,
    optimization_step,
)
from .stream import TokenStream

__all__ = [
    "Capability",
    "Precision",
    "StepReport",
    "TokenStream",
    "choose_precision",
    "chunked_cross_entropy",
    "measured_capability",
    "optimization_step",
]
