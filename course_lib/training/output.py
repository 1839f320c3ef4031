"""The folder of a run: what it writes, and where it goes on from.

run.json       the config
log.jsonl      a line for each step and each evaluation
curves.png     the same as a picture
checkpoints/   where a run that was stopped goes on
model/         the finished model with its card and tokenizer
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from course_lib.atomic import write_atomically

from .checkpoints import latest_checkpoint, read_checkpoint, write_checkpoint
from .config import TrainConfig, checksum
from .model_folder import TOKENIZER, check_target, publish, write_model_folder
from .parallel import gathered
from .progress import TrainingLog, bytes_text, read_log
from .result import StepRecord
from .saved_config import check_config
from .set_up import Run, name_of, precision_of

RUN, LOG, CURVES, CHECKPOINTS, MODEL = "run.json", "log.jsonl", "curves.png", "checkpoints", "model"
REDRAWN_AFTER = 60.0
"""Seconds between two pictures of a run that goes on: one takes a good part of a second."""


def check_output(config: TrainConfig, resume: bool) -> None:
    """Raises OSError where ``config.output`` cannot be written, ValueError where another run, or none, lies in it.

    Called before anything else is done. Leaves no trace.
    """
    folder = config.folder
    if folder is None:
        return
    if config.model_folder is not None:
        check_target(Path(config.model_folder).expanduser())
    there = folder
    try:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(
            f"output: expected a folder that can be written, got {folder}, and {there} cannot: {error.strerror}. Name "
            "another one."
        ) from error
    if not (folder / RUN).exists():
        strange = [name for name in (LOG, CURVES, CHECKPOINTS, MODEL) if (folder / name).exists()]
        if strange:
            raise ValueError(
                f"output: expected a new folder or that of a run, got {folder}, which has {', '.join(strange)} but no "
                f"{RUN}. Name another one: what is there is not overwritten."
            )
    elif not resume:
        raise ValueError(
            f"output: expected a new folder, got {folder}, which holds a run. resume=True goes on with it; a new run "
            "needs another folder."
        )
    elif (folder / MODEL).exists() and latest_checkpoint(folder / CHECKPOINTS) is None:
        raise ValueError(
            f"output: expected the checkpoint of the run in {folder}, got none, but the model that it ended with: "
            "there is nothing to go on from. Name another folder: the model and its log are not overwritten."
        )


def read_run_config(folder: str | Path, **changes: Any) -> TrainConfig:
    """The config of the run in ``folder``, with ``changes``. Raises FileNotFoundError or ValueError."""
    path = Path(folder).expanduser() / RUN
    if not path.is_file():
        raise FileNotFoundError(f"output: expected the folder of a run, got {folder}, which has no {RUN}.")
    return TrainConfig.from_dict(_read_json(path), **{"output": str(folder), **changes})


class Output:
    """What ``run`` writes, on its first process; nothing without ``config.output``. All processes call all methods."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folder = run.config.folder
        self.finished = False
        """Whether the run had taken all its steps before it was opened."""
        self._log: TrainingLog | None = None
        self._drawn = time.monotonic()

    def start(self) -> int | None:
        """Make the folder, or bring ``run`` to where the one in it stopped: the step of that checkpoint, else None."""
        if self.folder is None:
            return None
        run, folder = self.run, self.folder
        found = run.group.gather(latest_checkpoint(folder / CHECKPOINTS) if folder.exists() else None)[0]
        if found is None and (folder / RUN).exists():
            check_config(
                folder / RUN,
                _compared(_read_json(folder / RUN)),
                _compared(run.config.to_dict()),
                tell=run.group.first,
            )
        if found is not None:
            self._restore(found)
            self.finished = run.step >= run.config.steps
        run.group.on_first(lambda: self._begin(resumed=found is not None))
        if found is None:
            return None
        self._read_log(folder / LOG)
        return run.step

    def append(self, record: StepRecord | Mapping[str, Any]) -> None:
        """A line of the log."""
        if self._log is not None:
            self._log.append(asdict(record) if isinstance(record, StepRecord) else record)

    def checkpoint(self) -> None:
        """All that is needed to go on."""
        run = self.run
        if self.folder is None:
            return
        scaler = run.precision.scaler
        write_checkpoint(
            self.folder / CHECKPOINTS,
            step=run.step,
            model=run.model,
            optimizer=run.optimizer,
            config=_compared(run.config.to_dict()),
            state={
                "stream": run.stream.state_dict(),
                "scaler": scaler.state_dict() if scaler else None,
                "precision": name_of(run.precision),
                "documents": run.split.checksum,
                "tokenizer": checksum(run.tokenizer),
            },
            keep=run.config.keep_checkpoints,
            processes=run.group,
        )
        if run.group.gather(time.monotonic() - self._drawn > REDRAWN_AFTER)[0]:
            self.draw()

    def draw(self) -> None:
        """The curves so far."""
        if self.folder is not None:
            self.run.group.on_first(self._draw)
            self._drawn = time.monotonic()

    def finish(self) -> None:
        """The model's folder, and the copy that is asked for. A finished one stays: its owner may have written in
        the card."""
        if self.folder is None:
            return
        run, folder = self.run, self.folder / MODEL
        if not (self.finished and (folder / TOKENIZER).exists()):
            model = gathered(run.model)
            run.group.on_first(lambda: write_model_folder(folder, model, run))
        target = run.config.model_folder
        if target is not None:
            run.group.on_first(lambda: publish(folder, Path(target).expanduser()))

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _read_log(self, path: Path) -> None:
        run, names = self.run, [field.name for field in fields(StepRecord)]
        for record in read_log(path):
            if "held_out" in record:
                run.held_out.append((record["step"], record["held_out"]))
                continue
            missing = [name for name in names if name not in record]
            if missing:
                raise ValueError(
                    f"{path}: expected a line with {', '.join(names)} for each step, got one of step {record['step']} "
                    f"without {', '.join(missing)}. Repair or remove the line; the run can then resume."
                )
            run.records.append(StepRecord(**{name: record[name] for name in names}))
        lost = run.step - len({record.step for record in run.records})
        if lost and run.group.first:
            warnings.warn(
                f"{path} lacks {lost} of the {run.step} steps done: it was cut short or edited. The run goes on as "
                "if it had them; its curves, and what it counts, lack them.",
                stacklevel=5,
            )

    def _restore(self, path: Path) -> None:
        run = self.run
        saved = read_checkpoint(
            path, run.model, run.optimizer, config=_compared(run.config.to_dict()), processes=run.group
        )
        if saved.step > run.config.steps:
            raise ValueError(
                f"steps: expected at least the {saved.step} that the run in {self.folder} has done, got "
                f"{run.config.steps}. A shorter run needs another folder."
            )
        for name, what, now in (
            ("data", "documents", run.split.checksum),
            ("tokenizer", "tokenizer", checksum(run.tokenizer)),
        ):
            if saved.state[what] != now:
                raise ValueError(
                    f"{name}: expected the {what} of the run in {self.folder}, which goes on at step {saved.step}, got "
                    "other ones. Give it the same, or start a new run in another folder."
                )
        run.stream.load_state_dict(saved.state["stream"])
        if run.config.precision == "auto" and saved.state["precision"] != name_of(run.precision):
            # What was measured then decides, or the run would not go on as it began.
            run.precision = precision_of(saved.state["precision"], run.group)
        if run.precision.scaler:
            run.precision.scaler.load_state_dict(saved.state["scaler"])
        run.step = saved.step

    def _begin(self, *, resumed: bool) -> None:
        run = self.run
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_room()
        text = json.dumps(run.config.to_dict(), indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.folder / RUN, text)
        self._log = TrainingLog(self.folder / LOG, up_to=run.step if resumed else -1)

    def _check_room(self) -> None:
        assert self.folder is not None
        size = 4 * sum(p.numel() for p in self.run.model.parameters())
        # Weights and the two averages of AdamW, once more while the newest is written; and the model.
        needed = 3 * size * (self.run.config.keep_checkpoints + 1) + size
        free = shutil.disk_usage(self.folder).free
        there = sum(file.stat().st_size for file in (self.folder / CHECKPOINTS).rglob("*") if file.is_file())
        if free + there < needed:
            raise OSError(
                f"output: expected room for {bytes_text(needed)}, {self.run.config.keep_checkpoints + 1} checkpoints "
                f"and the model, got {bytes_text(free)} free in {self.folder}. Make room, keep fewer checkpoints "
                "(keep_checkpoints=1), or name a folder on another disk."
            )

    def _draw(self) -> None:
        from .curves import write_curves  # matplotlib takes a while to load

        assert self.folder is not None
        if self.run.records or self.run.held_out:
            write_curves(self.folder / CURVES, self.run.records, self.run.held_out)


def _compared(config: dict[str, Any]) -> dict[str, Any]:
    """The fields that are compared by their values; of documents and tokenizer the checksums are, wherever they lie."""
    return {name: value for name, value in config.items() if name not in ("data", "tokenizer")}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"output: expected JSON in {path}, got what cannot be read ({error}). Is the file whole?"
        ) from None
    if not isinstance(values, dict):
        raise ValueError(f"output: expected a JSON object in {path}, got {type(values).__name__}.")
    return values
