"""Lesson 07: what its pictures, its widget and its card say, and the gradients and texts that they show."""

import re

import pytest
import torch

from course_lib.classroom import figures
from course_lib.classroom.messages import current_language, set_language
from course_lib.gqa import KVCache
from course_lib.lessons import lesson_07
from course_lib.lessons.lesson_07_card import MOST_POINTS, draw_card
from course_lib.lessons.lesson_07_gradients import LOWEST, Sizes
from course_lib.lessons.lesson_07_pictures import FORMATS, ends, parts_of
from course_lib.models import GPT, GPTConfig
from course_lib.text import graphemes, load_corpus
from course_lib.training import TokenStream, TrainConfig, memory_budget

CONFIG = GPTConfig(vocab_size=4096, dim=48, num_layers=2, num_heads=6, num_kv_heads=2, init_std=0.05)
FACTS = dict(losses=[8.0, 4.0, 2.0], parameters=1000, documents=3, tokens=4096, seconds=75.2)


@pytest.fixture
def bangla():
    spoken = current_language()
    set_language("bn")
    yield
    set_language(spoken)


@pytest.fixture(scope="module")
def row():
    return next(TokenStream(load_corpus(), batch_tokens=900))


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_ends_of_a_format_are_those_that_pytorch_has(name, dtype):
    smallest, normal, largest = ends(*FORMATS[name])
    info = torch.finfo(dtype)
    assert (normal, largest) == (info.smallest_normal, info.max)
    assert torch.tensor([smallest, smallest / 2.01], dtype=dtype).tolist() == [smallest, 0]


def test_the_parts_of_the_model_are_all_of_its_parameters():
    model = GPT(CONFIG)
    parts = parts_of(model)
    layer = sum(count for _, count, _ in parts[2:6])
    assert parts[1][1] + CONFIG.num_layers * layer + parts[6][1] == model.num_parameters()


def test_the_picture_of_the_model_names_each_lesson():
    said = lesson_07.gpt_figure(GPT(CONFIG)).title
    for words in (
        "embedding (196,608, lesson 03)",
        "attention (6,144, lesson 04)",
        "SwiGLU (18,432, lesson 06)",
    ):
        assert words in said


def test_gradients_are_sorted_by_their_power_of_two():
    sizes = Sizes()
    sizes.add(torch.tensor([0.0, 1.0, -1.5, 2.0, 2.0**-30, 2.0**-200]))
    assert [int(sizes.counts[power - LOWEST]) for power in (-30, 0, 1)] == [1, 2, 1]
    assert int(sizes.counts.sum()) == 4, "zeros are left out, and so is what fp32 itself makes 0"
    assert sizes.share_below(-25) == 0.25
    assert sizes.shares(0, 1) == [0.5, 0.25]
    assert sizes.largest == 2


def test_gradient_sizes_count_every_gradient_once_and_leave_none_behind(row):
    model = GPT(CONFIG)
    sizes = lesson_07.gradient_sizes(model, row)
    assert int(sizes["weights"].counts.sum()) <= model.num_parameters()
    assert int(sizes["logits"].counts.sum()) <= row.tokens.numel() * CONFIG.vocab_size
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_what_was_measured_beforehand_is_whole_and_mostly_below_fp16():
    shares = lesson_07.measured_beforehand()
    assert sum(shares.values()) == pytest.approx(1)
    assert 0.3 < sum(share for power, share in shares.items() if power < lesson_07.VANISHES) < 0.5


def _shares(html: str) -> list[str]:
    return re.findall(r"([\d.]+) %", re.search(r"<title>(.*?)</title>", html)[1])


def test_a_larger_loss_scale_saves_what_vanishes_until_something_overflows():
    vanish = [float(_shares(lesson_07.render_range(5, 10, power))[0]) for power in (0, 4, 8, 16)]
    assert vanish == sorted(vanish, reverse=True) and vanish[-1] == 0 < vanish[0]
    overflow = [float(_shares(lesson_07.render_range(5, 10, power))[1]) for power in (16, 32)]
    assert overflow[0] == 0 < overflow[1]


def test_bf16_loses_nothing_at_any_scale_of_the_widget():
    for power in (0, 16, 32):
        assert _shares(lesson_07.render_range(8, 7, power)) == ["0", "0"]


