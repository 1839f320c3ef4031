"""Training in mixed precision on packed rows (lessons 07 and 08).

loss        chunked_cross_entropy(hidden, head_weight, targets)
"""

from .loss import chunked_cross_entropy

__all__ = ["chunked_cross_entropy"]
