"""What a model wrote, set for reading: Bangla and English alike, shaped by the browser.

written([("Bangla", "একদিন", sample(model, "একদিন")), ("English", "One day", sample(model, "One day"))])
"""

from collections.abc import Iterable
from html import escape
from typing import Any

from course_lib.classroom.svg import FAINT, FONT, INK, PAPER, Picture
from course_lib.text import normalize_bangla
from course_lib.text.script import script_language

_CELL = "text-align:left;vertical-align:top;padding:8px 12px;border:0"


def written(samples: Iterable[Any], *, title: str = "What the model wrote") -> Picture:
    """A table of what a model made of each prompt: the prompt in bold and underlined, then how the model went on.

    ``samples``: one ``(label, prompt, continuation)`` for each row, all text. A continuation that begins with its
    prompt, as ``sample(model, prompt)`` gives it, is understood: the prompt is not said twice. ``title`` stands above.
    Everything is escaped; the reader without pictures gets the same as lines of text.

    Raises TypeError for a sample that is not three texts, ValueError for none at all.
    """
    rows = [_checked(i, sample) for i, sample in enumerate(samples)]
    if not rows:
        raise ValueError("samples: expected at least one (label, prompt, continuation), got none.")
    body = "".join(
        f'<tr style="background:none;border-top:1px solid {FAINT}">'
        f'<th scope="row" style="{_CELL};width:1%;white-space:nowrap;font-weight:normal;opacity:.75">'
        f"{escape(label)}</th>"
        f'<td lang="{_lang(prompt + rest)}" style="{_CELL};white-space:pre-wrap;overflow-wrap:anywhere">'
        f"{_prompt(prompt)}{escape(rest)}</td></tr>"
        for label, prompt, rest in rows
    )
    html = (
        f'<table style="background:{PAPER};color:{INK};border:1px solid {FAINT};border-collapse:collapse;'
        f'table-layout:auto;width:100%;max-width:640px;font:15px/1.6 {FONT}">'
        # A caption lies outside of the table's box, so it needs the paper of its own.
        f'<caption style="text-align:left;color:{INK};background:{PAPER};padding:6px 12px">{escape(title)}</caption>'
        f"<tbody>{body}</tbody></table>"
    )
    lines = [f"{label}: {prompt}{rest}" for label, prompt, rest in rows]
    return Picture(html, "\n".join([title, *lines]))


def _checked(i: int, sample: Any) -> tuple[str, str, str]:
    """The sample as (label, prompt, what came after it)."""
    if isinstance(sample, str) or not isinstance(sample, (tuple, list)) or len(sample) != 3:
        raise TypeError(f"samples[{i}]: expected (label, prompt, continuation), got {type(sample).__name__}.")
    for name, part in zip(("label", "prompt", "continuation"), sample, strict=True):
        if not isinstance(part, str):
            raise TypeError(f"samples[{i}]: expected the {name} as text, got {type(part).__name__}.")
    label, prompt, rest = sample
    # sample() normalises its prompt and leaves the spaces at its end to the model.
    said = normalize_bangla(prompt).rstrip(" ")
    if said and rest.startswith(said):
        return label, said, rest.removeprefix(said)
    return label, prompt, rest


def _prompt(prompt: str) -> str:
    if not prompt:
        return ""
    return f'<b style="text-decoration:underline;text-underline-offset:4px">{escape(prompt)}</b>'


def _lang(text: str) -> str:
    return "bn" if script_language(text) in ("bn", "mixed") else "en"
