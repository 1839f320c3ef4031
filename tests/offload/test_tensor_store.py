"""The file of tensors: what is read is what was written, or the file says that it is harmed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from course_lib.offload import tensor_store
from course_lib.offload.direct_io import ALIGNMENT, aligned_buffer
from course_lib.offload.tensor_store import HarmedFileError, TensorStore

KEY = {"model": "ছোট", "bits": None}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)


def some_tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    found = {
        f"layers.{i}.{dtype}".replace("torch.", ""): torch.randint(
            0, 100, (7, 3 + i), generator=generator
        ).to(dtype)
        for i, dtype in enumerate(DTYPES)
    }
    found["large"] = torch.randn(1200, 2048, generator=generator)
    found["empty"] = torch.zeros(0, 4)
    found["scalar"] = torch.tensor(2.5)
    return found


def nbytes(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def made(folder: Path, tensors: dict[str, Tensor] | None = None, key: dict[str, object] = KEY) -> TensorStore:
    own = some_tensors() if tensors is None else tensors
    return TensorStore.open_or_create(folder, key, nbytes(own), lambda: iter(own.items()))


def never() -> Iterator[tuple[str, Tensor]]:
    raise AssertionError("the file is there: nothing is to be made")


def test_every_tensor_is_read_back_to_the_bit(tmp_path: Path) -> None:
    with made(tmp_path) as store:
        assert store.names == tuple(some_tensors())
        assert store.nbytes == nbytes(some_tensors())
        for name, tensor in some_tensors().items():
            found = store.read(name)
            assert (store.shape(name), store.dtype(name)) == (tuple(tensor.shape), tensor.dtype)
            assert found.dtype == tensor.dtype and torch.equal(found, tensor), name


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (3, 3), (1199, 1200), (17, 900), (0, 1200)])
def test_rows_of_a_tensor_are_read_by_themselves(tmp_path: Path, begin: int, end: int) -> None:
    with made(tmp_path) as store:
        assert torch.equal(store.read_rows("large", begin, end), some_tensors()["large"][begin:end])


def test_tensors_begin_at_pages_and_lie_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    with made(tmp_path) as store:
        offsets = [store.offset(name) for name in store.names]
        assert offsets == sorted(offsets) and not any(offset % ALIGNMENT for offset in offsets)
        first, last = store.offset("layers.0.float32"), store.offset("large")
        buffer = aligned_buffer(last - first)
        store.read_range(first, last - first, buffer)
        for name, tensor in list(some_tensors().items())[:5]:
            start = store.offset(name) - first
            assert torch.equal(
                buffer[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape), tensor
            )


def test_reads_of_many_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    with made(tmp_path) as store:
        wanted, wrong = some_tensors()["large"], []

        def reading(start: int) -> None:
            for begin in range(start, 1100, 97):
                if not torch.equal(store.read_rows("large", begin, begin + 100), wanted[begin : begin + 100]):
                    wrong.append(begin)

        threads = [threading.Thread(target=reading, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_file_that_is_there_is_used_again(tmp_path: Path) -> None:
    made(tmp_path).close()
    with TensorStore.open_or_create(tmp_path, KEY, 0, never) as store:
        assert torch.equal(store.read("large"), some_tensors()["large"])
        assert store.key == KEY


def test_another_key_is_another_file(tmp_path: Path) -> None:
    made(tmp_path).close()
    other = {"only": torch.ones(3)}
    with made(tmp_path, other, {**KEY, "bits": 4}) as store, made(tmp_path) as first:
        assert store.names == ("only",) and "large" in first.names
    assert len(list(tmp_path.glob("*.tensors"))) == 2


def test_tensors_are_asked_for_one_at_a_time(tmp_path: Path) -> None:
    alive = []

    def one_by_one() -> Iterator[tuple[str, Tensor]]:
        for number in range(4):
            alive.append(len(list(tmp_path.glob("*.part"))))
            yield str(number), torch.full((5000,), float(number))

    with TensorStore.open_or_create(tmp_path, KEY, 80_000, one_by_one) as store:
        assert alive == [1, 1, 1, 1], "each was made while the file was being written"
        assert float(store.read("3")[4999]) == 3


def test_progress_ends_with_all_bytes(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    own = some_tensors()
    making = TensorStore.open_or_create(
        tmp_path, KEY, nbytes(own), lambda: iter(own.items()), progress=lambda *now: told.append(now)
    )
    making.close()
    assert told[-1] == (nbytes(own), nbytes(own)) and told == sorted(told)


# --- harm --------------------------------------------------------------------------------------------------------


def harm_flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(ALIGNMENT * 5 + 1000)  # within "large"
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


def harm_cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


def harm_cut_short(path: Path) -> None:
    os.truncate(path, 5000)


def harm_empty(path: Path) -> None:
    os.truncate(path, 0)


def harm_index(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"shape"', b'"shapE"').replace(b"float32", b"float16"))


def harm_other(path: Path) -> None:
    path.write_text(json.dumps({"not": "a store"}) * 100, encoding="utf-8")


HARMS = [harm_flip, harm_cut, harm_cut_short, harm_empty, harm_index, harm_other]


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_file_is_named_and_never_read(tmp_path: Path, harm: object) -> None:
    store = made(tmp_path)
    store.close()
    harm(store.path)  # type: ignore[operator]
    with pytest.raises(HarmedFileError, match=store.path.name):
        TensorStore(store.path)


def test_a_flipped_byte_is_found_in_its_tensor(tmp_path: Path) -> None:
    store = made(tmp_path)
    store.close()
    harm_flip(store.path)
    with pytest.raises(HarmedFileError, match="the bytes of 'large' are not those that were written"):
        TensorStore(store.path)


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_file_is_made_anew(tmp_path: Path, harm: object) -> None:
    store = made(tmp_path)
    store.close()
    harm(store.path)  # type: ignore[operator]
    with made(tmp_path) as again:
        assert all(torch.equal(again.read(name), tensor) for name, tensor in some_tensors().items())


def test_a_maker_that_is_killed_leaves_nothing_that_is_taken_for_whole(tmp_path: Path) -> None:
    code = """
