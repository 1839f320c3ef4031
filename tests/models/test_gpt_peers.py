"""The GPT against transformers' Llama and GPT-2 with the same weights, and ALiBi against a bias made by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib.alibi import alibi_slopes
from course_lib.models import GPT

from .made import VOCABULARY, gradients, randomised, small, token_ids

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
LLAMA = {
    "embed": "model.embed_tokens",
    "attention_norm": "input_layernorm",
    "attention": "self_attn",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.w3": "mlp.down_proj",
    "layers": "model.layers",
    "norm": "model.norm",
    "head": "lm_head",
}


def _llama(dtype: torch.dtype) -> Any:
    transformers = pytest.importorskip("transformers")
    llama_config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        rope_theta=500.0,
        rms_norm_eps=1e-3,
        attn_implementation="sdpa",
    )
    theirs = randomised(transformers.LlamaForCausalLM(llama_config), dtype=dtype).eval()
    if dtype == torch.float64:
        _in_float64(theirs)
    return theirs


def _in_float64(theirs: Any) -> None:
    """Llama's norms and angles as they are defined: transformers rounds them to float32 on the way."""

    def norm(self: Any, x: Tensor) -> Tensor:
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    def angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = 500.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
        turned = (position_ids[..., None] * frequencies).repeat(1, 1, 2)
        return turned.cos(), turned.sin()

    for module in theirs.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = MethodType(norm, module)
    theirs.model.rotary_emb.forward = MethodType(angles, theirs.model.rotary_emb)


def _from_llama(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    """What Llama keeps under its names, under ours: weights or gradients."""
    found = {}
    for name in names:
        if name.endswith("w12.weight"):
            layer = name.replace("feed_forward.w12.weight", "").replace("layers", "model.layers")
            halves = [tensors[f"{layer}mlp.{half}_proj.weight"] for half in ("gate", "up")]
            found[name] = torch.cat(halves)
            continue
        theirs = name
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            part = max((part for part in LLAMA if rest.startswith(part)), key=len)
            theirs = f"model.layers.{number}.{LLAMA[part]}{rest.removeprefix(part)}"
        else:
            part = name.removesuffix(".weight")
            theirs = f"{LLAMA[part]}.weight"
        found[name] = tensors[theirs]
    return found


@DTYPES
@pytest.mark.parametrize("options", [{}, {"recompute": True, "checkpointing": "layers"}])
def test_logits_and_gradients_are_those_of_transformers_llama(
    options: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    theirs = _llama(dtype)
    ours = small(
        dtype=dtype,
        positions="rotary",
        tied_head=False,
        head_dim=8,
        hidden_features=40,
        rope_theta=500.0,
        norm_eps=1e-3,
        **options,
    )
    names = [name for name, _ in ours.named_parameters()]
    ours.load_state_dict(_from_llama(theirs.state_dict(), names))
    tokens = token_ids(2, 19)
    _assert_same(
        ours, ours(tokens), theirs, theirs(tokens).logits, lambda g: _from_llama(g, names), tolerance
    )


def _from_gpt2(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    """What GPT-2 keeps under its names, under ours. Its matrices lie transposed, and query, key, value are one."""
    parts = {
        "attention_norm": "ln_1",
        "feed_forward_norm": "ln_2",
        "attention.o_proj": "attn.c_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    outside = {"embed": "wte", "position_embed": "wpe", "norm": "ln_f", "head": "wte"}
    found = {}
    for name in names:
        part, kind = name.rsplit(".", 1)
        if part in outside:
            found[name] = tensors[f"transformer.{outside[part]}.{kind}"]
            continue
        _, number, part = part.split(".", 2)
        layer = f"transformer.h.{number}."
        if part in parts:
            tensor = tensors[f"{layer}{parts[part]}.{kind}"]
        else:
            which = ("q_proj", "k_proj", "v_proj").index(part.removeprefix("attention."))
            tensor = tensors[f"{layer}attn.c_attn.{kind}"].chunk(3, dim=-1)[which]
        found[name] = tensor.T if kind == "weight" and tensor.dim() == 2 else tensor
    return found


@DTYPES
def test_logits_and_gradients_are_those_of_transformers_gpt2_with_an_exact_gelu(
    dtype: torch.dtype, tolerance: float
) -> None:
    transformers = pytest.importorskip("transformers")
    # Its own "gelu_new" approximates the GELU by a tanh; ours is exact, as in BERT.
    gpt2_config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=24,
        n_layer=2,
        n_head=6,
        activation_function="gelu",
        attn_implementation="sdpa",
    )
    theirs = randomised(transformers.GPT2LMHeadModel(gpt2_config), dtype=dtype).eval()
    ours = small(
        dtype=dtype,
        positions="learned",
        feed_forward="gelu",
        norm="layernorm",
        bias=True,
        num_kv_heads=6,
    )
    ours.load_state_dict(_from_gpt2(theirs.state_dict(), list(ours.state_dict())))
    names = [name for name, _ in ours.named_parameters()]
    tokens = token_ids(2, 19)
    _assert_same(ours, ours(tokens), theirs, theirs(tokens).logits, lambda g: _from_gpt2(g, names), tolerance)


def _assert_same(
    ours: nn.Module,
    logits: Tensor,
    theirs: nn.Module,
    expected: Tensor,
    renamed: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    tolerance: float,
) -> None:
    largest = float(expected.detach().abs().max())
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance * largest)
    found, wanted = gradients(ours, logits), renamed(gradients(theirs, expected))
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        scale = max(
            float(gradient.abs().max()), 1.0
        )  # that of a key's bias is 0: the softmax does not feel it
        torch.testing.assert_close(found[name], gradient, rtol=tolerance, atol=tolerance * scale)


def test_alibi_is_the_published_bias_on_the_scores_of_every_layer() -> None:
    alibi = small(dtype=torch.float64, positions="alibi")
    plain = small(dtype=torch.float64, positions="none")
    assert isinstance(plain, GPT)
    plain.load_state_dict(alibi.state_dict())
    tokens = token_ids(2, 19)
    distance = torch.arange(19)[:, None] - torch.arange(19)
    bias = -alibi_slopes(6).double()[:, None, None] * distance
    bias = bias.masked_fill(distance < 0, float("-inf"))[None]
    torch.testing.assert_close(alibi(tokens), plain(tokens, bias=bias), rtol=0, atol=1e-10)
    assert (alibi(tokens) - plain(tokens)).abs().max() > 0.01
