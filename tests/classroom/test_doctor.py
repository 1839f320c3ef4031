"""The machine card: right about machines that are not this one, in two languages, and never in the way."""

import dataclasses
import json
import types

import pytest
import torch

from course_lib.classroom import doctor as doctor_module
from course_lib.classroom import machine, messages
from course_lib.classroom.doctor import GIB, Report, XFormers, advise, main, xformers_state

T4 = machine.Gpu("Tesla T4", "7.5", 15 * GIB, 14 * GIB, bf16=False)
A100 = machine.Gpu("NVIDIA A100", "8.0", 40 * GIB, 39 * GIB, bf16=True)
APPLE = machine.Gpu("Apple GPU (MPS), memory shared with the CPU", "", 16 * GIB, 9 * GIB, bf16=True)


def report(**changes: object) -> Report:
    """A laptop without a GPU on which all is well."""
    laptop = Report(
        system="Linux x86_64",
        versions={"python": "3.12.1", "torch": "2.13.0+cpu", "numpy": "2.4.6"},
        cpu=machine.Cpu("Some CPU", 4, ("AVX2",)),
        memory=machine.Memory(16 * GIB, 8 * GIB),
        disk=machine.Disk("here", 100 * GIB, 5e8, 1.5e9),
        gpus=(),
        half_speed={"bf16": 1.0, "fp16": 0.5},
        xformers=XFormers("0.0.35", "no_gpu"),
        font="Noto Sans Bengali",
        backends={"fp32": {"xformers": "runs on CUDA only", "torch_sdpa": "ok", "tiled": "ok"}},
    )
    return dataclasses.replace(laptop, **changes)


def about(given: Report, **where: object) -> list[str]:
    """The subjects of the advice for this machine."""
    settings = {"in_colab": False, "unused_gpu": "", "cuda": None, **where}
    return [key for key, _ in advise(given, **settings)]


@pytest.fixture
def bangla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_chosen", ["bn"])


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_chosen", ["en"])


def test_the_device_is_the_gpu_where_there_is_one() -> None:
    assert report().device == "cpu"
    assert report(gpus=(T4,)).device == "cuda"
    assert report(gpus=(APPLE,)).device == "mps"


@pytest.mark.parametrize(
    ("gpus", "ratio", "fast"), [((), 2.0, True), ((), 1.0, False), ((T4,), 2.0, False), ((A100,), 0.01, True)]
)
def test_bf16_is_fast_by_the_gpus_hardware_or_else_by_measurement(
    gpus: tuple[machine.Gpu, ...], ratio: float, fast: bool
) -> None:
    assert report(gpus=gpus, half_speed={"bf16": ratio}).fast_bf16 is fast


def test_the_first_backend_that_is_ok_serves_and_stands_first() -> None:
    (rows,) = report().backend_rows().values()
    assert rows == [
        ("torch_sdpa", "serves"),
        ("xformers", "runs on CUDA only"),
        ("tiled", "could serve too"),
    ]


def test_a_machine_on_which_all_is_well_gets_no_advice() -> None:
    assert about(report()) == []
    assert "Nothing to mend" in report().text()


def test_little_memory_and_little_disk_are_named_first() -> None:
    small = report(memory=machine.Memory(4 * GIB, GIB), disk=machine.Disk("here", GIB, None, None), font=None)
    assert about(small) == ["memory_low", "disk_low", "no_font"]
    advised = dataclasses.replace(small, advice=advise(small, in_colab=False, unused_gpu="", cuda=None))
    assert "Only 1.0 GiB of memory is free" in advised.text()


def test_emulated_bf16_is_named_on_a_cpu_only() -> None:
    slow = {"bf16": 0.02, "fp16": 0.5}
    assert about(report(half_speed=slow)) == ["bf16_slow"]
    assert about(report(half_speed=slow, gpus=(A100,), xformers=XFormers("0.0.35", "ok"))) == []


def test_a_t4_is_told_to_use_fp16() -> None:
    t4 = report(gpus=(T4,), xformers=XFormers("0.0.35", "ok"))
    assert about(t4, cuda="12.8") == ["no_bf16"]
    assert "no bf16 in this GPU's hardware" in t4.text()


def test_a_gpu_that_pytorch_does_not_use_is_named() -> None:
    assert about(report(), unused_gpu="NVIDIA GeForce RTX 3060\n") == ["gpu_unused"]
    ((_, values),) = advise(report(), in_colab=False, unused_gpu="NVIDIA GeForce RTX 3060\n", cuda=None)
    assert values == {"name": "NVIDIA GeForce RTX 3060", "torch": "2.13.0+cpu"}


def test_colab_without_a_gpu_says_where_to_get_one_and_asks_for_no_font() -> None:
    assert about(report(font=None), in_colab=True) == ["colab_gpu"]


KNOWN = {"load_error": None, "torch_version": "2.13.0+cu128", "cuda": "12.8", "has_wheel": True}


