"""Whole models, each a file to read at a sitting, saved as folders of safetensors (lessons 07 and 09)."""

from .gpt import GPT
from .gpt_config import GPTConfig
from .opt import OPT
from .opt_config import OPTConfig

__all__ = ["GPT", "OPT", "GPTConfig", "OPTConfig"]
