"""Workspace: what is counted, what is not, and what is said where the work fails."""

from __future__ import annotations

import sys

import pytest

from course_lib.bench.memory import attention_workspaces, workspaces

from .works import MIB

# Pages of other origin (a kernel's first buffers, the interpreter's own) come and go beside what is measured.
SLACK = 6 * MIB
SETTINGS = {
    "warm-up": {"temporary": 1},
    "temporary": {"temporary": 64},
    "results": {"kept": 64},
    "inputs": {"held": 64},
    "temporary beside results and inputs": {"temporary": 32, "kept": 48, "held": 16},
    "much": {"temporary": 96},
    "little after much": {"temporary": 16},
    "talkative": {"temporary": 8, "talkative": True},
}

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a process's memory is read too coarsely for this"
)


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    """All in one child, in the order above."""
    return dict(zip(SETTINGS, workspaces("tests.bench.works:allocate", SETTINGS.values()), strict=True))


@on_linux
@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("temporary", 64),
        ("results", 0),
        ("inputs", 0),
        ("temporary beside results and inputs", 32),
        ("little after much", 16),
        ("talkative", 8),
    ],
)
def test_only_what_is_neither_input_nor_result_counts_as_workspace(
    measured: dict[str, int], name: str, mib: int
) -> None:
    assert abs(measured[name] - mib * MIB) <= SLACK, f"{measured[name] / MIB:.1f} MiB"


@on_linux
def test_where_the_kernels_mark_cannot_be_set_back_samples_see_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: object) -> None:
        raise PermissionError("clear_refs")

    monkeypatch.setattr("course_lib.bench.memory._PeakOfKernel.start", refuse)
    settings = [{"temporary": 1}, {"temporary": 64, "seconds": 0.2}]
    _, sampled = workspaces("tests.bench.works:allocate", settings)
    assert abs(sampled - 64 * MIB) <= SLACK


@on_linux
def test_the_reference_needs_the_score_matrix_and_tiled_does_not() -> None:
    length, heads = 1024, 2
    score_matrix = 4 * heads * length**2
    (reference,) = attention_workspaces([length], backend="reference", num_heads=heads, head_dim=16)
    (tiled,) = attention_workspaces([length], backend="tiled", num_heads=heads, head_dim=16)
    assert reference >= score_matrix
    assert tiled <= reference / 2


def test_a_failing_work_raises_its_last_words() -> None:
    with pytest.raises(RuntimeError, match=r"works:failing failed .*the tiles do not meet: মেলে না"):
        workspaces("tests.bench.works:failing", [{}])


def test_a_work_that_cannot_be_prepared_raises_its_settings_and_its_last_words() -> None:
    with pytest.raises(
        RuntimeError, match=r"not be prepared with \{'mask': 'lower'\}.*there is no mask lower"
    ):
        workspaces("tests.bench.works:unprepared", [{"mask": "lower"}])


def test_a_child_that_dies_silently_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ended without a word"):
        workspaces("tests.bench.works:dying", [{}])
