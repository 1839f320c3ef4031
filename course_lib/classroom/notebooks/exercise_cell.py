"""The code cell of an exercise: a stub and its check, found by syntax and replaced by position.

    def my_causal_mask(q_len, k_len):          my_bytes = ...
        \"\"\"What it returns.\"\"\"              lesson.check_bytes(my_bytes)
        ...   # your code

    lesson.check_causal_mask(my_causal_mask)   lesson.check_bytes(...)

The left form asks for a function, the right ones for a value.
"""

import ast
from dataclasses import dataclass


class NotAnExerciseCell(ValueError):
    """The cell is not of the form above; the message says where it departs."""


@dataclass(frozen=True)
class Stub:
    """`name` ("my_causal_mask") is to be written, and stands at `start:end` (character positions) in the
    cell.

    asks: "function", "value" (an assignment), or "argument" (the `...` in the check's own brackets).
    check: "check_causal_mask".
    """

    name: str
    asks: str
    check: str
    start: int
    end: int


def find_stub(source: str) -> Stub:
    """The stub of an exercise cell. Raises `NotAnExerciseCell` with a sentence for a cell of any other
    form."""
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise NotAnExerciseCell(f"it is not plain Python ({error.msg}).") from None
    if not statements:
        raise NotAnExerciseCell("it is empty.")
    *before, last = statements
    check = _check_call(last)
    argument = check.args[0]
    check_name = check.func.attr if isinstance(check.func, ast.Attribute) else ""
    wanted = "my_" + check_name.removeprefix("check_")
    if not before and _is_ellipsis(argument):
        return Stub(wanted, "argument", check_name, *_span(source, argument))
    if len(before) != 1:
        raise NotAnExerciseCell(
            f"expected one stub and its check, got {len(before)} statements before the check."
        )
    stub = before[0]
    if isinstance(stub, ast.FunctionDef):
        _must_be_untouched(stub)
        name, asks = stub.name, "function"
    elif isinstance(stub, ast.Assign) and len(stub.targets) == 1 and isinstance(stub.targets[0], ast.Name):
        if not _is_ellipsis(stub.value):
            raise NotAnExerciseCell("its value must be `...`, for the student to replace.")
        name, asks = stub.targets[0].id, "value"
    else:
        raise NotAnExerciseCell("its stub must be `def my_name(…)` or `my_name = ...`.")
    if name != wanted:
        raise NotAnExerciseCell(
            f"its check is {check_name}, so the stub must be called {wanted}, got {name}."
        )
    if not (isinstance(argument, ast.Name) and argument.id == name):
        raise NotAnExerciseCell(f"its check must be given {name}.")
    return Stub(name, asks, check_name, *_span(source, stub))


def _check_call(statement: ast.stmt) -> ast.Call:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr.startswith("check_")
        and isinstance(call.func.value, ast.Name)
        and len(call.args) == 1
        and not call.keywords
    ):
        return call
    raise NotAnExerciseCell("its last line must be `lesson.check_name(my_name)`.")


def _must_be_untouched(stub: ast.FunctionDef) -> None:
    has_docstring = ast.get_docstring(stub) is not None
    rest = stub.body[1:] if has_docstring else stub.body
    if not has_docstring:
        raise NotAnExerciseCell("its stub needs a docstring that says what to return.")
    if len(rest) != 1 or not (isinstance(rest[0], ast.Expr) and _is_ellipsis(rest[0].value)):
        raise NotAnExerciseCell("the body of its stub must be the docstring and `...`, nothing else.")


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _span(source: str, node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Where a node stands in the source, in characters; to the end of its last line for a statement,
    so that the comment behind a stub's `...` goes with it."""
    lines = source.splitlines(keepends=True)
    end_line = node.end_lineno or node.lineno

    def position(line: int, column: int) -> int:
        # ast counts columns in UTF-8 bytes: a Bangla docstring would shift everything behind it.
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    start = position(node.lineno, node.col_offset)
    if isinstance(node, ast.stmt):
        return start, sum(map(len, lines[: end_line - 1])) + len(lines[end_line - 1].rstrip("\r\n"))
    return start, position(end_line, node.end_col_offset or 0)
