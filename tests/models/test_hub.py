"""Models of the hub, with a hub that is played: what is fetched, of which revision, and what is said where it fails."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from course_lib.models import load_model
from course_lib.models.hub import hub_folder

from .test_load import TOKENS, saved

hub = pytest.importorskip("huggingface_hub")
NAME = "facebook/opt-tiny"


class Played:
    """A hub with one model, of which ``files`` are told. What is asked of it is noted."""

    def __init__(self, source: Path, files: list[str]) -> None:
        self.source, self.files = source, files
        self.asked: list[dict[str, Any]] = []
        self.fails: BaseException | None = None
        self.cache: Path | None = None

    def model_info(self, name: str, *, revision: str | None = None) -> Any:
        if self.fails is not None:
            raise self.fails
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in self.files])

    def snapshot_download(
        self, name: str, *, revision: str | None, allow_patterns: list[str], local_files_only: bool = False
    ) -> str:
        self.asked.append(
            {"name": name, "revision": revision, "patterns": set(allow_patterns), "local": local_files_only}
        )
        if local_files_only:
            if self.cache is None:
                raise FileNotFoundError("nothing there")
            return str(self.cache)
        return str(self.source)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    saved(tmp_path / "source")
    found = Played(tmp_path / "source", ["config.json", "model.safetensors", "README.md"])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "HfApi", lambda: found)
    monkeypatch.setattr(hub, "snapshot_download", found.snapshot_download)
    return found


def test_a_model_of_the_hub_is_downloaded_and_loaded(played: Played) -> None:
    model = load_model(NAME)
    wanted = load_model(played.source)
    torch.testing.assert_close(model(TOKENS), wanted(TOKENS), rtol=0, atol=0)
    assert [(asked["name"], asked["local"]) for asked in played.asked] == [(NAME, False)]


def test_the_revision_that_was_asked_for_is_the_one_that_is_fetched(played: Played) -> None:
    load_model(NAME, revision="v1.1")
    assert played.asked[0]["revision"] == "v1.1"


@pytest.mark.parametrize(
    ("files", "wanted", "left"),
    [
        (["model.safetensors", "pytorch_model.bin"], "model.safetensors", "pytorch_model.bin"),
        (["model.safetensors.index.json", "pytorch_model.bin"], "model-*.safetensors", "pytorch_model.bin"),
        (["pytorch_model.bin", "flax_model.msgpack"], "pytorch_model.bin", "flax_model.msgpack"),
        (["pytorch_model.bin.index.json"], "pytorch_model-*.bin", "model.safetensors"),
    ],
)
def test_one_kind_of_weights_is_fetched_safetensors_first(
    played: Played, files: list[str], wanted: str, left: str
) -> None:
    played.files = ["config.json", *files]
    hub_folder(NAME)
    patterns = played.asked[0]["patterns"]
    assert wanted in patterns and left not in patterns
    assert {"config.json", "README.md"} <= patterns


@pytest.mark.parametrize(
    "error", [ConnectionError("refused"), TimeoutError("slow"), OSError("no route to host")]
)
def test_without_a_network_an_earlier_download_does(
    played: Played, error: BaseException, tmp_path: Path
) -> None:
    played.cache = tmp_path / "snapshot"
    shutil.copytree(played.source, played.cache)
    played.fails = error
    assert hub_folder(NAME) == played.cache
    assert all(asked["local"] for asked in played.asked)


def test_without_a_network_and_an_earlier_download_stands_a_sentence(played: Played) -> None:
    played.fails = ConnectionError("refused")
    with pytest.raises(
        FileNotFoundError, match="the hub cannot be reached, and no earlier download was found whole"
    ):
        load_model(NAME)


def test_half_a_download_is_not_taken_for_the_model(played: Played, tmp_path: Path) -> None:
    played.cache = tmp_path / "snapshot"
    shutil.copytree(played.source, played.cache)
    (played.cache / "model.safetensors").unlink()
    played.fails = ConnectionError("refused")
    with pytest.raises(FileNotFoundError, match="no earlier download was found whole"):
        hub_folder(NAME)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_refuses_is_not_taken_for_a_missing_network(
    played: Played, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played.cache = tmp_path

    def refusing(*_: Any, **options: Any) -> str:
        raise OSError(number, "the disk says no", "some-file")

    monkeypatch.setattr(hub, "snapshot_download", refusing)
    with pytest.raises(
        OSError, match=f"path: {NAME} could not be written to the cache .* the disk says no"
    ) as refused:
        hub_folder(NAME)
    assert refused.value.errno == number


@pytest.mark.parametrize("name", ["RepositoryNotFoundError", "RevisionNotFoundError"])
def test_what_the_hub_does_not_know_is_said(played: Played, name: str) -> None:
    kind = getattr(hub.errors, name)
    played.fails = kind.__new__(kind, "nothing")  # their constructors want the answer of a server
    said = (
        "the hub has no model of that name"
        if name.startswith("Repo")
        else "got 'v9', which the hub does not know"
    )
    with pytest.raises(FileNotFoundError, match=said):
        hub_folder(NAME, revision="v9")


@pytest.mark.parametrize("name", ["facebook/opt/tiny", "../elsewhere", "/no/such/folder", "a b", ""])
def test_what_is_no_id_is_not_asked_of_the_hub(played: Played, name: str) -> None:
    with pytest.raises((FileNotFoundError, ValueError), match="path: "):
        load_model(name)
    assert played.asked == []


def test_an_error_of_the_course_itself_is_not_hidden(played: Played) -> None:
    played.fails = ZeroDivisionError("a mistake")
    with pytest.raises(ZeroDivisionError):
        hub_folder(NAME)