@pytest.mark.parametrize(
    ("version", "changes", "gpu", "state"),
    [
        ("0.0.35", {}, True, "ok"),
        ("0.0.35", {}, False, "no_gpu"),
        ("0.0.35", {"cuda": None, "load_error": "libcudart.so.12: not found"}, False, "no_gpu"),
        (None, {}, True, "not_installed"),
        (None, {"has_wheel": False}, False, "no_wheel"),
        ("0.0.35", {"torch_version": "2.9.1+cu128"}, True, "torch_too_old"),
        (
            "0.0.35",
            {"cuda": "13.0", "load_error": "libcudart.so.12: cannot open shared object file"},
            True,
            "cuda_mismatch",
        ),
        ("0.0.35", {"load_error": "undefined symbol: _ZN3c10"}, True, "broken"),
    ],
)
def test_why_xformers_kernels_do_not_run(
    monkeypatch: pytest.MonkeyPatch, version: str | None, changes: dict[str, object], gpu: bool, state: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    found = xformers_state(version, **{**KNOWN, **changes})
    assert found.state == state
    assert found.describe()


def test_a_cuda_13_build_of_pytorch_gets_the_remedy() -> None:
    broken = XFormers("0.0.35", "cuda_mismatch", "libcudart.so.12: cannot open shared object file")
    given = report(gpus=(A100,), xformers=broken)
    given = dataclasses.replace(given, advice=advise(given, in_colab=False, unused_gpu="", cuda="13.0"))
    said = given.text()
    assert "libcudart.so.12" in said
    assert "this PyTorch for CUDA 13.0. Install a CUDA 12.8 build of PyTorch" in said


def test_without_a_gpu_xformers_needs_no_remedy() -> None:
    assert about(report(xformers=XFormers(None, "not_installed"))) == []


def test_the_loaders_own_words_are_found_at_the_root_of_the_error() -> None:
    outer = RuntimeError("reinstall xformers")
    outer.__cause__ = OSError("libcudart.so.12: cannot open shared object file")
    library = types.SimpleNamespace(_cpp_library_load_exception=outer)
    assert machine.load_error_of_xformers(lambda name: library) == str(outer.__cause__)


def test_an_import_that_fails_is_an_answer_not_a_traceback() -> None:
    def load(name: str) -> object:
        raise ImportError("no module named triton")

    assert machine.load_error_of_xformers(load) == "ImportError: no module named triton"
    assert machine.load_error_of_xformers(lambda name: types.SimpleNamespace()) is None


def test_cpu_features_are_read_from_cpuinfo() -> None:
    intel = "model name\t: X\nflags\t\t: fpu avx2 avx512f amx_bf16 amx_tile\n"
    assert machine.cpu_features(intel) == ("AVX2", "AVX-512", "AMX bf16")
    assert machine.cpu_features("Features\t: fp asimd bf16\n") == ("NEON", "Arm bf16")


def test_without_cpuinfo_pytorchs_own_level_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert machine.cpu_features("") == ("AVX-512",)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert machine.cpu_features("") == ()


def test_a_containers_quota_and_memory_limit_count() -> None:
    assert machine.usable_cores("100000 100000") == 1
    assert machine.usable_cores("50000 100000") == 1
    assert machine.usable_cores("max 100000") == machine.usable_cores("")
    limited = machine.memory(limit=f"{GIB}\n", used=f"{GIB // 4}\n")
    assert limited == machine.Memory(GIB, GIB - GIB // 4)
    assert machine.memory(limit="max", used="").total > GIB


def test_the_disk_probe_leaves_nothing_behind(tmp_path) -> None:
    found = machine.disk(tmp_path, megabytes=1)
    assert found.write_speed and found.write_speed > 0
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written_has_no_speed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(machine.tempfile, "NamedTemporaryFile", refuse)
    found = machine.disk(tmp_path, megabytes=1)
    assert found.free > 0 and found.write_speed is None and found.read_speed is None


def test_a_missing_program_has_no_output() -> None:
    assert machine.output_of(["no-such-program-anywhere"]) == ""


def test_attention_that_does_not_load_costs_one_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import course_lib.attention

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(course_lib.attention, "available_backends", broken)
    (answers,) = doctor_module.attention_backends(report()).values()
    assert "RuntimeError: no kernel image" in answers["attention"]


def test_the_card_of_this_machine_is_complete() -> None:
    found = doctor_module.doctor()
    assert found.memory.total >= found.memory.available > 0
    assert found.versions["torch"] == torch.__version__
    assert found.backends["fp32"]["reference"] == "ok"
    for label in ("System", "Memory (RAM)", "xFormers", "serves"):
        assert label in found.text()


def test_the_html_card_escapes_what_it_shows_and_sets_no_colour_of_its_own() -> None:
    shown = report(system="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in shown
    assert "#" not in shown and "rgb" not in shown
    assert '<div lang="en"' in shown


@pytest.mark.usefixtures("bangla")
def test_the_card_speaks_bangla() -> None:
    said = report().text()
    assert "এই মেশিন" in said and "৪টি কোর" in said and "এটিই ব্যবহার করা হবে" in said
    assert '<div lang="bn"' in report().html()


@pytest.mark.parametrize("language", ["en", "bn"])
def test_every_piece_of_advice_and_every_state_has_its_words(
    monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setattr(messages, "_chosen", [language])
    worst = report(
        memory=machine.Memory(GIB, GIB), disk=machine.Disk("x", 1, None, None), font=None, gpus=(T4,)
    )
    states = ("ok", "no_gpu", "no_wheel", "not_installed", "torch_too_old", "cuda_mismatch", "broken")
    for state in states:
        given = dataclasses.replace(worst, xformers=XFormers("0.0.35", state, "why"))
        for settings in ({"in_colab": False, "unused_gpu": "X"}, {"in_colab": True, "unused_gpu": ""}):
            advice = advise(given, **settings, cuda="13.0")
            card = dataclasses.replace(given, advice=advice)
            assert len(card.advice_lines()) == len(advice) >= 3
            assert "{" not in card.text()


def test_json_is_the_raw_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = report(advice=(("bf16_slow", {}),))
    monkeypatch.setattr(doctor_module, "doctor", lambda folder: given)
    assert main(["--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["memory"]["available"] == 8 * GIB
    assert plain["device"] == "cpu" and plain["fast_bf16"] is False
    assert plain["advice"][0]["about"] == "bf16_slow"


def test_a_folder_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--folder", "no/such/folder"])
    assert "no/such/folder" in capsys.readouterr().err
