"""What is refused before the memory of training is predicted, and in what words."""

import pytest

from course_lib.models import GPTConfig
from course_lib.training.memory import memory_budget, training_memory

pytestmark = pytest.mark.error_messages
CONFIG = GPTConfig(vocab_size=64, dim=32, num_layers=1, num_heads=2)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(length=0), ValueError, "length: expected a whole number of at least 1, got 0"),
        (dict(length=8.0), TypeError, "length: expected a whole number, got float 8.0"),
        (dict(length=8, rows=-1), ValueError, "rows: expected a whole number of at least 1, got -1"),
        (
            dict(length=8, attention="flash"),
            ValueError,
            "attention: expected one of 'memory-efficient', 'dense'",
        ),
        (dict(length=8, precision="auto"), ValueError, "precision: expected one of 'fp32', 'bf16', 'fp16'"),
        (dict(length=8, device="tpu"), ValueError, "device: expected one of 'cpu', 'cuda', got 'tpu'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(change, error, words):
    with pytest.raises(error, match=words):
        training_memory(CONFIG, **change)


def test_each_function_names_the_config_it_wants():
    with pytest.raises(TypeError, match=r"config: expected a TrainConfig, got GPTConfig.*training_memory"):
        memory_budget(CONFIG)
    with pytest.raises(TypeError, match="model: expected a GPTConfig, OPTConfig or BloomConfig, got int 3"):
        training_memory(3, length=8)
