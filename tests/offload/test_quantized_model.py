"""A whole model in four or eight bits: its layers' linears, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from course_lib.models import GPT, OPT, Bloom, BloomConfig, GPTConfig, OPTConfig, generate, load_model
from course_lib.offload import QuantizedLinear, quantize_model
from course_lib.text import load_tokenizer, stories
from course_lib.training import evaluate

SIZES = {"vocab_size": 64, "dim": 64, "num_layers": 2, "num_heads": 4}


def opt(**more) -> OPT:
    return OPT(OPTConfig(**{**SIZES, "max_length": 64, **more}))


def bloom() -> Bloom:
    return Bloom(BloomConfig(**SIZES))


def gpt(**more) -> GPT:
    return GPT(GPTConfig(**{**SIZES, "num_kv_heads": 2, **more}))


MODELS = {
    "opt": opt,
    "narrow embedding": lambda: opt(embed_dim=32, norm_first=False),
    "bloom": bloom,
    "gpt": gpt,
    "gpt with biases": lambda: gpt(bias=True, feed_forward="gelu", positions="rotary"),
    "gpt that recomputes": lambda: gpt(recompute=True),
}
PROMPTS = torch.arange(12).reshape(2, 6) + 3


def unpacked(model: nn.Module) -> nn.Module:
    """The model again, its weights being what four bits make of them."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedLinear):
                linear = nn.Linear(child.in_features, child.out_features, bias=child.bias is not None)
                linear.weight.data, linear.bias = child.unpacked(), child.bias
                setattr(parent, name, linear)
    return model


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("bits", [4, 8])
@torch.no_grad()
def test_every_family_computes_and_writes_with_what_its_layers_unpack(kind, bits):
    model = quantize_model(MODELS[kind](), bits, group_size=32)
    logits, written = model(PROMPTS), generate(model, PROMPTS, max_new_tokens=4)
    unpacked(model)
    torch.testing.assert_close(logits, model(PROMPTS), rtol=1e-4, atol=1e-5)
    assert written.equal(generate(model, PROMPTS, max_new_tokens=4))


@pytest.mark.parametrize("kind", MODELS)
def test_all_linears_of_the_layers_are_replaced_and_all_else_is_the_same_object(kind):
    model = MODELS[kind]()
    linears = {name for name, child in model.layers.named_modules() if isinstance(child, nn.Linear)}
    weights = {f"layers.{name}.weight" for name in linears}
    others = {name: own for name, own in model.named_parameters() if name not in weights}
    assert quantize_model(model, 4) is model
    assert {n for n, c in model.layers.named_modules() if isinstance(c, QuantizedLinear)} == linears
    after = dict(model.named_parameters())
    assert after.keys() == others.keys()
    assert all(after[name] is own for name, own in others.items())
    assert model.head.weight is model.embed.weight


def test_no_more_than_one_weight_is_held_beside_the_model(monkeypatch):
    from course_lib.offload import quantized_model

    model = opt()
    alive = []
    make = QuantizedLinear.from_linear.__func__

    def counting(cls, linear, **how):
        alive.append(sum(type(child) is nn.Linear for child in model.layers.modules()))
        return make(cls, linear, **how)

    monkeypatch.setattr(quantized_model.QuantizedLinear, "from_linear", classmethod(counting))
    quantize_model(model, 4)
    assert alive == list(range(12, 0, -1))


def test_four_bits_raise_the_perplexity_of_the_courses_model_by_3_percent_at_most():
    documents = list(stories(40, seed=2027))
    model = load_model("lean-opt-5m")
    loss = {16: evaluate(model, documents, context=512)}
    for bits in (8, 4):
        loss[bits] = evaluate(quantize_model(load_model("lean-opt-5m"), bits), documents, context=512)
    rise = {bits: math.expm1(loss[bits] - loss[16]) for bits in (8, 4)}
    assert abs(rise[8]) < 0.001
    assert 0 < rise[4] <= 0.03


def test_the_courses_model_writes_a_story_in_four_bits():
    model = quantize_model(load_model("lean-opt-5m", dtype=torch.bfloat16), 4)
    tokenizer = load_tokenizer()
    prompt = torch.tensor([tokenizer.encode("Once upon a time")])
    text = tokenizer.decode(generate(model, prompt, max_new_tokens=20)[0].tolist())
    assert text.startswith("Once upon a time") and len(text) > 40


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e5])
def test_a_weight_that_has_no_step_is_named_and_none_is_replaced(value):
    model = opt()
    with torch.no_grad():
        model.layers[1].feed_forward.down.weight[3, 4] = value
    with pytest.raises(ValueError, match=r"model: layers\.1\.feed_forward\.down\.weight cannot .* expected"):
        quantize_model(model, 4)
    assert not any(isinstance(child, QuantizedLinear) for child in model.modules())


@pytest.mark.error_messages
def test_what_is_no_model_or_already_quantized_is_refused():
    with pytest.raises(TypeError, match=r"model: expected one whose \.layers are .* got Linear"):
        quantize_model(nn.Linear(2, 2), 4)
    with pytest.raises(ValueError, match=r"model: expected nn\.Linear among its layers, got none"):
        quantize_model(quantize_model(opt(), 4), 4)
    with pytest.raises(ValueError, match=r"bits: expected 4 or 8, got 2"):
        quantize_model(opt(), 2)
    with torch.device("meta"):
        empty = opt()
    with pytest.raises(ValueError, match=r"model: .* got layers\.0\..*\.weight on meta"):
        quantize_model(empty, 4)
