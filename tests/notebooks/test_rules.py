"""Each rule rejects a notebook that breaks it, and all accept one that keeps them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course_lib.classroom.notebooks.check import main, problems
from course_lib.classroom.notebooks.lesson_file import tags
from course_lib.classroom.notebooks.normalise import normalise
from tests.notebooks.samples import NAME, PIXEL, code, find, good_notebook, picture, write

Break = Callable[[NotebookNode], object]


def found(notebook: NotebookNode, tmp_path: Path, name: str = NAME) -> list[str]:
    return [str(problem) for problem in problems(notebook, tmp_path / name)]


def edit(start: str, old: str, new: str) -> Break:
    """Replace text in the source of the cell that starts with `start`."""

    def change(notebook: NotebookNode) -> None:
        cell = find(notebook, start)
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def show(start: str, **output: object) -> Break:
    """Let a cell show HTML (or another media type) in place of what it shows."""
    data = {name.replace("_", "/", 1): content for name, content in output.items()}

    def change(notebook: NotebookNode) -> None:
        find(notebook, start).outputs = [new_output("display_data", data=data)]

    return change


def say(start: str, text: str, stream: str = "stdout") -> Break:
    def change(notebook: NotebookNode) -> None:
        find(notebook, start).outputs = [new_output("stream", name=stream, text=text)]

    return change


def tag(start: str, *names: str) -> Break:
    def change(notebook: NotebookNode) -> None:
        find(notebook, start).metadata["tags"] = list(names)

    return change


def strip(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def ignore_everything(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.outputs:
            cell.metadata["tags"] = [*tags(cell), "nbval-ignore-output"]


def drop_exercise(notebook: NotebookNode) -> None:
    index = notebook.cells.index(find(notebook, "def my_three"))
    del notebook.cells[index - 1 : index + 1]


def swap_exercises(notebook: NotebookNode) -> None:
    find(notebook, "def my_one").metadata["exercise"] = "1.2"
    find(notebook, "def my_two").metadata["exercise"] = "1.1"


def second_picture(notebook: NotebookNode) -> None:
    find(notebook, "draw()").outputs.append(picture())


def lose_caption(notebook: NotebookNode) -> None:
    find(notebook, "*Two rivers").source = "Two rivers, without italics."


def drop_digest(notebook: NotebookNode) -> None:
    cell = find(notebook, "draw()")
    cell.source, cell.outputs = "draw()", [picture()]


def error_output(notebook: NotebookNode) -> None:
    find(notebook, "print(1 + 1)").outputs = [
        new_output("error", ename="ValueError", evalue="no", traceback=[])
    ]


def widget_view(notebook: NotebookNode) -> None:
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": "f00"}, "text/html": "<p>3</p>"}
    find(notebook, "print(1 + 1)").outputs.append(new_output("display_data", data=data))


def two_install_cells(notebook: NotebookNode) -> None:
    find(notebook, "print('end')").metadata["tags"] = ["install"]


def no_title_cell(notebook: NotebookNode) -> None:
    del notebook.cells[0]


LONG = "x" * 70_000
SVG = '<svg viewBox="0 0 1 1"><rect/></svg>'

BROKEN: list[tuple[str, Break, str, str]] = [
    ("stripped", strip, "executed", "has not been executed"),
    (
        "out of order",
        lambda n: find(n, "print('end')").update(execution_count=3),
        "executed",
        "In [3] where In [8]",
    ),
    (
        "not from 1",
        lambda n: find(n, "import course").update(execution_count=4),
        "executed",
        "where In [1] belongs",
    ),
    ("empty code cell", lambda n: n.cells.append(new_code_cell("")), "executed", "empty code cell"),
    ("print unstored", lambda n: find(n, "print(1").update(outputs=[]), "outputs", "no output is stored"),
    ("all ignored", ignore_everything, "compared", "nothing in this notebook is compared"),
    ("too many ignored", ignore_everything, "ignored-share", "6 of 7 code cells are not compared"),
    ("error without tag", error_output, "errors", "shows ValueError without the tag"),
    ("tag without error", tag("print(1", "raises-exception"), "errors", "raises nothing"),
    ("warning", say("print(1", "UserWarning: pid 4711\n", "stderr"), "stderr", "UserWarning: pid 4711"),
    ("address", say("print(1", "<f at 0x7f3a5c1d2e80>"), "machine", "an address in memory"),
    ("path in output", say("print(1", "saved to /tmp/abc/x.pt"), "machine", "'/tmp/abc'"),
    ("Windows path", say("print(1", r"C:\Users\rahim\x.pt"), "machine", "a path of one machine"),
    ("path in source", edit("print(1", "print(", "open('/home/rahim/x'); print("), "machine", "its source"),
    ("pip log", say("print(1", "Collecting torch\n"), "pip-log", "log of an installation"),
    ("raw tensor", say("print(1", "tensor([[0.1, 0.2]])\n"), "portable", "not raw tensors"),
    ("raw float", say("print(1", "loss 0.30000001192\n"), "portable", "'0.30000001192': round it"),
    ("version", say("print(1", "torch 2.13.0+cpu\n"), "portable", "versions differ"),
    ("long output", say("print(1", LONG), "size", "68 KB of text; 64 are allowed"),
    ("long HTML", show("print(1", text_html=LONG), "size", "68 KB of text"),
    (
        "big picture",
        lambda n: find(n, "draw").outputs.append(picture(PIXEL * 9_000)),
        "size",
        "its picture is",
    ),
    ("widget state", lambda n: n.metadata.update(widgets={}), "widget-state", "GitHub cannot render"),
    ("widget view", widget_view, "widget-state", "whose model is gone"),
    ("widget without picture", tag("print(1", "widget"), "widget-picture", "no text/html"),
    ("no kernelspec", lambda n: n.metadata.pop("kernelspec"), "kernelspec", "got {}"),
    ("no cell id", lambda n: n.cells[3].pop("id"), "cell-ids", "an id of its own"),
    ("cell id twice", lambda n: n.cells[3].update(id=n.cells[2].id), "cell-ids", "an id of its own"),
    ("timings", lambda n: n.cells[4].metadata.update(execution={"a": 1}), "canonical", "metadata are not as"),
    ("Colab metadata", lambda n: n.metadata.update(colab={}), "canonical", "the notebook's metadata"),
    ("unknown tag", tag("print(1", "nbval_ignore_output"), "tags", "did you mean 'nbval-ignore-output'?"),
    ("capital tag", tag("## Recap", "Core"), "tags", "did you mean 'core'?"),
    ("skip tag", tag("print(1", "nbval-skip"), "tags", "unknown tag 'nbval-skip'"),
    ("tag twice", tag("## Recap", "core", "core"), "tags", "a tag twice"),
    ("both tags", tag("print(1", "nbval-check-output", "nbval-ignore-output"), "tags", "tagged both"),
    ("comment magic", edit("print(1", "print", "# NBVAL_SKIP\nprint"), "comment-magic", "'# NBVAL_SKIP'"),
    (
        "in a string",
        edit("print(1", "print", "'''\n #NBVAL_IGNORE_OUTPUT\n'''\nprint"),
        "comment-magic",
        "use a tag",
    ),
    ("magic", edit("print(1", "print", "%matplotlib inline\nprint"), "plain-python", "'%matplotlib inline'"),
    ("shell", edit("print(1", "print", "!ls\nprint"), "plain-python", "in the install cell only"),
    ("syntax error", edit("print(1", "1 + 1)", "1 + 1"), "plain-python", "never closed"),
    ("semicolon", edit("print(1", "1)", "1);"), "semicolon", "line 1 ends in `;`"),
    ("semicolon, comment", edit("print(1", "1)", "1)\n3;  # hidden"), "semicolon", "line 2"),
    ("clear_output", edit("print(1", "print", "clear_output()\nprint"), "uncheckable", "uses clear_output"),
    (
        "display_id",
        edit("print(1", "print", "display(1, display_id=True)\nprint"),
        "uncheckable",
        "uses display_id",
    ),
    (
        "interact",
        edit("print(1", "print", "from ipywidgets import interact\nprint"),
        "uncheckable",
        "use `observe`",
    ),
    ("Output", edit("print(1", "print", "w = widgets.Output()\nprint"), "uncheckable", "use `observe`"),
    ("no install cell", tag("import course_lib"), "install", "the first code cell, and no other"),
    ("two install cells", two_install_cells, "install", "the first code cell, and no other"),
    ("install prints", say("import course_lib", "done"), "install", "must print nothing"),
    ("no title cell", no_title_cell, "title", "the first cell must be markdown"),
    ("other number", edit("# 01", "# 01", "# 02"), "title", "must read `# 01 · Title`"),
    (
        "no promise",
        edit("# 01", "You will see one lesson that keeps every rule.\n\n", ""),
        "title",
        "sentence of promise",
    ),
    ("no abilities", edit("# 01", "You will be able to", "Contents"), "title", "must say"),
    ("two abilities", edit("# 01", "- say what a rule is\n", ""), "title", "needs 3–5 bullets, got 2"),
    ("six", edit("# 01", "- say", "- see\n- try\n- do\n- say"), "title", "needs 3–5 bullets, got 6"),
    ("no verb", edit("# 01", "- say what", "- the"), "title", "must begin with a verb, got 'the a rule is'"),
    ("no needs", edit("# 01", "**Needs:**", "Needs"), "title", "must say **Needs:**"),
    ("no minutes", edit("# 01", "**Minutes:** 5", "**Minutes:** few"), "title", "must say **Minutes:**"),
    ("no machine", edit("# 01", "**Machine:** any.", "any"), "title", "must say **Machine:**"),
    (
        "other badge",
        edit("# 01", "notebooks/01_", "notebooks/02_"),
        "title",
        "must open notebooks/01_sample.ipynb",
    ),
    ("second h1", edit("## Recap", "## Recap", "# Recap"), "headings", "one heading of level 1, got 2"),
    ("skipped level", edit("### Exercise 1.1", "### ", "#### "), "headings", "skips from level 2 to 4"),
    ("heading twice", edit("## Recap", "## Recap", "## 1 · Which corner?"), "headings", "stands twice"),
    (
        "section without tag",
        tag("## Recap"),
        "sections",
        "'Recap' needs one tag of core, deep, demo; got none",
    ),
    ("section with two", tag("## Recap", "core", "deep"), "sections", "got core, deep"),
    ("section inside", edit("## Recap", "## Recap", "Words.\n\n## Recap"), "sections", "must open its cell"),
    ("link to a file", edit("## Recap", "(#1-·-Which-corner?)", "(02_no.ipynb)"), "links", "does not exist"),
    ("link to a heading", edit("## Recap", "(#1-·-Which-corner?)", "(#1-Which)"), "links", "no such heading"),
    ("no caption", lose_caption, "caption", "one line in italics"),
    ("caption apart", lambda n: n.cells.insert(6, new_markdown_cell("Between.")), "caption", "in italics"),
    ("stale alt", edit("*Two rivers", "Two", "Three"), "alt", "equal to the caption"),
    ("two pictures", second_picture, "one-picture", "shows 2 pictures"),
    ("no digest", drop_digest, "digest", "prints no digest"),
    ("silent svg", show("print(1", text_html=SVG), "alt", "an <svg> needs"),
    ("silent img", show("print(1", text_html='<img src="x.png" alt="">'), "alt", "an <img> needs an alt"),
    ("silent HTML", show("draw()", text_html="<div>grid</div>"), "alt", "a figure of HTML needs"),
    ("silent markdown", edit("## Recap", "Back", "![](x.png) Back"), "alt", "needs words in its brackets"),
    ("two exercises", drop_exercise, "exercises", "3–6 exercises, got 2"),
    ("exercises swapped", swap_exercises, "exercises", "is exercise 1.2 where 1.1 belongs"),
    ("no exercise tag", tag("def my_one"), "exercises", "both the tag exercise and the metadata"),
    (
        "no heading",
        edit("### Exercise 1.2", "●○○ · ", ""),
        "exercises",
        "needs the heading `### Exercise 1.2",
    ),
    (
        "stub filled",
        edit("def my_one", "...", "return x"),
        "exercises",
        "the docstring and `...`, nothing else",
    ),
    ("no docstring", edit("def my_one", '"""Return x."""', "..."), "exercises", "needs a docstring"),
    (
        "other check",
        edit("def my_one", "check_one", "check_two"),
        "exercises",
        "must be called my_two, got my_one",
    ),
    (
        "no check",
        edit("def my_one", "lesson.check_one(my_one)", "print(my_one)"),
        "exercises",
        "its last line must be",
    ),
    (
        "used later",
        edit("print('end')", "'end'", "my_one(1)"),
        "exercises",
        "uses my_one, which a student may not",
    ),
]


def test_a_good_lesson_breaks_no_rule(tmp_path):
    assert found(good_notebook(), tmp_path) == []


@pytest.mark.parametrize(
    ("broken", "rule", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_a_broken_lesson_is_told_which_rule(broken, rule, words, tmp_path):
    notebook = good_notebook()
    broken(notebook)
    assert any(words in text and text.endswith(f"[{rule}]") for text in found(notebook, tmp_path)), "\n".join(
        found(notebook, tmp_path)
    )


def test_every_rule_has_a_notebook_that_breaks_it():
    import inspect
    import re

    from course_lib.classroom.notebooks import check

    modules = {rule.__module__ for rule in check.RULES}
    names = {
        n
        for m in modules
        for n in re.findall(r'Problem\(\s*"([\w-]+)"', inspect.getsource(__import__(m, fromlist="x")))
    }
    assert names == {row[2] for row in BROKEN}


ACCEPTED: list[tuple[str, Break]] = [
    (
        "a titled svg",
        show(
            "print(1",
            text_html=SVG.replace("<rect/>", "<title>grid</title>").replace("<svg", '<svg role="img"'),
        ),
    ),
    ("a labelled svg", show("print(1", text_html=SVG.replace("<svg", '<svg role="img" aria-label="grid"'))),
    ("an ornament", show("print(1", text_html=SVG.replace("<svg", '<svg aria-hidden="true"'))),
    ("a labelled figure of HTML", show("draw()", text_html='<div role="img" aria-label="grid">x</div>')),
    ("a table with a caption", show("draw()", text_html="<table><caption>grid</caption></table>")),
    ("a link to its own file", edit("## Recap", "(#1-·-Which-corner?)", f"({NAME}#Recap)")),
    ("an encoded link", edit("## Recap", "(#1-·-Which-corner?)", "(#1-%C2%B7-Which-corner%3F)")),
    ("a link out of the course", edit("## Recap", "(#1-·-Which-corner?)", "(https://example.org/a#b)")),
    (
        "a link in code",
        edit("## Recap", "Back to", "Write `[x](nowhere.md)`.\n\n```\n[y](no.md)\n# no heading\n```\n"),
    ),
    ("a semicolon inside", edit("print(1", "print(1 + 1)", "a = 1; print(a + 1)  # one; two;")),
    ("a hexadecimal number", say("print(1", "0xFF and 0x1F600\n")),
    ("a deep section", tag("## Recap", "deep")),
    (
        "a question of one line",
        edit("def my_three", find(good_notebook(), "def my_three").source, "lesson.check_three(...)"),
    ),
    (
        "a question of two",
        edit(
            "def my_three",
            find(good_notebook(), "def my_three").source,
            "my_three = ...\nlesson.check_three(my_three)",
        ),
    ),
]


@pytest.mark.parametrize("change", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_what_only_looks_like_a_fault_is_accepted(change, tmp_path):
    notebook = good_notebook()
    change(notebook)
    write(notebook, tmp_path / NAME)
    assert found(normalise(notebook), tmp_path) == []


def test_a_lesson_about_measuring_may_leave_half_uncompared(tmp_path):
    notebook = good_notebook()
    for start in ("print(1", "def my_one"):
        find(notebook, start).metadata["tags"] = ["nbval-ignore-output"]
    assert any("[ignored-share]" in text for text in found(notebook, tmp_path))
    assert not any("[ignored-share]" in text for text in found(notebook, tmp_path, "08_ladder.ipynb"))


def test_links_between_lessons_are_followed_to_their_headings(tmp_path):
    write(good_notebook(), tmp_path / "02_other.ipynb")
    notebook = good_notebook()
    edit("## Recap", "(#1-·-Which-corner?)", "(02_other.ipynb#Recap)")(notebook)
    assert found(notebook, tmp_path) == []
    edit("## Recap", "#Recap", "#Lost")(notebook)
    assert found(notebook, tmp_path) == [
        "cell 13 (## Recap): links to '02_other.ipynb#Lost', but there is no such heading. [links]"
    ]


def test_a_picture_alone_is_no_comparison(tmp_path):
    notebook = good_notebook()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [picture()] if cell.outputs else []
    assert any("[compared]" in text for text in found(notebook, tmp_path))


def test_a_problem_names_its_cell_by_its_first_words_and_cuts_no_letter_in_half(tmp_path):
    notebook = good_notebook()
    find(notebook, "print(1").source = "print('" + "ক্ষি" * 40 + "');"
    (problem,) = (text for text in found(notebook, tmp_path) if text.endswith("[semicolon]"))
    assert f"(print('{'ক্ষি' * 22}…)" in problem


def test_check_reports_each_notebook_and_fails(tmp_path, capsys):
    write(good_notebook(), tmp_path / "notebooks" / NAME)
    broken = good_notebook()
    strip(broken)
    write(broken, tmp_path / "notebooks" / "02_broken.ipynb")
    assert main([str(tmp_path / "notebooks")]) == 1
    output = capsys.readouterr().out
    assert "01_sample.ipynb: all rules kept" in output
    assert (
        "cell 1 (import course_lib): has not been executed: run `refresh` on this notebook. [executed]"
        in output
    )


def test_code_may_come_in_any_kind_of_cell(tmp_path):
    notebook = good_notebook()
    notebook.cells.append(code("x = 1", count=9))
    notebook.cells.append(new_markdown_cell("```python\n# not a heading\n```"))
    assert found(normalise(notebook), tmp_path) == []
