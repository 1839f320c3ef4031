"""Models larger than memory (lessons 10 to 12)."""

from .engine import OffloadedModel
from .policy import OffloadPolicy
from .quantize import QuantizedTensor, dequantize, quantize
from .quantized_cache import QuantizedKVCache
from .quantized_linear import QuantizedLinear
from .quantized_model import quantize_model

__all__ = [
    "OffloadPolicy",
    "OffloadedModel",
    "QuantizedKVCache",
    "QuantizedLinear",
    "QuantizedTensor",
    "dequantize",
    "quantize",
    "quantize_model",
]
