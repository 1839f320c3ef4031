"""What is known of a model before its weights are loaded, and how these are."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.classroom.commands import open_model as module
from course_lib.classroom.commands.open_model import open_model


def flags(model: object, **more: Any) -> argparse.Namespace:
    names = {"revision": None, "device": "cpu", "dtype": None, "top_k": None, "stop": []}
    return argparse.Namespace(model=str(model), **names | more)


def test_float16_becomes_float32_on_a_cpu_as_it_is_read(
    opt_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.dtype] = []

    def load(folder: Path, *, device: str, dtype: torch.dtype) -> Any:
        asked.append(dtype)
        return real(folder, device=device, dtype=dtype)

    real = module.load_model
    monkeypatch.setattr(module, "load_model", load)
    opened = open_model(flags(opt_run))
    assert opened.stored_dtype == torch.float16
    assert {weight.dtype for weight in opened.load(flags(opt_run)).parameters()} == {torch.float32}
    assert asked == [torch.float32]  # so there never were two of it


@pytest.mark.parametrize(("dtype", "loaded"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_a_dtype_that_was_asked_for_is_taken(opt_run: Path, dtype: str, loaded: torch.dtype) -> None:
    asked = flags(opt_run, dtype=dtype)
    assert open_model(asked).load(asked).embed.weight.dtype == loaded


def test_a_model_stored_as_float32_stays_so(gpt_run: Path) -> None:
    opened = open_model(flags(gpt_run))
    assert opened.stored_dtype == torch.float32 and opened.folder == gpt_run / "model"
    assert opened.load(flags(gpt_run)).embed.weight.dtype == torch.float32


def test_a_large_model_is_announced(
    gpt_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LARGE", 0)
    open_model(flags(gpt_run)).load(flags(gpt_run))
    assert "Loading 0.0 GB …" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "words"), [("bloomz-560m", "follow instructions"), ("bloom", "base model")])
def test_a_model_that_was_tuned_to_obey_is_not_called_a_base_model(
    gpt_run: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_model(flags(gpt_run))
    opened.name = name
    opened.load(flags(gpt_run))
    assert words in capsys.readouterr().err
