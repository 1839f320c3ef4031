"""The machine card: what this machine can run, what serves, and why the rest does not.

`python -m course_lib doctor [--json]`, or in a notebook:

    from course_lib.classroom.doctor import doctor
    doctor()

It looks for some seconds, changes nothing, needs no network, and never fails: what cannot be found out is
left out. Lesson 00 shows the card; later lessons ask it `fast_bf16` and `device`.
"""

import argparse
import dataclasses
import html
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_lib.classroom import machine
from course_lib.classroom.messages import current_language, say
from course_lib.training.speed import half_speed

GIB = 2**30
XFORMERS_COMMAND = "pip install xformers==0.0.35 --no-deps"
FAST, SLOW = 1.3, 0.8  # times the speed of fp32 from which half precision pays, and below which it costs
Advice = tuple[str, dict[str, str]]


@dataclass(frozen=True)
class XFormers:
    """`state` is "ok", or why its kernels do not run: the key of a message; `detail` the loader's words."""

    version: str | None
    state: str
    detail: str = ""

    def describe(self) -> str:
        return say(f"doctor.xformers.{self.state}", version=self.version or "", detail=self.detail)


@dataclass(frozen=True)
class Report:
    """The answers of all probes. Bytes, bytes per second, and ratios to the speed of fp32."""

    system: str
    versions: dict[str, str]
    cpu: machine.Cpu
    memory: machine.Memory
    disk: machine.Disk
    gpus: tuple[machine.Gpu, ...]
    half_speed: dict[str, float]
    """dtype name -> how many times as fast as fp32 a matrix product runs on the CPU."""
    xformers: XFormers
    font: str | None
    backends: dict[str, dict[str, str]]
    """dtype name -> backend -> "ok" or why not, for causal attention with a backward on `device`."""
    advice: tuple[Advice, ...] = field(default=())
    """(key of a message under `doctor.advice`, its values), the most pressing first."""

    @property
    def device(self) -> str:
        """Where the lessons compute: "cuda", "mps" or "cpu"."""
        if not self.gpus:
            return "cpu"
        return "cuda" if self.gpus[0].capability else "mps"

    @property
    def fast_bf16(self) -> bool:
        """Whether bf16 pays on `device`; a lesson computes in fp32 where it does not."""
        if self.gpus:
            return self.gpus[0].bf16
        return self.half_speed.get("bf16", 0.0) >= FAST

    def rows(self) -> list[tuple[str, str]]:
        """(label, value) in the current language."""
        separator = " · "
        versions = [
            f"{name} {self.versions[name]}" for name in self.versions if name not in ("python", "torch")
        ]
        system = [self.system, f"Python {self.versions['python']}", f"PyTorch {self.versions['torch']}"]
        values = {
            "system": separator.join(system),
            "processor": separator.join([self.cpu.name, _cores(self.cpu.cores), *self.cpu.features]),
            "memory": _free(self.memory.available, self.memory.total),
            "disk": separator.join(_disk(self.disk)),
            "gpu": "; ".join(_gpu(gpu) for gpu in self.gpus) or say("doctor.value.none"),
            "dtypes": separator.join(self._dtypes()),
            "xformers": self.xformers.describe(),
            "font": self.font or say("doctor.value.none"),
            "packages": separator.join(versions),
        }
        return [(say(f"doctor.label.{name}"), value) for name, value in values.items() if value]

    def _dtypes(self) -> list[str]:
        if self.gpus:
            bf16 = "dtype_native" if self.gpus[0].bf16 else "dtype_missing"
            return [say("doctor.value.dtype_native", dtype="fp16"), say(f"doctor.value.{bf16}", dtype="bf16")]
        return [
            say("doctor.value.dtype_speed", dtype=dtype, times=_two_digits(ratio))
            for dtype, ratio in self.half_speed.items()
        ]

    def backend_rows(self) -> dict[str, list[tuple[str, str]]]:
        """A heading -> (backend, what can be said of it), the one that serves first; like dtypes together."""
        alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for dtype, answers in self.backends.items():
            alike.setdefault(tuple(answers.items()), []).append(dtype)
        return {
            say("doctor.attention", dtype=", ".join(dtypes), device=self.device): _served_first(dict(answers))
            for answers, dtypes in alike.items()
        }

    def advice_lines(self) -> list[str]:
        if not self.advice:
            return [say("doctor.advice.fine" if self.gpus else "doctor.advice.fine_without_gpu")]
        return [say(f"doctor.advice.{key}", **values) for key, values in self.advice]

    def text(self) -> str:
        """The card for a terminal. Bangla is not padded: its width in a terminal cannot be known."""
        lines = [say("doctor.title"), *_aligned(self.rows())]
        for heading, rows in self.backend_rows().items():
            lines += ["", heading, *_aligned(rows)]
        lines += ["", say("doctor.advice.title"), *(f"  - {line}" for line in self.advice_lines())]
        return "\n".join(lines)

    def html(self) -> str:
        """The card for a notebook; takes its colours from the page, so it is right in light and dark."""
        tables = [(say("doctor.title"), self.rows()), *self.backend_rows().items()]
        parts = [_html_table(heading, rows) for heading, rows in tables]
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self.advice_lines())
        heading = html.escape(say("doctor.advice.title"))
        parts.append(f'<p style="margin:0.8em 0 0.2em"><strong>{heading}</strong></p><ul>{items}</ul>')
        language = current_language()
        return f'<div lang="{language}" style="max-width:46em;line-height:1.45">{"".join(parts)}</div>'

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, with `device` and `fast_bf16` worked out."""
        plain = dataclasses.asdict(self)
        plain["advice"] = [
            {"about": key, "say": say(f"doctor.advice.{key}", **values)} for key, values in self.advice
        ]
        return {**plain, "device": self.device, "fast_bf16": self.fast_bf16}


def doctor(folder: str | os.PathLike[str] = ".") -> Report:
    """Look at this machine; `folder` is where the disk is measured. Takes a few seconds."""
    gpus = machine.gpus()
    versions = machine.versions()
    xformers = xformers_state(
        versions.get("xformers"),
        load_error=machine.load_error_of_xformers() if "xformers" in versions else None,
        torch_version=torch.__version__,
        cuda=torch.version.cuda,
        has_wheel=has_xformers_wheel(sys.platform, platform.machine()),
    )
    report = Report(
        system=f"{platform.system()} {platform.machine()}",
        versions=versions,
        cpu=machine.cpu(),
        memory=machine.memory(),
        disk=machine.disk(Path(folder).resolve()),
        gpus=gpus,
        half_speed={
            "bf16": half_speed(torch.bfloat16),
            "fp16": half_speed(torch.float16),
        },
        xformers=xformers,
        font=machine.bangla_font(),
        backends={},
    )
    report = dataclasses.replace(report, backends=attention_backends(report))
    unused = "" if gpus else machine.output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return dataclasses.replace(
        report,
        advice=advise(
            report, in_colab="google.colab" in sys.modules, unused_gpu=unused, cuda=torch.version.cuda
        ),
    )


def has_xformers_wheel(system: str, processor: str) -> bool:
    """xFormers ships wheels for Linux and Windows on x86-64."""
    return system in ("linux", "win32") and processor.lower() in ("x86_64", "amd64")


def xformers_state(
    version: str | None, *, load_error: str | None, torch_version: str, cuda: str | None, has_wheel: bool
) -> XFormers:
    """Why xFormers' kernels do not run here, as the nearest cause that the reader can do something about.

    `load_error` are the loader's words, None where the kernels loaded; `cuda` is what PyTorch is built for.
    """
    if version is None:
        return XFormers(None, "not_installed" if has_wheel else "no_wheel")
    if _release(torch_version) < (2, 10):
        return XFormers(version, "torch_too_old")
    if cuda is None or not torch.cuda.is_available():
        return XFormers(version, "no_gpu")
    if load_error is None:
        return XFormers(version, "ok")
    wrong_cuda = "libcudart.so.12" in load_error or not cuda.startswith("12.")
    return XFormers(version, "cuda_mismatch" if wrong_cuda else "broken", load_error.splitlines()[0])


def attention_backends(report: Report) -> dict[str, dict[str, str]]:
    """What `available_backends` says of one small causal call on the device, for each dtype of use there."""
    dtypes = {"fp32": torch.float32}
    if report.device != "cpu":
        dtypes["fp16"] = torch.float16
    if report.fast_bf16:
        dtypes["bf16"] = torch.bfloat16
    try:
        from course_lib.attention import Causal, available_backends

        answers = {}
        for name, dtype in dtypes.items():
            query = torch.zeros(1, 128, 4, 64, dtype=dtype, device=report.device)
            answers[name] = dict(available_backends(query, query, query, Causal(), training=True))
        return answers
    except Exception as error:  # a card with one line missing is worth more than a traceback
        return {
            "fp32": {"attention": say("doctor.backend.not_loaded", error=f"{type(error).__name__}: {error}")}
        }


def advise(report: Report, *, in_colab: bool, unused_gpu: str, cuda: str | None) -> tuple[Advice, ...]:
    """What the reader could mend, the most pressing first; nothing where all is well."""
    found: list[Advice] = []
    if report.memory.available < 2 * GIB:
        found.append(("memory_low", {"available": _gib(report.memory.available)}))
    if report.disk.free < 2 * GIB:
        found.append(("disk_low", {"free": _gib(report.disk.free)}))
    if unused_gpu:
        name = unused_gpu.splitlines()[0]
        found.append(("gpu_unused", {"name": name, "torch": report.versions["torch"]}))
    elif in_colab and not report.gpus:
        found.append(("colab_gpu", {}))
    if report.gpus and not report.gpus[0].bf16:
        found.append(("no_bf16", {"name": report.gpus[0].name}))
    if not report.gpus and report.half_speed.get("bf16", 1.0) < SLOW:
        found.append(("bf16_slow", {}))
    if report.device == "cuda":
        found += _xformers_advice(report.xformers.state, cuda or "")
    if report.font is None and not in_colab:  # Colab's pages are drawn with the fonts of the reader's machine
        found.append(("no_font", {"command": FONT_COMMANDS.get(sys.platform, FONT_COMMANDS["linux"])}))
    return tuple(found)


FONT_COMMANDS = {
    "linux": "sudo apt install fonts-beng",
    "darwin": "brew install --cask font-noto-sans-bengali",
    "win32": "Settings, Optional features, Bangla Script Supplemental Fonts",
}


def _xformers_advice(state: str, cuda: str) -> list[Advice]:
    known: dict[str, Advice] = {
        "not_installed": ("install_xformers", {"command": XFORMERS_COMMAND}),
        "torch_too_old": ("torch_too_old", {}),
        "cuda_mismatch": ("cuda_mismatch", {"cuda": cuda}),
        "broken": ("reinstall_xformers", {"command": f"{XFORMERS_COMMAND} --force-reinstall"}),
    }
    return [known[state]] if state in known else []


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"


def _free(available: int, total: int) -> str:
    return say("doctor.value.free", available=_gib(available), total=_gib(total))


def _cores(count: int) -> str:
    return say("doctor.value.one_core") if count == 1 else say("doctor.value.cores", count=count)


def _two_digits(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 0.95 else f"{ratio:.2f}"


def _disk(disk: machine.Disk) -> list[str]:
    parts = [say("doctor.value.disk_free", free=_gib(disk.free))]
    if disk.write_speed:
        parts.append(say("doctor.value.disk_writes", speed=f"{disk.write_speed / 1e6:,.0f}"))
    if disk.read_speed:
        parts.append(say("doctor.value.disk_reads", speed=f"{disk.read_speed / 1e6:,.0f}"))
    return parts


def _gpu(gpu: machine.Gpu) -> str:
    parts = [gpu.name, _free(gpu.available, gpu.total)]
    if gpu.capability:
        parts.insert(1, say("doctor.value.capability", capability=gpu.capability))
    return ", ".join(parts)


def _served_first(answers: dict[str, str]) -> list[tuple[str, str]]:
    """The first backend that is ok is the one that `auto` takes."""
    words = {name: say("doctor.backend.ok") if answer == "ok" else answer for name, answer in answers.items()}
    serving = next((name for name, answer in answers.items() if answer == "ok"), None)
    if serving is not None:
        words = {serving: say("doctor.backend.serves"), **{k: v for k, v in words.items() if k != serving}}
    return list(words.items())


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    if current_language() == "bn":
        return [f"  {label}: {value}" for label, value in rows]
    width = max((len(label) for label, _ in rows), default=0)
    return [f"  {label:<{width}}  {value}" for label, value in rows]


def _html_table(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    inherit = "color:inherit;font-size:inherit"  # some pages give tables a look of their own
    cell = "text-align:left;vertical-align:top;padding:0.15em 1em 0.15em 0;border:0"
    lines = [
        f'<table style="border-collapse:collapse;margin:0.8em 0 0;{inherit}">',
        f'<caption style="text-align:left;font-weight:bold;{inherit}">{html.escape(heading)}</caption>',
    ]
    for label, value in rows:
        lines.append(f'<tr style="background:none"><th scope="row" style="{cell};white-space:nowrap">')
        lines.append(f'{html.escape(label)}</th><td style="{cell}">{html.escape(value)}</td></tr>')
    return "".join([*lines, "</table>"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m course_lib doctor", description="What this machine can run."
    )
    parser.add_argument("--json", action="store_true", help="print the raw answers instead of the card")
    parser.add_argument("--folder", default=".", help="where to measure the disk (default: here)")
    options = parser.parse_args(argv)
    if not Path(options.folder).is_dir():
        parser.error(f"--folder: there is no folder {options.folder!r}")
    report = doctor(options.folder)
    print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if options.json else report.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
