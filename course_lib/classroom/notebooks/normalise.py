"""Bring an executed notebook into the one form in which it may enter git.

What differs between two runs or two machines goes (timings, versions, widget models, process ids, absolute
paths in tracebacks); what a reader or a check needs comes in (kernelspec, cell ids, alternative texts).
Doing it twice changes nothing, and two runs with equal outputs give equal bytes.
"""

import base64
import hashlib
import re
import zlib
from copy import deepcopy
from typing import Any, cast

import nbformat
from nbformat import NotebookNode

from course_lib.classroom.notebooks import captions

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "pygments_lexer": "ipython3",
}
CELL_METADATA = ("exercise", "jupyter", "tags")

_PROGRESS_BAR = re.compile(r"\d+%\|.*?\|.*|\d+it \[\d\d:\d\d.*")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# What a PNG needs in order to be drawn as it was meant; the rest is text, dates and the writer's version.
_PNG_CHUNKS = frozenset(
    {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT"}
)


def normalise(notebook: NotebookNode) -> NotebookNode:
    """A copy of an executed notebook in its canonical form."""
    notebook = deepcopy(notebook)
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    notebook["metadata"] = _node({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})
    _number_cells(notebook.cells)
    for index, cell in enumerate(notebook.cells):
        cell["metadata"] = _cell_metadata(cell)
        if cell.cell_type == "code":
            cell["outputs"] = [out for out in map(_output, cell.get("outputs", [])) if out is not None]
            for output, kind in captions.pictures(cell):
                _describe(output, kind, captions.caption_after(notebook.cells, index))
        elif cell.cell_type == "markdown" and not cell.get("attachments"):
            cell.pop("attachments", None)
    return notebook


def to_text(notebook: NotebookNode) -> str:
    """The file's content: one space of indentation, Bangla readable, a newline at the end."""
    return nbformat.writes(notebook, indent=1, ensure_ascii=False).rstrip("\n") + "\n"


def strip_png(png: bytes) -> bytes:
    """A PNG without its text, date and version chunks: the same pixels. Anything else comes back
    unchanged."""
    if not png.startswith(_PNG_SIGNATURE):
        return png
    kept, position = [_PNG_SIGNATURE], len(_PNG_SIGNATURE)
    while position + 12 <= len(png):
        length = int.from_bytes(png[position : position + 4], "big")
        chunk = png[position : position + 12 + length]
        body, checksum = chunk[4:-4], int.from_bytes(chunk[-4:], "big")
        if len(chunk) < 12 + length or zlib.crc32(body) != checksum:
            return png
        if chunk[4:8] in _PNG_CHUNKS:
            kept.append(chunk)
        position += 12 + length
    return b"".join(kept) if position == len(png) else png


def is_progress_bar(output: NotebookNode) -> bool:
    """Whether an output is what `tqdm.auto` leaves behind: a bar that stands at what it first showed."""
    data = output.get("data", {})
    return bool(set(data) <= {"text/plain", WIDGET_VIEW} and _PROGRESS_BAR.search(data.get("text/plain", "")))


def _number_cells(cells: list[NotebookNode]) -> None:
    """Keep the ids there are; give the cells without one an id that depends on nothing but their text."""
    taken: set[str] = set()
    for cell in cells:
        wanted = cell.get("id")
        if not (isinstance(wanted, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wanted)) or wanted in taken:
            digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()
            wanted = next(
                c for i in range(len(cells) + 1) if (c := f"{digest[:8]}{f'-{i}' if i else ''}") not in taken
            )
        cell["id"] = wanted
        taken.add(wanted)


def _cell_metadata(cell: NotebookNode) -> NotebookNode:
    kept = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key)}
    return _node(kept)


def _output(output: NotebookNode) -> NotebookNode | None:
    if output.output_type == "stream" and output.name == "stderr":
        return _without_progress_bars(output)
    if output.output_type == "error":
        # The frames of a traceback name files of the machine that ran it; the message is what is taught.
        message = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
        output["traceback"] = [message]
    if "data" in output:
        # The view points at a model in a kernel that is gone; the static picture beside it is what can be
        # stored.
        if is_progress_bar(output):
            return None
        output.data.pop(WIDGET_VIEW, None)
        if not output.data:
            return None
        if "image/png" in output.data:
            output.data["image/png"] = _png_text(output.data["image/png"])
        output["metadata"] = _output_metadata(output)
    return output


def _without_progress_bars(output: NotebookNode) -> NotebookNode | None:
    """Progress goes to stderr and is of no use afterwards; any other line there is a warning, and stays."""
    lines = [part for line in output.text.split("\n") for part in line.split("\r")]
    kept = [line for line in lines if line.strip() and not _PROGRESS_BAR.search(line)]
    if not kept:
        return None
    output["text"] = "\n".join(kept) + "\n"
    return output


def _png_text(text: str | list[str]) -> str:
    """The base64 of the stripped picture on one line, as the kernel's own varies in its line breaks."""
    joined = text if isinstance(text, str) else "".join(text)
    try:
        png = base64.b64decode(joined)
    except ValueError:
        return joined
    return base64.b64encode(strip_png(png)).decode("ascii")


def _output_metadata(output: NotebookNode) -> NotebookNode:
    """Only what changes how the picture is shown: its size and its background."""
    kept = {
        kind: {key: value for key, value in details.items() if key in ("width", "height", "needs_background")}
        for kind, details in output.get("metadata", {}).items()
        if kind in output.data and isinstance(details, dict)
    }
    return _node({kind: details for kind, details in kept.items() if details})


def _node(content: dict[str, Any]) -> NotebookNode:
    return cast(NotebookNode, nbformat.from_dict(content))


def _describe(output: NotebookNode, kind: str, caption: str | None) -> None:
    if caption:
        output.metadata.setdefault(kind, _node({}))["alt"] = caption
