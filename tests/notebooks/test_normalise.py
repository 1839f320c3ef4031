"""What may enter git: nothing that differs between two runs, everything a reader needs."""

import base64
import zlib

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.classroom.notebooks.captions import caption_after
from course_lib.classroom.notebooks.normalise import KERNELSPEC, WIDGET_VIEW, normalise, strip_png, to_text
from tests.notebooks.samples import PIXEL, code, find, good_notebook, picture


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def with_chunk(kind: bytes, data: bytes) -> bytes:
    """The pixel with one more chunk, before its last."""
    return PIXEL[:-12] + chunk(kind, data) + PIXEL[-12:]


def outputs_of(*outputs) -> list:
    cell = new_code_cell("f()", outputs=list(outputs), execution_count=1)
    return normalise(new_notebook(cells=[cell])).cells[0].outputs


def test_normalising_twice_changes_nothing():
    once = good_notebook()
    assert normalise(once) == once
    assert to_text(normalise(once)) == to_text(once)


def test_a_normalised_notebook_is_valid_and_names_its_kernel():
    notebook = good_notebook()
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec == KERNELSPEC
    assert "version" not in notebook.metadata.language_info


def test_the_input_is_left_alone():
    notebook = new_notebook(cells=[new_code_cell("1", metadata={"execution": {"x": "1"}})])
    notebook.metadata["widgets"] = {}
    normalise(notebook)
    assert notebook.cells[0].metadata.execution and "widgets" in notebook.metadata


def test_metadata_of_tools_go_and_those_of_the_course_stay():
    metadata = {
        "tags": ["exercise"],
        "exercise": "1.1",
        "execution": {},
        "id": "x",
        "colab": {},
        "collapsed": True,
    }
    notebook = new_notebook(
        cells=[code("f()", count=1, **metadata)], metadata={"widgets": {}, "colab": {}, "accelerator": "GPU"}
    )
    fresh = normalise(notebook)
    assert fresh.cells[0].metadata == {"tags": ["exercise"], "exercise": "1.1"}
    assert set(fresh.metadata) == {"kernelspec", "language_info"}


def test_cell_ids_are_kept_and_missing_ones_depend_on_the_text_alone():
    def notebook():
        made = new_notebook(cells=[new_code_cell("a"), new_code_cell("a"), new_code_cell("b")])
        del made.cells[0]["id"], made.cells[1]["id"]
        made.cells[2]["id"] = "mine"
        return made

    first, second = ([cell.id for cell in normalise(notebook()).cells] for _ in range(2))
    assert first == second and len(set(first)) == 3 and first[2] == "mine"


def test_a_picture_loses_its_text_and_dates_and_keeps_its_pixels():
    noisy = with_chunk(b"tEXt", b"Software\0Matplotlib version3.11, https://matplotlib.org/")
    assert strip_png(noisy) == PIXEL
    assert strip_png(with_chunk(b"tIME", bytes(7))) == PIXEL
    density = with_chunk(b"pHYs", bytes(9))
    assert strip_png(density) == density
    (output,) = outputs_of(picture(noisy))
    assert base64.b64decode(output.data["image/png"]) == PIXEL


@pytest.mark.parametrize("data", [b"", b"GIF89a", PIXEL[:40], PIXEL[:-1] + b"x", PIXEL[:8]])
def test_what_is_no_whole_png_is_left_as_it_is(data):
    assert strip_png(data) == data


def test_the_caption_becomes_the_alternative_text():
    cell = find(good_notebook(), "draw()")
    assert cell.outputs[0].metadata == {"image/png": {"alt": "Two rivers, নদী, and one word."}}


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("*Two queries.*", "Two queries."),
        ("_Two queries._\n\nProse.", "Two queries."),
        ("*Two\nlines of `code`, $x$ and [a link](b.md).*", "Two lines of code, x and a link."),
        ("*snake_case stays*", "snake_case stays"),
        ("**Bold is no caption.**", None),
        ("*First* words in italics", None),
        ("*one* and *two*", None),
        ("Plain.", None),
        ("", None),
    ],
)
def test_a_caption_is_a_first_paragraph_all_in_italics(text, caption):
    assert caption_after([new_code_cell(""), new_markdown_cell(text)], 0) == caption


def test_a_caption_stands_right_after_its_figure():
    cells = [new_code_cell(""), new_code_cell(""), new_markdown_cell("*Late.*")]
    assert caption_after(cells, 0) is None
    assert caption_after(cells, 2) is None
    assert caption_after([new_code_cell(""), new_code_cell("_x_")], 0) is None


def test_a_widget_leaves_its_static_picture_and_no_model():
    data = {WIDGET_VIEW: {"model_id": "1"}, "text/html": "<p>3</p>", "text/plain": "slider"}
    (output,) = outputs_of(new_output("display_data", data=data))
    assert output.data == {"text/html": "<p>3</p>", "text/plain": "slider"}
    assert outputs_of(new_output("display_data", data={WIDGET_VIEW: {"model_id": "1"}})) == []


@pytest.mark.parametrize(
    "bar",
    ["100%|██████████| 3/3 [00:00<00:00, 9.1it/s]\n", "\r  0%|   | 0/3\r 33%|█  | 1/3", "5it [00:01, 4it/s]"],
)
def test_progress_bars_on_stderr_go(bar):
    assert outputs_of(new_output("stream", name="stderr", text=bar)) == []


def test_a_notebook_progress_bar_goes_and_a_table_with_bars_stays():
    plain = "  0%|          | 0/3 [00:00<?, ?it/s]"
    assert outputs_of(new_output("display_data", data={"text/plain": plain, WIDGET_VIEW: {}})) == []
    kept = outputs_of(new_output("stream", name="stdout", text="50%| half |\n"))
    assert kept[0].text == "50%| half |\n"


def test_a_warning_on_stderr_stays_so_that_someone_mends_it():
    (output,) = outputs_of(new_output("stream", name="stderr", text="50%|█ | 1/2\rUserWarning: old\n"))
    assert output.text == "UserWarning: old\n"


def test_an_error_keeps_its_message_and_loses_the_files_of_one_machine():
    error = new_output(
        "error", ename="ValueError", evalue="no", traceback=["File /home/rahim/x.py", "\x1b[31mred"]
    )
    (output,) = outputs_of(error)
    assert output.traceback == ["ValueError: no"]


def test_bangla_is_written_as_bangla():
    text = to_text(normalise(new_notebook(cells=[new_markdown_cell("নদী")])))
    assert "নদী" in text and text.endswith("}\n") and not text.endswith("\n\n")
