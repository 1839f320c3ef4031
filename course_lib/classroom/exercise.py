"""What an exercise is: a function to write, the cases it is tried on, and the mistakes that are known by
name.

Mistakes are recognised by *output*: `Mistake("top_left", like=wrong)` says "whoever gives what `wrong` gives
has made this mistake", whatever the code looks like.
"""

import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from course_lib.classroom.compare import Tolerance, agree, show


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


@dataclass(frozen=True)
class Case:
    """One call of the student's function.

    args: a tuple of positional arguments, or a function without arguments that makes it (use this for
        tensors, so that importing a lesson computes nothing). Every call gets fresh copies.
    label: short key of a message that says what passing this case shows ("a rectangle"); "" says nothing.
    expected: what is wanted; by default what the exercise's solution gives.
    observe: `observe(result, args)` gives what is compared, for functions whose work is a side effect. The
        arguments may then be modified.
    same: `same(got, wanted) -> bool` in place of the comparison by value, for answers that are not unique.
    """

    args: tuple[Any, ...] | Callable[[], tuple[Any, ...]] = ()
    label: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = MISSING
    observe: Callable[[Any, tuple[Any, ...]], Any] | None = None
    same: Callable[[Any, Any], bool] | None = None
    rtol: float | None = None
    atol: float | None = None

    def make_args(self) -> tuple[Any, ...]:
        made = self.args() if callable(self.args) else self.args
        if not isinstance(made, tuple):
            raise TypeError(
                f"Case.args: expected a tuple or a function that makes one, got {type(made).__name__}."
            )
        return fresh(made)

    def agree(self, got: Any, wanted: Any) -> bool:
        if self.same is not None:
            return bool(self.same(got, wanted))
        return agree(got, wanted, self.tolerance)

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(self.rtol, self.atol)


@dataclass(frozen=True)
class Attempt:
    """What the student's function did on one case. `got` is MISSING where it did not return."""

    case: Case
    call: str
    args: tuple[Any, ...]
    wanted: Any
    got: Any = MISSING
    error: BaseException | None = None
    error_line: tuple[int, str] | None = None
    timed_out: bool = False
    printed: str = ""
    modified: str = ""

    @property
    def returned(self) -> bool:
        return not isinstance(self.got, _Missing)

    @property
    def right(self) -> bool:
        try:
            return self.returned and self.case.agree(self.got, self.wanted)
        except Exception:  # a case's own `same`, asked about a result of another type
            return False


@dataclass(frozen=True)
class Mistake:
    """A mistake known by name. `key` is the short key of its sentence.

    like: a wrong function. The mistake is made by whoever gives what it gives on *every* case of the exercise
        (raising the same type of exception counts as the same), or with `everywhere=False` on the first case
        that went wrong.
    when: or a question about the first attempt that went wrong: `when(attempt) -> bool`. Raising means no.
    values: extra placeholders of the sentence, computed from that attempt. Always there: {call}, {got},
        {wanted}; {place} where the result has the right type and shape.
    """

    key: str
    like: Callable[..., Any] | None = None
    when: Callable[[Attempt], bool] | None = None
    everywhere: bool = True
    values: Callable[[Attempt], Mapping[str, object]] | None = None

    def __post_init__(self) -> None:
        if (self.like is None) == (self.when is None):
            raise ValueError(f"Mistake {self.key!r}: give either like=wrong_function or when=question.")

    def made_in(self, attempts: list[Attempt], first_wrong: Attempt) -> bool:
        if self.when is not None:
            try:
                return bool(self.when(first_wrong))
            except Exception:  # a question about a tensor's rows, asked of None, is answered "no"
                return False
        return self.explains(attempts if self.everywhere else [first_wrong])

    def explains(self, attempts: list[Attempt]) -> bool:
        """Whether `like` does on each of these what the student's function did."""
        return self.like is not None and all(_does_the_same(self.like, attempt) for attempt in attempts)


def _does_the_same(wrong: Callable[..., Any], attempt: Attempt) -> bool:
    try:
        result = call_case(wrong, attempt.case)
    except Exception as error:
        return attempt.error is not None and type(error) is type(attempt.error)
    return replace(attempt, wanted=result).right


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson. `prefix` is where its messages live: "lesson_01.causal_mask"."""

    id: str
    name: str
    prefix: str
    solution: Callable[..., Any]
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    is_question: bool = False

    @property
    def stub(self) -> str:
        """The name the student's function has in the notebook."""
        return f"my_{self.name}"

    def key(self, short: str) -> str:
        return f"{self.prefix}.{short}"

    def wanted(self, case: Case) -> Any:
        return call_case(self.solution, case) if case.expected is MISSING else case.expected

    def solution_source(self) -> str:
        """The solution's source under the stub's name, ready to be pasted over the stub."""
        source = textwrap.dedent(inspect.getsource(self.solution))
        return re.sub(rf"\b{re.escape(self.solution.__name__)}\b", self.stub, source).rstrip() + "\n"


def call_case(function: Callable[..., Any], case: Case) -> Any:
    """The result of `function` on fresh arguments of `case`, as the case observes it."""
    args = case.make_args()
    torch.manual_seed(0)
    result = function(*args, **fresh(dict(case.kwargs)))
    return result if case.observe is None else case.observe(result, args)


def fresh(value: Any) -> Any:
    """A copy that the student may spoil: tensors cloned as leaves, containers rebuilt, modules copied."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(fresh(item) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(fresh(item) for item in value)
    if isinstance(value, dict):
        return {name: fresh(item) for name, item in value.items()}
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value)
    return value


def call_text(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The call as a reader would write it: `my_mask(2, 5)`, `my_softmax(tensor [3, 4])`."""
    parts = [show(arg) for arg in args] + [f"{key}={show(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(parts)})"
