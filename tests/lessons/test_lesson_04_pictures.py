"""Lesson 04: the pictures, the calculator and the measurement of what is allocated show what they say."""

import pytest
import torch

from course_lib.classroom.messages import set_language
from course_lib.gqa import KVCache, kv_cache_bytes
from course_lib.lessons import lesson_04
from course_lib.lessons.lesson_04_pictures import KV_HEADS, MODELS
from course_lib.lessons.lesson_04_sharing import decode_work

WORDS = ["আমার", "ফোনের", "র‍্যাম", "মাত্র", "৪", "জিবি"]


def test_the_writing_figure_counts_the_words_that_go_through_the_model():
    html = lesson_04.writing_figure(WORDS).html
    without, with_cache = html.split("</svg>")[:2]
    assert without.count("•") == 21 and without.count(">=<") == 0
    assert with_cache.count("•") == 6 and with_cache.count(">=<") == 15
    assert all(html.count(word) == 2 for word in WORDS)


@pytest.mark.parametrize(("kv_heads", "name"), [(8, "multi-head"), (2, "grouped-query"), (1, "multi-query")])
def test_the_heads_figure_has_a_key_and_a_value_head_for_each_kv_head(kv_heads, name):
    html = lesson_04.heads_figure(8, [kv_heads]).html
    assert f"8 query heads over {kv_heads} key and value heads" in html and name in html
    assert f">k{kv_heads - 1}<" in html and f">v{kv_heads - 1}<" in html and f">k{kv_heads}<" not in html


def test_the_published_sizes_are_those_of_the_papers():
    token = {model.name: model.cache_bytes() for model in MODELS}
    assert token == {
        "OPT-175B": 4_718_592,
        "BLOOM": 4_014_080,
        "Llama-2-70B": 327_680,
        "GLM-4-9B": 40_960,
    }


def test_the_calculator_writes_the_bytes_that_the_library_counts():
    html = lesson_04.render_cache_calculator("Llama-2-70B", "published", "16 bit", 1, 4096)
    bytes_ = kv_cache_bytes(
        batch=1, length=4096, num_layers=80, num_kv_heads=8, head_dim=128, dtype=torch.float16
    )
    assert bytes_ == 5 * 2**28 and "a cache of 1.2 GiB" in html and "320 KiB" in html
    assert "holds 49,152 tokens" in html, "a T4: 15 GiB over 320 KiB"


def test_the_calculator_says_where_a_cache_does_not_fit():
    html = lesson_04.render_cache_calculator("OPT-175B", "published", "16 bit", 1, 4096)
    assert html.count("too small") == 3
    assert "too small" not in lesson_04.render_cache_calculator("OPT-175B", "1", "8 bit", 1, 4096)


@pytest.mark.parametrize("model", [model.name for model in MODELS])
@pytest.mark.parametrize("kv_heads", KV_HEADS)
@pytest.mark.parametrize("language", ["en", "bn"])
def test_every_setting_of_the_calculator_can_be_drawn(model, kv_heads, language):
    set_language(language)
    try:
        assert "<svg" in lesson_04.render_cache_calculator(model, kv_heads, "32 bit", 64, 131072)
    finally:
        set_language("en")


def test_kv_heads_that_do_not_divide_are_explained():
    with pytest.raises(ValueError, match="96 query heads; 7 kv heads cannot share them evenly"):
        lesson_04.render_cache_calculator("OPT-175B", "7", "16 bit", 1, 512)


def test_moving_a_control_of_the_calculator_changes_its_picture(capsys):
    lesson_04.cache_calculator().set(model="GLM-4-9B", batch=32)
    assert "the picture has changed" in capsys.readouterr().out


def test_the_room_figure_shows_the_tokens_that_a_cache_holds():
    cache = KVCache(block_size=4)
    token = torch.zeros(2, 5, 1, 2)
    cache.append(token, token, torch.tensor([[1] * 5, [0, 0, 1, 1, 1]]))
    html = lesson_04.room_figure(cache, [WORDS[:5], WORDS[:3]], block_size=4).html
    assert html.count(WORDS[0]) == 2 and html.count(WORDS[4]) == 1
    assert "8 of 16 places" in html


def test_an_attempt_to_share_is_measured_from_its_source():
    source = "def twice(query, key, value):\n    return (key + value)[:, :1]\n"
    step = decode_work(source=source, name="twice", length=100, num_heads=4, num_kv_heads=2, head_dim=8)
    assert [list(tensor.shape) for tensor in step()] == [[1, 1, 2, 8]]


def copies(query, key, value):
    group = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(group, dim=2), value.repeat_interleave(group, dim=2)
    return attention(query, key, value)  # noqa: F821 (the child brings it)


def shares(query, key, value):
    return attention(query, key, value)  # noqa: F821


def test_copies_allocate_the_cache_once_for_every_query_head_and_sharing_next_to_nothing():
    copied, shared = lesson_04.allocated(
        [copies, shares], length=4096, num_heads=16, num_kv_heads=2, head_dim=64
    )
    both = 2 * 4096 * 16 * 64 * 4
    assert 0.9 * both < copied < 1.2 * both
    assert shared < 0.1 * both
