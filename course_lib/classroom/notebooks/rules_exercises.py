"""Rules about exercises: three to six, each announced, numbered in order, and untouched."""

import re
from collections.abc import Iterator

from course_lib.classroom.notebooks.exercise_cell import NotAnExerciseCell, find_stub
from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem, tags

HEADING = re.compile(r"(?:Exercise|Question) (\d+\.\d+) · \S.* · [●○]{3} · \d+ min")


def between_three_and_six(lesson: LessonFile) -> Iterator[Problem]:
    found = [index for index, cell in lesson.code if "exercise" in tags(cell)]
    if not 3 <= len(found) <= 6:
        yield Problem("exercises", f"a lesson has 3–6 exercises, got {len(found)}.")


def numbered_in_order(lesson: LessonFile) -> Iterator[Problem]:
    expected = 0
    for index, cell in lesson.code:
        name = cell.metadata.get("exercise")
        if ("exercise" in tags(cell)) != (name is not None):
            yield Problem(
                "exercises",
                'an exercise cell has both the tag exercise and the metadata "exercise": "1.2".',
                index,
            )
            continue
        if name is None:
            continue
        expected += 1
        wanted = (
            f"{int(lesson.number)}.{expected}"
            if lesson.number
            else f"{str(name).partition('.')[0]}.{expected}"
        )
        if name != wanted:
            yield Problem("exercises", f"is exercise {name} where {wanted} belongs.", index)


def announced_by_a_heading(lesson: LessonFile) -> Iterator[Problem]:
    """`### Exercise 1.2 · the mask of a cache · ●●○ · 8 min`, in the text right above the cell."""
    for index, cell in lesson.code:
        name = cell.metadata.get("exercise")
        if name is None:
            continue
        previous_code = max((i for i, _ in lesson.code if i < index), default=-1)
        above = [heading for heading in lesson.headings if previous_code < heading.cell < index]
        match = HEADING.fullmatch(above[-1].text) if above else None
        if match is None or match[1] != name:
            got = repr(above[-1].text) if above else "no heading"
            yield Problem(
                "exercises",
                f"needs the heading `### Exercise {name} · title · ●●○ · 8 min` above it, got {got}.",
                index,
            )


def stub_and_check(lesson: LessonFile) -> Iterator[Problem]:
    for index, cell in lesson.code:
        if "exercise" not in tags(cell):
            continue
        try:
            find_stub(cell.source)
        except NotAnExerciseCell as error:
            yield Problem("exercises", f"is not an exercise cell: {error}", index)


def nothing_depends_on_the_student(lesson: LessonFile) -> Iterator[Problem]:
    """An unsolved notebook runs to its end: no cell but the exercise's own uses the student's function."""
    names: dict[str, int] = {}
    for index, cell in lesson.code:
        if "exercise" in tags(cell):
            try:
                names[find_stub(cell.source).name] = index
            except NotAnExerciseCell:
                continue
    for index, cell in lesson.code:
        for name, home in names.items():
            if index != home and re.search(rf"\b{re.escape(name)}\b", cell.source):
                yield Problem(
                    "exercises",
                    f"uses {name}, which a student may not have written: use course_lib's.",
                    index,
                )


RULES = (
    between_three_and_six,
    numbered_in_order,
    announced_by_a_heading,
    stub_and_check,
    nothing_depends_on_the_student,
)
