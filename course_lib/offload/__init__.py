"""Models larger than memory (lessons 10 to 12)."""

from .quantize import QuantizedTensor, dequantize, quantize

__all__ = ["QuantizedTensor", "dequantize", "quantize"]
