"""What this machine is made of: small probes, each of which answers within a second or two and never raises.

`course_lib.classroom.doctor` puts their answers together. Sizes are bytes, speeds bytes per second.
"""

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

import psutil
import torch

# The CPU features that decide which kernels a lesson meets, as /proc/cpuinfo spells them -> as people do.
CPU_FLAGS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 bf16",
    "avx512_fp16": "AVX-512 fp16",
    "amx_bf16": "AMX bf16",
    "asimd": "NEON",
    "bf16": "Arm bf16",
    "sve": "SVE",
}
PACKAGES = ("torch", "numpy", "xformers", "transformers", "tokenizers", "ipywidgets", "IPython", "matplotlib")
BANGLA_FONT_NAMES = ("Bengali", "Bangla", "Nirmala", "Vrinda", "SolaimanLipi", "Kalpurush", "Nikosh", "Siyam")


@dataclass(frozen=True)
class Cpu:
    name: str
    cores: int
    """Cores this process may use: fewer than the machine has inside a container."""
    features: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    total: int
    available: int


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: str
    """Compute capability as in "7.5" (T4); "" for a device without one (Apple's)."""
    total: int
    available: int
    bf16: bool


@dataclass(frozen=True)
class Disk:
    folder: str
    free: int
    write_speed: float | None
    read_speed: float | None


def cpu() -> Cpu:
    return Cpu(name=cpu_name(), cores=usable_cores(), features=cpu_features(read_text("/proc/cpuinfo")))


def read_text(path: str) -> str:
    """The text of a file, "" where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_name() -> str:
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    if found:
        return found[1].strip()
    if sys.platform == "darwin":
        return output_of(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    return platform.processor() or platform.machine()


def cpu_features(cpuinfo: str) -> tuple[str, ...]:
    """From /proc/cpuinfo; elsewhere the one level that PyTorch chose its kernels for."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if found:
        present = set(found[1].split())
        return tuple(name for flag, name in CPU_FLAGS.items() if flag in present)
    level = torch.backends.cpu.get_cpu_capability()
    return () if level in ("DEFAULT", "NO AVX") else (level.replace("AVX512", "AVX-512"),)


def usable_cores(cpu_max: str | None = None) -> int:
    """Cores this process may run on: its affinity, and its container's quota ("200000 100000" is two)."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota, _, period = (read_text("/sys/fs/cgroup/cpu.max") if cpu_max is None else cpu_max).partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def memory(limit: str | None = None, used: str | None = None) -> Memory:
    """RAM, and what of it can be had now; a container's limit counts where it is lower (Binder: 2 GB)."""
    host = psutil.virtual_memory()
    limit = read_text("/sys/fs/cgroup/memory.max") if limit is None else limit
    used = read_text("/sys/fs/cgroup/memory.current") if used is None else used
    total, available = host.total, host.available
    if limit.strip().isdigit() and int(limit) < total:
        total = int(limit)
        if used.strip().isdigit():
            available = min(available, max(0, total - int(used)))
    return Memory(total=total, available=available)


def gpus() -> tuple[Gpu, ...]:
    """CUDA devices, or Apple's; bf16 counts only where the hardware has it (not the emulation on a T4)."""
    found = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        available, total = torch.cuda.mem_get_info(index)
        capability = (properties.major, properties.minor)
        found.append(
            Gpu(properties.name, f"{capability[0]}.{capability[1]}", total, available, capability >= (8, 0))
        )
    if not found and torch.backends.mps.is_available():
        host = psutil.virtual_memory()
        found.append(Gpu("Apple GPU (MPS), memory shared with the CPU", "", host.total, host.available, True))
    return tuple(found)


def disk(folder: Path, megabytes: int = 32) -> Disk:
    """Free space, and the speed of one file written through to the disk and read back past the page cache.

    The read speed is None where the system offers no way past its cache, both where nothing can be written.
    """
    free = shutil.disk_usage(folder).free
    if free < 4 * megabytes * 2**20:
        return Disk(str(folder), free, None, None)
    block = os.urandom(2**20)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".course-disk-") as file:
            started = time.perf_counter()
            written = 0
            for _ in range(megabytes):
                file.write(block)
                written += len(block)
                if time.perf_counter() - started > 1.5:
                    break
            file.flush()
            os.fsync(file.fileno())
            write_speed = written / (time.perf_counter() - started)
            return Disk(str(folder), free, write_speed, _read_speed(file.fileno(), written))
    except OSError:
        return Disk(str(folder), free, None, None)


def _read_speed(descriptor: int, size: int) -> float | None:
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return None
    advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(descriptor, 0, os.SEEK_SET)
    started = time.perf_counter()
    done = 0
    while done < size and time.perf_counter() - started < 1.5:
        part = os.read(descriptor, 2**20)
        if not part:
            break
        done += len(part)
    return done / max(time.perf_counter() - started, 1e-9)


def versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Installed versions, from the packages' metadata: nothing is imported."""
    found = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    found["torch"] = torch.__version__
    return found


def bangla_font() -> str | None:
    """A font on this machine that has Bangla letters; the browser needs one to draw the lessons' words."""
    listed = output_of(["fc-list", ":lang=bn", "family"])
    if listed:
        return sorted(line.split(",")[0].strip() for line in listed.splitlines())[0]
    folders = [Path(os.environ.get("WINDIR", r"C:\Windows")) / "Fonts", Path("/System/Library/Fonts")]
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if any(name.lower() in path.stem.lower() for name in BANGLA_FONT_NAMES):
                return path.stem
    return None


def output_of(argv: list[str]) -> str:
    """What a program prints, "" where it is missing or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def load_error_of_xformers(load: Callable[[str], object] = import_module) -> str | None:
    """Why xFormers' compiled kernels do not load, in the loader's own words; None where they do."""
    import logging

    logger = logging.getLogger("xformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # its import warning is what this function returns
    try:
        library = load("xformers._cpp_lib")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        logger.setLevel(level)
    fault = getattr(library, "_cpp_library_load_exception", None)
    if fault is None:
        return None
    while fault.__cause__ or fault.__context__:
        fault = fault.__cause__ or fault.__context__
    return str(fault)
