"""What the lessons say is tested here, not how fast this machine is."""

import pytest

from course_lib.classroom import examine


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check gives an answer just over a second, which a busy machine may need for a right one."""
    monkeypatch.setattr(examine, "CHECK_SECONDS", 60.0)
