"""Bad input to precision and step: the message names the argument, what was expected, what came, what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from course_lib.training import Capability, choose_precision, optimization_step

T4 = Capability("Tesla T4", {"bf16": "its compute capability is 7.5"})
NO_FP16 = Capability("this CPU", {"fp16": "no kernel for Half"}, bf16_speed=0.5)


@pytest.mark.parametrize(
    ("device", "requested", "capability", "words"),
    [
        ("cpu", "half", None, "requested: expected 'auto', 'fp32', 'bf16', 'fp16', got 'half'"),
        ("cpu", "fp16", NO_FP16, "requested: fp16 cannot train on this CPU: no kernel for Half.*takes fp32"),
        ("cuda", "bf16", T4, "requested: bf16 cannot train on Tesla T4: .*7.5.*takes fp16 here"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_a_precision_that_cannot_be_is_refused(device, requested, capability, words):
    with pytest.raises(ValueError, match=words):
        choose_precision(device, requested, capability=capability)


def test_fp16_on_a_device_without_autocast_is_refused():
    with pytest.raises(ValueError, match="fp16 cannot train on device meta: PyTorch has no autocast"):
        choose_precision("meta", "fp16")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"device: expected one of this machine, got cuda, .*no GPU"):
        choose_precision("cuda")


MODEL = nn.Linear(2, 1)
SGD = torch.optim.SGD(MODEL.parameters(), lr=0.1)
FP32 = choose_precision("cpu", "fp32")
X = torch.ones(3, 2)


def test_a_loss_for_each_token_is_refused():
    with pytest.raises(TypeError, match=r"losses: expected scalar tensors, got shape \[3, 1\] as number 0"):
        optimization_step([MODEL(X)], SGD, FP32)


def test_a_number_for_a_loss_is_refused():
    with pytest.raises(TypeError, match="losses: expected scalar tensors, got float"):
        optimization_step([1.0], SGD, FP32)


def test_a_loss_of_another_model_is_refused():
    with pytest.raises(
        ValueError, match=r"losses: .*depends on the optimizer's parameters.*built for this model"
    ):
        optimization_step(nn.Linear(2, 1)(X).sum(), SGD, FP32)


def test_a_max_norm_of_zero_is_refused():
    with pytest.raises(
        ValueError, match="max_norm: expected a number over 0, or None for no clipping, got 0"
    ):
        optimization_step(MODEL(X).sum(), SGD, FP32, max_norm=0)


def test_fp16_weights_are_refused_under_loss_scaling():
    model = nn.Linear(2, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = choose_precision("cpu", "fp16", capability=Capability("this CPU", {}))
    with pytest.raises(
        ValueError, match=r"optimizer: expected parameters in fp32, got fp16.*model\.float\(\)"
    ):
        optimization_step(model(X.half()).sum(), optimizer, precision)


def test_the_sentence_of_a_stop_says_that_the_weights_are_unharmed():
    with pytest.raises(
        FloatingPointError, match=r"the loss is nan, and the step was not taken\. The weights are"
    ):
        optimization_step(MODEL(X).sum() * torch.nan, SGD, FP32)
