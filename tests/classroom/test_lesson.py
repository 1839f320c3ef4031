"""What a student may ask of a lesson: hints, the solution, progress, their accepted code, the language."""

import subprocess
import sys

import pytest
import torch
from demo_answers import mask, top_left

from course_lib.classroom import messages
from course_lib.classroom.contract import assert_exercise, run_solution_source
from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson


def _said(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_hints_come_one_by_one_and_end_with_a_sentence(lesson, capsys):
    for _ in range(4):
        lesson.hint("9.1")
    assert _said(capsys) == [
        "9.1, hint 1 of 2: Which word?",
        "9.1, hint 2 of 2: The last one.",
        '9.1: that was the last of 2 hints. lesson.solution("9.1") shows a solution.',
        '9.1: that was the last of 2 hints. lesson.solution("9.1") shows a solution.',
    ]
    assert lesson.state.entry("9.1")["hints"] == 2


def test_an_exercise_without_hints_says_so(lesson, capsys):
    lesson.hint("9.2")
    assert _said(capsys) == ['9.2 has no hints. lesson.solution("9.2") shows a solution.']


@pytest.mark.parametrize("ask", ["hint", "solution", "restore"])
def test_an_unknown_exercise_is_answered_with_those_there_are(lesson, capsys, ask):
    getattr(lesson, ask)("1.7")
    getattr(lesson, ask)(9.1)
    getattr(lesson, ask)(None)
    assert _said(capsys) == [
        "There is no exercise '1.7' here. This lesson has: 9.1, 9.2.",
        'Write the number of the exercise in quotes: "9.1". This lesson has: 9.1, 9.2.',
        "There is no exercise None here. This lesson has: 9.1, 9.2.",
    ]


def test_the_solution_is_shown_under_the_stubs_name_and_runs(lesson, capsys):
    lesson.solution("9.1")
    shown = capsys.readouterr().out
    assert shown.startswith("def my_mask(q_len, k_len):\n") and "mask_fill" not in shown.split("\n")[0]
    assert ".masked_fill(" in shown and shown.endswith("-torch.inf)\n")
    assert lesson.examine("9.1", run_solution_source(lesson, "9.1")).status == "solved"


def test_the_solution_of_a_question_is_its_answer(lesson, capsys):
    lesson.solution("9.2")
    assert _said(capsys) == ["4096"]


def test_progress_names_each_exercise_and_counts(lesson, capsys):
    lesson._check(lesson.exercises["9.1"], top_left)
    capsys.readouterr()
    lesson.progress()
    assert _said(capsys) == [
        "0 of 2 exercises solved",
        "  9.1  tried · the mask",
        "  9.2  not started · bytes",
    ]
    lesson._check(lesson.exercises["9.2"], 4096)
    capsys.readouterr()
    lesson.language("bn")
    lesson.progress()
    assert _said(capsys)[1:] == [
        "২টি অনুশীলনীর মধ্যে ১টি হয়েছে", "  9.1  চেষ্টা চলছে · মাস্ক", "  9.2  হয়ে গেছে · বাইট",
    ]  # fmt: skip


def test_an_untouched_stub_leaves_no_trace(lesson, capsys):
    lesson._check(lesson.exercises["9.1"], lambda q, k: ...)
    assert not lesson.state.path.exists()


def test_accepted_code_can_be_restored_after_a_reset(lesson, capsys):
    lesson.restore("9.1")
    assert "no accepted code is saved yet" in capsys.readouterr().out
    lesson._check(lesson.exercises["9.1"], mask)
    lesson._check(lesson.exercises["9.1"], top_left)
    capsys.readouterr()
    Lesson.restore(lesson, "9.1")
    shown = capsys.readouterr().out
    assert shown.startswith("# 9.1, your accepted code of 20")
    assert (
        'def my_mask(q_len, k_len):\n    """[q_len, k_len] of 0 and -inf, bottom-right aligned."""\n' in shown
    )


def test_an_accepted_answer_to_a_question_can_be_restored(lesson, capsys):
    check = lesson.question("9.3", "bytes", answer=1)
    check(torch.tensor(1))
    capsys.readouterr()
    lesson.restore("9.3")
    assert capsys.readouterr().out.endswith("my_bytes = torch.tensor(1)\n")


def test_an_unknown_language_is_answered_with_a_sentence(lesson, capsys):
    lesson.language("fr")
    assert _said(capsys) == [
        '\'fr\' is not a language of this course: choose "en" (English) or "bn" (Bangla).'
    ]
    assert messages.current_language() == "en"


@pytest.mark.parametrize("wrong_id", ["9.1", "mask", "9"])
def test_an_exercise_id_is_a_number_used_once(lesson, wrong_id):
    with pytest.raises(ValueError, match=r'expected a number like "1\.2", not used before in demo'):
        lesson.exercise(wrong_id, "mask", solution=mask, cases=[Case((3, 3))])


def test_an_exercise_needs_a_case_and_a_mistake_one_way_to_tell(lesson):
    with pytest.raises(ValueError, match=r"cases: exercise 9\.5 has none"):
        lesson.exercise("9.5", "mask", solution=mask, cases=[])
    with pytest.raises(ValueError, match="give either like=wrong_function or when=question"):
        Mistake("top_left")


RIGHT = [mask, lambda q, k: mask(q, k).double(), lambda *sizes: mask(*sizes)]
WRONG = {
    "top_left": [top_left],
    "big_number": [lambda q, k: mask(q, k).clamp(min=-1e9)],
    "common.wrong_value": [lambda q, k: mask(q, k) * 0 + 1, lambda q, k: mask(q, k).roll(1, 1)],
    "common.wrong_shape": [lambda q, k: mask(q, k)[None]],
}


def test_the_contract_of_exercises_holds_for_this_one(lesson):
    WRONG["common.wrong_value"][0] = lambda q, k: mask(q, k).clamp(min=-3)
    assert_exercise(lesson, "9.1", wrong=WRONG, right=RIGHT)


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        (WRONG, RIGHT[:2], "at least 3 right answers"),
        ({"top_left": [top_left], "big_number": []}, RIGHT, "at least 5 wrong answers"),
        ({"common.wrong_shape": [top_left] * 5}, RIGHT, "no wrong answer is tried for"),
        ({**WRONG, "common.wrong_shape": [top_left]}, RIGHT, "expected the message common.wrong_shape"),
        (WRONG, [top_left] * 3, "expected 'solved', got: 9.1 not yet"),
        ({**WRONG, "common.wrong_shape": [mask]}, RIGHT, "expected 'not yet', got: 9.1 solved"),
    ],
)
def test_the_contract_of_exercises_can_be_broken(lesson, wrong, right, words):
    with pytest.raises(AssertionError, match=words):
        assert_exercise(lesson, "9.1", wrong=wrong, right=right)


def test_the_classroom_is_imported_without_torch_until_it_is_used():
    code = "import sys, course_lib.classroom as c, course_lib.classroom.widgets\n"
    code += "assert 'torch' not in sys.modules\n"
    code += "assert 'ipywidgets' not in sys.modules; c.Lesson; assert 'torch' in sys.modules\n"
    code += "assert not {'xformers', 'ipywidgets', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        import course_lib.classroom

        course_lib.classroom.nonsense  # noqa: B018
