"""Training in mixed precision on packed rows (lessons 07 and 08).

loss        chunked_cross_entropy(hidden, head_weight, targets)
stream      TokenStream(documents, batch_tokens=...)
"""

from .loss import chunked_cross_entropy
from .stream import TokenStream

__all__ = ["TokenStream", "chunked_cross_entropy"]
