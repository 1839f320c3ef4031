"""`python -m course_lib generate`, as it is called."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shell import Terminal, call, command, environment, needs_a_terminal, process, refused

from course_lib.classroom.commands.generate import main
from course_lib.classroom.commands.streams import writer
from course_lib.text import graphemes

BANGLA = "একদিন রহিম"
FEW = ("--max-new-tokens", 4)


@pytest.mark.parametrize("language", ["C.UTF-8", "C"])
def test_a_bangla_prompt_comes_out_as_it_was_given_and_speed_goes_to_stderr(
    small: Path, language: str
) -> None:
    done = process("generate", small, "--prompt", BANGLA, *FEW, LANG=language)
    assert done.code == 0 and done.out.startswith(BANGLA) and done.out.endswith("\n")
    assert "(3 read)" in done.said and "(3 written)" in done.said


def test_the_model_that_comes_with_the_course_writes_bangla_and_says_that_it_is_free() -> None:
    done = command("generate", "lean-opt-5m", "--prompt", BANGLA, "--max-new-tokens", 30)
    new = done.out.removeprefix(BANGLA)
    assert done.code == 0 and any("ঀ" <= sign <= "৿" for sign in new)
    assert "base model" in done.said and "CC0 1.0" in done.said


@pytest.mark.parametrize("run", ["gpt_run", "opt_run"])
def test_a_run_of_train_is_a_model_and_so_is_the_folder_in_it(
    run: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(run)
    outer = command("generate", folder, "--prompt", BANGLA, *FEW)
    inner = command("generate", folder / "model", "--prompt", BANGLA, *FEW)
    assert outer.code == 0 and outer.out == inner.out != ""


def test_a_run_that_has_not_ended_is_named_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    assert f"train --resume {tmp_path}" in refused("generate", tmp_path, "--prompt", "a")


def test_a_prompt_on_stdin_or_in_a_file_gives_what_the_flag_gives(small: Path, tmp_path: Path) -> None:
    flag = command("generate", small, "--prompt", BANGLA, *FEW).out
    assert process("generate", small, *FEW, stdin=BANGLA + "\r\n").out == flag
    assert command("generate", small, "--prompt-file", "-", *FEW, stdin=BANGLA).out == flag
    file = tmp_path / "beginning.txt"
    file.write_text(BANGLA + "\n", encoding="utf-8-sig")  # as Notepad saves it
    assert command("generate", small, "--prompt-file", file, *FEW).out == flag


def test_several_prompts_are_apart_by_an_empty_line(small: Path) -> None:
    done = command("generate", small, "--prompt", "one", "--prompt", "two", "--max-new-tokens", 1)
    assert done.out.startswith("one") and "\n\ntwo" in done.out


def test_the_same_seed_writes_the_same_and_another_seed_something_else(small: Path) -> None:
    first, again, other = (
        command("generate", small, "--prompt", BANGLA, "--seed", seed, "--max-new-tokens", 20).out
        for seed in (5, 5, 6)
    )
    assert first == again != other


def test_temperature_0_is_the_greedy_choice(small: Path) -> None:
    cold = command("generate", small, "--prompt", BANGLA, "--temperature", 0, "--sample", *FEW)
    assert cold.out == command("generate", small, "--prompt", BANGLA, *FEW).out


def test_an_empty_prompt_begins_from_the_start_token_but_an_empty_stdin_is_a_mistake(small: Path) -> None:
    assert command("generate", small, "--prompt", "", *FEW).code == 0
    assert "got none: --prompt TEXT" in refused("generate", small)
    assert "got none: --prompt TEXT" in refused("generate", small, stdin="\n")


def test_a_stop_text_ends_the_answer_and_is_not_shown() -> None:
    flags = ("generate", "lean-opt-5m", "--prompt", BANGLA, "--max-new-tokens", 60)
    whole = command(*flags).out.removeprefix(BANGLA)
    stop = whole.strip()[10:13]
    cut = command(*flags, "--stop", stop).out.removeprefix(BANGLA)
    assert cut == whole[: whole.index(stop)] + "\n"


def test_a_stop_text_of_backslash_n_is_a_line_end() -> None:
    flags = ("generate", "lean-opt-5m", "--prompt", BANGLA, "--max-new-tokens", 100, "--stop", r"\n")
    assert command(*flags).out.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--prompt", "hello " * 90], "--prompt: expected fewer tokens than the model's context of 64, got"),
        (["--prompt", "a", "--max-new-tokens", "64"], "--max-new-tokens: expected at most 62 after the 2 tokens"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens: expected a whole number of at least 1"),
        (["--prompt", "a", "--top-p", "7"], "--top-p: expected a number above 0 and at most 1, got '7'"),
        (["--prompt", "a", "--top-k", "9999"], "--top-k: expected at most 4,096"),
        (["--prompt", "a", "--temperature", "nan"], "--temperature: expected a number of at least 0, got 'nan'"),
        (["--prompt", "a", "--seed", "1.5"], "--seed: expected a whole number"),
        (["--prompt", "a", "--stop", ""], "--stop: expected some text"),
        (["--prompt", "a", "--dtype", "float32"], "choose from"),
        (["--prompt", "a", "--device", "meta"], "--device: expected one that computes here"),
        (["--prompt", "a", "--device", "tpu9"], "--device: expected one that computes here"),
        (["--prompt", "a", "--wrong"], "unrecognized arguments: --wrong"),
        (["hello there"], 'A text to continue is given as --prompt "…"'),
        (["--prompt", "-হ্যালো"], "--prompt=-"),
        (["--prompt-file", "no-such-file"], "No such file or directory: no-such-file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_before_anything_is_written(
    small: Path, flags: list[str], said: str
) -> None:
    assert said in refused("generate", small, *flags)


@pytest.mark.parametrize("name", ["generate", "chat"])
def test_help_explains_every_flag_with_its_default_and_neither_it_nor_a_wrong_flag_loads_torch(
    name: str,
) -> None:
    program = (
        "import sys\nfrom course_lib.cli import main\n"
        "for flag in ('--top-k=x', '--help'):\n    try: main([sys.argv[1], 'm', flag])\n"
        "    except SystemExit: print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, name], capture_output=True, env=environment(COLUMNS="80"), timeout=300
    )
    said = done.stderr.decode("utf-8")
    assert "expected a whole number of at least 1, got 'x'" in said and said.count("False\n") == 2
    shown = done.stdout.decode("utf-8")
    assert "continues, it does not obey" in shown and max(map(len, shown.splitlines())) <= 80
    options = shown[shown.index("options:") : shown.index("examples:" if name == "generate" else "while it")]
    for flag in options.split("\n  --")[1:]:
        switch = flag.split()[0]
        assert "default:" in flag or switch in ("prompt", "prompt-file"), switch


@pytest.mark.parametrize("wrong", ["", "./nowhere", "lean-opt-5"])
def test_a_model_that_is_nowhere_is_named(wrong: str) -> None:
    said = refused("generate", wrong, "--prompt", "a")
    assert said.startswith("generate: MODEL: expected") and (
        "lean" not in wrong or "called lean-opt-5m" in said
    )


def test_a_folder_without_a_tokenizer_is_named(small: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    said = refused("generate", tmp_path, "--prompt", "a")
    assert "tokenizer.json" in said and str(tmp_path) in said


def test_a_tokenizer_of_another_model_is_refused_before_the_weights_are_read(
    small: Path, tmp_path: Path
) -> None:
    from course_lib.text import train_tokenizer

    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    train_tokenizer(["a few words"] * 3, vocab_size=300).save(tmp_path / "tokenizer.json")
    assert "expected a tokenizer of 4,096 tokens beside this model, got one of" in refused(
        "generate", tmp_path, "--prompt", "a"
    )


def test_an_end_token_that_the_model_has_not_is_a_fault_of_its_config(small: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    config = json.loads((small / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": 4096}), encoding="utf-8")
    assert "expected an end token below vocab_size = 4096" in refused("generate", tmp_path, "--prompt", "a")


@pytest.mark.parametrize("data", [b"caf\xe9", "একদিন".encode("utf-16")])
def test_other_bytes_than_utf8_are_a_sentence(small: Path, tmp_path: Path, data: bytes) -> None:
    assert "expected text in UTF-8 on stdin, got the byte 0x" in refused("generate", small, stdin=data)
    file = tmp_path / "beginning.txt"
    file.write_bytes(data)
    assert "save it again as UTF-8" in refused("generate", small, "--prompt-file", file)


def test_bangla_for_a_bijoy_font_is_named_and_still_continued(small: Path) -> None:
    done = command("generate", small, "--prompt", "Avgvi †mvbvi evsjv Avwg †Zvgvq fvjevwm", *FEW)
    assert done.code == 0 and "SutonnyMJ" in done.said


def test_notes_are_in_bangla_where_the_course_is(small: Path) -> None:
    done = command("generate", small, "--prompt", BANGLA, *FEW, COURSE_LANGUAGE="bn")
    assert "বেস মডেল" in done.said and "লাইসেন্স" in done.said and "প্রিফিল" in done.said
    assert "model" not in done.said.replace("models", "").replace("README", "")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(endless: Path) -> None:
    flags = call("generate", endless, "--prompt", "a", "--max-new-tokens", 90000)
    with subprocess.Popen(
        flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read().decode("utf-8")
        assert process.wait(timeout=300) == 0
    assert "Traceback" not in said and "Broken" not in said and "Exception" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_a_sentence(small: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            call("generate", small, "--prompt", "a", *FEW), stdout=full, stderr=subprocess.PIPE, env=environment(),
            stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.decode("utf-8").splitlines()[-1] == "generate: No space left on device"


@needs_a_terminal
def test_streams_that_a_shell_has_closed_are_no_traceback(small: Path) -> None:
    words = " ".join(f"'{word}'" for word in call("generate", small, "--prompt", "a", *FEW))
    done = subprocess.run(
        ["sh", "-c", f"{words} <&- >&-"], capture_output=True, env=environment(), timeout=300
    )  # fmt: skip
    assert done.returncode == 0 and b"Traceback" not in done.stderr + done.stdout


@needs_a_terminal
def test_a_terminal_gets_text_as_it_is_written_in_whole_graphemes_and_no_control_characters(
    small: Path,
) -> None:
    flags = ("generate", small, "--prompt", "ক", "--seed", 1, "--max-new-tokens", 60)
    plain = command(*flags).out
    with Terminal(*flags, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        shown = terminal.shown
        chunks = [chunk.decode("utf-8") for chunk in terminal.chunks]  # no chunk ends inside a character
    assert "\x1b" not in shown
    assert len(chunks) > 10
    text = "".join(sign for sign in plain if sign >= " " or sign in "\n\t")
    assert text in shown.replace("\r", "")


def test_no_control_character_reaches_a_terminal_and_joiners_do() -> None:
    class Stream(io.StringIO):
        terminal = True

        def isatty(self) -> bool:
            return self.terminal

    text = "র‍্যাম\x1b[2J\x07\x9b\n\tউদ্‌যাপন\r"
    stream = Stream()
    writer(stream)(text)
    assert stream.getvalue() == "র‍্যাম[2J\n\tউদ্‌যাপন"
    stream = Stream()
    stream.terminal = False
    writer(stream)(text)
    assert stream.getvalue() == text


@pytest.mark.parametrize("model", ["lean-opt-5m", "small"])
def test_a_conjunct_is_never_cut_by_a_write(
    model: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model if model == "lean-opt-5m" else str(request.getfixturevalue(model))

    class Recorder(io.StringIO):
        writes: list[str] = []  # noqa: RUF012

        def write(self, text: str) -> int:
            self.writes.append(text)
            return len(text)

    recorder = Recorder()
    monkeypatch.setattr(sys, "stdout", recorder)
    assert main([folder, "--prompt", "ক", "--seed", "3", "--max-new-tokens", "60"]) == 0
    new = recorder.writes[1:]
    assert len(new) > 20
    assert [sign for text in new for sign in graphemes(text)] == graphemes("".join(new))


@needs_a_terminal
def test_ctrl_c_ends_the_command_with_130(endless: Path) -> None:
    with Terminal("generate", endless, "--prompt", "hello", "--max-new-tokens", 90000) as terminal:
        terminal.wait_for("hello")
        assert terminal.stop() == 130
        assert "Traceback" not in terminal.shown and terminal.shown.endswith("stopped\n")
