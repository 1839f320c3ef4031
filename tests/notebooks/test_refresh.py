"""`refresh`: in place, repeatable, and never at the price of a notebook."""

import json
import os

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.classroom.notebooks import refresh
from course_lib.classroom.notebooks.check import problems
from course_lib.classroom.notebooks.execute import read
from course_lib.classroom.notebooks.normalise import normalise
from tests.notebooks.samples import NAME, bare_notebook, good_notebook, write

DRAW = """import matplotlib.pyplot as plt
from tqdm.auto import tqdm
for _ in tqdm(range(2)): pass
plt.plot([1, 2, 3])
plt.show()
print('rises from 1.0 to 3.0')"""


def test_two_runs_give_the_same_bytes_and_a_failing_notebook_keeps_its_own(tmp_path, capsys):
    figure = new_code_cell(DRAW, metadata={"tags": ["figure"]})
    good = new_notebook(cells=[figure, new_markdown_cell("*It rises, নদী.*")])
    good_path = write(good, tmp_path / "খাতা" / "01_a.ipynb")
    bad_path = write(bare_notebook("x = 1", "raise ValueError('no rivers')"), tmp_path / "খাতা" / "02_b.ipynb")
    before = bad_path.read_bytes()

    assert refresh.main([str(tmp_path / "খাতা")]) == 1
    once = good_path.read_bytes()
    stored = json.loads(once)
    assert stored["cells"][0]["outputs"][0]["metadata"] == {"image/png": {"alt": "It rises, নদী."}}
    assert len(stored["cells"][0]["outputs"]) == 2  # the picture and its digest; no progress bar

    errors = capsys.readouterr().err
    assert bad_path.read_bytes() == before
    assert "02_b.ipynb left as it was" in errors and "in code cell 2: ValueError: no rivers" in errors
    assert "| raise ValueError('no rivers')" in errors

    refresh.main([str(good_path)])
    assert good_path.read_bytes() == once
    assert "01_a.ipynb: unchanged" in capsys.readouterr().err
    assert sorted(path.name for path in good_path.parent.iterdir()) == ["01_a.ipynb", "02_b.ipynb"]


def test_a_file_without_cell_ids_is_read_as_it_is_and_refused_by_check(tmp_path, recwarn):
    stored = json.loads(nbformat.writes(good_notebook()))
    for cell in stored["cells"]:
        del cell["id"]
    path = tmp_path / NAME
    path.write_text(json.dumps(stored), encoding="utf-8")
    first, second = (normalise(read(path)) for _ in range(2))
    assert first == second
    assert any("every cell needs an id of its own" in str(problem) for problem in problems(read(path), path))
    assert [str(warning.message) for warning in recwarn] == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.ipynb"
    path.write_text("old", encoding="utf-8")

    def power_cut(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(KeyboardInterrupt):
        refresh.write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rewritten_file_keeps_its_mode(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    before = path.stat().st_mode
    assert refresh.write_atomically(path, "new")
    assert path.stat().st_mode == before
    assert not refresh.write_atomically(path, "new")
