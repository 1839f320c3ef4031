"""The training loop: ``result = train(TrainConfig(model=..., steps=400, output="my_run"))``.

Between steps the model is evaluated on text that it is not trained on, and written to disk, so that a run that is
stopped at any moment goes on as if it had not been.

    set_up     config -> documents, precision, model, optimiser        step       rows, losses, gradients, AdamW
    output     the folder: log, checkpoints, curves, model             evaluate   the held-out loss
    display    what is shown on the way                                parallel   several processes
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .config import TrainConfig
from .display import Display
from .evaluate import mean_loss
from .generators import generator_states, set_generator_states
from .interrupt import StopRequest, stop_request
from .kernel_caches import bound_kernel_caches
from .output import Output, check_output
from .parallel import gathered, processes
from .progress import PeakMemory
from .result import StepRecord, TrainResult
from .set_up import Run, check_device, set_up
from .step import take_step


@torch.inference_mode(False)  # that is, with gradients, in whatever mode the caller is
def train(
    config: TrainConfig,
    *,
    resume: bool = True,
    progress: bool = True,
    on_step: Callable[[StepRecord], None] | None = None,
) -> TrainResult:
    """Train a language model as ``config`` says. Under ``torchrun``, every process calls it.

    With ``config.output``, what is done is written there, and the same call goes on where the run in that folder
    stopped, with the losses that it would have had: to the bit on as many threads of the same machine. ``resume`` False
    refuses a folder that holds a run. ``progress`` shows what happens; ``on_step`` is called after every step, on
    every process, and may raise to end the run.

    Ctrl-C ends the run after the step at work: what was learned is kept (``result.interrupted``), and written.

    All that is random comes from the config's seed: the global generators are left alone. While a run goes on that was
    stopped, they are those of its checkpoint, for ``on_step`` or documents that draw from them.

    Raises ValueError, TypeError or OSError before the first step for whatever does not fit; FloatingPointError, with
    the weights as before that step, for a loss or gradient that is not finite; OSError for a disk that runs full. What
    was written stays.
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config: expected a TrainConfig, got {type(config).__name__} {config!r}.")
    if not isinstance(resume, bool):
        raise TypeError(
            f"resume: expected True or False, got {type(resume).__name__} {resume!r}. The run that goes on is the one "
            "in the config's output."
        )
    if on_step is not None and not callable(on_step):
        raise TypeError(f"on_step: expected a function of a StepRecord, got {type(on_step).__name__}.")
    check_device(config.device)
    bound_kernel_caches()
    generators = generator_states()
    with processes(config.device) as group, stop_request(tell=progress and group.first) as stop:
        group.on_first(lambda: check_output(config, resume))
        run = set_up(config, group)
        output = Output(run)
        resumed_from = None
        try:
            resumed_from = output.start()
            display = Display(run, shown=progress)
            display.start(resumed_from)
            try:
                interrupted = _steps(run, output, display, stop, on_step)
            finally:
                display.close()
            output.draw()
            if not interrupted:
                output.finish()
        finally:
            output.close()
            if resumed_from is not None:
                # The run's own were put in place for functions of the caller's that draw; they end with it.
                set_generator_states(generators)
        return TrainResult(
            model=gathered(run.model).eval(),
            config=config,
            records=tuple(run.records),
            held_out=tuple(run.held_out),
            precision=run.precision,
            output=config.folder,
            resumed_from=resumed_from,
            interrupted=interrupted,
        )


def _steps(
    run: Run,
    output: Output,
    display: Display,
    stop: StopRequest,
    on_step: Callable[[StepRecord], None] | None,
) -> bool:
    """All steps that are left, with evaluations and checkpoints between them; whether Ctrl-C came first."""
    config, memory = run.config, PeakMemory(run.group.device)
    if run.step == 0 and config.is_evaluated(0):
        _evaluate(run, output, display)
    saved = run.step
    while run.step < config.steps:
        if any(run.group.gather(stop.made)):
            if saved < run.step:
                output.checkpoint()
            return True
        record = take_step(run, memory)
        run.records.append(record)
        output.append(record)
        display.step(record)
        if config.is_evaluated(run.step):
            _evaluate(run, output, display)
        if config.is_checkpointed(run.step):
            output.checkpoint()
            saved = run.step
        if on_step is not None:
            on_step(record)
    return False


def _evaluate(run: Run, output: Output, display: Display) -> None:
    loss = mean_loss(run.wrapped, run.held_out_rows, run.precision, run.group)
    run.held_out.append((run.step, loss))
    output.append({"step": run.step, "held_out": loss})
    display.evaluated(run.step, loss)