import os, signal, sys, torch
from course_lib.offload.tensor_store import TensorStore
def tensors():
    yield "layers.0.float32", torch.zeros(7, 3)
    os.kill(os.getpid(), signal.SIGKILL)
    yield "never", torch.zeros(1)
TensorStore.open_or_create(sys.argv[1], {"model": "ছোট", "bits": None}, 84, tensors)
"""
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("*.tensors")) == [] and len(list(tmp_path.glob("*.part"))) == 1
    with made(tmp_path) as store:
        assert torch.equal(store.read("large"), some_tensors()["large"])
    assert list(tmp_path.glob("*.part")) == [], "what the dead one left is gone"


def test_an_error_while_making_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[tuple[str, Tensor]]:
        yield "first", torch.zeros(3)
        raise RuntimeError("the checkpoint is gone")

    with pytest.raises(RuntimeError, match="the checkpoint is gone"):
        TensorStore.open_or_create(tmp_path, KEY, 12, failing)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_two_processes_make_one_file(tmp_path: Path) -> None:
    code = """
import sys, time, torch
from course_lib.offload.tensor_store import TensorStore
def tensors():
    print("making", flush=True)
    for number in range(20):
        time.sleep(0.05)
        yield str(number), torch.full((1000,), float(number))
with TensorStore.open_or_create(sys.argv[1], {"a": 1}, 80_000, tensors) as store:
    assert all(bool((store.read(str(n)) == n).all()) for n in range(20))
    print("good", flush=True)
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0].split() for process in both]
    assert sorted(said) == [["good"], ["making", "good"]]


# --- folders and room --------------------------------------------------------------------------------------------


def test_room_is_asked_for_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(tensor_store.shutil, "disk_usage", lambda _: usage(2**40, 2**40, 3 * 2**20))
    with pytest.raises(
        OSError, match=r"offload_dir: 5\.0 GiB are needed .* and 3\.0 MiB are free"
    ) as refused:
        TensorStore.open_or_create(tmp_path, KEY, 5 * 2**30, never)
    assert refused.value.errno == errno.ENOSPC
    assert list(tmp_path.glob("*.part")) == []


def test_a_disk_that_fills_up_on_the_way_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_store.DirectFile, "write", full)
    with pytest.raises(OSError, match=r"offload_dir: the disk of .* is full, .* Nothing was left there"):
        made(tmp_path)
    assert list(tmp_path.glob("*.part")) == [] and list(tmp_path.glob("*.tensors")) == []


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    with made(tmp_path / "নতুন" / "offload") as store:
        assert store.path.parent == tmp_path / "নতুন" / "offload"


def test_a_file_where_the_folder_should_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match="offload_dir: expected a folder that can be written to, got"):
        made(tmp_path / "file")


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_store.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match=r"offload_dir: expected a folder .* Pass another one"):
        made(tmp_path)


def test_a_removed_store_leaves_an_empty_folder(tmp_path: Path) -> None:
    made(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


def test_names_and_rows_that_are_not_there_are_named(tmp_path: Path) -> None:
    with made(tmp_path) as store:
        with pytest.raises(KeyError, match=r"expected a tensor of .* got 'layers\.9'"):
            store.read("layers.9")
        with pytest.raises(
            ValueError, match="begin, end: expected rows from 0 to 1200 of 'large', got 3 to 1201"
        ):
            store.read_rows("large", 3, 1201)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected every name once, got 'a' twice"):
        TensorStore.open_or_create(tmp_path, KEY, 8, lambda: [("a", torch.ones(1)), ("a", torch.ones(1))])


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells what a process maps from files"
)
def test_reading_directly_leaves_the_page_cache_alone(tmp_path: Path) -> None:
    with made(tmp_path, {"much": torch.zeros(40 * 2**20, dtype=torch.uint8)}) as store:
        if not store.direct:
            pytest.skip("this file system has no direct reads")
        time.sleep(0.1)
        before = _cached_kib()
        store.read("much")
        assert _cached_kib() - before < 30 * 1024


def _cached_kib() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("Cached:")).split()[1])
