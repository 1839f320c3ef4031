"""`python -m course_lib chat`, as it is called."""

import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from shell import Terminal, command, needs_a_terminal, refused

from course_lib.classroom.commands import chat as module
from course_lib.classroom.commands.chat import kept_turns

BANGLA = "একদিন রহিম"


def chat(folder: object, lines: str | bytes, *flags: object, **variables: str) -> tuple[str, str]:
    """stdout and stderr of a chat that ends well."""
    done = command("chat", folder, *flags, stdin=lines, **variables)
    assert done.code == 0, done.said
    return done.out, done.said


def test_a_chat_says_what_it_is_and_obeys_its_own_commands(small: Path) -> None:
    lines = f"{BANGLA}\n/seed 3\n/seed x\n/seed\n/nope\n/RESET\n/help\n/quit\nnever read\n"
    _, said = chat(small, lines, "--max-new-tokens", 4)
    assert "does not obey" in said and "seed 3" in said and "forgotten" in said
    assert "/seed: expected a whole number from 0 to" in said and "got 'x'" in said
    assert "no command /nope" in said and "Traceback" not in said
    assert said.count("/reset forgets") == 3  # at the start, after /nope, for /help


def test_nothing_but_the_answers_goes_to_stdout(small: Path) -> None:
    assert chat(small, "/help\n/reset\n\n   \n/seed 1\n")[0] == ""


def test_the_end_of_the_input_ends_a_chat_also_within_a_line(small: Path) -> None:
    assert chat(small, "hello", "--max-new-tokens", 2)[0].endswith("\n")


def test_reset_makes_an_answer_what_it_was_at_the_start() -> None:
    flags = ("--seed", 4, "--max-new-tokens", 12)
    once, _ = chat("lean-opt-5m", f"{BANGLA}\n", *flags)
    assert chat("lean-opt-5m", f"One day\n/reset\n{BANGLA}\n", *flags)[0].endswith("\n" + once)
    assert not chat("lean-opt-5m", f"One day\n{BANGLA}\n", *flags)[0].endswith("\n" + once)


def test_the_seed_of_a_command_draws_what_the_seed_of_the_flag_draws(small: Path) -> None:
    flags = ("--max-new-tokens", 12)
    assert (
        chat(small, f"/seed 9\n{BANGLA}\n", *flags)[0] == chat(small, f"{BANGLA}\n", "--seed", 9, *flags)[0]
    )


def test_a_line_with_a_space_before_its_slash_is_text(small: Path) -> None:
    out, said = chat(small, " /etc is a folder\n", "--max-new-tokens", 2)
    assert out and "no command" not in said


def test_history_is_cut_by_whole_turns() -> None:
    def letters(text: str) -> list[int]:
        return [ord(sign) for sign in text]

    turns = ["aaaa", "bbbb", "cccc"]
    for most, count in ((100, 3), (16, 3), (15, 2), (11, 2), (10, 1), (6, 1), (5, 0)):
        kept = turns[3 - count :]
        assert kept_turns(turns, "d", letters, most) == (kept, letters("\n".join([*kept, "d"])))
    assert len(kept_turns(turns, "d" * 9, letters, 8)[1]) > 8
    assert turns == ["aaaa", "bbbb", "cccc"]


def test_that_the_oldest_turns_are_forgotten_is_said(small: Path) -> None:
    _, said = chat(small, "one line of a longer text\n" * 4, "--greedy", "--max-new-tokens", 16)
    assert said.count("[the context of 64 tokens is full; oldest turns forgotten: 1]") > 1
    assert "forgotten: 2" not in said  # what was forgotten once is not counted again


def test_a_line_that_is_too_long_is_refused_and_the_text_so_far_is_kept(small: Path) -> None:
    flags = ("--greedy", "--max-new-tokens", 8)
    plain, _ = chat(small, "one\ntwo\n", *flags)
    out, said = chat(small, "one\n" + "hello " * 90 + "\ntwo\n", *flags)
    assert out == plain
    assert "The model's context is 64 tokens, 8 of them kept for the answer, so the most is 56" in said


def test_a_greedy_chat_says_that_a_seed_changes_nothing(small: Path) -> None:
    assert "nothing is drawn here" in chat(small, "/seed 3\n", "--greedy")[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--greedy", "--top-p", "0.5"], "--top-p: has no effect with --greedy"),
        (["--top-p", "0"], "--top-p: expected a number above 0"),
        (["--top-k", "5000"], "--top-k: expected at most 4,096"),
        (["--context", "65"], "--context: expected at most 64"),
        (["--context", "8", "--max-new-tokens", "8"], "--max-new-tokens: expected at most 7"),
        (["hello"], "typed when the model has been loaded"),
    ],
)
def test_flags_are_checked_before_anything_is_said(small: Path, flags: list[str], said: str) -> None:
    assert said in refused("chat", small, *flags, stdin="a\n")


