"""Lesson 09: what its pictures and its widget say, and what it measures."""

import re

import pytest
import torch

from course_lib.classroom.messages import current_language, set_language
from course_lib.gqa import KVCache
from course_lib.lessons import lesson_09
from course_lib.lessons.lesson_09_pictures import PROMPTS, parts_of
from course_lib.lessons.lesson_09_plots import parameters_of
from course_lib.models import GPT, OPT, GPTConfig, OPTConfig, next_token_probabilities
from course_lib.text import load_tokenizer

OPT_CONFIG = OPTConfig(vocab_size=60, dim=16, num_layers=2, num_heads=4, max_length=32, init_std=0.3)


@pytest.fixture
def small():
    return OPT(OPT_CONFIG, seed=3)


@pytest.fixture
def bangla():
    spoken = current_language()
    set_language("bn")
    yield
    set_language(spoken)


def title_of(html: str) -> str:
    return re.search(r"<title>(.*?)</title>", html)[1]


# --- pictures ----------------------------------------------------------------------------------------------------


def test_the_picture_of_both_models_tells_their_own_numbers(small):
    gpt = GPT(GPTConfig(vocab_size=60, dim=24, num_layers=3, num_heads=6, num_kv_heads=3))
    said = lesson_09.anatomy_figure(small, gpt).title
    for words in ("6 heads share 3", "4 heads, biases", "a learned table, 32 + 2 rows", "60 × 24 / 60 × 16"):
        assert words in said
    assert [name for name, *_ in parts_of(small, gpt)].count("norm") == 3


def test_positions_are_those_of_the_cache_and_places_that_differ_are_marked():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0]])
    drawn = lesson_09.positions_figure([["a", "b"], list("abcd"), ["a", "c"]], mask)
    assert drawn.title.endswith("row 0: [0, 1], row 1: [0, 1, 2, 3], row 2: [0, 1]")
    assert drawn.html.count("✗") == 2 + 0 + 1 + 1, "two, none and one token, and the caption"


def test_reading_with_a_cache_reads_each_token_once():
    drawn = lesson_09.reads_figure(list("abcdefg"), 3)
    assert drawn.title == "4 new tokens: 18 tokens read without a cache, 6 with one"
    with pytest.raises(ValueError, match="prompt: expected 1 to 6"):
        lesson_09.reads_figure(list("abcdefg"), 7)


def test_a_label_shows_spaces_half_letters_and_lone_signs():
    tokenizer = load_tokenizer()
    label = {
        word: lesson_09.label_of(tokenizer, tokenizer.encode(word)[0]) for word in (" ঘুড়ি", ",", "ে", "\n")
    }
    assert label == {" ঘুড়ি": "ঘুড়ি", ",": "…,", "ে": "…◌ে", "\n": "…⏎"}
    half = next(t for t in range(tokenizer.vocab_size) if tokenizer.token_bytes(t) == b"\xe0\xa6")
    assert lesson_09.label_of(tokenizer, half) == "E0 A6"
    assert lesson_09.label_of(tokenizer, tokenizer.end_of_text) == "(end)"


def test_the_picture_of_top_p_fills_what_the_library_keeps():
    logits = 2 * torch.randn(50, generator=torch.Generator().manual_seed(1))
    for p in (0.3, 0.9, 1.0):
        kept = int((next_token_probabilities(logits, top_p=p) > 0).sum())
        drawn = lesson_09.kept_figure(logits.softmax(-1), [f"t{i}" for i in range(50)], p, most=50)
        assert drawn.title.startswith(f"Top-p of {p:g} keeps {kept} of 50 tokens")
        assert drawn.html.count("fill:#0072b2") == kept


# --- the widget --------------------------------------------------------------------------------------------------


def kept_by(prompt: str, temperature: float, top_p: float) -> int:
    return int(
        re.match(r"(\d+) tokens", title_of(lesson_09.render_next_token(prompt, temperature, top_p)))[1]
    )


def test_the_prompts_of_the_widget_are_of_different_kinds():
    kept = [kept_by(prompt, 1.0, 0.9) for prompt in PROMPTS]
    assert kept[3] == 1 < kept[1] < kept[0] < 20 < 100 < kept[2], kept


def test_a_higher_temperature_keeps_more_and_a_lower_one_fewer():
    for prompt in PROMPTS[:3]:
        counts = [kept_by(prompt, temperature, 0.9) for temperature in (0.2, 1.0, 2.0)]
        assert counts == sorted(counts) and counts[0] < counts[2]


def test_the_widget_speaks_bangla(bangla):
    assert "টোকেনের মধ্যে" in lesson_09.render_next_token(PROMPTS[0], 1.0, 0.9)


def test_moving_a_control_of_the_widget_changes_its_picture(capsys):
    view = lesson_09.next_token_widget()
    view.set(top_p=0.5)
    assert "the picture has changed" in capsys.readouterr().out


# --- measures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["125m", "350m", "1.3b", "175b"])
def test_parameters_are_counted_as_the_model_has_them(size):
    config = OPTConfig.of_size(size)
    with torch.device("meta"):
        assert parameters_of(config) == OPT(config).num_parameters()


def test_a_decode_step_reads_all_layers_and_the_head(small):
    read = lesson_09.decode_weights(small)
    norms_and_positions = small.num_parameters() - read
    assert norms_and_positions == (32 + 2) * 16 + 2 * 16, (
        "the table of positions and the last norm are left out"
    )


def test_what_is_measured_is_a_time_for_each_length(small):
    found = lesson_09.seconds_a_token(small, (1, 4), seconds=0.01)
    assert len(found) == 2 and all(0 < seconds < 10 for seconds in found)
    assert 0 < lesson_09.measured_step(small, 3, prompt=4, steps=3) < 10


def test_speeds_are_counted_in_bytes_and_operations_of_the_tensors_that_they_move():
    assert lesson_09.memory_speed(megabytes=8, seconds=0.01) > 1e7
    assert lesson_09.product_speed(rows=8, width=64, seconds=0.01) > 1e6


def test_figures_digest_what_they_plot(capsys):
    lesson_09.machines_figure((1, 4), (0.02, 0.004))
    lesson_09.roofline_figure((1, 8), (0.01, 0.02), (0.005, 0.005), (0.001, 0.008))
    lesson_09.weights_and_caches_figure(("125m", "175b"), length=2048, batch=8)
    out = capsys.readouterr().out
    assert "milliseconds a token: 20, 4" in out and "tokens a second, measured: 100, 400" in out
    assert "weights, GB: 0.25, 349" in out and "caches, GB: 0.604, 77.3" in out


def test_a_cache_of_175b_is_as_large_as_its_figure_says():
    config = OPTConfig.of_size("175b")
    one = [KVCache() for _ in range(1)]
    key = torch.zeros(1, 1, config.num_heads, config.head_width, dtype=torch.float16)
    one[0].append(key, key)
    held = 2 * key.numel() * key.element_size() * config.num_layers * 2048 * 8
    assert held == pytest.approx(77.3e9, rel=1e-3)
