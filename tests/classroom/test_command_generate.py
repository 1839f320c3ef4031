"""`generate` and `chat` as they are called: in a process of their own, with a small OPT."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.models import OPT, OPTConfig
from course_lib.text import load_tokenizer

BANGLA = "একদিন রহিম"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small"
    tokenizer = load_tokenizer()
    end = tokenizer.end_of_text
    config = OPTConfig(
        vocab_size=tokenizer.vocab_size, dim=16, num_layers=1, num_heads=2, max_length=64,
        bos_token_id=end, eos_token_id=end, pad_token_id=tokenizer.pad,
    )  # fmt: skip
    OPT(config, seed=0).save(path)
    tokenizer.save(path / "tokenizer.json")
    return path


def command(*arguments: object, stdin: str = "", locale: str = "C.UTF-8") -> subprocess.CompletedProcess[str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONUTF8", "PYTHONIOENCODING", "LC_ALL")
    }
    return subprocess.run(
        [sys.executable, "-m", "course_lib", *map(str, arguments)],
        input=stdin, capture_output=True, encoding="utf-8", env=environment | {"LANG": locale}, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_bangla_prompt_comes_out_as_it_was_given_and_speed_goes_to_stderr(
    folder: Path, locale: str
) -> None:
    done = command("generate", folder, "--prompt", BANGLA, "--max-new-tokens", 4, locale=locale)
    assert done.returncode == 0
    assert done.stdout.startswith(BANGLA)
    assert "prefill 3 tokens" in done.stderr and "decode 3 tokens" in done.stderr


def test_a_prompt_on_stdin_gives_what_the_flag_gives(folder: Path) -> None:
    flag = command("generate", folder, "--prompt", BANGLA, "--max-new-tokens", 4)
    assert command("generate", folder, "--max-new-tokens", 4, stdin=BANGLA).stdout == flag.stdout


def test_the_same_seed_writes_the_same(folder: Path) -> None:
    flags = ("generate", folder, "--prompt", BANGLA, "--sample", "--seed", 5, "--max-new-tokens", 8)
    assert command(*flags).stdout == command(*flags).stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--prompt", "hello " * 90], "context of 64"),
        (["--prompt", "a", "--top-p", "7"], "top_p"),
        (["--prompt", "a", "--wrong"], "unrecognized arguments"),
        (["--prompt-file", "no-such-file"], "no-such-file"),
    ],
)
def test_an_error_is_one_sentence_with_exit_code_2(folder: Path, flags: list[str], said: str) -> None:
    done = command("generate", folder, *flags)
    assert done.returncode == 2
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_folder_without_a_tokenizer_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        (folder / "config.json").read_text(encoding="utf-8"), encoding="utf-8"
    )
    done = command("generate", tmp_path, "--prompt", "a")
    assert done.returncode == 2 and "tokenizer.json" in done.stderr and str(tmp_path) in done.stderr


def test_a_chat_says_what_it_is_and_obeys_its_own_commands(folder: Path) -> None:
    lines = f"{BANGLA}\n/seed 3\n/seed x\n/nope\n/reset\n/quit\nnever read\n"
    done = command("chat", folder, "--max-new-tokens", 4, stdin=lines)
    assert done.returncode == 0
    assert "does not obey" in done.stderr and "seed 3" in done.stderr and "forgotten" in done.stderr
    assert "expected a whole number, got 'x'" in done.stderr and "no command /nope" in done.stderr


def test_a_chat_says_when_the_oldest_turns_are_forgotten(folder: Path) -> None:
    done = command("chat", folder, "--max-new-tokens", 16, stdin="one line of a longer text\n" * 4)
    assert done.returncode == 0 and "were forgotten" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for one process there")
def test_ctrl_c_stops_an_answer_and_not_the_chat(folder: Path, tmp_path: Path) -> None:
    from course_lib.models import Bloom, BloomConfig

    endless = tmp_path / "endless"
    tokenizer = load_tokenizer()
    Bloom(BloomConfig(vocab_size=tokenizer.vocab_size, dim=16, num_layers=1, num_heads=2), seed=0).save(
        endless
    )
    tokenizer.save(endless / "tokenizer.json")
    flags = ["chat", str(endless), "--max-new-tokens", "90000", "--context", "99000"]
    with subprocess.Popen(
        [sys.executable, "-m", "course_lib", *flags],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("hello\n")
        process.stdin.flush()
        process.stdout.read(1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        _, said = process.communicate("/seed 7\n/quit\n", timeout=300)
    assert process.returncode == 0 and "[stopped]" in said and "seed 7" in said
