"""Whole models, each a file to read at a sitting, saved as folders of safetensors (lesson 07), and writing (09)."""

from .bloom import Bloom
from .bloom_config import BloomConfig
from .embedded import LEAN_OPT, lean_opt_folder
from .generate import generate
from .generate_rows import NewToken, SpeedMeter
from .gpt import GPT
from .gpt_config import GPTConfig
from .load import load_model
from .opt import OPT
from .opt_config import OPTConfig
from .sampling import next_token_probabilities

__all__ = [
    "GPT",
    "LEAN_OPT",
    "OPT",
    "Bloom",
    "BloomConfig",
    "GPTConfig",
    "NewToken",
    "OPTConfig",
    "SpeedMeter",
    "generate",
    "lean_opt_folder",
    "load_model",
    "next_token_probabilities",
]