def test_other_bytes_than_utf8_end_a_chat_on_a_pipe_with_a_sentence(small: Path) -> None:
    done = command("chat", small, "--max-new-tokens", 2, stdin=b"hello\ncaf\xe9\n")
    assert done.code == 2 and done.out
    assert "expected text in UTF-8 on stdin, got the byte 0xE9" in done.said


@pytest.mark.parametrize("run", ["gpt_run", "opt_run"])
def test_a_chat_with_a_run_of_train(run: str, request: pytest.FixtureRequest) -> None:
    assert chat(request.getfixturevalue(run), "one\ntwo\n", "--max-new-tokens", 4, "--seed", 1)[0]


def test_a_chat_in_bangla_speaks_bangla(small: Path) -> None:
    said = chat(small, "/seed 3\n/reset\n/nope\n", COURSE_LANGUAGE="bn")[1]
    assert "সিড 3" in said and "মুছে গেছে" in said and "/nope নামে কোনো কমান্ড নেই" in said


def test_the_models_own_stop_text_ends_an_answer() -> None:
    flags = ("--greedy", "--max-new-tokens", 100, "--stop", "।")
    out, _ = chat("lean-opt-5m", f"{BANGLA}\n", *flags)
    assert "।" not in out and len(out) > 5


@needs_a_terminal
def test_ctrl_c_stops_an_answer_and_at_the_prompt_leaves(endless: Path) -> None:
    flags = ("--greedy", "--max-new-tokens", 90000, "--context", 99000)
    with Terminal("chat", endless, *flags) as terminal:
        terminal.wait_for("> ")
        terminal.type("hello\n")
        terminal.wait_for_bytes(500)  # the answer has begun
        terminal.type(b"\x03")
        terminal.wait_for("[stopped]")
        terminal.wait_for("> ", after="[stopped]")
        terminal.type("/reset\n")
        terminal.wait_for("is forgotten")
        terminal.wait_for("> ", after="is forgotten")
        terminal.interrupt()
        assert terminal.end() == 0
        assert "Traceback" not in terminal.shown


def test_ctrl_c_pressed_twice_at_an_answer_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed = iter([KeyboardInterrupt, KeyboardInterrupt])

    def typed() -> str:
        if (key := next(pressed, None)) is not None:
            raise key
        return "hello"

    monkeypatch.setattr(module, "_typed_line", typed)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert module._line(time.monotonic()) == "hello"
    pressed = iter([KeyboardInterrupt])
    assert module._line(None) is None
    pressed = iter([KeyboardInterrupt])
    assert module._line(time.monotonic() - module.IMPATIENT) is None


def test_ctrl_c_is_heard_also_where_a_shell_had_it_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with module._interrupts(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@needs_a_terminal
def test_ctrl_d_leaves(small: Path) -> None:
    with Terminal("chat", small) as terminal:
        terminal.wait_for("> ")
        terminal.type(b"\x04")
        assert terminal.end() == 0 and terminal.shown.endswith("\n")


@needs_a_terminal
def test_a_bangla_line_can_be_typed_that_is_longer_than_a_terminal_takes(small: Path) -> None:
    with Terminal("chat", small) as terminal:
        terminal.wait_for("> ")
        terminal.type("ক" * 2000 + "\n")
        terminal.wait_for("That line has 2")  # over 2,000 tokens: nothing of 6,000 bytes is lost
        terminal.wait_for("> ", after="That line has 2")
        terminal.type(b"\x04")
        assert terminal.end() == 0


@needs_a_terminal
def test_with_answers_in_a_file_the_prompt_is_not_among_them(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.txt"
    flags = ("--greedy", "--max-new-tokens", 4)
    with Terminal("chat", small, *flags, stdout=file) as terminal:
        terminal.wait_for("> ")
        terminal.type("hello\n/quit\n")
        assert terminal.end() == 0
    assert file.read_text(encoding="utf-8") == chat(small, "hello\n", *flags)[0]


@needs_a_terminal
def test_a_terminal_line_that_is_no_utf8_is_left_out_and_the_chat_goes_on(
    small: Path, tmp_path: Path
) -> None:
    with Terminal("chat", small, stdout=tmp_path / "answers.txt") as terminal:
        terminal.wait_for("> ")
        terminal.type(b"caf\xe9\n")
        terminal.wait_for("was no UTF-8")
        terminal.type("/quit\n")
        assert terminal.end() == 0
