"""Commands as a reader calls them: on pipes or in a terminal."""

import io
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from course_lib import cli
from course_lib.classroom import messages

ALONE = ("PYTHONUTF8", "PYTHONIOENCODING", "LC_ALL", "COURSE_LANGUAGE", "NO_COLOR")
needs_a_terminal = pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals there")


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ALONE}
    return own | {"LANG": "C.UTF-8", "TERM": "xterm", "OMP_NUM_THREADS": "1"} | more


def call(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "course_lib", *map(str, arguments)]


class Done(NamedTuple):
    code: int
    out: str
    said: str
    """On stderr."""


def process(*arguments: object, stdin: str | bytes = "", **variables: str) -> Done:
    """Run a command to its end in a process of its own."""
    done = subprocess.run(
        call(*arguments), input=_bytes(stdin), capture_output=True, env=environment(**variables), timeout=300
    )
    said = done.stderr.decode("utf-8")
    assert "Traceback" not in said, said
    return Done(done.returncode, done.stdout.decode("utf-8"), said)


def command(*arguments: object, stdin: str | bytes = "", **variables: str) -> Done:
    """The same within this process, which need not load torch anew."""
    files = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (_bytes(stdin), b"", b"")]
    out, said = files[1].buffer, files[2].buffer
    with (
        mock.patch.multiple(sys, stdin=files[0], stdout=files[1], stderr=files[2]),
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        mock.patch.object(
            messages, "_chosen", []
        ),  # no language but the environment's, whatever a test has chosen
    ):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        for file in files[1:]:
            file.flush()
    return Done(code, _text(out), _text(said))


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else text


def _text(buffer: Any) -> str:
    return buffer.getvalue().decode("utf-8")


def refused(*arguments: object, stdin: str | bytes = "") -> str:
    """The one sentence of a command that ends with exit code 2 and writes nothing."""
    done = command(*arguments, stdin=stdin)
    assert (done.code, done.out) == (2, ""), done
    assert len(done.said.splitlines()) == 1, done.said
    return done.said


class Terminal:
    """A command in a terminal. ``wait_for(text)`` reads until it shows, ``type(text)`` presses keys."""

    def __init__(self, *arguments: object, stdout: Path | None = None, **variables: str) -> None:
        import pty

        self.fd, other = pty.openpty()
        out = other if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT)
        self.process = subprocess.Popen(
            call(*arguments), stdin=other, stdout=out, stderr=other, env=environment(**variables),
            preexec_fn=_own_the_terminal,
        )  # fmt: skip
        os.close(other)
        self.chunks: list[bytes] = []
        """What each read returned: no less than was written at once."""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    @property
    def shown(self) -> str:
        return b"".join(self.chunks).decode("utf-8", errors="replace").replace("\r\n", "\n")

    def type(self, text: str | bytes) -> None:
        os.write(self.fd, text.encode("utf-8") if isinstance(text, str) else text)

    def wait_for(self, text: str, *, after: str = "") -> None:
        while text not in self._shown_after(after):
            assert self._read(), f"no {text!r} in {self.shown!r}"

    def wait_for_bytes(self, count: int) -> None:
        while count > 0:
            chunk = self._read()
            assert chunk, f"the command has ended: {self.shown!r}"
            count -= len(chunk)

    def _shown_after(self, text: str) -> str:
        return self.shown.partition(text)[2] if text else self.shown

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(timeout=120)

    def interrupt(self) -> None:
        """Press Ctrl-C, again if nothing comes of it: readline misses one that comes just before it begins to wait."""
        for _ in range(6):
            self.type(b"\x03")
            if select.select([self.fd], [], [], 10)[0]:
                return

    def stop(self) -> int:
        """Press Ctrl-C until the command ends, every few seconds: Python loses one that comes while a callback of C
        code runs. The exit code."""
        while True:
            self.type(b"\x03")
            pressed = time.monotonic()
            while time.monotonic() < pressed + 5:
                if not self._read():
                    return self.process.wait(timeout=120)

    def _read(self) -> bytes:
        assert select.select([self.fd], [], [], 240)[0], f"nothing more after {self.shown!r}"
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:  # so Linux says that the other end is closed
            return b""
        self.chunks.append(chunk)
        return chunk


def _own_the_terminal() -> None:
    import fcntl
    import termios

    # Where the tests run in the background of a script, Ctrl-C is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C then interrupts this process
