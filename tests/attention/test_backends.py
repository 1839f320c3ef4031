"""available_backends: what is asked, what it answers, and that `auto` does what it says."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from course_lib.attention import Causal, KeyPadding, Segments, attention, available_backends

from .cases import HOLES
from .running import ALWAYS, assert_is_a_sentence, qkv, randn

NAMES = {"xformers", "batched", "torch_sdpa", "tiled", "reference"}
BIASES: dict[str, Any] = {
    "none": lambda: None,
    "causal": lambda: Causal(),
    "window": lambda: Causal(window=2),
    "segments": lambda: Segments([3, 4], inner=Causal()),
    "padding": lambda: KeyPadding(HOLES),
    "sum": lambda: Causal() + KeyPadding(HOLES),
    "dense": lambda: randn(7, 7, seed=1, dtype=torch.float32),
    "trained": lambda: randn(7, 7, seed=1, dtype=torch.float32, grad=True),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BIASES)
def test_every_backend_is_named_with_ok_or_a_sentence(name: str, training: bool) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32, grad=training)
    answer = available_backends(query, key, value, BIASES[name](), training=training)
    assert set(answer) == NAMES
    assert list(answer)[-1] == "reference", "the O(n²) definition is the last resort"
    assert list(answer).index("tiled") < list(answer).index("reference")
    for backend in ALWAYS:
        assert answer[backend] == "ok"
    for reason in answer.values():
        assert reason == "ok" or assert_is_a_sentence(reason) is None


@pytest.mark.parametrize("name", BIASES)
def test_auto_is_the_first_backend_that_is_ok(name: str) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32)
    bias = BIASES[name]()
    answer = available_backends(query, key, value, bias, training=True)
    first = next(backend for backend, reason in answer.items() if reason == "ok")
    assert torch.equal(attention(query, key, value, bias), attention(query, key, value, bias, backend=first))


@pytest.mark.parametrize("name", BIASES)
def test_what_is_ok_runs_and_what_is_not_raises_its_reason(name: str) -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32)
    bias = BIASES[name]()
    for backend, reason in available_backends(query, key, value, bias, training=True).items():
        if reason == "ok":
            attention(query, key, value, bias, backend=backend).sum().backward()
        else:
            with pytest.raises(ValueError) as refusal:
                attention(query, key, value, bias, backend=backend)
            assert reason in str(refusal.value)
            assert backend in str(refusal.value)


def test_on_a_cpu_xformers_says_that_its_kernels_need_cuda() -> None:
    query, key, value = qkv(1, 4, dtype=torch.float32)
    reason = available_backends(query, key, value)["xformers"]
    assert "CUDA" in reason
    with pytest.raises(ValueError, match="CUDA"):
        attention(query, key, value, backend="xformers")


def test_plain_and_causal_attention_are_left_to_the_fused_kernel() -> None:
    query, key, value = qkv(1, 64, heads=2, head_dim=16, dtype=torch.float32)
    for bias in (None, Causal(), Causal("top-left"), Segments([32, 32], inner=Causal())):
        assert available_backends(query, key, value, bias, training=True)["torch_sdpa"] == "ok"


def test_a_bias_that_trains_is_not_left_to_a_kernel_that_gives_it_no_gradient() -> None:
    query, key, value = qkv(2, 7, dtype=torch.float32)
    bias = randn(7, 7, seed=1, dtype=torch.float32, grad=True)
    attention(query, key, value, bias).sum().backward()
    assert bias.grad is not None
    assert available_backends(query, key, value, bias, training=True)["torch_sdpa"] != "ok"


def test_xformers_is_imported_only_when_its_objects_are_used() -> None:
    """A child process, since this one may have imported it already."""
    import subprocess

    code = (
        "import sys, torch\n"
        "from course_lib.attention import attention, available_backends, Causal\n"
        "q = torch.randn(1, 4, 2, 8)\n"
        "attention(q, q, q, Causal()); available_backends(q, q, q)\n"
        "assert 'xformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "xformers" not in done.stderr.lower()


def test_the_public_names_are_where_the_course_says() -> None:
    import course_lib.attention as package

    for name in (
        "attention",
        "merge_attentions",
        "available_backends",
        "AttentionBias",
        "Causal",
        "Segments",
        "KeyPadding",
    ):
        assert hasattr(package, name)
        assert getattr(package, name).__doc__, f"{name} has no docstring"
        assert name in package.__all__


def test_the_docstring_of_attention_says_that_there_is_no_dropout() -> None:
    assert "dropout" in (attention.__doc__ or "")
