"""A lesson as one HTML file that is read without a network.

nbconvert's own page asks three content networks for scripts and gives pictures no words. This one asks
nobody: formulas become MathML (which browsers draw themselves), widgets are the static pictures they leave,
pictures carry their captions as alternative text, and links between lessons lead to the other pages.
"""

import html
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

import latex2mathml.converter
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

# Families that have Bangla, on Linux, Windows, macOS and Android, behind the reader's own Latin ones.
_BANGLA = '"Noto Sans Bengali", "Nirmala UI", "Kohinoor Bangla", "Bangla Sangam MN", Vrinda, "Lohit Bengali"'

STYLE = f"""
:root {{
  color-scheme: light;
  --jp-content-font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", {_BANGLA}, sans-serif;
  --jp-code-font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", {_BANGLA}, monospace;
}}
body {{ font-family: var(--jp-content-font-family); color: #1a1a1a; background: #fff; }}
main, nav.course, .stopped {{ max-width: 62rem; margin-inline: auto; }}
nav.course {{ display: flex; justify-content: space-between; gap: 1rem; padding: 1rem; }}
.stopped {{ border-left: .4rem solid #b00020; background: #fdecee; padding: .8rem 1rem; }}
img, svg {{ max-width: 100%; height: auto; }}
table.lessons {{ border-collapse: collapse; margin: 1rem; }}
table.lessons th, table.lessons td {{
  border-bottom: 1px solid #ccc; padding: .5rem .8rem; text-align: left;
}}
table.lessons td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
"""

_TEMPLATE = """
{%- extends 'index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block html_head_css -%}<style>{{ resources.course.style }}</style>{%- endblock -%}
{%- block body_header -%}
<body class="jp-Notebook" data-jp-theme-light="true" data-jp-theme-name="JupyterLab Light">
{{ resources.course.navigation }}
{%- if resources.course.stopped %}
<p class="stopped" role="alert">{{ resources.course.stopped | e }}</p>
{%- endif %}
<main>
{%- endblock -%}
{%- block data_png scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/png;base64,{{ output.data['image/png'] | replace('\\n', '') }}"
 alt="{{ output.metadata.get('image/png', {}).get('alt', '') | e }}">
</div>
{%- endblock -%}
{%- block data_jpg scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/jpeg;base64,{{ output.data['image/jpeg'] | replace('\\n', '') }}"
 alt="{{ output.metadata.get('image/jpeg', {}).get('alt', '') | e }}">
</div>
{%- endblock -%}
{%- block data_svg scoped -%}
<div class="jp-RenderedSVG jp-OutputArea-output">
<img src="data:image/svg+xml;base64,{{ output.data['image/svg+xml'] | text_base64 }}"
 alt="{{ output.metadata.get('image/svg+xml', {}).get('alt', '') | e }}">
</div>
{%- endblock -%}
"""


class LessonPage(HTMLExporter):
    """Turns an executed, normalised notebook at `source` into the page `pages[source]`.

    pages: for each notebook the file it becomes; links to these notebooks lead to those files.
    """

    def __init__(self, source: Path, pages: dict[Path, Path]) -> None:
        super().__init__(template_name="lab", raw_template=_TEMPLATE, embed_images=True)
        self.source, self.pages = source, pages

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        attachments = context.get("cell", {}).get("attachments", {})
        renderer = _Renderer(self.source, self.pages, attachments)
        return MarkdownWithMath(renderer=renderer).render(source)

    def render(self, notebook: NotebookNode, *, title: str, navigation: str, stopped: str = "") -> str:
        """The page's text. navigation: HTML above and below the lesson; stopped: why it has no end."""
        course = {"style": Markup(STYLE), "navigation": Markup(navigation), "stopped": stopped}
        resources = {"metadata": {"name": title, "path": str(self.source.parent)}, "course": course}
        return self.from_notebook_node(notebook, resources)[0]


class _Renderer(IPythonRenderer):
    """Markdown of a lesson: MathML for formulas, pages for notebooks, words for pictures that lie
    elsewhere."""

    def __init__(self, source: Path, pages: dict[Path, Path], attachments: dict[str, dict[str, str]]) -> None:
        super().__init__(
            escape=False,
            attachments=attachments,
            embed_images=True,
            path=str(source.parent),
        )
        self.source, self.pages = source, pages

    def heading(self, text: str, level: int, **attributes: object) -> str:
        # nbconvert quotes some characters of the id that a link to it leaves alone ("?"), and the link is lost.
        anchor = html.escape(html.unescape(re.sub(r"<[^>]*>", "", text)).strip().replace(" ", "-"))
        return f'<h{level} id="{anchor}">{text}</h{level}>\n'

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return _mathml(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        return _mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")

    def inline_html(self, html: str) -> str:
        # nbconvert parses each tag by itself to embed pictures, and closes a <sup> before its word comes.
        return super().inline_html(html) if "<img" in html else html

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return super().link(text, self._lead_from_page(url), title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        if url.startswith(("http:", "https:")):  # the Colab badge: its words do without a network
            return text
        return super().image(text, url, title)

    def _lead_from_page(self, url: str) -> str:
        """The address seen from the page of what `url` means seen from the notebook."""
        name, mark, anchor = url.partition("#")
        if not name or ":" in name.partition("/")[0]:
            return url
        target = (self.source.parent / unquote(name)).resolve()
        target = self.pages.get(target, target)
        return quote(Path(os.path.relpath(target, self.pages[self.source].parent)).as_posix()) + mark + anchor


def _mathml(formula: str, display: str) -> str:
    """A formula as MathML, or as it was written where latex2mathml cannot read all of it."""
    # It knows alignment by another name, and takes an escape inside \text literally.
    known = formula.strip().replace("{aligned}", "{split}")
    known = re.sub(r"\\text\{[^{}]*\}", lambda match: re.sub(r"\\([_%&#$])", r"\1", match[0]), known)
    try:
        drawn = latex2mathml.converter.convert(known, display=display)
    except Exception:  # it has no base class for what it raises
        drawn = ""
    if not drawn or re.search(
        r"<mi>(?:\\|&<)", drawn
    ):  # a command it does not know, an alignment it left over
        return f"<code>{html.escape(formula.strip())}</code>"
    return drawn
