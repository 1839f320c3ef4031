"""Settings that every test shares: the shape-checking pass, markers by file name, reproducible properties."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `start.py test` runs the tests of tensor code a second time with this variable set: every signature of
# course_lib is then checked against what passes through it. The hook must be in place before course_lib loads.
SHAPE_CHECKS = os.environ.get("COURSE_JAXTYPING") == "1"
if SHAPE_CHECKS:
    from jaxtyping import install_import_hook

    install_import_hook("course_lib", "shape_checks.checked")

# Derandomised, so that a red CI run is red again on the reader's machine; no deadline, since machines differ.
settings.register_profile(
    "course", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("course")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark files that test our own error messages: the shape-checking pass would speak before we do."""
    for item in items:
        if item.path.name.startswith("test_errors"):
            item.add_marker(pytest.mark.error_messages)
        if item.get_closest_marker("gpu") and not _has_cuda():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[1]
