"""Whole models, each a file to read at a sitting, saved as folders of safetensors (lesson 07)."""

from .gpt import GPT
from .gpt_config import GPTConfig

__all__ = ["GPT", "GPTConfig"]
