"""Every kind of answer ends in one sentence: the right one, in under two seconds, and nothing leaks out."""

import random
import time
import warnings

import numpy as np
import pytest
import torch
from demo_answers import mask

from course_lib.classroom.exercise import Case, Mistake
from course_lib.classroom.lesson import Lesson


def only_docstring(q_len, k_len):
    """[q_len, k_len]"""


def dots(q_len, k_len):
    """[q_len, k_len]"""
    ...  # your code


def passes(q_len, k_len):
    pass


def returns_none(q_len, k_len):
    return None


def returns_dots(q_len, k_len):
    return ...


def not_implemented(q_len, k_len):
    raise NotImplementedError


@pytest.mark.parametrize(
    "stub", [only_docstring, dots, passes, returns_none, returns_dots, not_implemented, None, ...]
)
def test_an_untouched_stub_is_not_started(lesson, stub):
    verdict = lesson.examine("9.1", stub)
    assert verdict.status == "not started"
    assert verdict.text == '9.1 not started: write the mask. lesson.hint("9.1") helps.'


def test_an_untouched_class_is_not_started(lesson):
    class Stub:
        def __init__(self, q_len, k_len):
            """Nothing yet."""
            ...

    assert lesson.examine("9.1", Stub).status == "not started"


def test_a_right_answer_says_what_it_passed(lesson):
    assert lesson.examine("9.1", mask).text == "9.1 solved. It passed: a square."


def test_a_right_answer_may_be_written_in_any_way(lesson):
    def by_loop(q_len, k_len):
        rows = [
            [0.0 if j <= i + k_len - q_len else float("-inf") for j in range(k_len)] for i in range(q_len)
        ]
        return torch.tensor(rows, dtype=torch.float64, requires_grad=True)

    class Callable:
        def __call__(self, q_len, k_len):
            return torch.full((q_len, k_len), -torch.inf).triu(k_len - q_len + 1)

    for answer in (by_loop, Callable(), lambda q, k, extra=1: mask(q, k), lambda *sizes: mask(*sizes)):
        assert lesson.examine("9.1", answer).status == "solved"


def forever(q_len, k_len):
    while True:
        pass


def calls_itself(q_len, k_len):
    return calls_itself(q_len, k_len)


def crashes(q_len, k_len):
    nothing = 0
    return q_len / nothing


def crashes_inside_torch(q_len, k_len):
    return torch.zeros(2) + torch.zeros(3)


def prints(q_len, k_len):
    print(mask(q_len, k_len))


def leaves(q_len, k_len):
    raise SystemExit(1)


