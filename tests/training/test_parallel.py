"""Two processes train as one does, and end together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.models import GPT
from course_lib.training.parallel import ONE, Processes, processes, wrap
from course_lib.training.row_loss import RowLoss

from . import parallel_cases as cases
from .together import Outcome, together

ENGINES = ["ddp", "fsdp"]


def values_of(outcomes: list[Outcome]) -> list[Any]:
    assert all(not outcome.error for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes]


def assert_close(a: Any, b: Any) -> None:
    torch.testing.assert_close(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options", [{}, {"tied_head": False, "bias": True, "norm": "layernorm", "checkpointing": "layers"}]
)
def test_two_processes_train_as_one_does(tmp_path: Path, engine: str, options: dict[str, Any]) -> None:
    one = cases.train_here(ONE, engine, options)
    for value in values_of(together(cases.train_here, engine, options, folder=tmp_path)):
        assert_close(value["reports"], one["reports"])
        assert value["weights"].keys() == one["weights"].keys()
        for name, weight in value["weights"].items():
            assert_close(weight, one["weights"][name])


def test_the_steps_compared_are_clipped_and_have_unlike_numbers_of_targets() -> None:
    one = cases.train_here(ONE, "ddp", {})
    assert all(norm > 0.5 for _, norm in one["reports"])
    assert len({row.tokens.numel() - len(row.lengths) for row in cases.rows_of(0)}) == 4


@pytest.mark.parametrize(("engine", "between"), [("ddp", False), ("fsdp", None)])
def test_only_the_last_micro_batch_of_a_step_exchanges_gradients(
    tmp_path: Path, engine: str, between: bool | None
) -> None:
    for value in values_of(together(cases.gradients_between, engine, folder=tmp_path)):
        assert value == [between, True]


@pytest.mark.parametrize(
    ("before", "after"), [(1, "ddp"), (1, "fsdp"), ("ddp", 1), ("fsdp", 1), ("fsdp", "ddp")]
)
def test_a_checkpoint_goes_on_with_another_number_of_processes(
    tmp_path: Path, before: int | str, after: int | str
) -> None:
    def part(how: int | str, *options: Any) -> dict[str, Any]:
        if how == 1:
            return cases.train_here(ONE, "ddp", *options)
        return values_of(together(cases.train_here, how, *options, folder=tmp_path))[0]

    whole_run = cases.train_here(ONE, "ddp", {}, (0, 4))
    part(before, {}, (0, 2), None, str(tmp_path / "checkpoints"))
    rest = part(after, {}, (2, 4), str(tmp_path / "checkpoints" / "step-00000002"))
    assert_close(rest["reports"], whole_run["reports"][2:])
    for name, weight in rest["weights"].items():
        assert_close(weight, whole_run["weights"][name])
    if 1 in (before, after):
        then, now = (1, 2) if before == 1 else (2, 1)
        (told,) = rest["told"]
        assert f"processes (then {then}, now {now})" in told and "not to the bit" in told


def test_a_sharded_model_is_gathered_into_a_plain_one_that_saves(tmp_path: Path) -> None:
    kinds = values_of(together(cases.save_whole_model, str(tmp_path / "model"), folder=tmp_path))
    assert kinds == [["Parameter", True]] * 2
    loaded, wanted = GPT.load(tmp_path / "model"), cases.model_of()
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_an_overflow_in_one_share_skips_the_step_and_halves_the_scale_everywhere(tmp_path: Path) -> None:
    values = values_of(together(cases.step_with_an_infinity, folder=tmp_path))
    assert values == [[True, 512.0, True]] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_is_not_finite_on_one_process_stops_all_with_one_sentence(
    tmp_path: Path, engine: str
) -> None:
    outcomes = together(cases.step_with_a_bad_loss, engine, folder=tmp_path)
    first, echo = sorted(outcomes, key=lambda outcome: outcome.error)
    assert (first.error, echo.error) == ("FloatingPointError", "OtherProcessError")
    assert echo.sentence.endswith(f"stopped the run (FloatingPointError): {first.sentence}")
    assert "the loss is nan" in first.sentence


@pytest.mark.parametrize("rank", [0, 1])
def test_the_row_at_fault_is_named_by_whichever_process_computed_it(tmp_path: Path, rank: int) -> None:
    outcomes = together(cases.train_with_a_bad_row, rank, folder=tmp_path)
    first = next(outcome for outcome in outcomes if outcome.error == "FloatingPointError")
    assert "step 1: the loss is nan" in first.sentence
    assert f"The batch: row {rank} of the data" in first.sentence


def test_all_that_fail_alike_are_heard_once(tmp_path: Path) -> None:
    outcomes = together(cases.fail_alike, folder=tmp_path)
    assert sorted(outcome.error for outcome in outcomes) == ["OtherProcessError", "ValueError"]


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_on_one_process_ends_the_other_with_its_sentence(tmp_path: Path, rank: int) -> None:
    outcomes = together(cases.fail_alone, rank, folder=tmp_path)
    assert outcomes[rank] == Outcome(error="ValueError", sentence=f"documents: nothing to read on {rank}.")
    other = outcomes[1 - rank]
    assert other.error == "OtherProcessError"
    assert other.sentence == (
        f"process {rank} of 2 stopped the run (ValueError): documents: nothing to read on {rank}."
    )


def test_an_error_where_only_the_first_works_is_raised_on_all(tmp_path: Path) -> None:
    first, second = together(cases.fail_on_first, folder=tmp_path)
    assert (first.error, first.sentence) == ("OSError", "folder: the disk is full.")
    assert second.error == "OtherProcessError"
    assert second.sentence == "process 0 of 2 stopped the run (OSError): folder: the disk is full."


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_process_that_was_killed_is_missed_by_the_other(tmp_path: Path) -> None:
    first, second = together(cases.killed_alone, folder=tmp_path)
    assert second == Outcome()
    assert first.error == "OtherProcessError"
    assert "lost another one, which ended without a word" in first.sentence


def test_a_checkpoint_that_cannot_be_written_ends_both(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    first, second = together(cases.write_into, str(tmp_path / "taken"), folder=tmp_path)
    assert "Error" in first.error and "taken" in first.sentence
    assert second.error == "OtherProcessError" and first.sentence in second.sentence


def test_processes_exchange_sums_and_values(tmp_path: Path) -> None:
    gathered = [{"rank": 0}, {"rank": 1}]
    assert values_of(together(cases.exchanges, folder=tmp_path)) == [
        [0, True, "gloo", [3.0, 1.0], gathered, "written", "gloo"],
        [1, False, "gloo", [3.0, 1.0], gathered, None, "gloo"],
    ]


def test_one_process_exchanges_with_itself_and_is_not_wrapped() -> None:
    with processes("cpu") as group:
        assert group == ONE and group.first
        assert group.total(2, 0.5) == (2.0, 0.5)
        assert group.gather("a") == ["a"]
        assert group.on_first(lambda: "written") == "written"
        module = RowLoss(cases.model_of())
        assert wrap(module, "fsdp", group) is module
        assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_the_shares_hold_every_item_once_in_equally_many_calls(count: int) -> None:
    items = list(range(count))
    shares = [Processes(rank=rank, world_size=3).shares(items) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(item for share in shares for item, counts in share if counts) == items
