"""What a bench says: which claims hold, and the files it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from course_lib.bench.report import Claim, Report, this_machine, write_atomically


@pytest.mark.parametrize(
    ("value", "bound", "holds"),
    [
        (0.04, "<= 0.04", True),
        (0.0400001, "<= 0.04", False),
        (3.0, ">= 3", True),
        (2.999, ">= 3", False),
        (9.0, ">= 3", True),
        (math.nan, "<= 1.6", False),
        (math.nan, ">= 1.6", False),
        (math.inf, ">= 3", False),
        (-math.inf, "<= 3", False),
    ],
)
def test_a_claim_holds_up_to_its_bound_and_never_for_what_is_no_number(
    value: float, bound: str, holds: bool
) -> None:
    assert Claim("x", value, bound).holds is holds


@pytest.fixture
def report() -> Report:
    found = Report("attention", {"device": "cpu"})
    found.rows.append({"name": "tiled / sdpa", "seconds": 1.5, "ratios": [1.0, 2.0]})
    found.claim("tiled.time.fp32", 1.5, "<= 1.6")
    return found


def test_one_claim_that_does_not_hold_is_enough(report: Report) -> None:
    assert report.holds
    report.claim("packed.speedup", 2.0, ">= 3")
    assert not report.holds


def test_a_quick_report_decides_nothing(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    report.claim("packed.speedup", 2.0, ">= 3")
    report.quick = True
    assert report.holds
    report.print_table()
    printed = capsys.readouterr().out
    assert "not decided" in printed and "does not hold" not in printed


def test_the_json_has_the_machine_every_raw_figure_and_the_claims(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "attention.json"
    report.write_json(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(content) >= {"machine", "rows", "claims"}
    assert content["machine"] == {"device": "cpu"}
    assert content["rows"] == report.rows
    assert content["claims"] == [{"name": "tiled.time.fp32", "value": 1.5, "bound": "<= 1.6", "holds": True}]
    assert content["quick"] is False


def test_the_machine_is_described_by_versions_features_and_threads() -> None:
    machine = json.loads(json.dumps(this_machine("cpu")))
    assert machine["device"] == "cpu"
    assert machine["versions"]["torch"]
    assert isinstance(machine["cpu"]["features"], list)
    assert machine["threads"] >= 1 and machine["memory_bytes"] > 2**28


def test_the_table_shows_each_claim_with_its_verdict(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    report.claim("packed.speedup", 2.0, ">= 3")
    report.print_table()
    lines = capsys.readouterr().out.splitlines()
    (held,) = [line for line in lines if "tiled.time.fp32" in line]
    (broken,) = [line for line in lines if "packed.speedup" in line]
    assert "1.5" in held and "<= 1.6" in held and "holds" in held
    assert "does not hold" in broken
    assert any("tiled / sdpa" in line for line in lines), "raw figures are shown too"


def test_the_picture_is_a_png_whatever_the_claims_are(report: Report, tmp_path: Path) -> None:
    report.claim("packed.speedup", 2.0, ">= 3")
    report.write_plot(tmp_path / "claims.png")
    assert (tmp_path / "claims.png").read_bytes().startswith(b"\x89PNG")


def test_a_bound_of_zero_is_drawn_as_a_ratio_of_perplexities(report: Report, tmp_path: Path) -> None:
    assert Claim("ladder.loss_gap", math.log(0.5), "<= 0").share == pytest.approx(0.5)
    report.claim("ladder.loss_gap", -0.1, "<= 0")
    report.write_plot(tmp_path / "claims.png")
    assert (tmp_path / "claims.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figures.json"
    write_atomically(path, b"first")

    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path], "a half-written file was left behind"
