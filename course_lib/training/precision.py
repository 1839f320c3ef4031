"""In what precision a device should train, measured rather than looked up, and a step of it in the right order.

    precision = choose_precision("cpu")
    print(precision.why)
    with precision.autocast():
        loss = ...
    report = optimization_step(loss, optimizer, precision, max_norm=1.0)

bf16 has the range of fp32 and 8 bits of precision: it trains as it is. fp16 has 11 bits and ends at 65,504 above and
6e-8 below, where gradients lie: the loss is multiplied by a large number before the backward and the gradients are
divided by it afterwards (Micikevicius et al. 2018, "Mixed precision training"). ``GradScaler`` finds the number: it
halves at each overflow, whose step is skipped. Weights and optimiser stay in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .parallel import ONE, Processes, whole
from .speed import half_speed

NAMES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PAYS = 1.3
"""Times the speed of fp32 from which half precision is worth its rounding on a CPU."""
NATIVE_BF16 = (8, 0)
"""The CUDA compute capability from which bf16 is in the hardware: older GPUs emulate it."""
SMALLEST_SCALE = 2.0**-24
"""A loss scale below which no gradient that overflows can be blamed on the scale."""


@dataclass(frozen=True)
class Capability:
    """What was measured of a device. ``problems``: why a dtype, "bf16" or "fp16", cannot train there, by name."""

    name: str
    problems: dict[str, str]
    bf16_speed: float | None = None
    """Of a CPU: how many times as fast as in fp32 a matrix product is in bf16."""


@dataclass(frozen=True, eq=False)
class Precision:
    """``dtype`` of the matrix products, ``scaler`` of the loss (None without one), and ``why``, in a sentence."""

    dtype: torch.dtype
    scaler: torch.amp.GradScaler | None
    why: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss; the backward and the step stand outside of it."""
        if not torch.amp.is_autocast_available(self.device.type):
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


@dataclass(frozen=True)
class StepReport:
    """What a step did. ``loss``: the sum of its losses. ``norm``: of the gradient before clipping, without the loss
    scale, not finite where ``skipped``. ``loss_scale``: that of this step, 1 without a scaler.
    """

    loss: float
    norm: float
    clipped: bool
    skipped: bool
    loss_scale: float


def choose_precision(
    device: torch.device | str = "cpu", requested: str = "auto", *, capability: Capability | None = None
) -> Precision:
    """The precision to train in on ``device``: "fp32", "bf16" or "fp16", or for "auto" the best of these there.

    auto takes bf16 on a GPU that has it, fp16 with dynamic loss scaling on an older one (T4), bf16 on a CPU where it
    is measured to be at least 1.3 times as fast as fp32, and fp32 elsewhere. ``capability`` is what
    :func:`measured_capability` finds, unless given.

    Raises ValueError for another name, for a GPU where there is none, and for a dtype that was asked for and that the
    device cannot train in.
    """
    if requested not in ("auto", *NAMES):
        raise ValueError(f"requested: expected 'auto', {', '.join(map(repr, NAMES))}, got {requested!r}.")
    device = torch.device(device)
    if requested == "fp32":
        return Precision(torch.float32, None, "fp32, as requested.", device)
    found = measured_capability(device) if capability is None else capability
    if requested != "auto":
        if requested in found.problems:
            other = choose_precision(device, capability=found)
            raise ValueError(
                f"requested: {requested} cannot train on {found.name}: {found.problems[requested]}. 'auto' takes "
                f"{_name(other.dtype)} here."
            )
        return _precision(requested, f"{requested}, as requested.{_slowly(requested, found)}", device)
    name, reason = _best(device, found)
    return _precision(name, f"{name} on {found.name}: {reason}.", device)


def measured_capability(device: torch.device | str) -> Capability:
    """Try a small training step in each half precision on ``device``; on a CPU, also time bf16 against fp32."""
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device: expected one of this machine, got {device}, and PyTorch finds no GPU. Take 'cpu'."
        )
    problems = {name: problem for name in ("bf16", "fp16") if (problem := _problem(device, NAMES[name]))}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        if torch.version.hip is None and (properties.major, properties.minor) < NATIVE_BF16:
            problems["bf16"] = (
                f"its compute capability is {properties.major}.{properties.minor}, and bf16 needs 8.0 (it would be "
                "emulated)"
            )
        return Capability(properties.name, problems)
    if device.type == "cpu":
        return Capability("this CPU", problems, None if "bf16" in problems else half_speed(torch.bfloat16))
    return Capability(f"device {device}", problems)


