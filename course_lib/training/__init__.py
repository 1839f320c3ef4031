"""Training in mixed precision on packed rows (lessons 07 and 08).

run         train(TrainConfig(model=..., steps=400)) -> TrainResult · evaluate(model, documents)
memory      memory_budget(config) -> MemoryBudget
loss        chunked_cross_entropy(hidden, head_weight, targets)
stream      TokenStream(documents, batch_tokens=...)
precision   choose_precision(device) · optimization_step(losses, optimizer, precision)
kernel_caches  bound_kernel_caches() before the first product in bf16 on a CPU
optimizer   adamw(model, lr) · learning_rate(step, ...) · accumulation_weights(targets)
"""

from .config import TrainConfig
from .course_text import CourseText
from .evaluate import evaluate
from .kernel_caches import bound_kernel_caches
from .loss import chunked_cross_entropy
from .memory import MemoryBudget, memory_budget
from .optimizer import accumulation_weights, adamw, decay_groups, learning_rate, set_learning_rate
from .precision import (
    Capability,
    Precision,
    StepReport,
    choose_precision,
    measured_capability,
    optimization_step,
)
from .result import StepRecord, TrainResult
from .run import train
from .stream import TokenStream

__all__ = [
    "Capability",
    "CourseText",
    "MemoryBudget",
    "Precision",
    "StepRecord",
    "StepReport",
    "TokenStream",
    "TrainConfig",
    "TrainResult",
    "accumulation_weights",
    "adamw",
    "bound_kernel_caches",
    "choose_precision",
    "chunked_cross_entropy",
    "decay_groups",
    "evaluate",
    "learning_rate",
    "measured_capability",
    "memory_budget",
    "optimization_step",
    "set_learning_rate",
    "train",
]