WRONG = {
    "forever": (forever, "common.timed_out", "did not finish in time; it was at line"),
    "recursion": (calls_itself, "common.endless_recursion", "`return calls_itself(q_len, k_len)`"),
    "crash": (crashes, "common.crashed", "ZeroDivisionError: division by zero at line"),
    "crash in torch": (crashes_inside_torch, "common.crashed", "`return torch.zeros(2) + torch.zeros(3)`"),
    "exit": (leaves, "common.left", "SystemExit"),
    "prints": (prints, "common.printed_instead", "Replace `print` with `return`"),
    "nothing": (lambda q, k: mask(q, k) and None if q == 0 else None, "common.returned_nothing", "`return`"),
    "list": (
        lambda q, k: mask(q, k).tolist(),
        "common.list_for_tensor",
        "gives a list where a tensor is wanted",
    ),
    "tuple": (lambda q, k: (mask(q, k), 1), "common.list_for_tensor", "gives a tuple"),
    "numpy": (lambda q, k: mask(q, k).numpy(), "common.numpy_for_tensor", "gives a numpy.ndarray"),
    "number": (lambda q, k: 1.0, "common.wrong_type", "should be of type tensor, and is of type float"),
    "generator": (lambda q, k: (row for row in mask(q, k)), "common.wrong_type", "generator"),
    "shape": (lambda q, k: mask(q, k)[None], "common.wrong_shape", "[3, 3], and has [1, 3, 3]"),
    "axes": (
        lambda q, k: mask(q, k).T.contiguous(),
        "common.axes_swapped",
        "In my_mask(2, 5), result has the shape [5, 2]",
    ),
    "integers": (
        lambda q, k: mask(q, k).isinf().long(),
        "common.integer_for_float",
        "holds integers (int64)",
    ),
    "booleans": (lambda q, k: mask(q, k) == 0, "common.bool_for_float", "True and False"),
    "complex": (lambda q, k: mask(q, k).to(torch.complex64), "common.complex_for_float", "complex numbers"),
    "nan": (lambda q, k: mask(q, k) * 0, "common.not_a_number", "result[0, 1] is NaN and should be -inf"),
    "value": (lambda q, k: torch.zeros(q, k), "common.wrong_value", "3 of 9 values differ"),
    "parameters": (
        lambda q_len: 1,
        "common.wrong_parameters",
        "my_mask(q_len, k_len), but your function takes (q_len)",
    ),
    "no parameters": (lambda: 1, "common.wrong_parameters", "your function takes ()"),
    "the result": (
        torch.zeros(2, 5),
        "common.not_a_function",
        "pass my_mask without calling it. It got tensor [2, 5]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_gets_its_own_sentence_in_time(lesson, name):
    function, key, words = WRONG[name]
    started = time.monotonic()
    verdict = lesson.examine("9.1", function)
    assert time.monotonic() - started < 30  # under two seconds on a machine that is not busy
    assert (verdict.status, verdict.key) == ("not yet", key)
    assert verdict.text.startswith("9.1 not yet. ") and words in verdict.text


def test_a_known_mistake_is_named_however_it_is_written(lesson):
    def another_top_left(q_len, k_len):
        result = torch.full((q_len, k_len), -torch.inf)
        for i in range(q_len):
            result[i, : i + 1] = 0
        return result

    verdict = lesson.examine("9.1", another_top_left)
    assert verdict.text == "9.1 not yet. Top-left: my_mask(2, 5) result[0, 1] 2"


def test_a_mistake_can_be_a_question_about_the_result(lesson):
    verdict = lesson.examine("9.1", lambda q, k: mask(q, k).clamp(min=-1e9))
    assert verdict.text == "9.1 not yet. It holds -1e+09."


def test_a_mistake_that_agrees_on_the_first_wrong_case_only_is_not_claimed(demo_messages):
    lesson = Lesson("demo")
    lesson.exercise(
        "9.1",
        "mask",
        solution=lambda n: n * n,
        cases=[Case((3,)), Case((5,))],
        mistakes=[
            Mistake("square", like=lambda n: 2 * n),
            Mistake("big_number", like=lambda n: 6, everywhere=False),
        ],
    )
    assert lesson.examine("9.1", lambda n: n + n).key == "demo.mask.square"
    assert lesson.examine("9.1", lambda n: 6 if n == 3 else 25).key == "demo.mask.big_number"
    assert lesson.examine("9.1", lambda n: n).key == "common.wrong_answer"


def test_a_mistake_that_explains_every_case_goes_before_one_that_explains_the_first(demo_messages):
    lesson = Lesson("demo")
    mistakes = [
        Mistake("square", like=lambda n: 6, everywhere=False),
        Mistake("big_number", like=lambda n: 2 * n, everywhere=False),
    ]
    lesson.exercise(
        "9.1", "mask", solution=lambda n: n * n, cases=[Case((3,)), Case((5,))], mistakes=mistakes
    )
    assert lesson.examine("9.1", lambda n: n + n).key == "demo.mask.big_number"
    assert lesson.examine("9.1", lambda n: 6 if n == 3 else 1).key == "demo.mask.square"


def test_a_result_that_cannot_be_compared_is_a_sentence(lesson):
    verdict = lesson.examine("9.1", lambda q, k: torch.zeros(q, k, device="meta"))
    assert verdict.key == "common.not_comparable" and "NotImplementedError" in verdict.text


def test_a_mistake_can_be_an_exception(demo_messages):
    lesson = Lesson("demo")
    lesson.exercise(
        "9.1",
        "mask",
        solution=len,
        cases=[Case(([1],))],
        mistakes=[Mistake("square", like=lambda items: items[9])],
    )
    assert lesson.examine("9.1", lambda items: items[4]).key == "demo.mask.square"
    assert lesson.examine("9.1", lambda items: 1 / 0).key == "common.crashed"


def _softmax_lesson() -> Lesson:
    lesson = Lesson("demo")
    case = Case(lambda: (torch.tensor([[1.0, 2.0]]), [1, 2]))
    lesson.exercise("9.1", "mask", solution=lambda scores, sizes: scores.softmax(-1), cases=[case, case])
    return lesson


def test_a_modified_input_is_named(demo_messages):
    def in_place(scores, sizes):
        scores.exp_()
        return scores / scores.sum(-1, keepdim=True)

    def pops(scores, sizes):
        sizes.pop()
        return scores.softmax(-1)

    assert "changed its input scores" in _softmax_lesson().examine("9.1", in_place).text
    assert "changed its input sizes" in _softmax_lesson().examine("9.1", pops).text


def test_a_result_that_shares_memory_with_the_input_is_fine(demo_messages):
    lesson = Lesson("demo")
    lesson.exercise("9.1", "mask", solution=lambda x: x, cases=[Case(lambda: (torch.ones(2),))])
    assert lesson.examine("9.1", lambda x: x).status == "solved"


def test_work_done_on_the_arguments_can_be_observed(demo_messages):
    lesson = Lesson("demo")
    case = Case(lambda: (torch.ones(3),), observe=lambda result, args: args[0])
    lesson.exercise("9.1", "mask", solution=lambda x: x.mul_(2), cases=[case])
    assert lesson.examine("9.1", lambda x: x.add_(1)).status == "solved"
    assert lesson.examine("9.1", lambda x: x * 2).key == "common.wrong_value"


def test_answers_that_are_not_unique_have_their_own_comparison(demo_messages):
    lesson = Lesson("demo")
    case = Case(([2, 1],), expected=[1, 2], same=lambda got, wanted: sorted(got) == sorted(wanted))
    lesson.exercise("9.1", "mask", solution=sorted, cases=[case])
    assert lesson.examine("9.1", lambda items: items).status == "solved"
    assert lesson.examine("9.1", lambda items: [3, 4]).key == "common.not_the_same"
    assert lesson.examine("9.1", lambda items: 5).key == "common.wrong_type"


def test_what_a_student_prints_is_shown_below_the_verdict(lesson):
    def chatty(q_len, k_len):
        print("shape", q_len, k_len)
        return torch.zeros(q_len, k_len)

    assert lesson.examine("9.1", chatty).text.endswith("my_mask(3, 3) printed:\n    shape 3 3")


def test_endless_printing_is_cut(lesson):
    def endless(q_len, k_len):
        while True:
            print("again " * 50)

    text = lesson.examine("9.1", endless).text
    assert "did not finish" in text and len(text) < 5000 and text.endswith("…")


def test_a_student_cannot_disturb_the_random_states_or_torch(lesson):
    def careless(q_len, k_len):
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        random.seed(1)
        np.random.seed(1)
        return mask(q_len, k_len)

    torch.manual_seed(7), random.seed(7), np.random.seed(7)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    assert lesson.examine("9.1", careless).status == "solved"
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()


def test_a_check_works_under_no_grad_and_inference_mode(demo_messages):
    def gradient(x):
        y = x.clone().requires_grad_()
        (y * y).sum().backward()
        return y.grad

    lesson = Lesson("demo")
    lesson.exercise("9.1", "mask", solution=gradient, cases=[Case(lambda: (torch.arange(3.0),))])
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert lesson.examine("9.1", lambda x: 2 * x).status == "solved"
            assert lesson.examine("9.1", gradient).status == "solved"


def test_random_answers_are_seeded_alike(demo_messages):
    lesson = Lesson("demo")
    lesson.exercise("9.1", "mask", solution=lambda n: torch.rand(n), cases=[Case((3,)), Case((4,))])
    assert lesson.examine("9.1", lambda n: torch.rand(n)).status == "solved"


@pytest.mark.parametrize(
    ("answer", "status", "key"),
    [
        (..., "not started", "common.not_started"),
        (None, "not started", "common.not_started"),
        (4096, "solved", "common.solved"),
        (4096.0, "solved", "common.solved"),
        (torch.tensor(4096), "solved", "common.solved"),
        (np.int64(4096), "solved", "common.solved"),
        (32768, "not yet", "demo.bytes.bits"),
        (5, "not yet", "common.answer_wrong"),
        ("4096", "not yet", "common.answer_wrong"),
    ],
)
def test_a_question_takes_a_value(lesson, answer, status, key):
    verdict = lesson.examine("9.2", answer)
    assert (verdict.status, verdict.key) == (status, key)


def test_every_verdict_can_be_said_in_bangla(lesson):
    lesson.language("bn")
    for function, key, _ in WRONG.values():
        if function is not forever:
            verdict = lesson.examine("9.1", function)
            assert verdict.key == key and verdict.text.startswith("9.1 এখনো হয়নি। ")
    assert "৯টি মানের মধ্যে ৩টি" in lesson.examine("9.1", lambda q, k: torch.zeros(q, k)).text


def test_a_check_prints_its_verdict_and_returns_nothing(lesson, capsys):
    check = lesson.question("9.3", "bytes", answer=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(1) is None
    assert capsys.readouterr().out == "9.3 solved.\n"
    assert check.__name__ == "check_bytes"
