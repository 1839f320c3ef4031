"""Files beside the page cache read and write the bytes that ordinary files do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from course_lib.offload import direct_io
from course_lib.offload.direct_io import ALIGNMENT, DirectFile, aligned_buffer, aligned_down, aligned_up


def bytes_like(count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int64).remainder(251).to(torch.uint8)


@pytest.fixture(params=["direct", "cached", "without preadv"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "direct":
        monkeypatch.delattr(os, "O_DIRECT", raising=False)
    if request.param == "without preadv":
        monkeypatch.delattr(os, "preadv", raising=False)
        monkeypatch.delattr(os, "pwrite", raising=False)
    return str(request.param)


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 100_001])
def test_a_buffer_begins_at_a_page(nbytes: int) -> None:
    buffer = aligned_buffer(nbytes)
    assert buffer.data_ptr() % ALIGNMENT == 0 and buffer.numel() == nbytes


@pytest.mark.parametrize(
    ("offset", "down", "up"), [(0, 0, 0), (1, 0, 4096), (4096, 4096, 4096), (4097, 4096, 8192)]
)
def test_offsets_are_rounded_to_pages(offset: int, down: int, up: int) -> None:
    assert (aligned_down(offset), aligned_up(offset)) == (down, up)


@pytest.mark.parametrize(
    ("offset", "count"), [(0, 4096), (4096, 8192), (1, 3), (4095, 2), (5000, 9000), (19_990, 10)]
)
def test_any_range_reads_as_an_ordinary_file_does(tmp_path: Path, kind: str, offset: int, count: int) -> None:
    path = tmp_path / "তথ্য.bin"
    whole = bytes_like(20_000)
    path.write_bytes(whole.numpy().tobytes())
    file = DirectFile(path)
    out = torch.zeros(count, dtype=torch.uint8)
    file.read(offset, out)
    assert torch.equal(out, whole[offset : offset + count])
    aligned = aligned_buffer(count)
    file.read(offset, aligned)
    assert torch.equal(aligned, out)
    file.close()


def test_what_is_written_is_read_back(tmp_path: Path, kind: str) -> None:
    file = DirectFile(tmp_path / "new.bin", write=True, new=True)
    first, second = aligned_buffer(8192), aligned_buffer(4096)
    first.copy_(bytes_like(8192))
    second.fill_(7)
    file.write(0, first)
    file.write(4096, second)
    out = aligned_buffer(8192)
    file.read(0, out)
    assert torch.equal(out[:4096], first[:4096]) and bool((out[4096:] == 7).all())
    file.close()
    assert (tmp_path / "new.bin").stat().st_size == 8192


def test_a_new_file_never_overwrites_one(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        DirectFile(tmp_path / "there", write=True, new=True)


def test_a_range_past_the_end_says_where_the_file_ends(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(5000))
    file = DirectFile(path)
    for offset, count in ((0, 8192), (4096, 4096), (4999, 2), (9000, 1)):
        with pytest.raises(EOFError, match=r"short: expected .* and the file ends at 5,000"):
            file.read(offset, aligned_buffer(count))
    file.close()


def test_a_file_system_without_direct_reads_is_read_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    system = os.open

    def refusing(name: object, flags: int, mode: int = 0o777) -> int:
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(errno.EINVAL, "no direct reads here")
        return system(str(name), flags, mode)

    monkeypatch.setattr(direct_io.os, "open", refusing)
    file = DirectFile(path)
    out = torch.zeros(4, dtype=torch.uint8)
    file.read(3, out)
    assert bytes(out.tolist()) == b"3456" and not file.direct
    file.close()


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="only where files can be read directly")
def test_writing_what_is_not_aligned_is_refused(tmp_path: Path) -> None:
    file = DirectFile(tmp_path / "new", write=True, new=True)
    if not file.direct:
        pytest.skip("this file system has no direct writes")
    for offset, source in (
        (0, aligned_buffer(100)),
        (8, aligned_buffer(4096)),
        (0, aligned_buffer(8192)[8:4104]),
    ):
        with pytest.raises(ValueError, match=r"write: expected .* multiples of 4096"):
            file.write(offset, source)
    file.close()


@pytest.mark.parametrize("out", [torch.zeros(4), torch.zeros(8, dtype=torch.uint8)[::2]])
def test_only_contiguous_bytes_are_filled(tmp_path: Path, out: torch.Tensor) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    file = DirectFile(tmp_path / "file")
    with pytest.raises(TypeError, match="tensor: expected contiguous bytes"):
        file.read(0, out)
    file.close()


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    file = DirectFile(tmp_path / "file")
    file.close()
    file.close()
    assert file.fileno() == -1