def optimization_step(
    losses: Float[Tensor, ""] | Iterable[Float[Tensor, ""]],
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    *,
    max_norm: float | None = 1.0,
    processes: Processes = ONE,
) -> StepReport:
    """One step of ``optimizer``: scale, backward, unscale, clip to ``max_norm``, step, update the scale.

    ``losses``: one, or those of several micro-batches, already weighted so that their sum is the loss of all. Given
    by a generator, each is differentiated before the next is computed, and its graph is freed. Gradients from before
    are dropped. ``max_norm`` None does not clip.

    Several ``processes`` take the step together, each with as many losses of its own, which sum to the loss of all
    once they are averaged over the processes. Norm, verdicts and report are then the same on each of them.

    Under loss scaling a gradient that is not finite skips the step: weights and optimiser stay, the scale is halved.
    Raises FloatingPointError, and takes no step, for a loss that is not finite, for such a gradient without loss
    scaling, and where the scale has fallen below 2**-24; ValueError where no parameter got a gradient, or where they
    are fp16 themselves; TypeError for a loss that is no scalar tensor.
    """
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm: expected a number over 0, or None for no clipping, got {max_norm}.")
    scaler = precision.scaler
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    half = next((p.dtype for p in parameters if p.dtype == torch.float16), None) if scaler else None
    if half is not None:
        raise ValueError(
            "optimizer: expected parameters in fp32, got fp16 ones, whose small updates would round to nothing. Keep "
            "the model in fp32 (model.float()): autocast converts where it pays."
        )
    optimizer.zero_grad(set_to_none=True)
    loss = _backward([losses] if isinstance(losses, Tensor) else losses, scaler, processes)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ValueError(
            "losses: expected a loss that depends on the optimizer's parameters, got none that gives them a gradient. "
            "Was the optimizer built for this model?"
        )
    scale = scaler.get_scale() if scaler else 1.0
    if scaler:
        scaler.unscale_(optimizer)
    norm = whole(torch.nn.utils.get_total_norm(gradients))
    length = norm.item()
    overflowed = not math.isfinite(length)
    if overflowed and scaler is None:
        _stop("gradient", length, "A lower learning rate, or a longer warm-up, is the usual remedy.")
    if max_norm is not None and not overflowed:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    if scaler is None:
        optimizer.step()
    else:
        if not overflowed:
            scaler.step(optimizer)
        scaler.update()
        if overflowed and not SMALLEST_SCALE < scaler.get_scale() < scale:
            _stop(
                "gradient", length, "No loss scale mends that: look at the batch, and at the learning rate."
            )
    clipped = max_norm is not None and not overflowed and length > max_norm
    return StepReport(loss, length, clipped, overflowed, scale)


def _backward(losses: Iterable[Tensor], scaler: torch.amp.GradScaler | None, processes: Processes) -> float:
    """The gradients of all losses, scaled; returns the sum of the losses, averaged over the processes."""
    total = 0.0
    for number, loss in enumerate(losses):
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            came = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(f"losses: expected scalar tensors, got {came} as number {number}.")
        # Together before anyone judges: who stopped alone would leave the others waiting in the backward.
        value = processes.total(loss.item())[0] / processes.world_size
        if not math.isfinite(value):
            _stop("loss", value, "No loss scale mends that: look at the batch, and at the learning rate.")
        (scaler.scale(loss) if scaler else loss).backward()
        total += value
    return total


def _stop(what: str, value: float, advice: str) -> None:
    raise FloatingPointError(
        f"the {what} is {value}, and the step was not taken. The weights are those before it. {advice}"
    )


def _best(device: torch.device, found: Capability) -> tuple[str, str]:
    if device.type == "cuda":
        if "bf16" not in found.problems:
            return "bf16", "it has bf16, which needs no loss scaling"
        if "fp16" not in found.problems:
            return "fp16", f"bf16 is no choice ({found.problems['bf16']}), so fp16 with dynamic loss scaling"
        return "fp32", f"it trains in no half precision ({found.problems['fp16']})"
    if device.type != "cpu":
        return (
            "fp32",
            "half precision was not measured on this kind of device; ask for bf16 or fp16 to try it",
        )
    if found.bf16_speed is None:
        return "fp32", f"bf16 does not run ({found.problems.get('bf16', 'not measured')})"
    measured = f"a matrix product in bf16 was measured at {found.bf16_speed:.2g} times the speed of fp32"
    if found.bf16_speed >= PAYS:
        return "bf16", measured
    return "fp32", f"{measured}, and {PAYS} is needed to be worth its rounding"


def _precision(name: str, why: str, device: torch.device) -> Precision:
    scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
    return Precision(NAMES[name], scaler, why, device)


def _slowly(name: str, found: Capability) -> str:
    if name == "bf16" and found.bf16_speed is not None and found.bf16_speed < 1:
        return f" It was measured at {found.bf16_speed:.2g} times the speed of fp32 on {found.name}."
    return ""


def _problem(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a product and its backward do not run in ``dtype``, in the words of PyTorch; None where they do."""
    if not torch.amp.is_autocast_available(device.type):
        return f"PyTorch has no autocast for {device.type} devices"
    try:
        weight = torch.ones(8, 8, device=device, requires_grad=True)
        with torch.autocast(device.type, dtype):
            product = weight @ weight
        product.float().sum().backward()
        assert weight.grad is not None
        if product.dtype != dtype or weight.grad.tolist() != [[16.0] * 8] * 8:
            return f"a product of ones came out wrong, as {product.dtype}"
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        return str(error).strip().split("\n")[0]
    return None


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in NAMES.items() if known == dtype)
