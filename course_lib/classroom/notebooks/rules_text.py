"""Rules about what a notebook says: the title cell, the order of headings, the sections, the links."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from course_lib.classroom.notebooks.execute import read
from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem, prose_lines, tags

SECTION_TAGS = frozenset({"core", "deep", "demo"})
BADGE = re.compile(r"https://colab\.research\.google\.com/github/[\w.-]+/[\w.-]+/blob/[\w.-]+/(\S+?\.ipynb)")

_LINK = re.compile(r"\]\(\s*<?((?:[^()\s<>]|\([^()\s]*\))+)>?(?:\s+\"[^\"]*\")?\s*\)")
_INLINE_CODE = re.compile(r"(`+).+?\1")
_NOT_A_VERB = frozenset({"a", "an", "the", "you", "your", "how", "what", "why", "that", "it", "this"})


def title_cell(lesson: LessonFile) -> Iterator[Problem]:
    """Promise, what one will be able to do, needs, minutes, machine: before anything else."""
    if not lesson.cells or lesson.cells[0].cell_type != "markdown":
        yield Problem("title", "the first cell must be markdown: the title, the promise, what it needs.", 0)
        return
    source = lesson.cells[0].source.strip()
    lines = source.splitlines()
    wanted = f"# {lesson.number} · " if lesson.number else "# "
    if not lines or not lines[0].startswith(wanted) or not lines[0][len(wanted) :].strip():
        yield Problem(
            "title", f"the first line must read `{wanted}Title`, got {lines[0] if lines else ''!r}.", 0
        )
    promise = source.partition("\n")[2].strip().split("\n\n")[0].strip()
    if not promise.endswith((".", "?")) or promise[:1] in "#-*[!|>":
        yield Problem("title", "after the title comes one sentence of promise, ending in a full stop.", 0)
    yield from _abilities(lines)
    for label, what in (("Needs", r"\S"), ("Minutes", r"[^·\n]*\d"), ("Machine", r"\S")):
        if not re.search(rf"\*\*{label}:?\*\*:?\s*{what}", source):
            yield Problem("title", f"the title cell must say **{label}:** …", 0)
    badge = BADGE.search(source)
    if badge is None or badge[1] != f"notebooks/{lesson.path.name}":
        got = "none" if badge is None else badge[1]
        yield Problem("title", f"the Colab badge must open notebooks/{lesson.path.name}, got {got}.", 0)


def _abilities(lines: list[str]) -> Iterator[Problem]:
    start = next((i for i, line in enumerate(lines) if "you will be able to" in line.lower()), None)
    if start is None:
        yield Problem("title", 'the title cell must say "You will be able to", and 3–5 bullets.', 0)
        return
    bullets: list[str] = []
    for line in lines[start + 1 :]:
        if match := re.match(r"[-*] +(.*)", line):
            bullets.append(match[1])
        elif line.strip() and not line.startswith(" "):
            break
    if not 3 <= len(bullets) <= 5:
        yield Problem("title", f'"You will be able to" needs 3–5 bullets, got {len(bullets)}.', 0)
    for bullet in bullets:
        first = re.match(r"\w+", bullet)
        if first is None or first[0].lower() in _NOT_A_VERB:
            yield Problem("title", f"a bullet must begin with a verb, got {bullet[:50]!r}.", 0)


def headings_in_order(lesson: LessonFile) -> Iterator[Problem]:
    """One h1, no skipped level, no heading twice: what a screen reader and the table of contents walk
    along."""
    titles = [heading for heading in lesson.headings if heading.level == 1]
    if len(titles) != 1:
        yield Problem("headings", f"a notebook has one heading of level 1, got {len(titles)}.")
    level, seen = 0, set()
    for heading in lesson.headings:
        if heading.level > level + 1:
            yield Problem(
                "headings", f"{heading.text!r} skips from level {level} to {heading.level}.", heading.cell
            )
        if heading.anchor in seen:
            yield Problem(
                "headings", f"{heading.text!r} stands twice: a link could mean either.", heading.cell
            )
        level = heading.level
        seen.add(heading.anchor)


def sections_are_tagged(lesson: LessonFile) -> Iterator[Problem]:
    """Each `##` opens its cell, which says whether the section is core, deep or demo."""
    sections = [heading for heading in lesson.headings if heading.level == 2]
    for heading in sections:
        found = SECTION_TAGS & set(tags(lesson.cells[heading.cell]))
        if len(found) != 1:
            got = f"got {', '.join(sorted(found))}" if found else "got none"
            yield Problem(
                "sections",
                f"section {heading.text!r} needs one tag of core, deep, demo; {got}.",
                heading.cell,
            )
        if heading.line != 0:
            yield Problem("sections", f"section {heading.text!r} must open its cell.", heading.cell)
    if not any("core" in tags(lesson.cells[heading.cell]) for heading in sections):
        yield Problem("sections", "there is no core section.")


def links_resolve(lesson: LessonFile) -> Iterator[Problem]:
    """Every link to a lesson, a heading or a file of the course leads somewhere."""
    anchors: dict[Path, frozenset[str]] = {
        lesson.path.resolve(): frozenset(heading.anchor for heading in lesson.headings)
    }
    for index, cell in lesson.markdown:
        for _, line in prose_lines(cell.source):
            for target in _LINK.findall(_INLINE_CODE.sub("", line)):
                if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                    yield from _follow(target, lesson, index, anchors)


def _follow(
    target: str, lesson: LessonFile, index: int, anchors: dict[Path, frozenset[str]]
) -> Iterator[Problem]:
    name, _, anchor = target.partition("#")
    name, anchor = unquote(name), unquote(anchor)
    path = (lesson.path.parent / name).resolve() if name else lesson.path.resolve()
    if name and not path.exists():
        yield Problem("links", f"links to {target!r}, which does not exist.", index)
        return
    if not anchor or path.suffix != ".ipynb":
        return
    if path not in anchors:
        other = LessonFile(read(path), path)
        anchors[path] = frozenset(heading.anchor for heading in other.headings)
    if anchor not in anchors[path]:
        yield Problem("links", f"links to {target!r}, but there is no such heading.", index)


RULES = (title_cell, headings_in_order, sections_are_tagged, links_resolve)
