"""Rules about the code of a notebook: plain Python that nbval can run again."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem, tags

ALLOWED_TAGS = frozenset(
    {
        *("core", "deep", "demo", "exercise", "solution-hidden", "widget", "figure", "install"),
        *("nbval-ignore-output", "nbval-check-output", "nbval-raises-exception", "raises-exception"),
    }
)

_CLEARED = "nbval cannot follow an output that is cleared or updated"
_NOT_STORED = "what it prints lands in an Output widget and is not stored: use `observe` and widgets.HTML"
_UNCHECKABLE = {
    **dict.fromkeys(("clear_output", "update_display", "display_id"), _CLEARED),
    **dict.fromkeys(
        ("interact", "interact_manual", "interactive", "interactive_output", "Output"), _NOT_STORED
    ),
}
_COMMENT_MAGIC = re.compile(r"^\s*#+\s*(?:NBVAL_|PYTEST_VALIDATE_)\w+", re.MULTILINE)


def tags_are_known(lesson: LessonFile) -> Iterator[Problem]:
    """A misspelt tag is silently ignored by nbval: only those on the list, in lower case."""
    for index, cell in enumerate(lesson.cells):
        found = tags(cell)
        for tag in found:
            if tag not in ALLOWED_TAGS:
                lower = tag.lower().replace("_", "-") if isinstance(tag, str) else tag
                hint = f" (did you mean {lower!r}?)" if lower in ALLOWED_TAGS else ""
                yield Problem(
                    "tags",
                    f"has the unknown tag {tag!r}{hint}. Known: {', '.join(sorted(ALLOWED_TAGS))}.",
                    index,
                )
        if len(set(found)) != len(found):
            yield Problem("tags", "has a tag twice.", index)
        if {"nbval-ignore-output", "nbval-check-output"} <= set(found):
            yield Problem("tags", "is tagged both nbval-ignore-output and nbval-check-output.", index)


def no_comment_magic(lesson: LessonFile) -> Iterator[Problem]:
    """`# NBVAL_SKIP` and its like act even inside a string: tags do the same where one sees them."""
    for index, cell in lesson.code:
        if match := _COMMENT_MAGIC.search(cell.source):
            yield Problem("comment-magic", f"holds {match[0].strip()!r}: use a tag.", index)


def plain_python(lesson: LessonFile) -> Iterator[Problem]:
    for index, cell in lesson.code:
        if "install" in tags(cell) or _meant_to_fail(cell):
            continue
        try:
            tree = ast.parse(cell.source)
        except SyntaxError as error:
            line = cell.source.splitlines()[(error.lineno or 1) - 1].strip() if cell.source.strip() else ""
            reason = (
                "magics and shell commands stand in the install cell only" if line[:1] in "%!" else error.msg
            )
            yield Problem("plain-python", f"is not plain Python at {line[:60]!r}: {reason}.", index)
            continue
        for name in sorted(_names(tree) & set(_UNCHECKABLE)):
            yield Problem("uncheckable", f"uses {name}: {_UNCHECKABLE[name]}.", index)
        for line in _lines_that_end_in_a_semicolon(cell.source):
            yield Problem(
                "semicolon", f"line {line} ends in `;`, which nbval trips over: write `_ = …`.", index
            )


def one_install_cell_first(lesson: LessonFile) -> Iterator[Problem]:
    """The first code cell makes course_lib importable on Colab, and does nothing where it is."""
    tagged = [index for index, cell in lesson.code if "install" in tags(cell)]
    if not tagged or tagged != [lesson.code[0][0]]:
        yield Problem("install", "the first code cell, and no other, is tagged install.")
    for index in tagged:
        if lesson.cells[index].outputs:
            yield Problem(
                "install", "the install cell must print nothing where course_lib can be imported.", index
            )


def _meant_to_fail(cell: object) -> bool:
    return bool({"raises-exception", "nbval-raises-exception"} & set(tags(cell)))  # type: ignore[arg-type]


def _names(tree: ast.AST) -> set[str]:
    """Every name a cell uses, imports, or passes as a keyword."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.keyword) and node.arg:
            names.add(node.arg)
    return names


def _lines_that_end_in_a_semicolon(source: str) -> Iterator[int]:
    after: tokenize.TokenInfo | None = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            continue
        ends = token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)
        if ends and after is not None and after.type == tokenize.OP and after.string == ";":
            yield after.start[0]
        after = token


RULES = (tags_are_known, no_comment_magic, plain_python, one_install_cell_first)
