"""Rules about figures: each has a caption, an alternative text, and a printed digest of what it shows."""

import re
from collections.abc import Iterator

from course_lib.classroom.notebooks import captions
from course_lib.classroom.notebooks.lesson_file import LessonFile, Problem, output_texts, prose_lines, tags

_SVG = re.compile(r"<svg\b([^>]*)>(.*?)</svg>", re.DOTALL | re.IGNORECASE)
_IMG = re.compile(r"<img\b([^>]*)>", re.DOTALL | re.IGNORECASE)
_MARKDOWN_IMAGE = re.compile(r"!\[([^\]]*)\]\(")
_SPOKEN_HTML = re.compile(
    r"""role\s*=\s*["']img["'][^>]*aria-label(?:ledby)?\s*=\s*["']\s*[^"'\s]|"""
    r"""aria-label(?:ledby)?\s*=\s*["']\s*[^"'\s][^>]*role\s*=\s*["']img["']|<caption\b[^>]*>\s*\S""",
    re.IGNORECASE,
)


def pictures_have_captions(lesson: LessonFile) -> Iterator[Problem]:
    """One picture a cell; the next cell begins with its caption, which is its alternative text as well."""
    for index, cell in lesson.code:
        shown = captions.pictures(cell)
        if len(shown) > 1:
            yield Problem(
                "one-picture",
                f"shows {len(shown)} pictures; one a cell, so that each has its caption.",
                index,
            )
        is_figure = bool(shown) or ("figure" in tags(cell) and cell.outputs)
        caption = captions.caption_after(lesson.cells, index)
        if is_figure and not caption:
            yield Problem(
                "caption",
                "shows a figure, so the next cell must begin with one line in italics that says what to see.",
                index,
            )
        for output, kind in shown:
            alt = output.get("metadata", {}).get(kind, {}).get("alt")
            if caption and alt != caption:
                yield Problem(
                    "alt", "its picture has no alternative text equal to the caption: run `refresh`.", index
                )


def pictures_have_a_digest(lesson: LessonFile) -> Iterator[Problem]:
    """nbval compares no pixels: a printed, rounded digest of the plotted data stands in for them."""
    for index, cell in lesson.code:
        raster = any(kind != "image/svg+xml" for _, kind in captions.pictures(cell))
        printed = any(kind == "stdout" and text.strip() for kind, text in output_texts(cell))
        if raster and not printed and "nbval-ignore-output" not in tags(cell):
            yield Problem(
                "digest",
                "draws a picture and prints no digest of its data, so nothing of it is compared.",
                index,
            )


def html_is_spoken(lesson: LessonFile) -> Iterator[Problem]:
    """Pictures made of HTML or SVG carry their own words: a title, an aria-label, an alt, a caption."""
    for index, cell in lesson.code:
        for kind, text in output_texts(cell):
            if kind not in ("text/html", "image/svg+xml"):
                continue
            for attributes, body in _SVG.findall(text):
                if not _svg_is_spoken(attributes, body):
                    yield Problem("alt", 'an <svg> needs role="img" and an aria-label (or a <title>).', index)
            for attributes in _IMG.findall(text):
                if not re.search(r"""\balt\s*=\s*["']\s*[^"'\s]""", attributes):
                    yield Problem("alt", "an <img> needs an alt.", index)
            silent = not _SVG.search(text) and not _IMG.search(text) and not _SPOKEN_HTML.search(text)
            if kind == "text/html" and "figure" in tags(cell) and silent:
                yield Problem(
                    "alt",
                    'a figure of HTML needs role="img" and an aria-label, or a table\'s <caption>.',
                    index,
                )
    for index, cell in lesson.markdown:
        for _, line in prose_lines(cell.source):
            if any(not alt.strip() for alt in _MARKDOWN_IMAGE.findall(line)):
                yield Problem(
                    "alt", "a picture in the text needs words in its brackets: ![what to see](…).", index
                )
            if any(not re.search(r"""\balt\s*=\s*["']\s*[^"'\s]""", tag) for tag in _IMG.findall(line)):
                yield Problem("alt", "an <img> needs an alt.", index)


def _svg_is_spoken(attributes: str, body: str) -> bool:
    if re.search(r"""aria-hidden\s*=\s*["']true["']""", attributes):
        return True
    labelled = re.search(r"""aria-label(?:ledby)?\s*=\s*["']\s*[^"'\s]""", attributes)
    titled = re.search(r"<title\b[^>]*>\s*[^<\s]", body)
    return bool(re.search(r"""role\s*=\s*["']img["']""", attributes) and (labelled or titled))


RULES = (pictures_have_captions, pictures_have_a_digest, html_is_spoken)