@pytest.mark.parametrize("exponent", [4, 5, 8])
def test_every_position_of_the_sliders_can_be_drawn(exponent):
    for mantissa in (2, 10):
        for power in (0, 32):
            assert lesson_07.render_range(exponent, mantissa, power).count("<svg") == 1


def test_the_widget_speaks_bangla(bangla):
    assert "ওভারফ্লো" in lesson_07.render_range(5, 10, 0)


def test_writing_with_a_cache_is_writing_without_one():
    model = GPT(CONFIG, seed=3)
    text = lesson_07.write(model, "একদিন", seed=5, max_new_tokens=12, temperature=1.0)
    tokens = torch.randint(1, 4000, (1, 9), generator=torch.Generator().manual_seed(0))
    caches = [KVCache() for _ in model.layers]
    with torch.no_grad():
        one_by_one = torch.cat([model(tokens[:, i : i + 1], cache=caches) for i in range(9)], 1)
        torch.testing.assert_close(one_by_one, model(tokens), rtol=1e-4, atol=1e-4)
    assert text.startswith("একদিন")
    assert text == lesson_07.write(model, "একদিন", seed=5, max_new_tokens=12, temperature=1.0)


def test_without_a_file_the_texts_are_bangla_with_english_words():
    assert {document.language for document in lesson_07.own_text()} == {"mixed"}


def test_a_file_of_ones_own_is_read(tmp_path):
    file = tmp_path / "আমার লেখা.txt"
    file.write_text("একদিন বৃষ্টি হলো।\n\nIt rained all day.\n", encoding="utf-8")
    assert "বৃষ্টি" in lesson_07.own_text(file)[0].text


def test_the_card_escapes_what_a_model_wrote_and_marks_the_prompt():
    drawn = draw_card("Ami <b>", "Ami <b>& ", "Ami <b> <script>", **FACTS)
    assert "<script>" not in drawn and "<b>Ami &lt;b&gt;</b> &lt;script&gt;" in drawn


def test_the_card_cuts_a_long_text_between_graphemes():
    word = "ক্ষ্ণ"
    drawn = draw_card("", "", word * 300, **FACTS)
    shown = max(re.findall(f"(?:{word})+…", drawn), key=len)
    assert len(shown) <= MOST_POINTS + 1 and graphemes(shown)[-1] == "…"


def test_the_card_says_minutes_and_losses(bangla):
    drawn = draw_card("", "ক", "খ", **FACTS)
    assert "8.0 → 2.0" in drawn and "আগে" in drawn and "মিনিট" in drawn


def test_a_card_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="losses: expected those of at least one step"):
        draw_card("", "", "", **FACTS | {"losses": []})


def test_the_card_is_saved_as_a_page_that_stands_by_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_STATE_DIR", str(tmp_path))
    path = lesson_07.save_card(lesson_07.training_card("", "ক", "খ", **FACTS))
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and 'charset="utf-8"' in page and "খ" in page
    assert str(tmp_path) not in capsys.readouterr().out


def test_the_figures_are_drawn_and_digested(capsys, row):
    import matplotlib

    matplotlib.use("agg")
    lesson_07.ranges_figure()
    lesson_07.updates_figure({"fp32": [1.0, 1.5, 2.0], "bf16": [1.0, 1.0, 1.0]})
    lesson_07.memory_figure({"small": memory_budget(TrainConfig(model=CONFIG, steps=1, precision="fp32"))})
    lesson_07.gradients_figure(lesson_07.gradient_sizes(GPT(CONFIG), row))
    said = capsys.readouterr().out
    assert (
        "fp16, powers of ten: -7.22, -4.21, 4.82" in said and "bf16: 1, 1, 1" in said and "small, MiB" in said
    )
    assert figures.PALETTE


def test_dtypes_inside_are_fp32_weights_and_half_products():
    found = lesson_07.dtypes_inside(GPT(CONFIG), torch.arange(20)[None], torch.bfloat16)
    assert {weights for _, weights, _, _ in found} == {"fp32"}
    leaves = {part: out for part, _, _, out in found}
    assert leaves["layers.0.attention.q_proj"] == leaves["head"] == "bf16"
    assert leaves["embed"] == "fp32"
